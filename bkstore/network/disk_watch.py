"""Whether a bookie has room to write: `LedgerDirsMonitor`, and what else ends its writes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bkstore.arguments import check_fields, number, truth
from bkstore.errors import InvalidArgument, ReadOnlyError
from bkstore.storage.bookie import Bookie

_share = number(0.0, 1.0, above=True)
_FIELDS = {
    "full": _share,
    "writable_again": _share,
    "interval": number(above=True),
    "any_full": truth,
}


@dataclass(frozen=True, kw_only=True)
class DiskOptions:
    """When a bookie becomes read-only. `full` is `diskUsageThreshold`, `writable_again`
    `diskUsageLwmThreshold`, both as a share of the disk; `interval` is `diskCheckInterval`, in
    seconds. With `any_full` (`readOnlyModeOnAnyDiskFullEnabled`) one full disk is enough, else
    all must be. `InvalidArgument` where `writable_again` is above `full`.
    """

    full: float = 0.95
    writable_again: float = 0.95
    interval: float = 10.0
    any_full: bool = True

    def __post_init__(self) -> None:
        check_fields(self, _FIELDS)
        if self.writable_again > self.full:
            raise InvalidArgument("writable_again is above full")


def used_share(path: Path) -> float:
    """Return how much of the disk that a directory lies on is used, 0..1."""
    usage = shutil.disk_usage(path)
    return 1 - usage.free / usage.total if usage.total else 1.0


class DiskWatch:
    """Tells whether a bookie should take writes. `used` is the share of a directory's disk."""

    def __init__(
        self, bookie: Bookie, limits: DiskOptions, used: Callable[[Path], float] = used_share
    ) -> None:
        self._bookie = bookie
        self._limits = limits
        self._used = used
        self.is_full = False
        """Whether a ledger directory was on a full disk at the last look."""

    def reason(self, read_only: bool) -> str | None:
        """Return why the bookie must be read-only, None if it need not.

        It must while a ledger directory is on a full disk (each of them, by its limits), and for
        good once a sync of its files has failed.
        """
        try:
            for path in self._bookie.storage.paths:
                path.check_writable()
        except ReadOnlyError as error:
            return str(error)
        if any(journal.failed for journal in self._bookie.journals):
            return "a journal failed"
        limit = self._limits.writable_again if read_only else self._limits.full
        try:
            shares = [self._used(current) for current in self._bookie.place.ledger]
        except OSError as error:
            return f"{error.filename}: {os.strerror(error.errno or 0)}"
        self.is_full = max(shares) > limit
        if min(shares) > limit:
            return f"all disks of ledger directories are full: {min(shares):.1%} used"
        if max(shares) > limit and self._limits.any_full:
            fullest = self._bookie.place.ledger[shares.index(max(shares))].parent
            return f"{fullest}: its disk is full: {max(shares):.1%} used"
        return None
