"""Data blocks as arrays, against blocks built one entry at a time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.table.rows import (
    PADDING_BYTES,
    VersionedRows,
    decode_rows,
)
from tests.formats.rocksdb.table.block_building import block, internal_key

Row = tuple[bytes, int, int, int]  # key, sequence, type, value

ALL_ONES = b"\xff" * PADDING_BYTES


def decode(blocks: Sequence[bytes], words: int) -> tuple[VersionedRows, list[int]]:
    """Return what `decode_rows` gives for blocks, among bytes that do not belong to them."""
    starts, data = [], ALL_ONES
    for contents in blocks:
        starts.append(len(data))
        data += contents
    ends = np.array([start + len(contents) for start, contents in zip(starts, blocks)])
    buffer = np.frombuffer(data + ALL_ONES, np.uint8)
    rows, rows_of_block = decode_rows(buffer, np.array(starts), ends, words)
    return rows, rows_of_block.tolist()


def as_tuples(rows: VersionedRows) -> list[Row]:
    """Return rows as tuples."""
    columns = (rows.sequences.tolist(), rows.types.tolist(), rows.values.tolist())
    return [(rows.key_at(row), *line) for row, line in enumerate(zip(*columns))]


def entries(rows: Sequence[Row]) -> list[tuple[bytes, bytes]]:
    """Return rows as the entries of a block."""
    return [
        (
            internal_key(key, sequence, code),
            value.to_bytes(8, "big", signed=True) if code == 1 else b"",
        )
        for key, sequence, code, value in rows
    ]


@st.composite
def sorted_rows(draw: st.DrawFn, words: int) -> list[Row]:
    """Draw rows in order: near and far keys, versions of one key, values and both deletions."""
    width = 8 * words
    near = st.integers(0, 70_000).map(lambda number: number.to_bytes(width, "big"))
    keys = draw(st.lists(near | st.binary(min_size=width, max_size=width), max_size=60))
    sequences = st.integers(0, 300) | st.integers(0, 2**56 - 1)
    versions = {(key, draw(sequences)) for key in keys for _ in range(draw(st.integers(1, 3)))}
    rows = []
    for key, sequence in sorted(versions, key=lambda version: (version[0], -version[1])):
        code = draw(st.sampled_from([1, 1, 1, 0, 7]))
        value = draw(st.integers(-(2**63), 2**63 - 1)) if code == 1 else 0
        rows.append((key, sequence, code, value))
    return rows


@given(st.data())
def test_rows_come_back(data: st.DataObject) -> None:
    """Whatever the widths, the restart interval, and how the rows are cut into blocks."""
    words = data.draw(st.sampled_from([1, 2, 3]))
    rows = data.draw(sorted_rows(words))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    interval = data.draw(st.sampled_from([1, 2, 3, 16, 200]))
    buckets = data.draw(st.sampled_from([None, 1, 7]))
    parts = [rows[start:end] for start, end in zip([0, *cuts], [*cuts, len(rows)])]
    decoded, rows_of_block = decode(
        [block(entries(part), interval, buckets) for part in parts], words
    )

    assert rows == as_tuples(decoded)
    assert [len(part) for part in parts] == rows_of_block
    assert (words, len(rows)) == decoded.keys.shape


KEY = bytes(15) + b"\x05"
GOOD = block(entries([(KEY, 3, 1, 77)]))


def test_the_examples_row() -> None:
    """One row, byte by byte: lengths, key, trailer, value, restart point, number of them."""
    contents = bytes.fromhex(
        "00 18 08" + "00" * 15 + "05" + "01 03 00 00 00 00 00 00" + "00" * 7 + "4d"
        "00 00 00 00 01 00 00 00"
    )

    assert contents == GOOD
    assert [(KEY, 3, 1, 77)] == as_tuples(decode([contents], 2)[0])


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        (b"", "too short"),
        (GOOD[-4:], "too short"),
        (GOOD[:-4] + bytes(4), "no room for its restart"),
        (GOOD[:-4] + b"\x0f\0\0\0", "no room for its restart"),
        (GOOD[:-8] + b"\x01\0\0\0\x01\0\0\0", "out of order"),
        (GOOD[:-8] + bytes(8) + b"\x02\0\0\0", "out of order"),
        (GOOD[:-8] + bytes(4) + b"\xff\0\0\0\x02\0\0\0", "out of order"),
        (GOOD[:-8] + bytes(4) + b"\x09\0\0\0\x02\0\0\0", "runs past its restart|not 16 bytes"),
        (b"\x01\x17" + GOOD[2:], "no whole key"),
        (b"\x00\x19" + GOOD[2:], "its key has not 16 bytes"),
        (b"\x00\x98\x00" + GOOD[3:], "its key has not 16 bytes"),
        (b"\x00\x18\x07" + GOOD[3:], "its value has not 8 bytes|runs past"),
        (b"\x00\x18\x09" + GOOD[3:], "its value has not 8 bytes|runs past"),
        (block([(internal_key(KEY, 1), b"short")]), "its value has not 8 bytes"),
        (block([(internal_key(KEY, 1, 0), b"8 bytes.")]), "its value has not 8 bytes"),
        (block([(internal_key(KEY, 1), b"")]), "its value has not 8 bytes"),
        (
            block([(internal_key(KEY, 2, 0), b""), (internal_key(KEY, 1), b"")]),
            "its value has not 8 bytes",
        ),
        (block([(internal_key(KEY[1:], 1), bytes(8))]), "its key has not 16 bytes"),
        (block([(internal_key(KEY, 1, 99), bytes(8))]), "unknown type: 99"),
    ],
)
def test_malformed_blocks(contents: bytes, reason: str) -> None:
    """Each is refused, alone and between others."""
    for blocks in ([contents], [GOOD, contents], [contents, GOOD]):
        with pytest.raises(CorruptionError, match=reason):
            decode(blocks, 2)


@pytest.mark.parametrize("code", [2, 15, 17, 22])
def test_other_types_are_refused_by_name(code: int) -> None:
    """Merges, range deletes among rows, blob references and wide columns."""
    with pytest.raises(UnsupportedLayout, match=r"row of type [A-Z_]+ is not supported"):
        decode([block([(internal_key(KEY, 1, code), bytes(8))])], 2)


@pytest.mark.parametrize("bit", [28, 29, 30])
def test_later_features_are_refused(bit: int) -> None:
    """The reserved bits of the number of restart points."""
    packed = (1 << bit | 1).to_bytes(4, "little")
    with pytest.raises(UnsupportedLayout, match="features of a later RocksDB"):
        decode([GOOD, GOOD[:-4] + packed], 2)


@given(st.binary(max_size=100), st.integers(0, 10))
def test_any_bytes_decode_or_are_refused(data: bytes, restarts: int) -> None:
    """Arbitrary contents give rows or an error, never another exception or bytes outside."""
    contents = data + restarts.to_bytes(4, "little")
    with suppress(CorruptionError, UnsupportedLayout):
        decode([GOOD, contents, GOOD], 2)
