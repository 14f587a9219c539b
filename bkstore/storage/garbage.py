"""Garbage collection: entry logs without wanted bytes go, those with few are compacted.

Upstream's counterparts are `GarbageCollectorThread`, `ScanAndCompareGarbageCollector`,
`EntryLogCompactor` and `TransactionalEntryLogCompactor`. One rule is stricter here: a record is
moved only if the index points at it. Upstream moves every record of a wanted ledger, so that an
old copy of an entry that was added twice comes back over the new one.

Order of a compaction: copies are durable in their new log, then the index is, then the old log
goes. A crash in between leaves copies that nothing points at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from bkstore.formats.entrylog import LogMetadata
from bkstore.ids import Int64Array, LedgerId, make_locations
from bkstore.index.api import Finding
from bkstore.storage.aside import Aside, drop_unfinished, finish_compacted
from bkstore.storage.log_scan import LogBatch, read_log_metadata, scan_log
from bkstore.storage.write_path import WritePath

__all__ = [
    "MAJOR_THRESHOLD",
    "MINOR_THRESHOLD",
    "GarbageCollector",
    "GarbageReport",
    "recover_compaction",
]

MINOR_THRESHOLD = 0.2
MAJOR_THRESHOLD = 0.8

Move = tuple[LedgerId, Int64Array, Int64Array, Int64Array]
"""(ledger, entries, old locations, new locations)."""


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


class GarbageCollector:
    """Collects the garbage of one write path; keeps what it learnt of closed logs.

    Memory: the ledgers of each closed log. Reads a log's ledgers map once, and a log that is
    compacted. Threads: one at a time; adds and reads go on meanwhile.
    """

    def __init__(self, path: WritePath, number: int = 0) -> None:
        self._path = path
        self._number = number
        self._known: dict[int, LogMetadata] = {}

    def run(self, report: GarbageReport, threshold: float | None, transactional: bool) -> None:
        """Remove logs of unknown ledgers only, then compact those used less than `threshold`."""
        self._path.flush()
        logs = [log for log in self._path.logger.log_ids if self._is_closed(log)]
        wanted = set(self._path.states.ledgers())
        for log_id in logs:
            metadata = self._metadata(log_id, report)
            if metadata is None:
                continue
            for name in [name for name in metadata.ledgers if name not in wanted]:
                metadata.remove_ledger(name)
            if not metadata.ledgers:
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
                return None
            self._known[log_id] = metadata
        return self._known[log_id]

    def _remove(self, log_id: int, report: GarbageReport) -> None:
        report.removed_bytes += self._path.logger.path(log_id).stat().st_size
        self._path.logger.remove(log_id)
        self._known.pop(log_id, None)
        report.removed_logs.append((self._number, log_id))

    # -- compaction

    def _compact_below(self, threshold: float, report: GarbageReport, transactional: bool) -> None:
        """Compact the logs with the smallest share of wanted bytes first."""
        low = [log for log in self._known.values() if log.usage < threshold]
        for metadata in sorted(low, key=lambda log: (log.usage, log.log_id)):
            if transactional:
                done = self._compact_aside(metadata, report)
            else:
                done = self._compact_into_current(metadata, report)
            if done:
                report.compacted_logs.append((self._number, metadata.log_id))
                self._remove(metadata.log_id, report)

    def _compact_into_current(self, metadata: LogMetadata, report: GarbageReport) -> bool:
        """Append wanted records to the log that takes adds; return False if damage was met."""
        path, damage = self._path, list[Finding]()
        moves: list[Move] = []
        for name, entries, old, records in self._wanted(metadata, damage):
            with path.lock:
                new = path.logger.add_many(name, records)
            moves.append((name, entries, old, new))
            report.moved_bytes += sum(map(len, records))
        path.logger.flush()
        return self._switch(moves, damage, report)

    def _compact_aside(self, metadata: LogMetadata, report: GarbageReport) -> bool:
        """Write wanted records to a log of their own, which appears at once or not at all."""
        damage: list[Finding] = []
        moves: list[Move] = []
        aside = Aside(self._path.logger, metadata.log_id)
        try:
            for name, entries, old, records in self._wanted(metadata, damage):
                moves.append((name, entries, old, aside.add_many(name, records)))
                report.moved_bytes += sum(map(len, records))
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

    def _wanted(
        self, metadata: LogMetadata, damage: list[Finding]
    ) -> Iterator[tuple[LedgerId, Int64Array, Int64Array, list[bytes]]]:
        """Yield (ledger, entries, locations, records) of a log that the index points at."""
        path = self._path.logger.path(metadata.log_id)
        for batch in scan_log(path, findings=damage):
            for name, rows in _by_ledger(batch):
                if name not in metadata.ledgers:
                    continue
                entries = batch.entry_id[rows]
                old = make_locations(metadata.log_id, batch.position[rows])
                here = self._path.locations_of(name, entries) == old
                if here.any():
                    records = [batch.record(at) for at in rows[here].tolist()]
                    yield name, entries[here], old[here], records


def _by_ledger(batch: LogBatch) -> Iterator[tuple[LedgerId, Int64Array]]:
    """Yield (ledger, row numbers) of a batch, rows in log order."""
    order = np.lexsort((batch.ledger_id, batch.scope_id))
    scopes, ledgers = batch.scope_id[order], batch.ledger_id[order]
    breaks = np.flatnonzero((scopes[1:] != scopes[:-1]) | (ledgers[1:] != ledgers[:-1])) + 1
    for rows in np.split(order, breaks):
        if rows.size:
            at = rows[0]
            yield LedgerId.from_signed(int(batch.scope_id[at]), int(batch.ledger_id[at])), rows


def recover_compaction(path: WritePath) -> list[tuple[int, int]]:
    """Finish or drop the compactions that a crash interrupted; return (new, old) log ids.

    Damage in the new log raises `CorruptionError`: the old one is still there then.
    """
    logger = path.logger

    def switch(new_id: int, old_id: int) -> None:
        for batch in scan_log(logger.path(new_id)):
            for name, rows in _by_ledger(batch):
                entries = batch.entry_id[rows]
                here = path.locations_of(name, entries)
                moved = here >> np.int64(32) == old_id
                new = make_locations(new_id, batch.position[rows])
                path.relocate(name, entries[moved], here[moved], new[moved])
        path.flush()

    drop_unfinished(logger.currents, logger.files)
    return finish_compacted(logger, logger.currents, switch)
