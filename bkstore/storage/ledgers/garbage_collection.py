"""Garbage collection: removes entry logs without live entries and compacts those with few.

Upstream's counterparts are `GarbageCollectorThread`, `ScanAndCompareGarbageCollector`,
`EntryLogCompactor` and `TransactionalEntryLogCompactor`. One rule is stricter here: a record is
moved only if the index points at it. Upstream moves every record of a wanted ledger, so that an old
copy of an entry that was added twice comes back over the new one.

Order of a compaction: the copies become durable in their new log, then the index does, then the old
log is removed. A crash in between leaves copies that nothing points at. A log whose last record was
cut short by a kill is collected like any other. A log with other damage stays, since the ledgers it
held are unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from bkstore.errors import BkstoreError
from bkstore.formats.entry import BatchLedgers, RecordBatch
from bkstore.formats.entrylog import LogMetadata
from bkstore.ids import Int64Array, LedgerId, make_locations
from bkstore.index.api import Finding
from bkstore.storage.entry_log.compaction_log import (
    CompactionOutput,
    drop_unfinished_outputs,
    finish_compactions,
)
from bkstore.storage.entry_log.scan import LogBatch, read_log_metadata, scan_log
from bkstore.storage.entry_log.torn_end import find_torn_record, is_indexed_from
from bkstore.storage.ledgers.garbage_pass import (
    USAGE_BUCKETS,
    CompactionOptions,
    GarbagePass,
    GarbageReport,
)
from bkstore.storage.ledgers.write_paths.api import WritePath

_Move = tuple[LedgerId, Int64Array, Int64Array, Int64Array]
"""(ledger, entries, old locations, new locations)."""

_AddBatch = Callable[[RecordBatch, BatchLedgers], Iterator[Int64Array]]
"""Appends a framed batch to a log; yields locations."""


class GarbageCollector:
    """Collects the garbage of one write path; reads the ledgers map of each closed log once and
    keeps its ledgers in memory, reads records only to compact. Threads: one at a time; adds and
    reads continue meanwhile."""

    def __init__(self, write_path: WritePath, dir_index: int = 0) -> None:
        self._path = write_path
        self._dir_index = dir_index
        self._closed_logs: dict[int, LogMetadata] = {}
        self._torn_logs: dict[int, tuple[int, Finding]] = {}
        """By log id: the offset of a torn last record, and the finding of the scan."""

    def run(self, report: GarbageReport, options: GarbagePass) -> None:
        """Remove logs without live ledgers, then compact those with few live bytes."""
        if options.close_logs:
            self._close_unwanted(options.compaction)
        # Fix the set of logs first, then flush, then read the live ledgers: so every record of
        # these logs is in the index when its ledger is looked up.
        self._path.flush()
        with self._path.noting_failure():
            self._path.logger.flush()  # closes logs that were rolled, whatever there was to flush
        closed_logs = [log for log in self._path.logger.log_ids if self._is_closed(log)]
        self._path.flush()  # other threads may have rolled logs since the last flush
        live_ledgers = set(self._path.states.ledgers())
        for log_id in closed_logs:
            if options.is_stopped():
                return
            metadata = self._read_metadata(log_id, report)
            if metadata is None:
                continue
            for name in [name for name in metadata.ledgers if name not in live_ledgers]:
                metadata.remove_ledger(name)
            if not metadata.ledgers and self._is_whole(log_id, report):
                report.reclaimed_by_deletion += metadata.total_size
                self._remove(log_id, report)
        if options.compaction is not None:
            self._compact_below(options.compaction, report)
        self._count_logs(report)

    def _close_unwanted(self, compaction: CompactionOptions | None) -> None:
        """Close the active logs that the pass would collect if they were closed. A ledger created
        meanwhile may count as deleted: a log closed early does no harm."""
        self._path.flush()  # records in memory reach the log, whose ledgers map then counts them
        live_ledgers = set(self._path.states.ledgers())

        def is_unwanted(metadata: LogMetadata) -> bool:
            live_bytes = sum(
                size for name, size in metadata.ledgers.items() if name in live_ledgers
            )
            if not live_bytes or compaction is None:
                return live_bytes == 0
            live_metadata = LogMetadata(metadata.log_id, metadata.total_size, live_bytes)
            return (
                live_bytes < metadata.total_size
                and _usage(live_metadata, compaction) < compaction.threshold
            )

        self._path.logger.roll_matching(is_unwanted)

    def _count_logs(self, report: GarbageReport) -> None:
        for metadata in self._closed_logs.values():
            report.log_count += 1
            report.log_bytes += metadata.total_size
            report.live_bytes += metadata.remaining_size

    def _is_closed(self, log_id: int) -> bool:
        return self._path.logger.metadata_of(log_id) is None

    def _read_metadata(self, log_id: int, report: GarbageReport) -> LogMetadata | None:
        """Return a closed log's metadata; None if damage hides some of it: the log stays then."""
        if log_id not in self._closed_logs:
            damage: list[Finding] = []
            path = str(self._path.logger.path(log_id))
            metadata, source = read_log_metadata(path, log_id, findings=damage)
            report.findings += damage
            if source == "scan" and any(finding.severity == "damage" for finding in damage):
                torn_offset = find_torn_record(self._path.logger.path(log_id), damage)
                if torn_offset is None:
                    return None
                self._torn_logs[log_id] = (torn_offset, damage[0])
            self._closed_logs[log_id] = metadata
        return self._closed_logs[log_id]

    def _is_whole(self, log_id: int, report: GarbageReport) -> bool:
        """Return whether the metadata covers all records of a log. If the index points behind the
        torn record, it does not: the log stays, and the next pass reads and reports it again."""
        if log_id not in self._torn_logs:
            return True
        try:
            if not is_indexed_from(self._path.index, log_id, self._torn_logs[log_id][0]):
                return True
        except BkstoreError as error:
            report.findings.append(Finding.of(error))
        self._forget(log_id)
        return False

    def _forget(self, log_id: int) -> None:
        self._closed_logs.pop(log_id, None)
        self._torn_logs.pop(log_id, None)

    def _remove(self, log_id: int, report: GarbageReport) -> None:
        report.removed_bytes += self._path.logger.path(log_id).stat().st_size
        self._path.logger.remove(log_id)
        self._forget(log_id)
        report.removed_logs.append((self._dir_index, log_id))

    # -- compaction

    def _compact_below(self, compaction: CompactionOptions, report: GarbageReport) -> None:
        """Compact the logs below the threshold: by tenths of live bytes, then by log id, so that
        copies are laid out as by `GarbageCollectorThread.doCompactEntryLogs`."""
        deadline = compaction.clock() + (compaction.max_seconds or math.inf)
        candidates: list[tuple[int, int]] = []
        for metadata in self._closed_logs.values():
            usage = _usage(metadata, compaction)
            tenth = min(int(usage * USAGE_BUCKETS), USAGE_BUCKETS - 1)
            report.usage[tenth] += 1
            if usage < compaction.threshold:
                candidates.append((tenth, metadata.log_id))
        for _, log_id in sorted(candidates):
            if compaction.throttle.is_given_up or compaction.clock() >= deadline:
                return
            if not self._is_whole(log_id, report):
                continue
            metadata = self._closed_logs[log_id]
            compact = (
                self._compact_into_new if compaction.transactional else self._compact_into_current
            )
            with self._path.tracking_changes():
                is_compacted = compact(metadata, compaction, report)
            if is_compacted:
                report.compacted_logs.append((self._dir_index, log_id))
                report.reclaimed_by_compaction += metadata.total_size - metadata.remaining_size
                self._remove(log_id, report)

    def _compact_into_current(
        self, metadata: LogMetadata, compaction: CompactionOptions, report: GarbageReport
    ) -> bool:
        """Append live records to the active log; return whether all are moved. After damage, or if
        given up, records already copied stay moved, and the log stays because of the others."""
        path, damage = self._path, list[Finding]()
        moves: list[_Move] = []
        outstanding_count, max_outstanding = 0, compaction.max_outstanding or math.inf
        for live_records in self._throttled_records(metadata, compaction, damage):
            with path.lock:
                moves += live_records.copied(path.logger.add_batch)
            report.moved_bytes += int(live_records.records.sizes.sum())
            outstanding_count += len(live_records.records)
            if outstanding_count >= max_outstanding:
                self._relocate_to_current(moves, report)
                moves, outstanding_count = [], 0
        self._relocate_to_current(moves, report)
        report.findings += damage
        return not damage and not compaction.throttle.is_given_up

    def _relocate_to_current(self, moves: list[_Move], report: GarbageReport) -> None:
        """Make the copies in the active log durable, then point the index at them."""
        with self._path.noting_failure():
            self._path.logger.flush()
        self._relocate(moves, report)

    def _compact_into_new(
        self, metadata: LogMetadata, compaction: CompactionOptions, report: GarbageReport
    ) -> bool:
        """Copy live records to a new log, which appears whole or not at all; return whether all are
        moved: not after damage, or if the compaction is given up."""
        damage: list[Finding] = []
        moves: list[_Move] = []
        copied_bytes = 0
        # After a crash before `publish`, the next start drops this file; the old log is valid.
        output = CompactionOutput(self._path.logger, metadata.log_id)
        try:
            for live_records in self._throttled_records(metadata, compaction, damage):
                moves += live_records.copied(output.add_batch)
                copied_bytes += int(live_records.records.sizes.sum())
            is_given_up = bool(damage) or compaction.throttle.is_given_up
            if moves and not is_given_up:
                output.publish()
        finally:
            output.discard()
        report.findings += damage
        if is_given_up:
            return False
        # From here on, the next start would finish the switch. `remove_recovery_marker` removes the
        # marker for it.
        report.moved_bytes += copied_bytes
        self._relocate(moves, report)
        output.remove_recovery_marker()
        return True

    def _relocate(self, moves: list[_Move], report: GarbageReport) -> None:
        for ledger_id, entry_ids, old_locations, new_locations in moves:
            report.moved_entries += self._path.relocate(
                ledger_id, entry_ids, old_locations, new_locations
            )
        if moves:
            self._path.flush()

    def _throttled_records(
        self, metadata: LogMetadata, compaction: CompactionOptions, damage: list[Finding]
    ) -> Iterator[_LiveRecords]:
        """Yield the records to be moved, as the throttle permits; end early if it gives up."""
        throttle = compaction.throttle
        for live_records in self._live_records(metadata, damage):
            for start, stop in throttle.throttled_slices(live_records.records.sizes):
                yield live_records.between(start, stop)
            if throttle.is_given_up:
                return

    def _live_records(self, metadata: LogMetadata, damage: list[Finding]) -> Iterator[_LiveRecords]:
        """Yield the records of a log that the index points at, in log order; add to `damage`."""
        path = self._path.logger.path(metadata.log_id)
        for batch in scan_log(path, damage):
            locations = make_locations(metadata.log_id, batch.position)
            live_records = _LiveRecords.of(
                batch, locations, self._live_rows(metadata, batch, locations)
            )
            if len(live_records.records):
                yield live_records
        if metadata.log_id in self._torn_logs and damage == [self._torn_logs[metadata.log_id][1]]:
            damage.clear()  # the torn last record, which was never complete

    def _live_rows(
        self, metadata: LogMetadata, batch: LogBatch, locations: Int64Array
    ) -> Iterator[tuple[LedgerId, Int64Array]]:
        """Yield each live ledger with the rows of its records that the index points at."""
        for ledger_id, rows in batch.ledgers():
            if ledger_id in metadata.ledgers:
                is_live = (
                    self._path.get_locations(ledger_id, batch.entry_id[rows]) == locations[rows]
                )
                if is_live.any():
                    yield ledger_id, rows[is_live]


