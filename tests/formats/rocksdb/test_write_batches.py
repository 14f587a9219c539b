"""Write batches, against those that the binding wrote and bytes put together by hand."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from rocksdict import Options, Rdict, WriteBatch

from bkstore import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.log.framing import BLOCK_BYTES, LogRecordReader
from bkstore.formats.rocksdb.log.write_batch import BatchRows, decode_batches, read_batch_header

Row = tuple[int, int, bytes, bytes]


def rows_of(columns: BatchRows) -> list[Row]:
    """Return (sequence, type, key, value) of each row."""
    count = columns.sequences.size
    return [
        (int(columns.sequences[row]), int(columns.kinds[row]), columns.key(row), columns.value(row))
        for row in range(count)
    ]


def batch(sequence: int, count: int, *operations: bytes) -> bytes:
    """Return a write batch by the comment at the top of `db/write_batch.cc`."""
    return struct.pack("<QI", sequence, count) + b"".join(operations)


def text(content: bytes) -> bytes:
    """Return a short text with its length."""
    return bytes([len(content)]) + content


PUT, DELETE, SINGLE, RANGE = b"\1", b"\0", b"\7", b"\x0f"


def test_every_operation_that_makes_a_row() -> None:
    """Types 0, 1, 7 and 15, and the same on column family 0: sequence numbers go up by one."""
    found = decode_batches(
        [
            batch(
                90,
                8,
                PUT + text(b"k") + text(b"v"),
                DELETE + text(b"k2"),
                b"\x03" + text(b"a note"),
                SINGLE + text(b"k3"),
                b"\x0d",
                RANGE + text(b"a") + text(b"z"),
                b"\x05\x00" + text(b"c") + text(b""),
                b"\x04\x00" + text(b"d"),
                b"\x08\x00" + text(b"e"),
                b"\x0e\x00" + text(b"f") + text(b"g"),
            ),
            batch(5, 1, PUT + text(b"older") + text(b"w")),
        ]
    )

    assert [
        (90, 1, b"k", b"v"),
        (91, 0, b"k2", b""),
        (92, 7, b"k3", b""),
        (93, 15, b"a", b"z"),
        (94, 1, b"c", b""),
        (95, 0, b"d", b""),
        (96, 7, b"e", b""),
        (97, 15, b"f", b"g"),
        (5, 1, b"older", b"w"),
    ] == rows_of(found)


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (b"\x02" + text(b"k") + text(b"v"), "merge"),
        (b"\x06\x00" + text(b"k") + text(b"v"), "merge"),
        (b"\x05\x03" + text(b"k") + text(b"v"), "column family 3"),
        (b"\x04\x03" + text(b"k"), "column family 3"),
        (b"\x09", "transaction"),
        (b"\x0b" + text(b"x"), "transaction"),
        (b"\x11" + text(b"k") + text(b"v"), "blob"),
        (b"\x14" + text(b"k"), "timestamp"),
        (b"\x16" + text(b"k") + text(b"v"), "wide columns"),
        (b"\x18" + text(b"k") + text(b"v"), "write time"),
    ],
)
def test_refused_by_name(operation: bytes, reason: str) -> None:
    """What a bookie does not write is named."""
    with pytest.raises(UnsupportedLayout, match=reason):
        decode_batches([batch(1, 1, operation)])


def test_every_cut() -> None:
    """A batch cut anywhere is refused: by the text that is cut, or by the count."""
    whole = batch(
        1,
        3,
        PUT + text(b"key") + text(b"value"),
        DELETE + text(b"k"),
        RANGE + text(b"a") + text(b"b"),
    )
    for size in range(len(whole)):
        with pytest.raises(CorruptionError) as caught:
            decode_batches([whole[:size]])
        assert (caught.value.offset or 0) <= size
    assert 3 == len(rows_of(decode_batches([whole])))


@pytest.mark.parametrize("count", [0, 2, 2**32 - 1])
def test_another_count(count: int) -> None:
    """The count is that of the rows."""
    with pytest.raises(CorruptionError, match=f"of 1 rows states {count}"):
        decode_batches([batch(1, count, PUT + text(b"k") + text(b"v"))])


@pytest.mark.parametrize("kind", [*range(26, 128), 255])
def test_unknown_types(kind: int) -> None:
    """Other types are damage, at their offset, counted over the batches."""
    with pytest.raises(CorruptionError, match=f"unknown type {kind}") as caught:
        decode_batches([batch(1, 0), batch(1, 1, bytes([kind]) + text(b"k"))])

    assert 24 == caught.value.offset


def test_header() -> None:
    """Twelve bytes; the sequence number is unsigned."""
    assert (2**64 - 1, 7) == read_batch_header(batch(2**64 - 1, 7))
    with pytest.raises(CorruptionError):
        read_batch_header(bytes(11))


def test_no_batches() -> None:
    """None, and one without rows, have no rows."""
    assert [] == rows_of(decode_batches([]))
    assert [] == rows_of(decode_batches([batch(7, 0)]))


@pytest.mark.parametrize("seed", range(4))
def test_runs_and_mixtures(seed: int) -> None:
    """Runs of one shape are decoded side by side, with the same rows as one after the other."""
    random = np.random.default_rng(seed)
    expected: list[Row] = []
    operations = []
    for _ in range(60):
        kind = int(random.choice([0, 1, 7, 15]))
        widths = random.choice([0, 1, 8, 16, 24, 127, 128, 300], 2)
        for _ in range(int(random.choice([1, 2, 7, 8, 9, 40]))):
            key, value = random.bytes(int(widths[0])), random.bytes(int(widths[1]))
            if kind in (0, 7):
                value = b""
            expected.append((9 + len(expected), kind, key, value))
            parts = (key, value) if kind in (1, 15) else (key,)
            lengths = [
                bytes([len(part)])
                if len(part) < 128
                else bytes([len(part) % 128 | 128, len(part) // 128])
                for part in parts
            ]
            operations.append(
                bytes([kind]) + b"".join(length + part for length, part in zip(lengths, parts))
            )

    assert expected == rows_of(decode_batches([batch(9, len(expected), *operations)]))


def test_batches_of_the_binding(tmp_path: Path) -> None:
    """Rows of a log of RocksDB are those that were written, with its sequence numbers."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    database = Rdict(str(tmp_path), options)
    random = np.random.default_rng(5)
    expected: list[Row] = []

    def add(kind: int, key: bytes, value: bytes = b"") -> None:
        expected.append((len(expected) + 1, kind, key, value))

    for count in (1, 300, 2, 5000):
        written = WriteBatch(raw_mode=True)
        for _ in range(count):
            key = random.bytes(16)
            if random.integers(9):
                value = random.bytes(8)
                written.put(key, value)
                add(1, key, value)
            else:
                written.delete(key)
                add(0, key)
        database.write(written)
        low, high = sorted((random.bytes(16), random.bytes(16)))
        database.delete_range(low, high)
        add(15, low, high)
    data = next(tmp_path.glob("*.log")).read_bytes()
    database.close()
    blocks = [data[start : start + BLOCK_BYTES] for start in range(0, len(data), BLOCK_BYTES)]
    reader = LogRecordReader(blocks, 4, lambda: True)

    assert expected == rows_of(decode_batches(payload for _, payload in reader))
