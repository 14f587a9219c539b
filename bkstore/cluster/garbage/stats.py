"""GarbageStats: counters over all passes of a collector, with `GarbageCollectorStats`' names."""

from __future__ import annotations

from dataclasses import dataclass, field

from bkstore.storage.ledgers.garbage_pass import USAGE_BUCKETS, GarbageReport


@dataclass
class OpStats:
    """How often an operation succeeded and failed, and the total seconds that it took."""

    succeeded: int = 0
    failed: int = 0
    seconds_succeeded: float = 0.0
    seconds_failed: float = 0.0

    def record(self, seconds: float, succeeded: bool) -> None:
        """Count one operation, with the seconds that it took."""
        if succeeded:
            self.succeeded += 1
            self.seconds_succeeded += seconds
        else:
            self.failed += 1
            self.seconds_failed += seconds


@dataclass
class GarbageStats:
    """Counters, and values of the last pass. Threads: one writes, any may read."""

    passes: OpStats = field(default_factory=OpStats)
    """`THREAD_RUNTIME`: whole passes."""
    deletion_scans: OpStats = field(default_factory=OpStats)
    """`GC_LEDGER_RUNTIME`: finding and deleting deleted ledgers; failed if the store did."""
    deleted_ledgers: int = 0
    """`DELETED_LEDGER_TOTAL`."""
    reclaimed_by_deletion: int = 0
    """`RECLAIMED_DELETION_SPACE_BYTES`: bytes of removed logs without live ledgers."""
    reclaimed_by_compaction: int = 0
    """`RECLAIMED_COMPACTION_SPACE_BYTES`: bytes of unwanted records in compacted logs."""
    moved_entries: int = 0
    moved_bytes: int = 0
    damage_count: int = 0
    """Number of findings, for example logs that were not compacted because of damage."""
    active_ledgers: int = 0
    """`ACTIVE_LEDGER_TOTAL`: ledgers here at the end of the last pass."""
    logs: int = 0
    """`ACTIVE_ENTRY_LOG_TOTAL`: closed entry logs, with `log_bytes` (`ENTRY_LOG_SPACE_BYTES`), of
    which `live_bytes` (`ACTIVE_ENTRY_LOG_SPACE_BYTES`) are wanted."""
    log_bytes: int = 0
    live_bytes: int = 0
    usage: list[int] = field(default_factory=lambda: [0] * USAGE_BUCKETS)
    """`entry_log_usage_buckets_le_10` to `..._100`: logs before the last compaction, by tenths."""

    def add(self, report: GarbageReport, active_ledgers: int) -> None:
        """Add the report of a pass."""
        self.deleted_ledgers += len(report.deleted_ledgers)
        self.reclaimed_by_deletion += report.reclaimed_by_deletion
        self.reclaimed_by_compaction += report.reclaimed_by_compaction
        self.moved_entries += report.moved_entries
        self.moved_bytes += report.moved_bytes
        self.damage_count += len(report.findings)
        self.active_ledgers = active_ledgers
        self.logs, self.log_bytes = report.log_count, report.log_bytes
        self.live_bytes = report.live_bytes
        if sum(report.usage):  # a pass without a compaction counts no logs: keep the last ones
            self.usage = list(report.usage)
