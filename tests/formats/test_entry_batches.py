"""Entries encoded and verified in batches: the bytes and the errors of one at a time."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bkstore import CorruptionError, InvalidArgument, LedgerId
from bkstore.formats.entry import Coder, Entry, RecordBatch, encode

DIGESTS = ["CRC32", "HMAC", "CRC32C", "DUMMY"]
LEDGERS = [LedgerId(0, 7), LedgerId(0, 2**63 - 1), LedgerId(2**64 - 1, 2**64 - 2)]

every_digest = pytest.mark.parametrize("digest", DIGESTS)
every_ledger = pytest.mark.parametrize("ledger", LEDGERS, ids=["plain", "highest", "scoped"])


def one_by_one(
    coder: Coder, ledger: LedgerId, entries: list[int], payloads: list[bytes], lac: int, length: int
) -> list[bytes]:
    """Return the records as single calls make them, LAC and length counted by hand."""
    records = []
    for entry, payload in zip(entries, payloads, strict=True):
        length += len(payload)
        records.append(coder.encode(Entry(ledger, entry, lac, length, payload)))
        lac = max(lac, entry)
    return records


def batch_of(records: list[bytes], entries: list[int]) -> RecordBatch:
    """Return records as a batch with other bytes between them."""
    buffer, offsets = b"", []
    for record in records:
        buffer += b"\xff\xff"
        offsets.append(len(buffer))
        buffer += record
    sizes = np.array([len(record) for record in records], np.int64)
    return RecordBatch(np.array(entries, np.int64), buffer, np.array(offsets, np.int64), sizes)


@every_digest
@every_ledger
@given(data=st.data())
def test_bytes_are_those_of_single_calls(digest: str, ledger: LedgerId, data: Any) -> None:
    """Any ids in any order, payloads of any sizes, any LAC and length before them."""
    payloads = data.draw(st.lists(st.binary(max_size=70), max_size=40))
    ids = st.integers(0, 2**63 - 2)
    entries = data.draw(st.lists(ids, min_size=len(payloads), max_size=len(payloads)))
    lac, length = data.draw(st.integers(-1, 2**63 - 2)), data.draw(st.integers(0, 2**40))
    coder = Coder(digest, "secret")

    batch = coder.encode_batch(ledger, entries, payloads, lac=lac, length=length)

    expected = one_by_one(coder, ledger, entries, payloads, lac, length)
    assert expected == batch.records()
    assert expected == coder.encode_many(ledger, entries, payloads, lac=lac, length=length)
    assert entries == batch.entries.tolist()


@every_digest
@every_ledger
def test_many_records_of_one_size(digest: str, ledger: LedgerId) -> None:
    """Thousands, in several steps: a list, rows of an array and a buffer give the same bytes."""
    count, size = 9001, 33
    made = random.Random(4)
    payloads = [made.randbytes(size) for _ in range(count)]
    coder = Coder(digest, "secret")
    rows = np.frombuffer(b"".join(payloads), np.uint8).reshape(count, size)
    spread = batch_of(payloads, list(range(count)))

    records = one_by_one(coder, ledger, list(range(count)), payloads, -1, 0)
    expected = b"".join(len(record).to_bytes(4, "big") + record for record in records)
    for given_as in (
        payloads,
        rows,
        np.asfortranarray(rows),
        spread,
        list(map(bytearray, payloads)),
    ):
        batch = coder.encode_batch(ledger, np.arange(count), given_as)

        assert expected == bytes(batch.buffer)


@pytest.mark.parametrize("sizes", [[0] * 20, [0, 5] * 10, [5] * 4096 + [6], [7]], ids=str)
def test_sizes_at_the_edges(sizes: list[int]) -> None:
    """Empty payloads, mixed ones, and a change of size where a step ends."""
    payloads = [bytes(range(size)) for size in sizes]
    coder, entries = Coder("CRC32C", "pw"), list(range(len(sizes)))

    batch = coder.encode_batch(5, entries, payloads)

    assert one_by_one(coder, LedgerId(0, 5), entries, payloads, -1, 0) == batch.records()


def test_nothing() -> None:
    """No entries make an empty batch, which says nothing and fails nowhere."""
    coder = Coder("CRC32", "pw")

    batch = coder.encode_batch(5, [], [])
    found = coder.decode_batch(batch)

    assert (0, [], {}) == (len(batch), batch.records(), found.failed)


def test_known_bytes() -> None:
    """The worked example of the page: ledger 1, entry 0, LAC -1, CRC32C, "hello"."""
    batch = Coder("CRC32C", "testPasswd").encode_batch(1, [0], [b"hello"])

    assert "e3a5f74d68656c6c6f" == bytes(batch[0]).hex()[64:]


@pytest.mark.parametrize(
    ("entries", "payloads", "more"),
    [
        ([0, 1], [b"a"], {}),
        ([0], [b"a", b"b"], {}),
        ([-1], [b"a"], {}),
        ([2**63 - 1], [b"a"], {}),
        ([0], ["text"], {}),
        ([0], [3], {}),
        ([0], np.zeros((1, 3)), {}),
        ([0], np.zeros(3, np.uint8), {}),
        ([0], [b"a"], {"lac": -2}),
        ([0], [b"a"], {"lac": 2**63 - 1}),
        ([0], [b"a"], {"length": -1}),
        ([0], [b"a"], {"length": 2**63 - 1}),
    ],
    ids=str,
)
def test_refusals(entries: list[int], payloads: Any, more: dict[str, int]) -> None:
    """Ids, numbers and payloads that are none, and counts that differ, are `InvalidArgument`."""
    with pytest.raises(InvalidArgument):
        Coder("CRC32C").encode_batch(7, entries, payloads, **more)


@every_digest
@every_ledger
def test_what_was_encoded_verifies(digest: str, ledger: LedgerId) -> None:
    """A batch says entries, LACs, lengths and payloads again, other bytes between them or not."""
    made = random.Random(9)
    payloads = [made.randbytes(made.randrange(50)) for _ in range(300)]
    coder, entries = Coder(digest, "secret"), list(range(1000, 1300))
    batch = coder.encode_batch(ledger, entries, payloads, lac=999, length=77)

    for each in (batch, batch_of(batch.records(), entries)):
        found = coder.decode_batch(each, ledger)

        assert {} == found.failed
        assert entries == found.entries.tolist()
        assert list(range(999, 1299)) == found.lacs.tolist()
        assert (77 + np.cumsum([len(p) for p in payloads])).tolist() == found.lengths.tolist()
        assert payloads == [found.payload(at) for at in range(300)]


def _error_of(coder: Coder, record: bytes, ledger: LedgerId | None, entry: int) -> str | None:
    try:
        coder.decode(record, ledger, entry)
    except CorruptionError as error:
        return str(error)
    return None


@every_digest
@every_ledger
def test_each_failure_is_named(digest: str, ledger: LedgerId) -> None:
    """Any byte flipped, any length cut: the error is that of `decode`, the others still verify."""
    coder = Coder(digest, "secret")
    whole = coder.encode(Entry(ledger, 5, 4, 50, b"payload"))
    flipped = [
        whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :]
        for at in range(len(whole))
        for bit in (1, 0x80)
    ]
    records = [whole, *flipped, *(whole[:size] for size in range(len(whole))), whole]

    found = coder.decode_batch(batch_of(records, [5] * len(records)), ledger)

    errors = {at: _error_of(coder, record, ledger, 5) for at, record in enumerate(records)}
    assert {at: why for at, why in errors.items() if why} == {
        at: str(error) for at, error in found.failed.items()
    }
    assert {0, len(records) - 1}.isdisjoint(found.failed)
    assert list(found.failed) == sorted(found.failed)


def test_strangers_in_a_batch() -> None:
    """Records of another ledger, another entry, another version or digest fail by themselves."""
    coder, scoped = Coder("CRC32C", "pw"), LedgerId(9, 7)
    records = [
        encode(Entry(7, 0, -1, 1, b"a"), "CRC32C"),
        encode(Entry(8, 1, -1, 1, b"a"), "CRC32C"),
        encode(Entry(7, 3, -1, 1, b"a"), "CRC32C"),
        encode(Entry(scoped, 3, -1, 1, b"a"), "CRC32C"),
        encode(Entry(scoped, 4, -1, 1, b"a"), "CRC32"),
        encode(Entry(7, 5, -1, 1, b"a"), "CRC32C"),
    ]
    batch = batch_of(records, [0, 1, 2, 3, 4, 5])

    assert [1, 2, 3, 4] == list(coder.decode_batch(batch, 7).failed)
    assert [2, 4] == list(coder.decode_batch(batch).failed)
    assert [0, 1, 2, 4, 5] == list(coder.decode_batch(batch, scoped).failed)
    with pytest.raises(CorruptionError, match="entry of ledger 8, not 7"):
        coder.decode_batch(batch, 7).payload(1)


@every_digest
def test_a_record_cut_where_the_buffer_ends(digest: str) -> None:
    """A record that ends inside its digest, with nothing behind it, is named; nothing else is."""
    coder = Coder(digest, "pw")
    whole = coder.encode(Entry(7, 0, -1, 0, b""))
    for size in range(len(whole)):
        found = coder.decode_batch(batch_of([whole, whole[:size]], [0, 0]))

        assert [1] == list(found.failed)


def test_version_2_of_scope_0_is_no_record() -> None:
    """Scope 0 has version 1: a record that says otherwise fails, though its digest is right."""
    coder = Coder("CRC32C", "pw")
    header = bytes([0xA3]) + bytes(8) + (7).to_bytes(8, "big") + bytes(24)
    record = header + coder.digest.compute(header, b"x") + b"x"

    found = coder.decode_batch(batch_of([record], [0]))

    assert "version 2 record of scope 0" in found.failed[0].reason