def _usage(metadata: LogMetadata, compaction: CompactionOptions) -> float:
    """Return the live share of a log; a log below `target_log_bytes` bytes counts as that large."""
    if metadata.usage == 1.0 or metadata.total_size >= compaction.target_log_bytes:
        return metadata.usage
    return metadata.remaining_size / compaction.target_log_bytes


@dataclass
class _LiveRecords:
    """Records to be moved, in log order, with their ledgers and present locations."""

    records: RecordBatch
    ledgers: BatchLedgers
    old_locations: Int64Array

    @classmethod
    def of(
        cls,
        batch: LogBatch,
        locations: Int64Array,
        chosen: Iterable[tuple[LedgerId, Int64Array]],
    ) -> _LiveRecords:
        """Return the chosen rows of a batch; ledgers in the order of their first record."""
        ledger_indexes, ledger_ids = np.full(len(batch), -1), list[LedgerId]()
        for ledger_id, rows in sorted(chosen, key=lambda pair: int(pair[1][0])):
            ledger_indexes[rows] = len(ledger_ids)
            ledger_ids.append(ledger_id)
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

    def copied(self, add_batch: _AddBatch) -> list[_Move]:
        """Append the records by `add_batch`; return the moves, one per ledger."""
        new_locations = np.concatenate(list(add_batch(self.records, self.ledgers)))
        rows_of = self.ledgers.rows_by_ledger(len(self.records))
        return [
            (ledger_id, self.records.entries[rows], self.old_locations[rows], new_locations[rows])
            for ledger_id, rows in zip(self.ledgers.ledger_ids, rows_of)
        ]


