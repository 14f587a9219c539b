"""Digest types by trial: records of each type, with and without the password, damaged, striped."""

from __future__ import annotations

import pytest

from bkstore.formats.entry import Coder, DigestTrial, DigestTypes, Entry, find_digest_type
from bkstore.ids import LedgerId

PAYLOADS = [b"x" * (size % 7) for size in range(40)]
PASSWORD = b"secret"


def _records(digest_type: str, ledger: LedgerId | int = 7) -> list[bytes]:
    return Coder(digest_type, PASSWORD).encode_many(ledger, range(len(PAYLOADS)), PAYLOADS)


@pytest.mark.parametrize(
    ("digest_type", "is_verified"),
    [("CRC32", True), ("CRC32C", True), ("HMAC", False), ("DUMMY", False)],
)
def test_each_type(digest_type: str, is_verified: bool) -> None:
    """Checksums are verified; the sizes of records tell HMAC and DUMMY, also amid a ledger."""
    records = _records(digest_type)
    expected = DigestTrial(digest_type, is_verified)

    assert expected == find_digest_type(records)
    assert expected == find_digest_type(records[20:])  # entry 0 is not there
    assert expected == find_digest_type(records[:1])


def test_hmac_with_the_password() -> None:
    """With the right password HMAC is verified, with another it is told by the sizes."""
    assert DigestTrial("HMAC", True) == find_digest_type(_records("HMAC"), PASSWORD)
    assert DigestTrial("HMAC", False) == find_digest_type(_records("HMAC"), b"other")


@pytest.mark.parametrize("digest_type", ["CRC32", "CRC32C"])
def test_a_damaged_first_record(digest_type: str) -> None:
    """One record that verifies is enough: the others may be damaged."""
    records = _records(digest_type)
    damaged = [record[:-1] + b"?" for record in records[1:16]]

    assert DigestTrial(digest_type, True) == find_digest_type([*damaged, records[16]])


def test_only_some_records_are_tried() -> None:
    """The 17th record is not read: the type of a large batch costs no more than that of a few."""
    damaged = [record[:40] + b"?" for record in _records("CRC32")[2:18]]

    assert None is find_digest_type([*damaged, _records("CRC32")[18]])


@pytest.mark.parametrize("digest_type", ["HMAC", "DUMMY"])
def test_a_stripe_without_neighbours(digest_type: str) -> None:
    """Where no entry follows its predecessor, the length field does not tell the payload's size."""
    assert None is find_digest_type(_records(digest_type)[2::3])


def test_lengths_that_are_wrong() -> None:
    """A writer's wrong length field gives no type: no digest has such a size."""
    records = [Coder("DUMMY").encode(Entry(7, entry, -1, 1000, b"x" * 10)) for entry in range(3)]

    assert None is find_digest_type(records[:1])
    assert None is find_digest_type([])
    assert None is find_digest_type([b"short"])


def test_records_with_a_scope_carry_their_type() -> None:
    """The header of a record with a scope has the type, which the other rules need not find."""
    records = _records("HMAC", LedgerId(1, 7))[2::3]

    assert DigestTrial("HMAC", False) == find_digest_type(records)
    assert DigestTrial("HMAC", True) == find_digest_type(records, PASSWORD)


def test_an_impossible_type_of_a_scope_is_not_told() -> None:
    """A damaged first byte with a number that no type has is no type."""
    record = bytes([0xAF]) + _records("DUMMY", LedgerId(1, 7))[2][1:]

    assert None is find_digest_type([record])


def test_most_records_tell_the_size() -> None:
    """A record with a wrong length field among right ones changes nothing."""
    records = _records("HMAC")[:6]
    header = Coder("HMAC", PASSWORD).encode(Entry(7, 3, 2, 1000, PAYLOADS[3]))
    records[3] = header

    assert DigestTrial("HMAC", False) == find_digest_type(records)


def test_a_gap_tells_no_size() -> None:
    """After an entry that is not here, the length field counts payloads of others too: 20 bytes of
    them would look like an HMAC digest that is none."""
    records = Coder("HMAC", PASSWORD).encode_many(7, range(4), [b"", b"a", b"b" * 20, b"c"])

    assert None is find_digest_type([records[1], records[3]])


def test_a_type_that_later_records_tell() -> None:
    """A ledger whose first records tell no type is tried again, and is then known."""
    ledger, records, types = LedgerId(0, 7), _records("HMAC"), DigestTypes()

    assert [len(PAYLOADS[n]) + 20 for n in (2, 5)] == [
        len(payload) for payload in types.payloads(ledger, [records[2], records[5]])
    ]
    assert {ledger} == types.untold
    assert PAYLOADS[20:23] == types.payloads(ledger, records[20:23])
    assert set() == types.untold
    assert [PAYLOADS[2]] == types.payloads(ledger, [records[2]])
