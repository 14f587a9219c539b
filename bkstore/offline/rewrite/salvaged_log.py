"""Read the records of one entry log, damaged or not, and write them to a fresh log.

A scan finds records by their sizes, but passes over a record after a damaged size. The old index
has that record's position, and confirms the records scanned, so both are used. A fresh log has a
header, the old log's id and records in their order, without the damage, and a ledgers map.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.errors import BkstoreError, CorruptionError
from bkstore.files.disk_changes import Files
from bkstore.files.os_errors import convert_sync_errors, convert_write_errors
from bkstore.formats.entry import V1_HEADER, V2_HEADER, record_header, rows_of_ledgers
from bkstore.formats.entrylog import (
    HEADER_SIZE,
    MAP_FIELDS_OFFSET,
    SIZE_FIELD_BYTES,
    VERSION_1,
    VERSION_2,
    LogHeader,
    encode_header,
    encode_ledgers_map,
    encode_map_fields,
)
from bkstore.ids import MAX_ENTRY_ID, Int64Array, LedgerId, positions_of
from bkstore.index.api import Finding, IndexBatch
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.open_log import MAX_LOG_BYTES
from bkstore.storage.entry_log.resynchronization import LogBytes, classify_at
from bkstore.storage.entry_log.scan import scan_log

_COPY_CHUNK_BYTES = 4 << 20
_MAX_FRAME_HEAD_BYTES = SIZE_FIELD_BYTES + V2_HEADER


class LostBytes(NamedTuple):
    """A range of bytes of a log without a readable record."""

    offset: int
    bytes: int
    reason: str = "no record can be read there"


@dataclass
class LogRecords:
    """The records of a log, in the order of their positions: columns of int64[n], as `LogBatch` has
    them.

    `confirmed` marks the records that the old index names; `missing_rows` has the index rows for
    which there is no record. `found_by_index` counts records that only the index found. `damaged`
    is true if a copy of the log would contain damage; `lost_ranges` lists the damaged ranges
    between the records. An `unreadable` log has no records, and all of its bytes are lost.
    """

    scope_id: Int64Array
    ledger_id: Int64Array
    entry_id: Int64Array
    position: Int64Array
    size: Int64Array
    confirmed: npt.NDArray[np.bool_]
    missing_rows: IndexBatch
    found_by_index: int = 0
    lost_ranges: list[LostBytes] = field(default_factory=list)
    damaged: bool = False
    unreadable: bool = False

    def to_index_rows(self, dir_index: int, log_id: int, positions: Int64Array) -> IndexBatch:
        """Return the records as index rows, with these positions."""
        dir_indexes = np.full(positions.size, dir_index, np.int64)
        locations = (np.int64(log_id) << np.int64(32)) | positions
        return IndexBatch(dir_indexes, self.scope_id, self.ledger_id, self.entry_id, locations)


def read_records(
    log: LogFile, index_rows: IndexBatch, findings: list[Finding], max_entry_id: int = MAX_ENTRY_ID
) -> LogRecords:
    """Scan a log, and compare its records with `index_rows`, the index rows that point into it.

    `add_indexed_records` completes the result. Entries above `max_entry_id`, which the index cannot
    hold, are left out. Damage is added to `findings`. Memory: some 100 bytes a record.
    """
    log_findings: list[Finding] = []
    columns: list[tuple[Int64Array, ...]] = []
    unreadable = False
    try:
        for batch in scan_log(log.path, log_findings):
            taken_rows = np.flatnonzero(batch.entry_id <= max_entry_id)
            taken_batch = batch if taken_rows.size == len(batch) else batch.where(taken_rows)
            ids = (taken_batch.scope_id, taken_batch.ledger_id, taken_batch.entry_id)
            # Copies, because views would keep the window alive that they were read from.
            columns.append(tuple(map(np.array, (*ids, taken_batch.position, taken_batch.size))))
    except BkstoreError as error:
        log_findings.append(Finding.of(error))
        unreadable = not columns
    findings += log_findings
    empty = tuple(np.empty(0, np.int64) for _ in range(5))
    scope_id, ledger_id, entry_id, position, size = map(np.concatenate, zip(*(columns or [empty])))
    confirmed, missing = _match_index_rows((scope_id, ledger_id, entry_id, position), index_rows)
    records = LogRecords(scope_id, ledger_id, entry_id, position, size, confirmed, missing)
    records.unreadable = unreadable
    records.damaged = any(finding.severity == "damage" for finding in log_findings)
    return records


def _match_index_rows(
    scanned: tuple[Int64Array, ...], index_rows: IndexBatch
) -> tuple[npt.NDArray[np.bool_], IndexBatch]:
    """Return which records an index row names, and the index rows that name none of them."""
    scope_id, ledger_id, entry_id, position = scanned
    # Both are sorted by position.
    indexed_positions = positions_of(index_rows.location)
    confirmed = np.zeros(position.size, np.bool_)
    if not position.size or not indexed_positions.size:
        return confirmed, index_rows
    # For each index row, the record at its position, or the next one, which does not match.
    nearest = np.minimum(np.searchsorted(position, indexed_positions), position.size - 1)
    matches = (position[nearest] == indexed_positions) & (entry_id[nearest] == index_rows.entry_id)
    matches &= ledger_id[nearest] == index_rows.ledger_id
    matches &= scope_id[nearest] == index_rows.scope_id
    confirmed[nearest[matches]] = True
    return confirmed, IndexBatch(*(column[~matches] for column in index_rows))


def add_indexed_records(data: LogBytes, records: LogRecords, max_entry_id: int) -> None:
    """Add records that only the index has, at a read for each row, and note the lost bytes."""
    _merge_indexed_records(data, records, max_entry_id)
    records.damaged |= records.found_by_index > 0
    records.lost_ranges = _find_lost_bytes(data, records) if records.damaged else []


def _merge_indexed_records(data: LogBytes, records: LogRecords, max_entry_id: int) -> None:
    """Read the records that the scan passed over, where the old index has them, and merge them."""
    missing = records.missing_rows
    ids = (missing.scope_id, missing.ledger_id, missing.entry_id)
    positions = positions_of(missing.location)
    sizes = np.zeros(positions.size, np.int64)  # 0 if the record is not there
    for row, (*entry_key, position) in enumerate(np.column_stack((*ids, positions)).tolist()):
        if entry_key[-1] <= max_entry_id:  # the entry id; the key is (scope, ledger, entry)
            sizes[row] = size_of_record(data, position, tuple(entry_key))
    recovered_rows = np.flatnonzero(sizes)
    if not recovered_rows.size:
        return
    # Merge the records that were found into the scanned ones, by position.
    known = (records.scope_id, records.ledger_id, records.entry_id, records.position, records.size)
    recovered = (column[recovered_rows] for column in (*ids, positions, sizes))
    all_positions = np.concatenate((records.position, positions[recovered_rows]))
    order = np.argsort(all_positions, kind="stable")
    merged = [np.concatenate(pair)[order] for pair in zip(known, recovered)]
    records.scope_id, records.ledger_id, records.entry_id, records.position, records.size = merged
    confirmed = (records.confirmed, np.ones(recovered_rows.size, np.bool_))
    records.confirmed = np.concatenate(confirmed)[order]
    records.missing_rows = IndexBatch(*(column[sizes == 0] for column in missing))
    records.found_by_index = int(recovered_rows.size)


def size_of_record(data: LogBytes, position: int, entry_key: tuple[int, ...]) -> int:
    """Return the size of the record at a position, or 0 if there is none of this entry: `entry_key`
    is scope, ledger and entry, in two's complement."""
    frame_start = position - SIZE_FIELD_BYTES
    if frame_start < HEADER_SIZE or position + V1_HEADER > data.size:
        return 0
    try:
        header_bytes = data.read(frame_start, _MAX_FRAME_HEAD_BYTES)
        size = int.from_bytes(header_bytes[:SIZE_FIELD_BYTES], "big", signed=True)
        if not V1_HEADER <= size <= data.size - position:
            return 0
        header = record_header(header_bytes[SIZE_FIELD_BYTES : SIZE_FIELD_BYTES + size])
    except CorruptionError:
        return 0
    return size if (*header.ledger.signed, header.entry_id) == entry_key else 0


