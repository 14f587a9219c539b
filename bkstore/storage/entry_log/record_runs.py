"""Reads runs of consecutive entries part by part, for batch reads: in growing parts, so that a few
entries cost one small index scan, and a million no more than a few hundred."""

from __future__ import annotations

from collections.abc import Callable

from bkstore.formats.entry import RecordBatch
from bkstore.formats.syntax.framing import SIZE_FIELD_BYTES

FIRST_PART_ENTRIES = 1024
"""Entries in the first part of a batch read; each further part has four times as many."""

_MAX_PART_ENTRIES = 1 << 16

ReadPart = Callable[[int, int, int], RecordBatch]
"""(first entry, max. count, max. bytes) -> the records from there up to a gap."""


def read_run(read_part: ReadPart, start: int, count: int, max_bytes: int) -> RecordBatch:
    """Return the records of start, start + 1, ... up to a gap: at most `count`, and about
    `max_bytes`. Empty if `start` is absent. Damage at `start` is raised; later damage ends the run.
    The parts grow from call to call of `read_part`, so that a short run costs little and a long one
    few calls."""
    parts: list[RecordBatch] = []
    next_entry, part_limit, bytes_left = start, FIRST_PART_ENTRIES, max_bytes
    while count > 0 and bytes_left >= 0:
        part = read_part(next_entry, min(count, part_limit), bytes_left)
        if part.stopped is not None and not (parts or len(part)):  # damage at `start` itself
            raise part.stopped
        parts.append(part)
        next_entry += len(part)
        count -= len(part)
        bytes_left -= int(part.sizes.sum()) + SIZE_FIELD_BYTES * len(part)
        if not len(part) or part.stopped is not None:
            break
        part_limit = min(4 * part_limit, _MAX_PART_ENTRIES)
    return RecordBatch.concatenate(parts)
