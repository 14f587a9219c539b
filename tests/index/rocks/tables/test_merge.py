"""Runs of rows merged, against a plain dictionary."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import example, given, strategies as st

from bkstore.formats.rocksdb.table.range_deletes import RangeDelete
from bkstore.formats.rocksdb.table.rows import VersionedRows
from bkstore.index.rocks.tables.damage import UnknownRange
from bkstore.index.rocks.tables.key_order import as_words, pack_keys
from bkstore.index.rocks.tables.merge import merge_runs
from bkstore.index.rocks.tables.range_cover import CoveredRows, RangeCover
from tests.index.rocks.tables.reading import pairs_of

Row = tuple[int, int, int]  # key, sequence, type

WIDTH = 16
VALUE, DELETION, SINGLE_DELETION = 1, 0, 7


WIDE = 1 << 60
"""A factor of the words of keys, by which they differ in more than 64 bits together."""


def as_key(number: int, factor: int = 1) -> bytes:
    """Return a key: numbers from 10 on differ in the first word."""
    first, second = divmod(number, 10)
    return (factor * first).to_bytes(8, "big") + (factor * second).to_bytes(8, "big")


def as_rows(rows: list[Row], factor: int = 1) -> VersionedRows:
    """Return rows as arrays; a value is the sequence number, as it is of one write only."""
    keys = as_words([as_key(key, factor) for key, _, _ in rows], 2)
    sequences = np.array([sequence for _, sequence, _ in rows], np.int64)
    types = np.array([code for _, _, code in rows], np.uint8)
    return VersionedRows(keys, np.where(types == VALUE, sequences, 0), sequences, types)


def batches(rows: list[Row], size: int, factor: int = 1) -> Iterator[VersionedRows]:
    """Yield sorted rows in batches of `size`, some of them empty."""
    for start in range(0, len(rows), size):
        yield as_rows([])
        yield as_rows(rows[start : start + size], factor)


@st.composite
def written(draw: st.DrawFn) -> tuple[list[list[Row]], list[tuple[int, int, int]]]:
    """Draw writes in up to four runs, each of which has every write of one place in time; a later
    write may be in any run. Also range deletes between them: (first, end, sequence)."""
    runs: list[list[Row]] = [[] for _ in range(draw(st.integers(1, 4)))]
    deletes = []
    for sequence in range(1, draw(st.integers(0, 60)) + 1):
        if draw(st.integers(0, 9)) == 0:
            deletes.append((draw(st.integers(0, 30)), draw(st.integers(0, 31)), sequence))
            continue
        code = draw(st.sampled_from([VALUE, VALUE, VALUE, DELETION, SINGLE_DELETION]))
        draw(st.sampled_from(runs)).append((draw(st.integers(0, 30)), sequence, code))
    for run in runs:
        run.sort(key=lambda row: (row[0], -row[1]))
    return runs, deletes


def live(runs: list[list[Row]], deletes: list[tuple[int, int, int]]) -> dict[int, int]:
    """Return the value of each live key, by applying all writes in their order."""
    values: dict[int, int] = {}
    events = [(sequence, key, code) for run in runs for key, sequence, code in run]
    ranges = {sequence: (first, end) for first, end, sequence in deletes}
    events += [(sequence, -1, -1) for sequence in ranges]
    for sequence, key, code in sorted(events):
        if code == -1:
            first, end = ranges[sequence]
            values = {k: v for k, v in values.items() if not first <= k < end}
        elif code == VALUE:
            values[key] = sequence
        else:
            values.pop(key, None)
    return values


def as_cover(deletes: list[tuple[int, int, int]], factor: int = 1) -> RangeCover:
    """Return range deletes over keys, in any order."""
    ranges = [(as_key(first, factor), as_key(end, factor), seq) for first, end, seq in deletes]
    return RangeCover([RangeDelete(*each) for each in ranges])


def covered(cover: RangeCover) -> CoveredRows:
    """Return the deletes for keys of this width."""
    return CoveredRows(cover, WIDTH // 8)


@given(written(), st.integers(1, 7), st.sampled_from([1, WIDE]))
def test_newest_row_wins(
    writes: tuple[list[list[Row]], list[tuple[int, int, int]]], size: int, factor: int
) -> None:
    """Whatever run a row is in, however the runs are cut into batches, and however far apart keys
    are."""
    runs, deletes = writes
    expected = [
        (as_key(key, factor), value.to_bytes(8, "big"))
        for key, value in sorted(live(runs, deletes).items())
    ]
    read = [batches(run, size, factor) for run in runs]
    merged = list(merge_runs(read, covered(as_cover(deletes, factor)), 2))

    assert expected == pairs_of(merged)
    assert all(len(rows) for rows in merged)


words_of_keys = st.integers(0, 2**64 - 1) | st.integers(0, 40)


@given(st.lists(st.tuples(*3 * [words_of_keys]), min_size=1), st.integers(0, 64))
@example([(0, 0, 0), (0, 1, 2**64 - 1)], 0)  # 65 bits
@example([(0, 0, 0), (1, 0, 2**63 - 1)], 0)  # 64 bits
@example([(0, 0, 31), (0, 1, 0), (1, 0, 0), (0, 31, 31)], 0)
def test_packed_keys(keys: list[tuple[int, int, int]], shift: int) -> None:
    """Keys as single numbers are in the same order; there are none only if the words differ in more
    than 64 bits."""
    columns = [[word >> shift for word in words] for words in zip(*keys)]
    packed = pack_keys(np.array(columns, np.uint64))
    bits = sum((max(column) - min(column)).bit_length() for column in columns)

    assert (bits > 64) == (packed is None)
    if packed is not None:
        order = sorted(range(len(keys)), key=lambda row: [column[row] for column in columns])
        assert order == np.argsort(packed, kind="stable").tolist()
        assert len(set(zip(*columns))) == len(set(packed.tolist()))


@given(written(), st.integers(0, 31), st.integers(0, 31), st.integers(0, 60))
def test_unknown_rows_leave_nothing_stale(
    writes: tuple[list[list[Row]], list[tuple[int, int, int]]], first: int, end: int, newest: int
) -> None:
    """With a range in which rows up to a sequence number are unknown, every row that comes out is
    live whatever they were; rows outside and newer rows stay."""
    runs, deletes = writes
    unknown = UnknownRange("f", 0, "damage", as_key(first), as_key(end), newest)
    merged = merge_runs([batches(run, 5) for run in runs], covered(as_cover(deletes)), 2, [unknown])
    expected = {
        key: value
        for key, value in live(runs, deletes).items()
        if not first <= key < end or value > newest
    }

    assert [as_key(key) for key in sorted(expected)] == [key for key, _ in pairs_of(merged)]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 31), st.integers(1, 99))))
def test_covers(deletes: list[tuple[int, int, int]]) -> None:
    """For each key, the newest of the deletes that cover it."""
    cover = as_cover(deletes)

    for key in range(32):
        newest = max((seq for first, end, seq in deletes if first <= key < end), default=0)
        assert newest == cover.newest_at(as_key(key))
    assert sorted(set(cover.bounds)) == cover.bounds


def test_ends_of_all_widths() -> None:
    """A range ends before, at or after a key by its bytes, whatever its width."""
    key = as_key(15)
    ends = {
        key: [],
        key + b"\0": [key],
        key[:-1]: [],
        key[:-1] + b"\xff" * 9: [key],
        b"\xff" * 17: [key],
    }
    for end, deleted in ends.items():
        cover = RangeCover([RangeDelete(b"", end, 9)])
        merged = pairs_of(merge_runs([[as_rows([(15, 3, VALUE)])]], covered(cover), 2))

        assert [key for key in [key] if key not in deleted] == [key for key, _ in merged]
    for start, deleted in {key: [key], key + b"\0": [], key[:-1]: [key]}.items():
        cover = RangeCover([RangeDelete(start, b"\xff" * 17, 9)])
        merged = pairs_of(merge_runs([[as_rows([(15, 3, VALUE)])]], covered(cover), 2))

        assert [key for key in [key] if key not in deleted] == [key for key, _ in merged]


def test_delete_of_the_same_number() -> None:
    """An ingested file's rows and range deletes have one number: its rows stay."""
    cover = as_cover([(0, 30, 5)])
    merged = merge_runs([[as_rows([(3, 5, VALUE), (4, 4, VALUE)])]], covered(cover), 2)

    assert [as_key(3)] == [key for key, _ in pairs_of(merged)]


def test_edges_of_unknown_ranges() -> None:
    """The first key and the newest number are unknown; the last key and a newer number are not."""
    rows = as_rows([(3, 5, VALUE), (4, 6, VALUE), (5, 5, VALUE), (6, 5, VALUE)])
    for start, stop, left in (
        (as_key(3), as_key(6), [4, 6]),
        (as_key(3) + b"\0", as_key(5) + b"\0", [3, 4, 6]),
        (as_key(5), None, [3, 4]),
    ):
        unknown = UnknownRange("f", 0, "damage", start, stop, 5)
        merged = pairs_of(merge_runs([[rows]], covered(RangeCover([])), 2, [unknown]))

        assert [as_key(number) for number in left] == [key for key, _ in merged]
