"""Garbage collection: removes entry logs without live entries and compacts those with few.

BookKeeper's counterparts are `GarbageCollectorThread` and `ScanAndCompareGarbageCollector`. A log
whose last record was cut short by a kill is collected like any other. A log with other damage
stays, since the ledgers it held are unknown. `compaction` copies live records.
"""

from __future__ import annotations

import math

from bkstore.errors import BkstoreError
from bkstore.formats.entrylog import LogMetadata
from bkstore.index.api import Finding
from bkstore.storage.entry_log.scan import read_log_metadata
from bkstore.storage.entry_log.torn_end import find_torn_record, is_indexed_from
from bkstore.storage.ledgers.compaction import LogCompactor, choose_logs, usage_of
from bkstore.storage.ledgers.garbage_pass import CompactionOptions, GarbagePass, GarbageReport
from bkstore.storage.ledgers.write_paths.api import WritePath


class GarbageCollector:
    """Collects the garbage of one write path; reads the ledgers map of each closed log once, reads
    records only to compact. Threads: one at a time; adds and reads continue meanwhile."""

    def __init__(self, write_path: WritePath, dir_index: int = 0) -> None:
        """Collect the garbage of one directory: the logs and index of a write path."""
        self._path = write_path
        self._dir_index = dir_index
        self._closed_logs: dict[int, LogMetadata] = {}
        self._torn_offsets: dict[int, int] = {}
        self._torn_findings: dict[int, Finding] = {}
        """By log id: the offset of a torn last record, and the finding of the scan."""

    def run(self, report: GarbageReport, options: GarbagePass) -> None:
        """Remove logs without live ledgers, then compact those with few live bytes."""
        if options.close_logs:
            self._close_unwanted(options.compaction)
        # Fix the set of logs first, then flush, then read the live ledgers: so every record of
        # these logs is in the index when its ledger is looked up.
        self._path.flush()
        with self._path.noting_failure():
            # `flush` of the path does not do this if it has no entries: close the rolled logs.
            self._path.logger.flush()
        closed_logs = [log for log in self._path.logger.log_ids if self._is_closed(log)]
        self._path.flush()  # other threads may have rolled logs since the last flush
        live_ledgers = set(self._path.states.ledgers())
        for log_id in closed_logs:
            if options.is_stopped():
                return
            metadata = self._read_metadata(log_id, report)
            if metadata is None:
                continue
            for ledger_id in metadata.ledgers.keys() - live_ledgers:
                metadata.remove_ledger(ledger_id)
            if not metadata.ledgers and self._verify_metadata(log_id, report):
                report.reclaimed_by_deletion += metadata.total_size
                self._remove_log(log_id, report)
        if options.compaction is not None:
            self._compact_logs(options.compaction, report)
        self._count_logs(report)

    def _close_unwanted(self, compaction: CompactionOptions | None) -> None:
        """Close the active logs that the pass would remove or compact if they were closed. A ledger
        created meanwhile may be missing from `live_ledgers`; a log closed early does no harm."""
        self._path.flush()  # records in memory reach the log, whose ledgers map then counts them
        live_ledgers = set(self._path.states.ledgers())

        def is_unwanted(metadata: LogMetadata) -> bool:
            """Return whether the log has no live bytes, or too few for this compaction."""
            live_sizes = (size for id_, size in metadata.ledgers.items() if id_ in live_ledgers)
            live_bytes = sum(live_sizes)
            if live_bytes == 0:
                return True
            if compaction is None or live_bytes == metadata.total_size:  # nothing to reclaim
                return False
            live_metadata = LogMetadata(metadata.log_id, metadata.total_size, live_bytes)
            return usage_of(live_metadata, compaction) < compaction.threshold

        self._path.logger.roll_matching(is_unwanted)

    def _count_logs(self, report: GarbageReport) -> None:
        """Add the closed logs to the report: their number, bytes, and live bytes."""
        for metadata in self._closed_logs.values():
            report.log_count += 1
            report.log_bytes += metadata.total_size
            report.live_bytes += metadata.remaining_size

    def _is_closed(self, log_id: int) -> bool:
        return self._path.logger.metadata_of(log_id) is None

    def _read_metadata(self, log_id: int, report: GarbageReport) -> LogMetadata | None:
        """Return a closed log's metadata; None if damage hides some of it: the log stays then. If
        only the last record is torn, the metadata are complete, and the offset is noted."""
        if log_id not in self._closed_logs:
            damage: list[Finding] = []
            path = str(self._path.logger.path(log_id))
            metadata, source = read_log_metadata(path, log_id, findings=damage)
            report.findings += damage
            if source == "scan" and any(finding.severity == "damage" for finding in damage):
                torn_offset = find_torn_record(self._path.logger.path(log_id), damage)
                if torn_offset is None:
                    return None
                self._torn_offsets[log_id], self._torn_findings[log_id] = torn_offset, damage[0]
            self._closed_logs[log_id] = metadata
        return self._closed_logs[log_id]

    def _verify_metadata(self, log_id: int, report: GarbageReport) -> bool:
        """Return whether the metadata covers all records of a log. It does not if the index points
        at the record that looked torn, or behind it: that is damage, not a crash. The log stays
        then, and the next pass reads it again. If the index cannot be read, the log stays too."""
        torn_offset = self._torn_offsets.get(log_id)
        if torn_offset is None:
            return True
        try:
            if not is_indexed_from(self._path.index, log_id, torn_offset):
                return True
        except BkstoreError as error:
            report.findings.append(Finding.of(error))
        self._forget_log(log_id)
        return False

    def _forget_log(self, log_id: int) -> None:
        self._closed_logs.pop(log_id, None)
        self._torn_offsets.pop(log_id, None)
        self._torn_findings.pop(log_id, None)

    def _remove_log(self, log_id: int, report: GarbageReport) -> None:
        report.removed_bytes += self._path.logger.path(log_id).stat().st_size
        self._path.logger.remove(log_id)
        self._forget_log(log_id)
        report.removed_logs.append((self._dir_index, log_id))

    def _compact_logs(self, compaction: CompactionOptions, report: GarbageReport) -> None:
        """Compact the logs below the threshold, the emptiest first."""
        deadline = compaction.clock() + (compaction.max_seconds or math.inf)
        compactor = LogCompactor(self._path, compaction, report)
        for log_id in choose_logs(self._closed_logs.values(), compaction, report):
            if compaction.throttle.is_given_up or compaction.clock() >= deadline:
                return
            if not self._verify_metadata(log_id, report):
                continue
            metadata = self._closed_logs[log_id]
            with self._path.tracking_changes():  # so that unchanged ledgers need no second look-up
                is_compacted = compactor.compact(metadata, self._torn_findings.get(log_id))
            if is_compacted:
                report.compacted_logs.append((self._dir_index, log_id))
                report.reclaimed_by_compaction += metadata.total_size - metadata.remaining_size
                self._remove_log(log_id, report)
