"""CompactionSchedule: decides which kind of compaction a pass runs (`GarbageCollectorThread`)."""

from __future__ import annotations

from collections.abc import Container

from bkstore.cluster.garbage.options import GarbageOptions
from bkstore.storage.ledgers.garbage_pass import CompactionKind

_KINDS: tuple[CompactionKind, ...] = ("major", "minor")
"""By priority, the highest first."""


class CompactionSchedule:
    """Remembers the last compactions, and decides which one is due.

    Callers pass the time, in seconds of one clock; creation counts as a compaction of each kind.

    >>> schedule = CompactionSchedule(GarbageOptions(), 0.0)
    >>> [schedule.choose_due(now) for now in (3600.0, 3601.0, 86401.0)]
    [None, 'minor', 'major']
    """

    def __init__(self, options: GarbageOptions, now: float) -> None:
        self._options = options
        self._compacted_at: dict[CompactionKind, float] = {"major": now, "minor": now}
        self._locations_compacted_at = now

    def choose_due(
        self, now: float, *, force: bool = False, suspended: Container[CompactionKind] = ()
    ) -> CompactionKind | None:
        """Return the kind of compaction that a pass at `now` runs, None if none: major before
        minor, unless it is suspended. With `force` intervals are ignored."""
        for kind in _KINDS:
            if kind in suspended:
                continue
            if force and self._options.is_forcible(kind):
                return kind
            is_due = now - self._compacted_at[kind] > self._options.interval(kind)
            if is_due and self._options.is_enabled(kind):
                return kind
        return None

    def record_compaction(self, kind: CompactionKind, now: float) -> None:
        """Record the end of a compaction; a major one counts as a minor one too."""
        self._compacted_at["minor"] = self._compacted_at[kind] = now

    def is_location_compaction_due(self, now: float) -> bool:
        """Return whether a compaction of the entry location databases is due."""
        interval = self._options.entry_location_compaction_interval
        return 0 < interval < now - self._locations_compacted_at

    def record_location_compaction(self, now: float) -> None:
        """Record a compaction of the entry location databases."""
        self._locations_compacted_at = now
