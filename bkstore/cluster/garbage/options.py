"""GarbageOptions: a bookie's settings of garbage collection, with its names and defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bkstore.arguments import check_fields, number, optional, truth, whole
from bkstore.errors import InvalidArgument
from bkstore.storage.ledgers.garbage_pass import MAJOR_THRESHOLD, MINOR_THRESHOLD, Kind

_YEARS = 100 * 366 * 86400.0


@dataclass(frozen=True, kw_only=True)
class GarbageOptions:
    """Settings of garbage collection (`ServerConfiguration`). Times in seconds, sizes in bytes.

    A pass begins `gc_wait_time` after the last one ended; 0 = never by itself, only when it is
    forced. Each pass deletes the ledgers that the cluster no longer has, removes entry logs in
    which no ledger lives, and may compact others: those of which less than
    `major_compaction_threshold` is wanted, if the last major compaction is longer ago than
    `major_compaction_interval`; else the same for minor ones. A threshold or an interval of 0 or
    less turns that kind off. A compaction begins no further log after its `..._max_time`.

    Compactions copy at most `compaction_rate_by_entries` entries a second, or
    `compaction_rate_by_bytes` bytes with `is_throttle_by_bytes`. After
    `compaction_max_outstanding_requests` copied entries the index is pointed at them. With
    `use_transactional_compaction` the copies get a log of their own. A log that is smaller than a
    full one counts as a full one with `use_target_entry_log_size_for_gc`. At most
    `gc_metadata_op_rate_limit` ledgers a second are asked for in the metadata store.

    While all disks are full nothing is compacted; with `is_force_gc_allow_when_no_space` a pass
    is forced instead. A forced pass compacts whatever the intervals say, but only a kind that is
    on; with `force_allow_compaction` also one whose interval is 0 or less. Database files of db
    storage are compacted every `entry_location_compaction_interval`, if it is above 0.

    Raises `InvalidArgument` where a bookie does not start: a threshold above 1, an interval below
    `gc_wait_time`, and minor settings that are not below the major ones.
    """

    gc_wait_time: float = 600.0
    minor_compaction_threshold: float = MINOR_THRESHOLD
    minor_compaction_interval: float = 3600.0
    minor_compaction_max_time: float | None = None
    major_compaction_threshold: float = MAJOR_THRESHOLD
    major_compaction_interval: float = 86400.0
    major_compaction_max_time: float | None = None
    compaction_rate_by_entries: int = 1000
    compaction_rate_by_bytes: int = 1_000_000
    is_throttle_by_bytes: bool = False
    compaction_max_outstanding_requests: int = 100_000
    use_transactional_compaction: bool = False
    use_target_entry_log_size_for_gc: bool = False
    gc_metadata_op_rate_limit: int = 1000
    is_force_gc_allow_when_no_space: bool = False
    force_allow_compaction: bool = False
    entry_location_compaction_interval: float = -1.0

    def __post_init__(self) -> None:
        check_fields(self, _FIELDS)
        kinds: tuple[Kind, ...] = ("minor", "major")
        for kind in kinds:
            if self.is_enabled(kind):
                self._check_kind(kind)
        if self.is_enabled("minor") and self.is_enabled("major"):
            for what in ("threshold", "interval"):
                minor, major = f"minor_compaction_{what}", f"major_compaction_{what}"
                low, high = getattr(self, minor), getattr(self, major)
                if low >= high:
                    raise InvalidArgument(f"{minor} must be below {major}, not {low:g} >= {high:g}")
        interval = self.entry_location_compaction_interval
        if 0 < interval < self.gc_wait_time:
            raise _too_short("entry_location_compaction_interval", interval, self.gc_wait_time)

    def _check_kind(self, kind: Kind) -> None:
        threshold, interval = self.threshold(kind), self.interval(kind)
        if threshold > 1:
            name = f"{kind}_compaction_threshold"
            raise InvalidArgument(f"{name} must be at most 1, not {threshold:g}")
        if interval < self.gc_wait_time:
            raise _too_short(f"{kind}_compaction_interval", interval, self.gc_wait_time)

    def threshold(self, kind: Kind) -> float:
        """Return the threshold of minor or major compaction."""
        found: float = getattr(self, f"{kind}_compaction_threshold")
        return found

    def interval(self, kind: Kind) -> float:
        """Return the interval of minor or major compaction."""
        found: float = getattr(self, f"{kind}_compaction_interval")
        return found

    def max_time(self, kind: Kind) -> float | None:
        """Return how long a minor or major compaction may take, None without a limit."""
        found: float | None = getattr(self, f"{kind}_compaction_max_time")
        return found if found and found > 0 else None

    def is_enabled(self, kind: Kind) -> bool:
        """Return whether a kind of compaction is run by itself."""
        return self.threshold(kind) > 0 and self.interval(kind) > 0

    def is_forcible(self, kind: Kind) -> bool:
        """Return whether a forced pass may run a kind of compaction."""
        allowed = self.force_allow_compaction and 0 < self.threshold(kind) < 1
        return allowed or self.is_enabled(kind)

    @property
    def compaction_rate(self) -> int:
        """Entries a second, or bytes with `is_throttle_by_bytes`."""
        if self.is_throttle_by_bytes:
            return self.compaction_rate_by_bytes
        return self.compaction_rate_by_entries


def _too_short(name: str, interval: float, wait: float) -> InvalidArgument:
    return InvalidArgument(f"{name} must be at least gc_wait_time, {wait:g} s, not {interval:g} s")


_seconds = number(-_YEARS, _YEARS)
_threshold = number(-math.inf)

_FIELDS = {
    "gc_wait_time": number(0, _YEARS),
    "minor_compaction_threshold": _threshold,
    "minor_compaction_interval": _seconds,
    "minor_compaction_max_time": optional(_seconds),
    "major_compaction_threshold": _threshold,
    "major_compaction_interval": _seconds,
    "major_compaction_max_time": optional(_seconds),
    "compaction_rate_by_entries": whole(1),
    "compaction_rate_by_bytes": whole(1),
    "is_throttle_by_bytes": truth,
    "compaction_max_outstanding_requests": whole(1),
    "use_transactional_compaction": truth,
    "use_target_entry_log_size_for_gc": truth,
    "gc_metadata_op_rate_limit": whole(1),
    "is_force_gc_allow_when_no_space": truth,
    "force_allow_compaction": truth,
    "entry_location_compaction_interval": _seconds,
}
