"""Compaction: which entry logs are rewritten, in which order, and how their live records move.

BookKeeper's counterparts are `EntryLogCompactor` and `TransactionalEntryLogCompactor`. One rule is
stricter here: a record is moved only if the index points at it. BookKeeper moves every record of a
wanted ledger, so that an old copy of an entry that was added twice comes back over the new one.

Order: the copies become durable in their new log, then the index does, then the old log is removed.
A crash in between leaves copies that nothing points at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from bkstore.formats.entry import BatchLedgers, RecordBatch
from bkstore.formats.entrylog import LogMetadata
from bkstore.ids import Int64Array, LedgerId, make_locations
from bkstore.index.api import Finding
from bkstore.storage.entry_log.compaction_log import (
    CompactionOutput,
    drop_unfinished_outputs,
    finish_compactions,
)
from bkstore.storage.entry_log.scan import LogBatch, scan_log
from bkstore.storage.ledgers.garbage_pass import USAGE_BUCKETS, CompactionOptions, GarbageReport
from bkstore.storage.ledgers.write_paths.api import Move, WritePath

_AddBatch = Callable[[RecordBatch, BatchLedgers], Iterator[Int64Array]]
"""Appends a framed batch to a log; yields locations."""


def usage_of(metadata: LogMetadata, compaction: CompactionOptions) -> float:
    """Return the live share of a log; a log below `target_log_bytes` bytes counts as that large,
    unless all its bytes are live: then there is nothing to reclaim."""
    if metadata.usage == 1.0 or metadata.total_size >= compaction.target_log_bytes:
        return metadata.usage
    return metadata.remaining_size / compaction.target_log_bytes


def choose_logs(
    closed_logs: Iterable[LogMetadata], compaction: CompactionOptions, report: GarbageReport
) -> list[int]:
    """Return the ids of the logs to compact: those below the threshold, by tenths of live bytes,
    then by log id, as in BookKeeper's `doCompactEntryLogs`. Counts all logs in `report` by
    tenths."""
    candidates: list[tuple[int, int]] = []
    for metadata in closed_logs:
        usage = usage_of(metadata, compaction)
        tenth = min(int(usage * USAGE_BUCKETS), USAGE_BUCKETS - 1)
        report.usage[tenth] += 1
        if usage < compaction.threshold:
            candidates.append((tenth, metadata.log_id))
    return [log_id for _, log_id in sorted(candidates)]


class LogCompactor:
    """Moves the live records of logs of one write path, in one pass of garbage collection."""

    def __init__(self, path: WritePath, options: CompactionOptions, report: GarbageReport) -> None:
        self._path = path
        self._options = options
        self._report = report

    def compact(self, metadata: LogMetadata, torn_record: Finding | None) -> bool:
        """Move the live records of one log; return whether all are moved. `torn_record` is the
        finding for its last record if a kill cut that short, which does not count as damage."""
        if self._options.transactional:
            return self._compact_into_new(metadata, torn_record)
        return self._compact_into_current(metadata, torn_record)

    def _compact_into_current(self, metadata: LogMetadata, torn_record: Finding | None) -> bool:
        """Append live records to the active log; return whether all are moved, so that the old log
        can be removed. After damage, or if the compaction is given up, copied records stay moved.
        The index is pointed at the copies at the end, and whenever `max_outstanding` are copied."""
        path, damage = self._path, list[Finding]()
        moves: list[Move] = []
        outstanding_count = 0
        max_outstanding = self._options.max_outstanding or math.inf  # None: only at the end
        for live_records in self._throttled_records(metadata, torn_record, damage):
            with path.lock:
                moves += live_records.copy_by(path.logger.add_batch)
            self._report.moved_bytes += int(live_records.records.sizes.sum())
            outstanding_count += len(live_records.records)
            if outstanding_count >= max_outstanding:
                self._relocate_to_current(moves)
                moves, outstanding_count = [], 0
        self._relocate_to_current(moves)
        self._report.findings += damage
        return not damage and not self._options.throttle.is_given_up

    def _relocate_to_current(self, moves: list[Move]) -> None:
        """Make the copies in the active log durable, then point the index at them."""
        with self._path.noting_failure():
            self._path.logger.flush()
        self._relocate_copies(moves)

    def _compact_into_new(self, metadata: LogMetadata, torn_record: Finding | None) -> bool:
        """Copy live records to a new log, which appears whole or not at all. Return whether all are
        moved, so that the old log can be removed; after damage, or if given up, none is."""
        damage: list[Finding] = []
        moves: list[Move] = []
        copied_bytes = 0
        # After a crash before `publish`, the next start drops this file; the old log is valid.
        output = CompactionOutput(self._path.logger, metadata.log_id)
        try:
            for live_records in self._throttled_records(metadata, torn_record, damage):
                moves += live_records.copy_by(output.add_batch)
                copied_bytes += int(live_records.records.sizes.sum())
            is_given_up = bool(damage) or self._options.throttle.is_given_up
            if moves and not is_given_up:
                output.publish()
        finally:
            output.discard()
        self._report.findings += damage
        if is_given_up:
            return False
        # After a crash, the next start finds the recovery marker and does the rest.
        self._report.moved_bytes += copied_bytes
        self._relocate_copies(moves)
        output.remove_recovery_marker()
        return True

    def _relocate_copies(self, moves: list[Move]) -> None:
        """Durably point the index at the copies; count those of entries that did not change."""
        if moves:
            self._report.moved_entries += self._path.relocate_many(moves)
            self._path.flush()

    def _throttled_records(
        self, metadata: LogMetadata, torn_record: Finding | None, damage: list[Finding]
    ) -> Iterator[_LiveRecords]:
        """Yield the records to be moved, as the throttle permits; end early if it gives up."""
        throttle = self._options.throttle
        for live_records in self._live_records(metadata, torn_record, damage):
            for start, stop in throttle.throttled_slices(live_records.records.sizes):
                yield live_records.between(start, stop)
            if throttle.is_given_up:
                return

    def _live_records(
        self, metadata: LogMetadata, torn_record: Finding | None, damage: list[Finding]
    ) -> Iterator[_LiveRecords]:
        """Yield the records of a log that the index points at, in log order. Findings that may
        hide further records are added to `damage`, except `torn_record`: a crash cut off the last
        record."""
        path = self._path.logger.path(metadata.log_id)
        for batch in scan_log(path, damage):
            locations = make_locations(metadata.log_id, batch.position)
            live_rows = self._live_rows(metadata, batch, locations)
            live_records = _LiveRecords.of(batch, locations, live_rows)
            if len(live_records.records):
                yield live_records
        if damage == [torn_record]:
            damage.clear()  # it was never complete, so nothing is lost with the log

    def _live_rows(
        self, metadata: LogMetadata, batch: LogBatch, locations: Int64Array
    ) -> Iterator[tuple[LedgerId, Int64Array]]:
        """Yield each live ledger with the rows of its records that the index points at."""
        for ledger_id, rows in batch.ledgers():
            if ledger_id in metadata.ledgers:
                indexed_locations = self._path.get_locations(ledger_id, batch.entry_id[rows])
                is_live = indexed_locations == locations[rows]
                if is_live.any():
                    yield ledger_id, rows[is_live]


@dataclass
class _LiveRecords:
    """Records to be moved, in log order, with their ledgers and present locations."""

    records: RecordBatch
    ledgers: BatchLedgers
    old_locations: Int64Array

    @classmethod
    def of(
        cls, batch: LogBatch, locations: Int64Array, chosen: Iterable[tuple[LedgerId, Int64Array]]
    ) -> _LiveRecords:
        """Return the chosen rows of a batch; ledgers in the order of their first record."""
        ledger_indexes = np.full(len(batch), -1)  # -1: not chosen
        rows_by_ledger = dict(chosen)
        ledger_ids = sorted(rows_by_ledger, key=lambda ledger_id: int(rows_by_ledger[ledger_id][0]))
        for ledger_index, ledger_id in enumerate(ledger_ids):
            ledger_indexes[rows_by_ledger[ledger_id]] = ledger_index
        rows = np.flatnonzero(ledger_indexes >= 0)
        has_one_ledger = len(ledger_ids) == 1
        ledgers = BatchLedgers(ledger_ids, None if has_one_ledger else ledger_indexes[rows])
        return cls(batch.records().take(rows).framed(), ledgers, locations[rows])

    def between(self, start: int, stop: int) -> _LiveRecords:
        """Return the records start..stop (half open)."""
        if (start, stop) == (0, len(self.records)):
            return self
        return _LiveRecords(
            self.records.between(start, stop).framed(),
            self.ledgers.between(start, stop),
            self.old_locations[start:stop],
        )

    def copy_by(self, add_batch: _AddBatch) -> list[Move]:
        """Append the records to another log by `add_batch`; return each ledger's move: its entries
        with their old and new locations, by which the index is updated."""
        new_locations = np.concatenate(list(add_batch(self.records, self.ledgers)))
        rows_by_ledger = self.ledgers.rows_by_ledger(len(self.records))
        return [
            Move(
                ledger_id,
                self.records.entries[rows],
                self.old_locations[rows],
                new_locations[rows],
            )
            for ledger_id, rows in zip(self.ledgers.ledger_ids, rows_by_ledger)
        ]


def recover_compaction(write_path: WritePath, findings: list[Finding]) -> list[tuple[int, int]]:
    """Finish or drop the compactions that a crash interrupted; return (new, old) log ids. If the
    new log is damaged, `findings` says so and both logs stay; the index decides which is read."""
    logger = write_path.logger

    def relocate(new_id: int, old_id: int) -> bool:
        """Point the index at the copies, durably; return False, with no change, after damage."""
        # Read all of the new log before relocating anything: with damage, both logs stay.
        damage: list[Finding] = []
        for _ in scan_log(logger.path(new_id), damage):  # only for the findings
            pass
        findings.extend(damage)
        if damage:
            return False
        # Relocate only rows that still point into the old log: entries added again point elsewhere.
        for batch in scan_log(logger.path(new_id)):
            for ledger_id, rows in batch.ledgers():
                entry_ids = batch.entry_id[rows]
                locations = write_path.get_locations(ledger_id, entry_ids)
                is_old = (locations != 0) & (locations >> np.int64(32) == old_id)  # 0: absent
                new_locations = make_locations(new_id, batch.position[rows])
                moved_entries, old_locations = entry_ids[is_old], locations[is_old]
                write_path.relocate(
                    Move(ledger_id, moved_entries, old_locations, new_locations[is_old])
                )
        write_path.flush()
        return True

    drop_unfinished_outputs(logger.currents, logger.files)
    return finish_compactions(logger, logger.currents, relocate)
