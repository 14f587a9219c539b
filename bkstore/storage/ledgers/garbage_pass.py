"""The options of one garbage collection pass, and the report of what it did."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.storage.ledgers.compaction_throttle import UNLIMITED, CompactionThrottle

MINOR_THRESHOLD = 0.2
MAJOR_THRESHOLD = 0.8
USAGE_BUCKETS = 10
"""Logs are counted and compacted by tenths of live bytes."""

CompactionKind = Literal["major", "minor"]

MarkSuspects = Callable[[list[LedgerId]], None]
"""Called with ledgers before a metadata store is asked whether they exist."""

FindDeleted = Callable[[list[LedgerId], MarkSuspects], Iterable[list[LedgerId]]]
"""Takes the ledgers of a bookie; yields groups of those that count as deleted. Each must be a
suspect before the store is asked for it: a later add shows that it was created again."""


@dataclass(frozen=True, kw_only=True)
class CompactionOptions:
    """How a pass compacts entry logs.

    Logs whose live share is below `threshold` are compacted. `max_seconds` seconds after the start,
    no further log is started. After `max_outstanding` copied entries the index is pointed at
    them; None waits for the end of each log, as `transactional` compaction always does. A log
    smaller than `target_log_bytes` bytes counts as that large (`useTargetEntryLogSizeForGc`).
    """

    threshold: float = MAJOR_THRESHOLD
    kind: CompactionKind = "major"
    transactional: bool = False
    max_seconds: float | None = None
    max_outstanding: int | None = None
    target_log_bytes: int = 0
    throttle: CompactionThrottle = UNLIMITED
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, kw_only=True)
class GarbagePass:
    """What one pass does: which ledgers it deletes, and whether it compacts.

    Without `find_deleted` no ledger is deleted, without `compaction` no log is compacted. With
    `close_logs` an active log is closed if the pass would collect it once closed, so that the
    space of deleted ledgers does not wait for the log to be full. The pass ends early, with
    what it started finished or given up, once `is_stopped` returns True.
    """

    find_deleted: FindDeleted | None = None
    compaction: CompactionOptions | None = None
    close_logs: bool = False
    is_stopped: Callable[[], bool] = lambda: False


@dataclass
class GarbageReport:
    """What one pass did. A log is (directory index, log id); only db storage has several."""

    deleted_ledgers: list[LedgerId] = field(default_factory=list)
    removed_logs: list[tuple[int, int]] = field(default_factory=list)
    compacted_logs: list[tuple[int, int]] = field(default_factory=list)
    moved_entries: int = 0
    moved_bytes: int = 0
    removed_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    reclaimed_by_deletion: int = 0
    """Bytes of records in the logs that were removed because none of their ledgers is live."""
    reclaimed_by_compaction: int = 0
    """Bytes of dead records in the logs that were compacted."""
    log_count: int = 0
    """Closed logs that are left; `log_bytes` counts their records, `live_bytes` the live ones."""
    log_bytes: int = 0
    live_bytes: int = 0
    usage: list[int] = field(default_factory=lambda: [0] * USAGE_BUCKETS)
    """Number of logs by tenths of live bytes, before compaction."""


class GarbagePassCounts:
    """Counts and times of the compacting passes since the storage was opened.

    `counts` and `last_times` (end time, in seconds since 1970; at first the time of opening) have
    the keys "major" and "minor"; a major pass sets both times. `running_kind` is the kind of the
    pass that runs now, or None. Threads: any may read.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.running_kind: CompactionKind | None = None
        self.counts: dict[str, int] = {"major": 0, "minor": 0}
        self.last_times = dict.fromkeys(self.counts, clock())

    @contextmanager
    def counting(self, kind: CompactionKind | None) -> Iterator[None]:
        """Count the compaction that the ``with`` block runs, and note its time, even if it fails.
        `kind` is None for a pass that does not compact: it is not counted."""
        self.running_kind = kind
        try:
            yield
        finally:
            self.running_kind = None
            if kind is not None:
                now = self._clock()
                self.last_times["minor"] = self.last_times[kind] = now  # a major pass does both
                self.counts[kind] += 1
