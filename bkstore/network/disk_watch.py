"""Whether a bookie can accept writes: full disks (`LedgerDirsMonitor`), failed journals."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bkstore.arguments import boolean, check_fields, number
from bkstore.errors import InvalidArgument, ReadOnlyError
from bkstore.storage.bookie import Bookie

_check_share = number(0.0, 1.0, above=True)
_FIELD_CHECKS = {"full": _check_share, "writable_again": _check_share}
_FIELD_CHECKS |= {"interval": number(above=True), "any_full": boolean}


@dataclass(frozen=True, kw_only=True)
class DiskOptions:
    """When a bookie becomes read-only. `full` is `diskUsageThreshold`, `writable_again`
    `diskUsageLwmThreshold`, both shares of the disk; `interval` is `diskCheckInterval`, in seconds.
    With `any_full` (`readOnlyModeOnAnyDiskFullEnabled`) one full disk is enough, otherwise all must
    be full. Raises `InvalidArgument` if `writable_again` is above `full`."""

    full: float = 0.95
    writable_again: float = 0.95
    interval: float = 10.0
    any_full: bool = True

    def __post_init__(self) -> None:
        check_fields(self, _FIELD_CHECKS)
        if self.writable_again > self.full:
            raise InvalidArgument("writable_again is above full")


def used_share(path: Path) -> float:
    """Return the used share of a directory's disk, 0..1."""
    usage = shutil.disk_usage(path)
    return 1 - usage.free / usage.total if usage.total else 1.0


class DiskWatch:
    """Checks whether a bookie can accept writes, by the used share of its disks."""

    def __init__(
        self,
        bookie: Bookie,
        options: DiskOptions,
        get_used_share: Callable[[Path], float] = used_share,
    ) -> None:
        """Watch the bookie's ledger directories; tests give another `get_used_share`."""
        self._bookie = bookie
        self._limits = options
        self._get_used_share = get_used_share
        self.is_full = False
        """Whether a ledger directory was on a full disk at the last check."""

    def find_read_only_reason(self, read_only: bool) -> str | None:
        """Return why the bookie must be read-only, None if it need not: while disks are full, and
        for good after a failed sync. `read_only` is its present state, by which the limit is
        chosen. Also sets `is_full`."""
        try:
            for path in self._bookie.storage.write_paths:
                path.check_writable()
        except ReadOnlyError as error:
            return str(error)
        for journal in self._bookie.journals:
            if journal.failure is not None:
                return f"writing a journal failed: {journal.failure}; restart the bookie"
        limit = self._limits.writable_again if read_only else self._limits.full
        try:
            used_shares = list(map(self._get_used_share, self._bookie.directories.ledger))
        except OSError as error:
            return f"{error.filename}: {os.strerror(error.errno or 0)}"
        self.is_full = max(used_shares) > limit
        if min(used_shares) > limit:
            return f"all disks of ledger directories are full: {min(used_shares):.1%} used"
        if max(used_shares) > limit and self._limits.any_full:
            fullest = self._bookie.directories.ledger[used_shares.index(max(used_shares))].parent
            return f"{fullest}: its disk is full: {max(used_shares):.1%} used"
        return None