def _find_lost_bytes(data: LogBytes, records: LogRecords) -> list[LostBytes]:
    """Return the ranges of bytes between the records that are neither padding nor a ledgers map."""
    # Gap number i is from the highest end before record i to its start; the last is before the end
    # of the file.
    starts = np.append(records.position - SIZE_FIELD_BYTES, data.size)
    ends = np.concatenate(([HEADER_SIZE], np.maximum.accumulate(records.position + records.size)))
    lost = []
    for gap in np.flatnonzero(starts > ends).tolist():
        gap_start, gap_end = int(ends[gap]), int(starts[gap])
        while gap_start < gap_end:
            region = classify_at(data, gap_start)
            # A whole frame is of the ledgers map, or of an entry that was left out for its id.
            if region.kind not in ("frame", "padding", "zeros") or region.end > gap_end:
                lost.append(LostBytes(gap_start, gap_end - gap_start))
                break
            gap_start = region.end
    return lost


def salvaged_positions(records: LogRecords) -> Int64Array:
    """Return the positions of the records in a fresh log, int64[n]: behind its header they follow
    each other, each behind the 4 bytes of its size."""
    positions: Int64Array = HEADER_SIZE + np.cumsum(records.size + SIZE_FIELD_BYTES) - records.size
    return positions


def write_salvaged_log(data: LogBytes, target: Path, records: LogRecords, files: Files) -> int:
    """Write the records of the log `data` to a fresh one, fsync it, and return its size in bytes.

    They lie at `salvaged_positions`. The caller must sync the folder. A ledgers map that would end
    beyond 2^31-1 bytes is left out, as a bookie does. Raises `WriteFailed`.
    """
    version = VERSION_2 if np.any(records.scope_id) else VERSION_1
    with convert_write_errors(target):
        fd = files.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with convert_write_errors(target):
            files.pwrite(fd, encode_header(LogHeader(version)), 0)
        end = _copy_frames(data, target, fd, records, files)
        ledger_bytes = _bytes_by_ledger(records)
        ledgers_map = encode_ledgers_map(ledger_bytes)
        if ledgers_map and end + len(ledgers_map) <= MAX_LOG_BYTES:
            with convert_write_errors(target):
                files.pwrite(fd, ledgers_map, end)
                files.pwrite(fd, encode_map_fields(end, len(ledger_bytes)), MAP_FIELDS_OFFSET)
            end += len(ledgers_map)
        with convert_sync_errors(target):
            files.fsync(fd)
    finally:
        files.close(fd)
    return end


