"""Compare an index with the rows from which it was built, row by row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from bkstore.errors import CorruptionError
from bkstore.ids import LedgerId
from bkstore.index.api import IndexBatch


def compare_rows(
    expected: Iterable[IndexBatch],
    actual: Iterable[IndexBatch],
    path: Path,
    origin: str = "the dump",
) -> int:
    """Compare rows that come in key order, in batches of any size; return the number of rows.

    `origin` describes the source of the expected rows. Raises `CorruptionError` at the first row
    that differs, is missing, or is one too many. Memory: a batch of each.
    """
    count = 0
    for expected_rows, rows in _align_batches(iter(expected), iter(actual), path, origin):
        for expected_column, column in zip(expected_rows[1:], rows[1:]):  # all but the directory
            if not np.array_equal(expected_column, column):
                row = int(np.flatnonzero(expected_column != column)[0])
                here, there = _describe_row(rows, row), _describe_row(expected_rows, row)
                raise CorruptionError(path, None, f"{here} is here, {there} in {origin}")
        count += rows.entry_id.size
    return count


def _align_batches(
    expected: Iterator[IndexBatch], actual: Iterator[IndexBatch], path: Path, origin: str
) -> Iterator[tuple[IndexBatch, IndexBatch]]:
    """Yield the expected and the actual rows in batches of equal size; raise if one has more."""
    left, right = next(expected, None), next(actual, None)
    while left is not None and right is not None:
        size = min(left.entry_id.size, right.entry_id.size)
        yield _slice_rows(left, 0, size), _slice_rows(right, 0, size)
        # Keep what is left of the longer batch, and read on in place of the shorter one.
        left = _slice_rows(left, size) if left.entry_id.size > size else next(expected, None)
        right = _slice_rows(right, size) if right.entry_id.size > size else next(actual, None)
    if left is not None:
        raise CorruptionError(path, None, f"{_describe_row(left, 0)} is in {origin}, but not here")
    if right is not None:
        raise CorruptionError(path, None, f"{_describe_row(right, 0)} is here, but not in {origin}")


def _slice_rows(rows: IndexBatch, start: int, stop: int | None = None) -> IndexBatch:
    return IndexBatch(*(column[start:stop] for column in rows))


def _describe_row(rows: IndexBatch, row: int) -> str:
    _, scope_id, signed_ledger, entry_id, location = (int(column[row]) for column in rows)
    ledger_id = LedgerId.from_signed(scope_id, signed_ledger)
    return f"ledger {ledger_id}, entry {entry_id}, location {location:#x}"
