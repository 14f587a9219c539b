"""CompactionSchedule: whether a pass compacts, and which kind: the rules of
`GarbageCollectorThread`.

Pure: time is given.
"""

from __future__ import annotations

from collections.abc import Container

from bkstore.cluster.garbage.options import GarbageOptions
from bkstore.storage.ledgers.garbage_pass import Kind

_KINDS: tuple[Kind, ...] = ("major", "minor")
"""In the order in which they go before each other."""


class CompactionSchedule:
    """When entry logs were compacted last, and what is due.

    Times are seconds of one clock; opening counts as a compaction of each kind.

    >>> schedule = CompactionSchedule(GarbageOptions(), 0.0)
    >>> [schedule.due(now) for now in (3600.0, 3601.0, 86401.0)]
    [None, 'minor', 'major']
    """

    def __init__(self, options: GarbageOptions, now: float) -> None:
        self._options = options
        self._last: dict[Kind, float] = {"major": now, "minor": now}
        self._locations = now

    def due(
        self, now: float, *, force: bool = False, suspended: Container[Kind] = ()
    ) -> Kind | None:
        """Return the kind of compaction that a pass runs now, None if none.

        Major goes before minor, unless it is suspended. What is forced waits for no interval.
        """
        for kind in _KINDS:
            if kind in suspended:
                continue
            if force and self._options.is_forcible(kind):
                return kind
            late = now - self._last[kind] > self._options.interval(kind)
            if late and self._options.is_enabled(kind):
                return kind
        return None

    def compacted(self, kind: Kind, now: float) -> None:
        """Note a compaction that has ended; a major one is as good as a minor one."""
        self._last["minor"] = self._last[kind] = now

    def locations_due(self, now: float) -> bool:
        """Return whether the databases of entry locations are to be compacted now."""
        interval = self._options.entry_location_compaction_interval
        return 0 < interval < now - self._locations

    def locations_compacted(self, now: float) -> None:
        """Note a compaction of the databases of entry locations."""
        self._locations = now
