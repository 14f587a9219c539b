"""Merging sorted runs of rows to the live ones: of each key the newest row counts, unless it is a
deletion or older than a range delete that covers it. In bounded memory: a batch of each run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bkstore.formats.rocksdb.keys import ValueType
from bkstore.formats.rocksdb.table.rows import UInt64Array, VersionedRows, join_rows
from bkstore.ids import Int64Array
from bkstore.index.rocks.tables.damage import Damage, UnknownRange
from bkstore.index.rocks.tables.key_order import (
    WORD_BYTES,
    BoolArray,
    as_words,
    compare_keys,
    first_above,
    first_not_below,
    pack_keys,
)
from bkstore.index.rocks.tables.range_cover import CoveredRows

SortedRun = Iterator[VersionedRows]
"""Batches of rows in order: by key, of one key newest first, across batches too."""


def merge_runs(
    runs: Sequence[Iterable[VersionedRows]],
    covered: CoveredRows,
    words: int,
    damage: Damage = None,
) -> Iterator[VersionedRows]:
    """Yield the live rows of all runs in the order of their keys, which have `words` * 8 bytes. A
    run yields rows in this order, such as those of a level. A row is live if it is the newest of
    its key, no deletion, and not older than a range delete of `covered`. `damage` is the list to
    which the runs append ranges of unknown rows: rows that one of these may have replaced are left
    out. No batch is empty. Memory: one batch of each run, and its share in the rows that are
    merged. Some 10 ns a row for one run, 100 where runs overlap."""
    for rows in _newest_rows([iter(run) for run in runs], words):
        is_live: BoolArray = rows.types == ValueType.VALUE
        is_deleted = covered.find_deleted(rows)
        if is_deleted is not None:
            is_live &= ~is_deleted
        for unknown in damage or ():
            is_live &= ~_find_unknown(rows, unknown, words)
        if is_live.all():
            yield rows
        elif is_live.any():
            yield rows.take(is_live)


def _newest_rows(runs: list[SortedRun], words: int) -> Iterator[VersionedRows]:
    """Yield the newest row of each key of all runs, deletions included, in the order of keys."""
    if len(runs) == 1:
        yield from _newest_rows_of_run(runs[0], words)
        return
    buffers: list[VersionedRows | None] = [None] * len(runs)  # of each run; None: read a batch
    last_key: UInt64Array | None = None  # all keys up to it were yielded
    while True:
        # Fill the buffers; runs without more rows are dropped.
        for index, run in enumerate(runs):
            if buffers[index] is None:
                buffers[index] = _next_batch(run)
        active = [index for index, rows in enumerate(buffers) if rows is not None]
        runs = [runs[index] for index in active]
        buffered = [rows for rows in buffers if rows is not None]
        if not buffered:
            return
        # The boundary is the lowest of the buffers' last keys. Up to it the newest row of every key
        # is in a buffer: a run may have more rows of the boundary's key, but they are older.
        boundary = _lowest([rows.keys[:, -1] for rows in buffered])
        parts: list[VersionedRows] = []
        buffers = []
        for rows in buffered:
            end = first_above(rows.keys, boundary)
            start = 0 if last_key is None else first_above(rows.keys, last_key)
            if start < end:
                parts.append(rows if end - start == len(rows) else rows.take(slice(start, end)))
            buffers.append(None if end == len(rows) else rows.take(slice(end, None)))
        if parts:
            last_key = boundary
            yield _newest_of(parts, words)


def _newest_rows_of_run(run: SortedRun, words: int) -> Iterator[VersionedRows]:
    """Yield the newest row of each key of one run. Rows of one key, newest first, may be in several
    batches: those of the last key yielded are passed over."""
    last_key: UInt64Array | None = None
    for rows in run:
        start = 0 if last_key is None else first_above(rows.keys, last_key)
        if start < len(rows):
            last_key = rows.keys[:, -1]
            yield _newest_of([rows.take(slice(start, None)) if start else rows], words)


def _next_batch(run: SortedRun) -> VersionedRows | None:
    """Return the next batch of a run that has rows, None at its end."""
    return next((rows for rows in run if len(rows)), None)


def _newest_of(parts: list[VersionedRows], words: int) -> VersionedRows:
    """Return the newest row of each key of `parts`, each of which is sorted, in the order of keys.
    These have `words` words of 64 bits."""
    rows = join_rows(parts, words)
    if len(parts) > 1:
        rows = rows.take(_sort_order(rows))
    # A row with the key of the one before it is an older row of that key.
    _, repeats = compare_keys(rows.keys[:, :-1], rows.keys[:, 1:])
    if not repeats.any():
        return rows
    is_newest = np.concatenate(([True], ~repeats))
    return rows.take(is_newest)


def _sort_order(rows: VersionedRows) -> Int64Array:
    """Return the order of rows by key, of one key newest first, as int64[n]. Some 3 ns a row of
    parts that are in order already; five times that if keys repeat."""
    packed = pack_keys(rows.keys)
    if packed is not None:
        order = np.argsort(packed, kind="stable")
        in_order = packed.take(order)
        if (in_order[1:] != in_order[:-1]).all():
            return order
    # Keys that repeat are sorted by sequence number too. The last array counts first.
    return np.lexsort([-rows.sequences, *rows.keys[::-1]])


def _lowest(keys: list[UInt64Array]) -> UInt64Array:
    return min(keys, key=lambda key: tuple(key.tolist()))


def _find_unknown(rows: VersionedRows, unknown: UnknownRange, words: int) -> BoolArray:
    """Return which rows an unknown row of a damaged file may have changed."""
    is_unknown: BoolArray = rows.sequences <= unknown.newest_sequence
    is_unknown[: _position(rows.keys, unknown.start, words)] = False
    if unknown.stop is not None:
        is_unknown[_position(rows.keys, unknown.stop, words) :] = False
    return is_unknown


def _position(keys: UInt64Array, bound: bytes, words: int) -> int:
    """Return how many of the sorted keys are below a bound, which may be a key and a zero byte: the
    bound after that key."""
    key = as_words([bound], words)[:, 0]
    return (first_above if len(bound) > WORD_BYTES * words else first_not_below)(keys, key)
