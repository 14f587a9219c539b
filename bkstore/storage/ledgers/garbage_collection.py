"""Garbage collection: entry logs without wanted bytes go, those with few are compacted.

Upstream's counterparts are `GarbageCollectorThread`, `ScanAndCompareGarbageCollector`,
`EntryLogCompactor` and `TransactionalEntryLogCompactor`. One rule is stricter here: a record is
moved only if the index points at it. Upstream moves every record of a wanted ledger, so that an
old copy of an entry that was added twice comes back over the new one.

Order of a compaction: copies are durable in their new log, then the index is, then the old log
goes. A crash in between leaves copies that nothing points at.

A log that a kill cut inside its last record is collected like any other. One with other damage
stays: which ledgers it had is not known.
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
    drop_unfinished,
    finish_compacted,
)
from bkstore.storage.entry_log.scan import LogBatch, read_log_metadata, scan_log
from bkstore.storage.entry_log.torn_end import cut_at, is_pointed_at
from bkstore.storage.ledgers.garbage_pass import (
    USAGE_BUCKETS,
    Compaction,
    GarbagePass,
    GarbageReport,
)
from bkstore.storage.ledgers.write_paths.api import WritePath

_Move = tuple[LedgerId, Int64Array, Int64Array, Int64Array]
"""(ledger, entries, old locations, new locations)."""

_AddBatch = Callable[[RecordBatch, BatchLedgers], Iterator[Int64Array]]
"""Appends a framed batch to a log; yields locations."""


class GarbageCollector:
    """Collects the garbage of one write path; keeps what it learnt of closed logs.

    Memory: the ledgers of each closed log. Reads a log's ledgers map once, and a log that is
    compacted. Threads: one at a time; adds and reads go on meanwhile.
    """

    def __init__(self, path: WritePath, number: int = 0) -> None:
        self._path = path
        self._number = number
        self._known: dict[int, LogMetadata] = {}
        self._cut: dict[int, tuple[int, Finding]] = {}
        """Where a log's last record was cut, and what a scan says of it."""

    def run(self, report: GarbageReport, asked: GarbagePass) -> None:
        """Remove logs of unknown ledgers only, then compact those with little in use."""
        if asked.close_logs:
            self._close_unwanted(asked.compaction)
        self._path.flush()
        with self._path.noting_failure():
            self._path.logger.flush()  # closes logs that were rolled, whatever there was to flush
        logs = [log for log in self._path.logger.log_ids if self._is_closed(log)]
        self._path.flush()  # so that the index knows all of them, whoever else flushes meanwhile
        wanted = set(self._path.states.ledgers())
        for log_id in logs:
            if asked.is_stopped():
                return
            metadata = self._metadata(log_id, report)
            if metadata is None:
                continue
            for name in [name for name in metadata.ledgers if name not in wanted]:
                metadata.remove_ledger(name)
            if not metadata.ledgers and self._is_whole(log_id, report):
                report.deleted_garbage += metadata.total_size
                self._remove(log_id, report)
        if asked.compaction is not None:
            self._compact_below(asked.compaction, report)
        self._count_logs(report)

    def _close_unwanted(self, compaction: Compaction | None) -> None:
        """Close the logs that take records and that the pass would collect if they did not.

        A ledger that is made meanwhile may be taken for a deleted one: then a log is closed
        early, and nothing else.
        """
        self._path.flush()  # records in memory get into the log, which says then whose they are
        wanted = set(self._path.states.ledgers())

        def is_unwanted(metadata: LogMetadata) -> bool:
            live = sum(size for name, size in metadata.ledgers.items() if name in wanted)
            if not live or compaction is None:
                return live == 0
            left = LogMetadata(metadata.log_id, metadata.total_size, live)
            return live < metadata.total_size and _usage(left, compaction) < compaction.threshold

        self._path.logger.roll_those(is_unwanted)

    def _count_logs(self, report: GarbageReport) -> None:
        """Count what is left."""
        for metadata in self._known.values():
            report.logs += 1
            report.log_bytes += metadata.total_size
            report.live_bytes += metadata.remaining_size

    def _is_closed(self, log_id: int) -> bool:
        return self._path.logger.metadata_of(log_id) is None

    def _metadata(self, log_id: int, report: GarbageReport) -> LogMetadata | None:
        """Return what a closed log holds; None if damage hides some of it, so that it stays."""
        if log_id not in self._known:
            damage: list[Finding] = []
            path = str(self._path.logger.path(log_id))
            metadata, source = read_log_metadata(path, log_id, findings=damage)
            report.findings += damage
            if source == "scan" and any(found.severity == "damage" for found in damage):
                at = cut_at(self._path.logger.path(log_id), damage)
                if at is None:
                    return None
                self._cut[log_id] = (at, damage[0])
            self._known[log_id] = metadata
        return self._known[log_id]

    def _is_whole(self, log_id: int, report: GarbageReport) -> bool:
        """Return whether no record was behind those that were read of a log.

        If not, it stays, and the next pass reads it again, and tells of it.
        """
        if log_id not in self._cut:
            return True
        try:
            if not is_pointed_at(self._path.index, log_id, self._cut[log_id][0]):
                return True
        except BkstoreError as error:
            report.findings.append(Finding.of(error))
        self._forget(log_id)
        return False

    def _forget(self, log_id: int) -> None:
        self._known.pop(log_id, None)
        self._cut.pop(log_id, None)

    def _remove(self, log_id: int, report: GarbageReport) -> None:
        report.removed_bytes += self._path.logger.path(log_id).stat().st_size
        self._path.logger.remove(log_id)
        self._forget(log_id)
        report.removed_logs.append((self._number, log_id))

    # -- compaction

    def _compact_below(self, compaction: Compaction, report: GarbageReport) -> None:
        """Compact logs with a small share of wanted bytes first, by tenths, then by log id.

        The order of `GarbageCollectorThread.doCompactEntryLogs`, so that copies lie alike.
        """
        until = compaction.clock() + (compaction.max_time or math.inf)
        tenths: list[tuple[int, int]] = []
        for metadata in self._known.values():
            usage = _usage(metadata, compaction)
            tenth = min(int(usage * USAGE_BUCKETS), USAGE_BUCKETS - 1)
            report.usage[tenth] += 1
            if usage < compaction.threshold:
                tenths.append((tenth, metadata.log_id))
        for _, log_id in sorted(tenths):
            if compaction.throttle.given_up or compaction.clock() >= until:
                return
            if not self._is_whole(log_id, report):
                continue
            metadata = self._known[log_id]
            compact = (
                self._compact_into_new if compaction.transactional else self._compact_into_current
            )
            with self._path.watching():
                done = compact(metadata, compaction, report)
            if done:
                report.compacted_logs.append((self._number, log_id))
                report.compacted_garbage += metadata.total_size - metadata.remaining_size
                self._remove(log_id, report)

    def _compact_into_current(
        self, metadata: LogMetadata, compaction: Compaction, report: GarbageReport
    ) -> bool:
        """Append wanted records to the log that takes adds; return whether all are moved.

        They are not where damage was met, or where the compaction is given up: what was copied
        until then is moved for good, and the log stays with the rest.
        """
        path, damage = self._path, list[Finding]()
        moves: list[_Move] = []
        outstanding, most = 0, compaction.max_outstanding or math.inf
        for wanted in self._paced(metadata, compaction, damage):
            with path.lock:
                moves += wanted.copied(path.logger.add_batch)
            report.moved_bytes += int(wanted.records.sizes.sum())
            outstanding += len(wanted.records)
            if outstanding >= most:
                self._switch_to_current(moves, report)
                moves, outstanding = [], 0
        self._switch_to_current(moves, report)
        report.findings += damage
        return not damage and not compaction.throttle.given_up

    def _switch_to_current(self, moves: list[_Move], report: GarbageReport) -> None:
        with self._path.noting_failure():
            self._path.logger.flush()
        self._switch(moves, report)

    def _compact_into_new(
        self, metadata: LogMetadata, compaction: Compaction, report: GarbageReport
    ) -> bool:
        """Write wanted records to a log of their own, which appears at once or not at all."""
        damage: list[Finding] = []
        moves: list[_Move] = []
        size = 0
        # Until `publish` a crash leaves a file that the next start drops: the old log counts.
        output = CompactionOutput(self._path.logger, metadata.log_id)
        try:
            for wanted in self._paced(metadata, compaction, damage):
                moves += wanted.copied(output.add_batch)
                size += int(wanted.records.sizes.sum())
            given_up = bool(damage) or compaction.throttle.given_up
            if moves and not given_up:
                output.publish()
        finally:
            output.discard()
        report.findings += damage
        if given_up:
            return False
        # From now on the next start would finish the switch: what asks for that goes last.
        report.moved_bytes += size
        self._switch(moves, report)
        output.settle()
        return True

    def _switch(self, moves: list[_Move], report: GarbageReport) -> None:
        """Point the index at the copies and make that durable."""
        for name, entries, old, new in moves:
            report.moved_entries += self._path.relocate(name, entries, old, new)
        if moves:
            self._path.flush()

    def _paced(
        self, metadata: LogMetadata, compaction: Compaction, damage: list[Finding]
    ) -> Iterator[_Wanted]:
        """Yield the records that are to be moved, as fast as the throttle lets them pass.

        Ends early where the compaction is given up.
        """
        throttle = compaction.throttle
        for wanted in self._wanted(metadata, damage):
            for start, stop in throttle.slices(wanted.records.sizes):
                yield wanted.between(start, stop)
            if throttle.given_up:
                return

    def _wanted(self, metadata: LogMetadata, damage: list[Finding]) -> Iterator[_Wanted]:
        """Yield the records of a log that the index points at, in log order."""
        path = self._path.logger.path(metadata.log_id)
        for batch in scan_log(path, damage):
            places = make_locations(metadata.log_id, batch.position)
            kept = _Wanted.of(batch, places, self._pointed_at(metadata, batch, places))
            if len(kept.records):
                yield kept
        if metadata.log_id in self._cut and damage == [self._cut[metadata.log_id][1]]:
            damage.clear()  # a record that never was whole

    def _pointed_at(
        self, metadata: LogMetadata, batch: LogBatch, places: Int64Array
    ) -> Iterator[tuple[LedgerId, Int64Array]]:
        """Yield each wanted ledger, with the rows of its records that the index points at."""
        for name, rows in batch.ledgers():
            if name in metadata.ledgers:
                here = self._path.locations_of(name, batch.entry_id[rows]) == places[rows]
                if here.any():
                    yield name, rows[here]


