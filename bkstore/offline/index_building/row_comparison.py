"""Comparing an index with the rows it was made of, row by row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from bkstore.errors import CorruptionError
from bkstore.ids import LedgerId
from bkstore.index.api import IndexBatch


def compare_rows(
    expected: Iterable[IndexBatch],
    found: Iterable[IndexBatch],
    out: Path,
    origin: str = "the dump",
) -> int:
    """Return how many rows both have; both come in the order of keys, in batches of any size.

    `origin` is where the expected ones are from, in words. Raises `CorruptionError` at the first
    row that differs, is missing, or is one too many. Memory: a batch of each.
    """
    count = 0
    for one, other in _aligned(iter(expected), iter(found), out, origin):
        for mine, theirs in zip(one[1:], other[1:]):
            if not np.array_equal(mine, theirs):
                at = int(np.flatnonzero(mine != theirs)[0])
                raise CorruptionError(
                    out, None, f"{_row(other, at)} is here, {_row(one, at)} in {origin}"
                )
        count += one.entry_id.size
    return count


def _aligned(
    expected: Iterator[IndexBatch], found: Iterator[IndexBatch], out: Path, origin: str
) -> Iterator[tuple[IndexBatch, IndexBatch]]:
    """Yield the rows of both in batches of equal size."""
    one, other = next(expected, None), next(found, None)
    while one is not None and other is not None:
        size = min(one.entry_id.size, other.entry_id.size)
        yield _part(one, 0, size), _part(other, 0, size)
        one = _part(one, size) if one.entry_id.size > size else next(expected, None)
        other = _part(other, size) if other.entry_id.size > size else next(found, None)
    if one is not None:
        raise CorruptionError(out, None, f"{_row(one, 0)} is in {origin}, and not here")
    if other is not None:
        raise CorruptionError(out, None, f"{_row(other, 0)} is here, and not in {origin}")


def _part(rows: IndexBatch, start: int, stop: int | None = None) -> IndexBatch:
    return IndexBatch(*(column[start:stop] for column in rows))


def _row(rows: IndexBatch, at: int) -> str:
    _, scope, ledger, entry, location = (int(column[at]) for column in rows)
    name = LedgerId.from_signed(scope, ledger)
    return f"ledger {name}, entry {entry}, location {location:#x}"
