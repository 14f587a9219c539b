"""Detects an entry log that a kill or a crash cut inside its last record.

Garbage collection must distinguish it from damage that hides records. A log that was cut has
nothing after its complete records, unless the index points there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bkstore.formats.entrylog import HEADER_SIZE, SIZE_FIELD_BYTES
from bkstore.ids import log_ids_of, positions_of
from bkstore.index.api import EntryIndex, Finding
from bkstore.storage.entry_log.resynchronization import LogBytes, find_next_record


def find_torn_record(path: Path, damage: Sequence[Finding]) -> int | None:
    """Return the offset of a log's last record if a crash cut it off, 0 if it cut the header, else
    None. `damage` is what a scan of the log reported; a torn record gives just one finding."""
    if len(damage) != 1 or damage[0].offset is None:
        return None
    record_offset = damage[0].offset
    with LogBytes(path) as log:
        if log.size < HEADER_SIZE:
            return 0
        bytes_after_size = log.size - record_offset - SIZE_FIELD_BYTES
        size = int.from_bytes(log.read(record_offset, SIZE_FIELD_BYTES), "big", signed=True)
        is_cut_in_size = -SIZE_FIELD_BYTES < bytes_after_size < 0
        is_cut_in_record = size > bytes_after_size >= 0
        if not (is_cut_in_size or is_cut_in_record):
            return None
        # A wrong size in the middle of a log looks the same, but records follow it.
        is_last = find_next_record(log, record_offset, record_offset) == log.size
        return record_offset if is_last else None


def is_indexed_from(index: EntryIndex, log_id: int, offset: int) -> bool:
    """Return whether an index row points into a log at or after `offset`. A bookie indexes only
    completely written records, so the record there was damaged later. Scans the whole index."""
    for batch in index.scan():
        is_in_log = log_ids_of(batch.location) == log_id
        if (is_in_log & (positions_of(batch.location) >= offset)).any():
            return True
    return False
