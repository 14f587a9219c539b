"""v3 messages: scopes and batch reads behind their switch, bodies, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from bkstore import LedgerId
from bkstore.errors import CorruptionError, IllegalOperation, InvalidArgument
from bkstore.wire import v3
from bkstore.wire.status_codes import Status
from bkstore.wire.v3 import OperationType
from bkstore.wire.v3_schema import EXTENDED, PLAIN

SCOPED = LedgerId(2**63 + 5, 2**64 - 7)


def _numbers(message: Any) -> dict[str, int]:
    return {field.name: field.number for field in message.DESCRIPTOR.fields}


def test_operations_are_the_schemas() -> None:
    """The operations have the names and numbers of the schema."""
    declared = PLAIN.Request().header.DESCRIPTOR.fields_by_name["operation"].enum_type.values

    assert {value.name: value.number for value in declared} == {
        o.name: o.value for o in OperationType
    }


def test_what_the_switch_adds() -> None:
    """`EXTENDED` has 50 in every message that has a ledger and 109 in both frames, no more."""
    for plain, wide in ((PLAIN.Request, EXTENDED.Request), (PLAIN.Response, EXTENDED.Response)):
        added = "batchReadRequest" if plain is PLAIN.Request else "batchReadResponse"

        assert _numbers(wide) == {**_numbers(plain), added: 109}

        for name in _numbers(plain):
            field = plain.DESCRIPTOR.fields_by_name[name].message_type
            other = wide.DESCRIPTOR.fields_by_name[name].message_type
            if field is not None:
                mine = {each.name: each.number for each in field.fields}
                scope = {"ledgerScopeId": 50} if "ledgerId" in mine else {}

                assert {each.name: each.number for each in other.fields} == {**mine, **scope}


def test_a_scope_over_the_wire() -> None:
    """A scope comes back where both sides are extended; a plain one keeps it, unknown."""
    request = v3.new_request(OperationType.READ_LAC, 1, {"ledgerId": SCOPED}, extended=True)
    data = v3.encode(request)

    assert SCOPED == v3.ledger_id_of(v3.body_of(v3.decode_request(data, extended=True)))

    plain = v3.decode_request(data)

    assert -7 == v3.body_of(plain).ledgerId
    assert data == v3.encode(plain)
    with pytest.raises(IllegalOperation, match="v3 has scopes only if it is extended"):
        v3.new_request(OperationType.READ_LAC, 1, {"ledgerId": SCOPED})
    with pytest.raises(InvalidArgument, match="the range of scope 0"):
        v3.ledger_id_of(v3.body_of(plain))


def test_scope_0_has_the_plain_bytes() -> None:
    """An extended side says of scope 0 what a plain one says, byte for byte."""
    fields = {"ledgerId": LedgerId(ledger=7), "entryId": 3}

    assert v3.encode(v3.new_request(OperationType.READ_ENTRY, 1, fields)) == v3.encode(
        v3.new_request(OperationType.READ_ENTRY, 1, fields, extended=True)
    )


def test_batch_reads_behind_the_switch() -> None:
    """Batch reads go over the wire between extended sides; a plain one has no message for them."""
    fields = {"ledgerId": SCOPED, "startEntryId": 3, "maxCount": 500, "maxSize": 5 << 20}
    request = v3.new_request(OperationType.BATCH_READ_ENTRY, 9, fields, extended=True)
    answer = {"ledgerId": SCOPED, "startEntryId": 3, "body": [b"one", b"", b"three"]}
    response = v3.new_response(request, Status.EOK, answer)
    came = v3.decode_response(v3.encode(response), extended=True)

    assert request == v3.decode_request(v3.encode(request), extended=True)
    assert [b"one", b"", b"three"] == list(v3.body_of(came).body)
    assert (9, Status.EOK) == (came.header.txnId, v3.status_in(came))

    plain = v3.decode_request(v3.encode(request))

    with pytest.raises(IllegalOperation, match="this v3 schema has no BATCH_READ_ENTRY"):
        v3.body_of(plain)
    with pytest.raises(IllegalOperation, match="this v3 schema has no BATCH_READ_ENTRY"):
        v3.new_request(OperationType.BATCH_READ_ENTRY, 9, fields)


def test_a_body_that_is_not_there() -> None:
    """A request without its message reads as defaults, and stays without it."""
    request = v3.new_request(OperationType.READ_ENTRY, 1)

    assert (0, 0) == (v3.body_of(request).ledgerId, v3.body_of(request).entryId)
    assert "0a06080310011801" == v3.encode(request).hex()


@pytest.mark.parametrize(
    "fields",
    [
        {"ledgerId": 2**63, "entryId": 0},
        {"ledgerId": 1, "entryId": "0"},
        {"ledgerId": 1, "entryId": 0, "entry": 0},
        {"ledgerId": 1, "entryId": 0, "masterKey": "key"},
        {"ledgerId": 1, "entryId": 0, "flag": 3},
        {"ledgerId": 1, "entryId": 0, "masterKey": [b"key"]},
    ],
    ids=[str(at) for at in range(6)],
)
def test_what_a_message_cannot_hold(fields: dict[str, Any]) -> None:
    """Fields that are not the message's, or values outside them, are bad arguments."""
    with pytest.raises(InvalidArgument, match="of ReadRequest"):
        v3.new_request(OperationType.READ_ENTRY, 1, fields)


def test_incomplete_messages() -> None:
    """A message without a required field is neither written nor read."""
    with pytest.raises(InvalidArgument, match="incomplete message"):
        v3.encode(v3.new_request(OperationType.READ_ENTRY, 1, {"ledgerId": 1}))
    with pytest.raises(CorruptionError, match=r"v3 request lacks readRequest\.entryId"):
        v3.decode_request(bytes.fromhex("0a06080310011801" + "a206020801"))
    with pytest.raises(CorruptionError, match="v3 response lacks status"):
        v3.decode_response(bytes.fromhex("0a06080310011801"))
    with pytest.raises(CorruptionError, match="not a v3 request: "):
        v3.decode_request(b"\x00")


def test_text_that_is_no_utf_8() -> None:
    """A plugin name of any bytes is read, as Java reads it."""
    request = v3.new_request(OperationType.AUTH, 1, {"authPluginName": b"\xff", "payload": b""})

    assert b"\xff" == v3.body_of(v3.decode_request(v3.encode(request))).authPluginName
