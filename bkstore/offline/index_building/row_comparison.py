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
    for ours, theirs in _align_batches(iter(expected), iter(actual), path, origin):
        for expected_column, found_column in zip(ours[1:], theirs[1:]):  # all but the directory
            if not np.array_equal(expected_column, found_column):
                row = int(np.flatnonzero(expected_column != found_column)[0])
                reason = (
                    f"{_describe_row(theirs, row)} is here, {_describe_row(ours, row)} in {origin}"
                )
                raise CorruptionError(path, None, reason)
        count += ours.entry_id.size
    return count


def _align_batches(
    expected: Iterator[IndexBatch], actual: Iterator[IndexBatch], path: Path, origin: str
) -> Iterator[tuple[IndexBatch, IndexBatch]]:
    """Yield the rows of both in batches of equal size; raise if one has more rows."""
    ours, theirs = next(expected, None), next(actual, None)
    while ours is not None and theirs is not None:
        size = min(ours.entry_id.size, theirs.entry_id.size)
        yield _slice_rows(ours, 0, size), _slice_rows(theirs, 0, size)
        # Keep what is left of the longer batch, and read on in place of the shorter one.
        ours = _slice_rows(ours, size) if ours.entry_id.size > size else next(expected, None)
        theirs = _slice_rows(theirs, size) if theirs.entry_id.size > size else next(actual, None)
    if ours is not None:
        raise CorruptionError(path, None, f"{_describe_row(ours, 0)} is in {origin}, but not here")
    if theirs is not None:
        raise CorruptionError(
            path, None, f"{_describe_row(theirs, 0)} is here, but not in {origin}"
        )


def _slice_rows(rows: IndexBatch, start: int, stop: int | None = None) -> IndexBatch:
    return IndexBatch(*(column[start:stop] for column in rows))


def _describe_row(rows: IndexBatch, row: int) -> str:
    _, scope_id, signed_ledger, entry_id, location = (int(column[row]) for column in rows)
    ledger_id = LedgerId.from_signed(scope_id, signed_ledger)
    return f"ledger {ledger_id}, entry {entry_id}, location {location:#x}"
