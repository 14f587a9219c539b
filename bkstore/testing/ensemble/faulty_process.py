"""The faults of a bookie, seen from its own process: what `bkstore serve` asks for them.

The process of an ensemble's bookie is started with the path of its fault file. `ProcessFaults` has
the file layer that it writes through, and the answers of its disk check and its network.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bkstore.files.disk_changes import OS_FILES, Files, StrPath
from bkstore.network.disk_watch import DiskOptions, used_share
from bkstore.testing.ensemble.faults import read_faults
from bkstore.testing.faults import FaultPlan

if TYPE_CHECKING:
    from rocksdict import Options

DISK_CHECK_SECONDS = 0.25
"""How often a process with a fault file checks its disks."""

_POLL_SECONDS = 0.02


class ProcessFaults:
    """The faults of this process, which the fault file `path` has at the moment of each call.

    >>> import tempfile
    >>> from bkstore.testing.ensemble.faults import add_fault
    >>> with tempfile.TemporaryDirectory() as top:
    ...     faults = ProcessFaults(Path(top, "bookie-1.faults"))
    ...     add_fault(faults.path, "full-disk", 0)
    ...     faults.used_share(Path(top)), faults.is_partitioned()
    (1.0, False)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = FaultyFiles(path)

    def used_share(self, directory: Path) -> float:
        """Return the used share of a directory's disk, 1.0 if it is full by a fault."""
        return 1.0 if "full-disk" in read_faults(self.path) else used_share(directory)

    def disk_checks(self, options: DiskOptions) -> dict[str, Any]:
        """Return the arguments by which a `RegisteredBookie` sees the faults of its disks soon."""
        soon = replace(options, interval=min(options.interval, DISK_CHECK_SECONDS))
        return {"disk_options": soon, "get_used_share": self.used_share}

    def is_partitioned(self) -> bool:
        """Return whether clients cannot reach this process."""
        return "partitioned" in read_faults(self.path)

    def read_only_reason(self) -> str | None:
        """Return why the bookie is read-only, None if no fault makes it so."""
        return "the fault read-only" if "read-only" in read_faults(self.path) else None


class FaultyFiles(Files):
    """A file layer whose writes and syncs have the faults of a fault file at the time of each.

    RocksDB's own writes bypass it; its syncs fail and are delayed. Threads: safe.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._full_disk = FaultPlan()
        self._full_disk.disk_full()

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        """As `Files.pwrite`, on a disk with faults."""
        with self._without_name():
            self._files_now().pwrite(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        """As `Files.truncate`, on a disk with faults."""
        with self._without_name():
            self._files_now().truncate(fd, size)

    @contextmanager
    def _without_name(self) -> Iterator[None]:
        """Drop the file's name from errors: the layer for a full disk has not opened the file, so
        it names a descriptor; the caller knows the file."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror) from None

    def _files_now(self) -> Files:
        """Return the layer for a write at this moment. Raises `OSError` on a failing disk."""
        faults = read_faults(self._path)
        if "failing-disk" in faults:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self._full_disk if "full-disk" in faults else OS_FILES

    def fsync(self, fd: int) -> None:
        """As `Files.fsync`, on a disk with faults."""
        self._sync_on_disk()
        super().fsync(fd)

    def sync_dir(self, path: StrPath) -> None:
        """As `Files.sync_dir`, on a disk with faults."""
        self._sync_on_disk()
        super().sync_dir(path)

    def database_synced(self, path: StrPath) -> None:
        """A sync of RocksDB's that has been made: it takes longer, or fails all the same."""
        self._sync_on_disk()

    def database_opened(self, path: StrPath, options: Options | None = None) -> None:
        """Inherited."""

    def _sync_on_disk(self) -> None:
        """Wait as long as a slow disk does, or until it is healed; then fail on a failing one."""
        start = time.monotonic()
        while True:
            faults = read_faults(self._path)
            if "failing-disk" in faults:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            seconds_left = start + faults.get("slow-disk", 0.0) - time.monotonic()
            if seconds_left <= 0:
                return
            time.sleep(min(seconds_left, _POLL_SECONDS))