def _usage(metadata: LogMetadata, compaction: Compaction) -> float:
    """Return the share of a log that is wanted; of a small one that of a full log, if asked."""
    if metadata.usage == 1.0 or metadata.total_size >= compaction.full_log:
        return metadata.usage
    return metadata.remaining_size / compaction.full_log


@dataclass
class _Wanted:
    """Records that are to be moved, in log order; of which ledgers; where they lie now."""

    records: RecordBatch
    ledgers: BatchLedgers
    old: Int64Array

    @classmethod
    def of(
        cls,
        batch: LogBatch,
        places: Int64Array,
        chosen: Iterable[tuple[LedgerId, Int64Array]],
    ) -> _Wanted:
        """Return the chosen rows of a batch."""
        numbers, names = np.full(len(batch), -1), list[LedgerId]()
        for name, rows in sorted(chosen, key=lambda pair: int(pair[1][0])):
            numbers[rows] = len(names)
            names.append(name)
        rows = np.flatnonzero(numbers >= 0)
        one = len(names) == 1
        ledgers = BatchLedgers(names, None if one else numbers[rows])
        return cls(batch.records().at(rows).framed(), ledgers, places[rows])

    def between(self, start: int, stop: int) -> _Wanted:
        """Return the records start..stop (half open)."""
        if (start, stop) == (0, len(self.records)):
            return self
        return _Wanted(
            self.records.between(start, stop).framed(),
            self.ledgers.between(start, stop),
            self.old[start:stop],
        )

    def copied(self, add_batch: _AddBatch) -> list[_Move]:
        """Append the records by `add_batch`; return what moves where, by ledger."""
        new = np.concatenate(list(add_batch(self.records, self.ledgers)))
        rows_of = self.ledgers.rows(len(self.records))
        return [
            (name, self.records.entries[rows], self.old[rows], new[rows])
            for name, rows in zip(self.ledgers.names, rows_of)
        ]


def recover_compaction(path: WritePath, findings: list[Finding]) -> list[tuple[int, int]]:
    """Finish or drop the compactions that a crash interrupted; return (new, old) log ids.

    With damage in the new log, which is added to `findings`, both logs stay as they are: the
    index says which record it means.
    """
    logger = path.logger

    def switch(new_id: int, old_id: int) -> bool:
        # All of the new log is read before anything is switched: with damage both logs stay.
        damage: list[Finding] = []
        for _ in scan_log(logger.path(new_id), damage):
            pass
        findings.extend(damage)
        if damage:
            return False
        # Only rows that still point into the old log: what was added again since lies elsewhere.
        for batch in scan_log(logger.path(new_id)):
            for name, rows in batch.ledgers():
                entries = batch.entry_id[rows]
                here = path.locations_of(name, entries)
                moved = (here != 0) & (here >> np.int64(32) == old_id)  # 0 is no place, not log 0
                new = make_locations(new_id, batch.position[rows])
                path.relocate(name, entries[moved], here[moved], new[moved])
        path.flush()
        return True

    drop_unfinished(logger.currents, logger.files)
    return finish_compacted(logger, logger.currents, switch)
