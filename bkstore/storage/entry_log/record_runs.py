"""Runs of consecutive entries, gathered piece by piece: what batch reads are made of.

One batch may ask the index several times, so that a read of a few entries costs one small
index scan, and one of a million no more than a few hundred.
"""

from __future__ import annotations

from collections.abc import Callable

from bkstore.formats.entry import RecordBatch
from bkstore.formats.syntax.framing import PREFIX

FIRST_LOOK = 1024
"""Entries that a batch read looks for first; four times as many each time after."""

_MOST = 1 << 16

Piece = Callable[[int, int, int], RecordBatch]
"""(first entry, at most so many, bytes left) -> the records from there up to a gap."""


def read_run(piece: Piece, start: int, count: int, max_bytes: int) -> RecordBatch:
    """Return the records of start, start + 1, ... up to a gap, `count` or about `max_bytes`.

    Empty if `start` is not there. Damage at `start` raises; further on it ends the run.
    """
    parts: list[RecordBatch] = []
    at, look, left = start, FIRST_LOOK, max_bytes
    while count > 0 and left >= 0:
        part = piece(at, min(count, look), left)
        if part.stopped is not None and not (parts or len(part)):
            raise part.stopped
        parts.append(part)
        at += len(part)
        count -= len(part)
        left -= int(part.sizes.sum()) + PREFIX * len(part)
        if not len(part) or part.stopped is not None:
            break
        look = min(4 * look, _MOST)
    return RecordBatch.joined(parts)
