"""v2 messages: what can be said, what cannot, and what is refused when it comes."""

from __future__ import annotations

from typing import Any

import pytest

from bkstore import LedgerId
from bkstore.errors import CorruptionError, IllegalOperation, InvalidArgument
from bkstore.formats.entry import Entry, encode
from bkstore.wire import v2
from bkstore.wire.status_codes import Status

KEY = bytes(range(20))
RECORD = encode(Entry(4660, 3, 2, 40, b"hello"), "CRC32C", "testPasswd")
OTHER = encode(Entry(LedgerId(1, 2), 3, 2, 40, b"hello"), "DUMMY", "testPasswd")

MESSAGES: list[Any] = [
    v2.AddRequest(KEY, RECORD, v2.Flags.RECOVERY_ADD | v2.Flags.HIGH_PRIORITY),
    v2.AddRequest(KEY, RECORD, version=0),
    v2.ReadRequest(4660, -1, v2.Flags.DO_FENCING, KEY),
    v2.ReadRequest(-3, 2**63 - 1, v2.Flags.DO_FENCING, version=1),
    v2.BatchReadRequest(4660, 3, 2**63 - 1, -1, 5 << 20),
    v2.BatchReadRequest(4660, 3, 9, 500, 0, v2.Flags.DO_FENCING, KEY),
    v2.AuthRequest(b"sasl\xff", b"\x00token"),
    v2.AddResponse(Status.EREADONLY, 4660, 3),
    v2.ReadResponse(Status.EOK, 4660, 3, RECORD, version=1),
    v2.ReadResponse(Status.EUNKNOWNLEDGERSTATE, 4660, 3),
    v2.BatchReadResponse(Status.EOK, 4660, 3, 9, (RECORD, b"", RECORD)),
    v2.BatchReadResponse(Status.ENOENTRY, 4660, 3, 9),
    v2.AuthResponse(b"AuthDisabledPlugin", b"", version=0),
]


@pytest.mark.parametrize("message", MESSAGES, ids=[str(at) for at in range(len(MESSAGES))])
def test_both_ways(message: Any) -> None:
    """A message comes back equal, from bytes and from a view of them."""
    data = b"".join(message.parts())
    decode = v2.decode_request if "Request" in type(message).__name__ else v2.decode_response

    assert message == decode(data)
    assert type(message) is type(decode(memoryview(data)))
    assert message == decode(memoryview(data))


def test_ledgers_of_scope_0() -> None:
    """A `LedgerId` of scope 0 is its number; another scope cannot be said, in no message."""
    assert v2.ReadRequest(4660, 3).parts() == v2.ReadRequest(LedgerId(ledger=4660), 3).parts()

    other = LedgerId(1, 4660)
    for message in (
        v2.ReadRequest(other, 3),
        v2.BatchReadRequest(other, 3, 1, 1, 1),
        v2.ReadResponse(Status.EOK, other, 3),
        v2.AddResponse(Status.EOK, other, 3),
        v2.BatchReadResponse(Status.EOK, other, 3, 1),
    ):
        with pytest.raises(IllegalOperation, match="v2 protocol has no scopes"):
            message.parts()


def test_records_of_other_scopes() -> None:
    """An add of a version 2 record is not encoded; one that comes is decoded, and says so."""
    with pytest.raises(IllegalOperation, match="record of another scope"):
        v2.AddRequest(KEY, OTHER).parts()

    came = v2.decode_request(bytes.fromhex("02010000") + KEY + OTHER)

    assert isinstance(came, v2.AddRequest)
    assert came.has_scope
    assert not v2.AddRequest(KEY, RECORD).has_scope
    assert (4660, 3) == (v2.AddRequest(KEY, RECORD).ledger, v2.AddRequest(KEY, RECORD).entry)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (v2.AddRequest(KEY[1:], RECORD), "master key of 19 bytes"),
        (v2.AddRequest(KEY, RECORD[:15]), "record of 15 bytes has no ids"),
        (v2.ReadRequest(1, 2, v2.Flags.DO_FENCING), "has a master key if and only if it fences"),
        (v2.ReadRequest(1, 2, 0, KEY), "has a master key if and only if it fences"),
        (v2.ReadRequest(1, 2, 1, KEY, version=1), "has a master key if and only if it fences"),
        (v2.ReadRequest(1, 2, 1, KEY * 2), "master key of 40 bytes"),
        (v2.ReadRequest(2**63, 2), "in a v2 message"),
        (v2.ReadRequest(1, 2.0), "in a v2 message"),  # type: ignore[arg-type]
        (v2.BatchReadRequest(1, 2, 3, 2**31, 5), "in a v2 message"),
        (v2.ReadRequest(1, 2, 4, version=0), "version 0 cannot encode"),
        (v2.ReadRequest(1, 2, 2**16), "not a packet header"),
        (v2.ReadRequest(1, 2, version=256), "not a packet header"),
        (v2.AuthRequest("sasl", b""), "are bytes"),  # type: ignore[arg-type]
    ],
    ids=[str(at) for at in range(13)],
)
def test_what_cannot_be_said(message: Any, reason: str) -> None:
    """What a message has no bytes for is a bad argument, not other bytes."""
    with pytest.raises(InvalidArgument, match=reason):
        message.parts()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("0201", "offset 0: packet header of 4 bytes, but 2 are left"),
        ("02080000" + "00" * 40, "offset 0: opcode 8 has no layout"),
        ("00020000" + "00" * 40, "offset 0: opcode 131072 has no layout"),
        ("02020001" + "00" * 35, "offset 20: master key of 20 bytes, but 19 are left"),
        ("02070000" + "00" * 35, "offset 4: fields of a batch read of 36 bytes, but 35 are left"),
        ("02010000" + "00" * 35, "offset 24: ids of a record of 16 bytes, but 15 are left"),
    ],
)
def test_requests_refused(data: str, reason: str) -> None:
    """A request that ends too soon or has no layout is named with offset and reason."""
    with pytest.raises(CorruptionError, match=reason):
        v2.decode_request(bytes.fromhex(data))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("02040000" + "00" * 40, "offset 0: opcode 4 has no layout"),
        ("02010000" + "00" * 19, "offset 4: fields of an answer of 20 bytes, but 19 are left"),
        ("02020000" + "00000009" + "00" * 16, "offset 4: 9 is not a status code of v2"),
        ("02070000" + "00" * 28 + "0000", "offset 32: size of a record of 4 bytes, but 2 are left"),
        ("02070000" + "00" * 28 + "0000000201", "offset 32: record of 2 bytes, but 1 are left"),
        ("02070000" + "00" * 28 + "ffffffff01", "offset 32: record of -1 bytes, but 1 are left"),
        ("02070000" + "00" * 28 + "7fffffff", "offset 32: record of 2147483647 bytes, but 0"),
        ("02030000" + "0a0161", "offset 4: authentication message without name or payload"),
    ],
)
def test_responses_refused(data: str, reason: str) -> None:
    """A response that lies about its sizes is named with offset and reason."""
    with pytest.raises(CorruptionError, match=reason):
        v2.decode_response(bytes.fromhex(data))
