"""Finds entry logs that are shorter than the index requires, or missing: one pass over the index
for the highest location in each log, then its size and four bytes of the log."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np

from bkstore.counts import format_count
from bkstore.errors import BkstoreError
from bkstore.files.opening import open_regular
from bkstore.files.os_errors import convert_read_errors
from bkstore.formats.entry import V1_HEADER
from bkstore.formats.syntax.framing import SIZE_FIELD_BYTES
from bkstore.ids import Int64Array, LedgerId, log_ids_of, positions_of
from bkstore.index.api import Finding, IndexBatch
from bkstore.index.damage_runs import add_unreported
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.read_only.bookie_dir import BookieDir

_LogKey = tuple[int, int]  # directory index, log id


@dataclass(slots=True)
class _IndexedEnd:
    """The highest location of the index in a log, with its ledger and entry; how many locations are
    past the log's end, and the ledgers of those."""

    position: int = -1
    ledger: LedgerId | None = None
    entry: int = 0
    past_end_count: int = 0
    past_end_ledgers: set[LedgerId] = field(default_factory=set)


def check_log_ends(bookie: BookieDir, findings: list[Finding]) -> int:
    """Return the number of index rows; add a finding for each log shorter than a row requires, or
    missing, and for damage of the index. Cost: a pass over the index (0.1 to 0.3 us a row) and a
    read a log. Memory: a scan batch, a few words a log, and the ledgers of short logs."""
    # Two names may have one id (a.log, 0a.log): reversed, so that the first listed one counts.
    logs = {(log.dir_index, log.log_id): log for log in reversed(bookie.entry_logs)}
    indexed_ends: dict[_LogKey, _IndexedEnd] = {}
    row_count = 0
    index_findings: list[Finding] = []
    # The highest end that the index requires of each log, over all rows.
    for batch in bookie.scan(findings=index_findings):
        row_count += batch.entry_id.size
        for log_rows in _split_by_log(batch):
            log_key = int(log_rows.dir_index[0]), int(log_ids_of(log_rows.location[:1])[0])
            indexed_end = indexed_ends.setdefault(log_key, _IndexedEnd())
            _update_indexed_end(indexed_end, log_rows, logs.get(log_key))
    add_unreported(findings, index_findings)
    # Compare them with the files.
    for log_key in sorted(indexed_ends):
        finding = _compare_ends(indexed_ends[log_key], logs.get(log_key), log_id=log_key[1])
        if finding is not None:
            findings.append(finding)
    return row_count


def _split_by_log(rows: IndexBatch) -> list[IndexBatch]:
    """Split rows into batches that each point into one log of one directory."""
    logs, dir_indexes = log_ids_of(rows.location), rows.dir_index
    if (logs == logs[0]).all() and (dir_indexes == dir_indexes[0]).all():
        return [rows]
    # Sort the row numbers by directory and log, and split them where either changes.
    order = np.lexsort((logs, dir_indexes))
    is_new_log = (np.diff(logs[order]) != 0) | (np.diff(dir_indexes[order]) != 0)
    rows_by_log = np.split(order, np.flatnonzero(is_new_log) + 1)
    return [IndexBatch(*(column[log_rows] for column in rows)) for log_rows in rows_by_log]


def _update_indexed_end(end: _IndexedEnd, rows: IndexBatch, log: LogFile | None) -> None:
    """Update `end`, what the index requires of one log, with rows that point into it: its last
    record, and the rows at or past the log's end. A missing log ends at 0."""
    offsets = positions_of(rows.location)
    highest = int(np.argmax(offsets))
    if int(offsets[highest]) > end.position:
        end.position, end.entry = int(offsets[highest]), int(rows.entry_id[highest])
        end.ledger = _ledger_of_row(rows, highest)
    past_end = np.flatnonzero(offsets >= (0 if log is None else log.bytes))
    if past_end.size:
        end.past_end_count += past_end.size
        end.past_end_ledgers.update(_ledgers_of_rows(rows, past_end))


def _ledger_of_row(rows: IndexBatch, row: int) -> LedgerId:
    return LedgerId.from_signed(int(rows.scope_id[row]), int(rows.ledger_id[row]))


def _ledgers_of_rows(rows: IndexBatch, chosen: Int64Array) -> set[LedgerId]:
    pairs = np.unique(np.stack((rows.scope_id[chosen], rows.ledger_id[chosen])), axis=1)
    return {LedgerId.from_signed(scope, ledger) for scope, ledger in pairs.T.tolist()}


def _compare_ends(end: _IndexedEnd, log: LogFile | None, log_id: int) -> Finding | None:
    """Return a finding if a log is missing or ends before its last indexed record, else None."""
    entry_text = f"entry {end.entry} of ledger {end.ledger}"
    ledgers_text = format_count(len(end.past_end_ledgers), "ledger")
    nouns = f"location of {ledgers_text} is", f"locations of {ledgers_text} are"
    lost_text = format_count(end.past_end_count, *nouns)
    last_text = f"the last one {entry_text} at {end.position}"
    if log is None:
        detail = f"no such entry log, but {lost_text} in it, {last_text}"
        return Finding("damage", detail, f"{log_id:x}.log")
    try:
        size, record_end = _size_and_record_end(log.path, end.position)
    except BkstoreError as error:
        return Finding.of(error)
    # The log may have grown since the pass over the index, so its present size counts.
    if end.position >= size:
        detail = f"the log ends at {size}, but {lost_text} past that, {last_text}"
        return Finding("damage", detail, log.path, size)
    if record_end > size:
        detail = f"the log ends at {size}, inside the record of {entry_text}, which begins here"
        return Finding("damage", detail, log.path, end.position)
    return None


def _size_and_record_end(path: str, position: int) -> tuple[int, int]:
    """Return a log's size, and the end of the record at `position` by its stored size."""
    with convert_read_errors(path):
        fd = open_regular(path)
        try:
            size = os.fstat(fd).st_size
            frame = os.pread(fd, SIZE_FIELD_BYTES, max(position - SIZE_FIELD_BYTES, 0))
        finally:
            os.close(fd)
    record_size = int.from_bytes(frame, "big", signed=True)
    return size, position + max(record_size, V1_HEADER)  # no record is shorter than its header
