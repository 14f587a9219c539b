"""GarbageOptions: garbage collection settings, with BookKeeper's names and defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bkstore.arguments import boolean, check_fields, integer, number, optional
from bkstore.errors import InvalidArgument
from bkstore.storage.ledgers.garbage_pass import MAJOR_THRESHOLD, MINOR_THRESHOLD, CompactionKind

_MAX_SECONDS = 100 * 366 * 86400.0


@dataclass(frozen=True, kw_only=True)
class GarbageOptions:
    """Settings of garbage collection (`ServerConfiguration`). Times in seconds, sizes in bytes.

    A pass starts `gc_wait_time` after the last one ended; with 0 only forced passes run. It deletes
    ledgers that the cluster no longer has, removes entry logs without live ledgers, and may compact
    others: those with a live part below `major_compaction_threshold`, if the last major compaction
    is longer ago than `major_compaction_interval`; otherwise the same for minor ones. 0 or less
    disables a kind. A compaction starts no further log after its `..._max_time`.

    Compactions copy at most `compaction_rate_by_entries` entries a second, or
    `compaction_rate_by_bytes` bytes with `is_throttle_by_bytes`; the index is updated after each
    `compaction_max_outstanding_requests` copied entries. `use_transactional_compaction`: the copies
    go to a log of their own. `use_target_entry_log_size_for_gc`: the live part of a smaller log is
    relative to a full one. The store is asked for `gc_metadata_op_rate_limit` ledgers a second.

    While the disk of any ledger directory is full, compaction of entry logs is suspended; with
    `is_force_gc_allow_when_no_space` a pass is forced instead. A forced pass ignores the intervals,
    but only an enabled kind runs; with `force_allow_compaction` also one whose interval is 0 or
    less. Databases of db storage are compacted each `entry_location_compaction_interval` above 0.

    Raises `InvalidArgument` for settings with which BookKeeper's bookie does not start: a threshold
    above 1, an interval below `gc_wait_time`, minor settings that are not below the major ones.
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
        """Raise `InvalidArgument` for settings with which a real bookie does not start."""
        check_fields(self, _FIELD_CHECKS)
        kinds: tuple[CompactionKind, ...] = ("minor", "major")
        for kind in kinds:
            if self.is_enabled(kind):
                self._validate_kind(kind)
        if self.is_enabled("minor") and self.is_enabled("major"):
            for setting in ("threshold", "interval"):
                minor, major = f"minor_compaction_{setting}", f"major_compaction_{setting}"
                minor_value, major_value = getattr(self, minor), getattr(self, major)
                if minor_value >= major_value:
                    raise InvalidArgument(
                        f"{minor} must be below {major}, not {minor_value:g} >= {major_value:g}"
                    )
        if self.entry_location_compaction_interval > 0:
            self._validate_interval("entry_location_compaction_interval")

    def _validate_kind(self, kind: CompactionKind) -> None:
        threshold = self.threshold(kind)
        if threshold > 1:
            name = f"{kind}_compaction_threshold"
            raise InvalidArgument(f"{name} must be at most 1, not {threshold:g}")
        self._validate_interval(f"{kind}_compaction_interval")

    def _validate_interval(self, name: str) -> None:
        wait, interval = self.gc_wait_time, getattr(self, name)
        if interval < wait:
            message = f"{name} must be at least gc_wait_time, {wait:g} s, not {interval:g} s"
            raise InvalidArgument(message)

    def threshold(self, kind: CompactionKind) -> float:
        """Return the threshold of minor or major compaction."""
        value: float = getattr(self, f"{kind}_compaction_threshold")
        return value

    def interval(self, kind: CompactionKind) -> float:
        """Return the interval of minor or major compaction."""
        value: float = getattr(self, f"{kind}_compaction_interval")
        return value

    def max_time(self, kind: CompactionKind) -> float | None:
        """Return how long a minor or major compaction may take, None without a limit."""
        seconds: float | None = getattr(self, f"{kind}_compaction_max_time")
        return seconds if seconds and seconds > 0 else None

    def is_enabled(self, kind: CompactionKind) -> bool:
        """Return whether a kind of compaction runs on the schedule."""
        return self.threshold(kind) > 0 and self.interval(kind) > 0

    def is_forcible(self, kind: CompactionKind) -> bool:
        """Return whether a forced pass may run a kind of compaction."""
        allowed = self.force_allow_compaction and 0 < self.threshold(kind) < 1
        return allowed or self.is_enabled(kind)

    @property
    def compaction_rate(self) -> int:
        """The rate limit, in entries a second, or bytes with `is_throttle_by_bytes`."""
        if self.is_throttle_by_bytes:
            return self.compaction_rate_by_bytes
        return self.compaction_rate_by_entries


_check_seconds = number(-_MAX_SECONDS, _MAX_SECONDS)
_check_threshold = number(-math.inf)

_FIELD_CHECKS = {
    "gc_wait_time": number(0, _MAX_SECONDS),
    "minor_compaction_threshold": _check_threshold,
    "minor_compaction_interval": _check_seconds,
    "minor_compaction_max_time": optional(_check_seconds),
    "major_compaction_threshold": _check_threshold,
    "major_compaction_interval": _check_seconds,
    "major_compaction_max_time": optional(_check_seconds),
    "compaction_rate_by_entries": integer(1),
    "compaction_rate_by_bytes": integer(1),
    "is_throttle_by_bytes": boolean,
    "compaction_max_outstanding_requests": integer(1),
    "use_transactional_compaction": boolean,
    "use_target_entry_log_size_for_gc": boolean,
    "gc_metadata_op_rate_limit": integer(1),
    "is_force_gc_allow_when_no_space": boolean,
    "force_allow_compaction": boolean,
    "entry_location_compaction_interval": _check_seconds,
}