def recover_compaction(write_path: WritePath, findings: list[Finding]) -> list[tuple[int, int]]:
    """Finish or drop the compactions that a crash interrupted; return (new, old) log ids. If the
    new log is damaged, `findings` says so and both logs stay; the index decides which is read."""
    logger = write_path.logger

    def switch(new_id: int, old_id: int) -> bool:
        # Read all of the new log before relocating anything: with damage, both logs stay.
        damage: list[Finding] = []
        for _ in scan_log(logger.path(new_id), damage):
            pass
        findings.extend(damage)
        if damage:
            return False
        # Relocate only rows that still point into the old log: entries added again point elsewhere.
        for batch in scan_log(logger.path(new_id)):
            for ledger_id, rows in batch.ledgers():
                entry_ids = batch.entry_id[rows]
                locations = write_path.get_locations(ledger_id, entry_ids)
                is_in_old_log = (locations != 0) & (
                    locations >> np.int64(32) == old_id
                )  # location 0 means absent
                new_locations = make_locations(new_id, batch.position[rows])
                write_path.relocate(
                    ledger_id,
                    entry_ids[is_in_old_log],
                    locations[is_in_old_log],
                    new_locations[is_in_old_log],
                )
        write_path.flush()
        return True

    drop_unfinished_outputs(logger.currents, logger.files)
    return finish_compactions(logger, logger.currents, switch)
