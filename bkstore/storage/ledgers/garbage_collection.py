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

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from bkstore.errors import BkstoreError
from bkstore.formats.entry import BatchLedgers, RecordBatch
from bkstore.formats.entrylog import LogMetadata
from bkstore.ids import Int64Array, LedgerId, make_locations
from bkstore.index.api import Finding
from bkstore.storage.entry_log.compaction_log import Aside, drop_unfinished, finish_compacted
from bkstore.storage.entry_log.scan import LogBatch, read_log_metadata, scan_log
from bkstore.storage.entry_log.torn_end import cut_at, is_pointed_at
from bkstore.storage.ledgers.write_paths.api import WritePath

__all__ = [
    "MAJOR_THRESHOLD",
    "MINOR_THRESHOLD",
    "GarbageCollector",
    "GarbagePasses",
    "GarbageReport",
    "recover_compaction",
]

MINOR_THRESHOLD = 0.2
MAJOR_THRESHOLD = 0.8

Move = tuple[LedgerId, Int64Array, Int64Array, Int64Array]
"""(ledger, entries, old locations, new locations)."""

AddBatch = Callable[[RecordBatch, BatchLedgers], Iterator[Int64Array]]
"""Appends a framed batch to a log; yields locations."""


@dataclass
class GarbageReport:
    """What one pass did. Logs are log ids, by directory where db storage has several."""

    deleted_ledgers: list[LedgerId] = field(default_factory=list)
    removed_logs: list[tuple[int, int]] = field(default_factory=list)
    compacted_logs: list[tuple[int, int]] = field(default_factory=list)
    moved_entries: int = 0
    moved_bytes: int = 0
    removed_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)


class GarbagePasses:
    """How many passes compacted since the storage was opened, and how it goes now.

    `counts` and `last` (seconds since 1970, of the opening at first) have "major" and "minor": a
    pass with a threshold above that of a minor one is a major one, which is as good as a minor
    one for `last`. `running` is the kind of the pass that runs. Threads: any may read.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.running: str | None = None
        self.counts = {"major": 0, "minor": 0}
        self.last = dict.fromkeys(self.counts, clock())

    @contextmanager
    def one(self, threshold: float | None) -> Iterator[None]:
        """Count the pass that is the block, whatever becomes of it; one without compaction is
        none here."""
        kind = None
        if threshold is not None:
            kind = "minor" if threshold <= MINOR_THRESHOLD else "major"
        self.running = kind
        try:
            yield
        finally:
            self.running = None
            if kind is not None:
                self.last["minor"] = now = self._clock()
                self.last[kind] = now
                self.counts[kind] += 1


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

    def run(self, report: GarbageReport, threshold: float | None, transactional: bool) -> None:
        """Remove logs of unknown ledgers only, then compact those used less than `threshold`."""
        self._path.flush()  # closes logs that were rolled
        logs = [log for log in self._path.logger.log_ids if self._is_closed(log)]
        self._path.flush()  # so that the index knows all of them, whoever else flushes meanwhile
        wanted = set(self._path.states.ledgers())
        for log_id in logs:
            metadata = self._metadata(log_id, report)
            if metadata is None:
                continue
            for name in [name for name in metadata.ledgers if name not in wanted]:
                metadata.remove_ledger(name)
            if not metadata.ledgers and self._is_whole(log_id, report):
                self._remove(log_id, report)
        if threshold is not None:
            self._compact_below(threshold, report, transactional)

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

    def _compact_below(self, threshold: float, report: GarbageReport, transactional: bool) -> None:
        """Compact logs with a small share of wanted bytes first, by tenths, then by log id.

        The order of `GarbageCollectorThread.doCompactEntryLogs`, so that copies lie alike.
        """
        low = [log for log in self._known.values() if log.usage < threshold]
        for metadata in sorted(low, key=lambda log: (int(log.usage * 10), log.log_id)):
            if not self._is_whole(metadata.log_id, report):
                continue
            compact = self._compact_aside if transactional else self._compact_into_current
            with self._path.watching():
                done = compact(metadata, report)
            if done:
                report.compacted_logs.append((self._number, metadata.log_id))
                self._remove(metadata.log_id, report)

    def _compact_into_current(self, metadata: LogMetadata, report: GarbageReport) -> bool:
        """Append wanted records to the log that takes adds; return False if damage was met."""
        path, damage = self._path, list[Finding]()
        moves: list[Move] = []
        for wanted in self._wanted(metadata, damage):
            with path.lock:
                moves += wanted.copied(path.logger.add_batch)
            report.moved_bytes += int(wanted.records.sizes.sum())
        with path.noting_failure():
            path.logger.flush()
        return self._switch(moves, damage, report)

    def _compact_aside(self, metadata: LogMetadata, report: GarbageReport) -> bool:
        """Write wanted records to a log of their own, which appears at once or not at all."""
        damage: list[Finding] = []
        moves: list[Move] = []
        aside = Aside(self._path.logger, metadata.log_id)
        try:
            for wanted in self._wanted(metadata, damage):
                moves += wanted.copied(aside.add_batch)
                report.moved_bytes += int(wanted.records.sizes.sum())
            if moves and not damage:
                aside.publish()
        finally:
            aside.discard()
        if damage:
            report.findings += damage
            return False
        done = self._switch(moves, damage, report)
        aside.settle()
        return done

    def _switch(self, moves: list[Move], damage: list[Finding], report: GarbageReport) -> bool:
        """Point the index at the copies and make that durable; return whether all is moved."""
        for name, entries, old, new in moves:
            report.moved_entries += self._path.relocate(name, entries, old, new)
        if moves:
            self._path.flush()
        report.findings += damage
        return not damage

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

    def copied(self, add_batch: AddBatch) -> list[Move]:
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
        damage: list[Finding] = []
        for _ in scan_log(logger.path(new_id), damage):
            pass
        findings.extend(damage)
        if damage:
            return False
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
