"""The ledger metadata file: what it gives back, what it leaves open, what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from bkstore.errors import CorruptionError
from bkstore.formats.metadata.json_file import ClusterMetadata, decode_file, encode_file
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment
from tests.ledger_metadata.samples import CLOSED, ledger_ids, metadata, texts

_names = st.none() | st.frozensets(texts, max_size=3)


@settings(max_examples=40)
@given(
    st.lists(metadata(), max_size=3, unique_by=lambda each: each.ledger),
    _names,
    _names,
    st.none()
    | st.dictionaries(
        ledger_ids,
        st.builds(
            UnderreplicatedMark,
            st.none() | st.floats(0, 2**52),
            st.lists(texts, max_size=2).map(tuple),
        ),
        max_size=2,
    ),
)
def test_file_round_trip(
    ledgers: list[LedgerMetadata],
    registered: frozenset[str] | None,
    unavailable: frozenset[str] | None,
    marks: dict[LedgerId, UnderreplicatedMark] | None,
) -> None:
    """The file with passwords gives everything back; lists that are absent stay untold."""
    made = ClusterMetadata(tuple(ledgers), registered, unavailable, marks)

    assert made == decode_file(encode_file(made, passwords=True))


def test_file_without_passwords() -> None:
    """Passwords are written only when asked for; the digest type alone is no contradiction."""
    data = encode_file(ClusterMetadata((replace(CLOSED, password=b"hush"),)))
    (found,) = decode_file(data).ledgers

    assert b"hush".hex().encode() not in data
    assert replace(CLOSED, password=None) == found
    assert [] == found.problems()


def test_owners() -> None:
    """The owner of a ledger is written in words; on reading, the custom metadata count."""
    custom = {"application": b"pulsar", "component": b"managed-ledger"}
    custom["pulsar/managed-ledger"] = b"shop/orders/persistent/paid-partition-2"
    of_topic = replace(CLOSED, custom_metadata=custom)
    document = json.loads(encode_file(ClusterMetadata((of_topic,))))

    assert {
        "application": "pulsar",
        "component": "managed-ledger",
        "tenant": "shop",
        "namespace": "shop/orders",
        "topic": "persistent://shop/orders/paid-partition-2",
        "partition": 2,
        "managed_ledger": "shop/orders/persistent/paid-partition-2",
    } == document["ledgers"][0]["owner"]
    document["ledgers"][0]["owner"] = {"topic": 7}
    (found,) = decode_file(json.dumps(document).encode()).ledgers
    assert custom == found.custom_metadata
    unknown = replace(CLOSED, custom_metadata={"pulsar/cursor": b"\xff"})
    assert b'"owner"' not in encode_file(ClusterMetadata((unknown,)))


MINIMAL = {
    "ledgers": [
        {
            "ledger_id": 7,
            "ensemble_size": 1,
            "write_quorum_size": 1,
            "state": "OPEN",
            "last_entry_id": 99,
            "segments": [{"first_entry": 0, "ensemble": ["b1"]}],
        }
    ]
}


def test_least_file() -> None:
    """Scope 0, A = W and version 3 unless said; an open ledger's last entry does not count."""
    found = decode_file(b"\xef\xbb\xbf" + json.dumps(MINIMAL).encode())
    expected = LedgerMetadata(LedgerId.of(7), 1, 1, 1, (Segment(0, ("b1",)),))

    assert ClusterMetadata((expected,)) == found


def test_signed_ids_in_a_file() -> None:
    """Ids may be written as Java shows them, negative; they are taken modulo 2^64."""
    rows = [MINIMAL["ledgers"][0] | {"scope_id": -1, "ledger_id": -2}]
    (found,) = decode_file(json.dumps({"ledgers": rows}).encode()).ledgers

    assert LedgerId(2**64 - 1, 2**64 - 2) == found.ledger


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"ledger_id": "7"}, r"ledgers\[0\]\.ledger_id"),
        ({"ledger_id": 2**63}, r"ledgers\[0\]"),
        ({"ledger_id": True}, r"ledgers\[0\]\.ledger_id"),
        ({"ensemble_size": None}, r"ledgers\[0\]\.ensemble_size"),
        ({"ensemble_size": 1.5}, r"ledgers\[0\]\.ensemble_size"),
        ({"state": "SHUT"}, r"ledgers\[0\]: ledger state 'SHUT'"),
        ({"state": None}, r"ledgers\[0\]: ledger state None"),
        ({"state": "CLOSED", "last_entry_id": None}, r"ledgers\[0\]\.last_entry_id"),
        ({"segments": {}}, r"ledgers\[0\]\.segments"),
        ({"segments": [7]}, r"ledgers\[0\]\.segments\[0\]"),
        ({"segments": [{"first_entry": 0}]}, r"segments\[0\]\.ensemble"),
        ({"segments": [{"first_entry": 0, "ensemble": [1]}]}, r"segments\[0\]\.ensemble"),
        ({"segments": [{"ensemble": []}]}, r"segments\[0\]\.first_entry"),
        ({"digest_type": 3}, r"ledgers\[0\]\.digest_type"),
        ({"digest_type": "MD5"}, r"MD5"),
        ({"password_hex": "xy"}, r"password_hex"),
        ({"store_ctime": "yes"}, r"store_ctime"),
        ({"custom_metadata_hex": {"a": None}}, r"custom_metadata_hex\.a"),
        ({"custom_metadata_hex": [1]}, r"custom_metadata_hex"),
    ],
    ids=str,
)
def test_file_of_another_form(change: dict[str, Any], place: str) -> None:
    """A field that is none is refused, and its place in the document is named."""
    document = {"ledgers": [MINIMAL["ledgers"][0] | change]}
    with pytest.raises(CorruptionError, match=place):
        decode_file(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("[]", "the document is not a valid object"),
        ("{}", "ledgers is not a valid list"),
        ('{"ledgers": [7]}', r"ledgers\[0\] is not a valid object"),
        ('{"ledgers": [], "registered_bookies": "b1"}', "registered_bookies is not a valid list"),
        (
            '{"ledgers": [], "unavailable_bookies": [1]}',
            "unavailable_bookies is not a valid list of strings",
        ),
        ('{"ledgers": [], "underreplicated": [{}]}', r"underreplicated\[0\]\.ledger_id"),
        (
            '{"ledgers": [], "underreplicated": [{"ledger_id": 1, "marked_at": -1}]}',
            r"underreplicated\[0\]\.marked_at",
        ),
        ('{"ledgers": [], "ledgers": []}', "not JSON: key 'ledgers' appears twice"),
        ('{"ledgers": [], "underreplicated": [{"ledger_id": 1}, {"ledger_id": 1}]}', "twice"),
        ('{"ledgers": [' + "[" * 100_000, "not JSON: nested"),
        ('{"ledgers": ' + "9" * 10_000 + "}", "not JSON|not a valid list"),
    ],
    ids=range(12),
)
def test_documents_of_another_form(text: str, reason: str) -> None:
    """What is no such document is refused with the reason."""
    with pytest.raises(CorruptionError, match=reason):
        decode_file(text.encode())


def test_ledger_twice_in_a_file() -> None:
    """A ledger that is there twice is refused: one of the two would go unjudged."""
    with pytest.raises(CorruptionError, match="ledger 7 appears twice"):
        decode_file(json.dumps({"ledgers": MINIMAL["ledgers"] * 2}).encode())
