"""What one pass of garbage collection is asked to do, and what it did.

Upstream's counterparts are `GarbageCollectorThread`'s settings and `GarbageCollectorStats`.
"""

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
"""Logs are counted, and compacted, by tenths of their bytes that are wanted."""

Kind = Literal["major", "minor"]

Suspect = Callable[[list[LedgerId]], None]
"""Takes ledgers before somebody is asked whether they are there."""

FindDeleted = Callable[[list[LedgerId], Suspect], Iterable[list[LedgerId]]]
"""Takes the ledgers of a bookie; yields those that count as deleted, some at a time.

Each must have been made a suspect before the store was asked for it: what is added to it from then
on shows that it was made again, and it stays.
"""


@dataclass(frozen=True, kw_only=True)
class Compaction:
    """How a pass compacts entry logs.

    Logs of which less than `threshold` is wanted are compacted. `max_time` seconds after its
    begin no further log is begun. After `max_outstanding` copied entries the index is pointed at
    them; None waits for the end of each log, as `transactional` compaction always does. A log of
    fewer bytes than `full_log` counts as if it had so many (`useTargetEntryLogSizeForGc`).
    """

    threshold: float = MAJOR_THRESHOLD
    kind: Kind = "major"
    transactional: bool = False
    max_time: float | None = None
    max_outstanding: int | None = None
    full_log: int = 0
    throttle: CompactionThrottle = UNLIMITED
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, kw_only=True)
class GarbagePass:
    """What one pass does: which ledgers it deletes, and whether it compacts.

    Without `find_deleted` no ledger is deleted, without `compaction` no log is compacted. With
    `close_logs` a log that takes records is closed where the pass would collect it if it were
    closed: bytes of deleted ledgers do not wait for the log to be full. The pass ends early, with
    all that it began finished or given up, once `is_stopped` returns True.
    """

    find_deleted: FindDeleted | None = None
    compaction: Compaction | None = None
    close_logs: bool = False
    is_stopped: Callable[[], bool] = lambda: False


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
    deleted_garbage: int = 0
    """Bytes of records in the logs that were removed as no ledger of theirs is wanted."""
    compacted_garbage: int = 0
    """Bytes of unwanted records in the logs that were compacted."""
    logs: int = 0
    """Closed logs that are left; `log_bytes` their records' bytes, `live_bytes` wanted ones."""
    log_bytes: int = 0
    live_bytes: int = 0
    usage: list[int] = field(default_factory=lambda: [0] * USAGE_BUCKETS)
    """Logs by the tenth of their bytes that was wanted, before compaction."""


class GarbagePasses:
    """How many passes compacted since the storage was opened, and how it goes now.

    `counts` and `last` (seconds since 1970, of the opening at first) have "major" and "minor"; a
    major pass is as good as a minor one for `last`. `running` is the kind of the pass that runs.
    Threads: any may read.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.running: Kind | None = None
        self.counts: dict[str, int] = {"major": 0, "minor": 0}
        self.last = dict.fromkeys(self.counts, clock())

    @contextmanager
    def one(self, kind: Kind | None) -> Iterator[None]:
        """Count the pass that is the block, whatever becomes of it; one without compaction is
        none here."""
        self.running = kind
        try:
            yield
        finally:
            self.running = None
            if kind is not None:
                self.last["minor"] = now = self._clock()
                self.last[kind] = now
                self.counts[kind] += 1