def _copy_frames(data: LogBytes, target: Path, fd: int, records: LogRecords, files: Files) -> int:
    """Copy the frames of all records (size and record) without gaps between them, adjacent ones
    together, to the open file `fd`, `target`; return the offset of their end."""
    starts, ends = records.position - SIZE_FIELD_BYTES, records.position + records.size
    # A run of adjacent frames begins after a gap and ends before the next one.
    has_gap = starts[1:] != ends[:-1]
    run_starts = starts[:1].tolist() + starts[1:][has_gap].tolist()
    run_ends = ends[:-1][has_gap].tolist() + ends[-1:].tolist()
    out_offset = HEADER_SIZE
    for start, end in zip(run_starts, run_ends):
        while start < end:
            chunk = data.read(start, min(end - start, _COPY_CHUNK_BYTES))
            with convert_write_errors(target):
                files.pwrite(fd, chunk, out_offset)
            start, out_offset = start + len(chunk), out_offset + len(chunk)
    return out_offset


def _bytes_by_ledger(records: LogRecords) -> dict[LedgerId, int]:
    return {
        ledger_id: int(records.size[record_indexes].sum()) + SIZE_FIELD_BYTES * record_indexes.size
        for ledger_id, record_indexes in rows_of_ledgers(records.scope_id, records.ledger_id)
    }
