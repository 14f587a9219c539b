"""An entry log that a kill or a crash cut inside its last record: no other record is missing.

Garbage collection has to tell it from damage that hides records. A cut one holds nothing behind
its whole records, so what is known of it is all that can be, unless the index knows better.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bkstore.formats.entrylog import HEADER_SIZE, PREFIX
from bkstore.ids import log_ids, positions
from bkstore.index.api import EntryIndex, Finding
from bkstore.storage.entry_log.resync import LogBytes, next_record


def cut_at(path: Path, damage: Sequence[Finding]) -> int | None:
    """Return where the record that was cut begins, if that is all the damage there is; else None.

    `damage` is what a scan of the log told. A log that ends inside its header was cut at 0.
    """
    if len(damage) != 1 or damage[0].offset is None:
        return None
    at = damage[0].offset
    with LogBytes(path) as log:
        if log.size < HEADER_SIZE:
            return 0
        left = log.size - at
        size = int.from_bytes(log.peek(at, PREFIX), "big", signed=True)
        if left <= 0 or (left >= PREFIX and size <= left - PREFIX):
            return None
        return at if next_record(log, at, at) == log.size else None


def is_pointed_at(index: EntryIndex, log_id: int, at: int) -> bool:
    """Return whether a row of the index points into a log behind `at`. Reads the whole index.

    Then what stands there is no record that was being written, but one that was damaged.
    """
    for batch in index.scan():
        inside = (log_ids(batch.location) == log_id) & (positions(batch.location) >= at)
        if inside.any():
            return True
    return False
