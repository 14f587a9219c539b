"""For journal tests: plain records, and a disk that counts, fails and remembers."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bkstore.files.disk_changes import Files
from bkstore.storage.journal import list_journal_files, scan_journal


def record_of(number: int, size: int = 16) -> bytes:
    """Return bytes that are told apart by their first eight."""
    return number.to_bytes(8, "big").ljust(size, b"\xee")


def records_in(current: Path) -> list[bytes]:
    """Return the records of all files of a directory; nothing odd may be found on the way."""
    found = []
    for _, path in list_journal_files(current):
        scan = scan_journal(path)
        found.extend(data for _, data in scan)

        assert [] == scan.findings
    return found


class Disk(Files):
    """Counts calls; the call numbered `failing` raises, a write after half of its bytes.

    `durable` has each file's bytes as they were when its last fsync began, for names that a
    directory sync has covered. `during_fsync` is called once, in the next fsync.
    """

    def __init__(self, failing: int | None = None) -> None:
        self.failing = failing
        self.error: BaseException = OSError(errno.ENOSPC, "No space left on device")
        self.calls: list[str] = []
        self.open_files: dict[int, Path] = {}
        self.during_fsync: Callable[[], object] | None = None
        self._synced: dict[Path, bytes] = {}
        self._named: set[Path] = set()

    @property
    def durable(self) -> dict[str, bytes]:
        """What is left after the power went."""
        synced = dict(self._synced)  # other threads go on
        return {path.name: data for path, data in synced.items() if path in self._named}

    def _count(self, call: str) -> bool:
        self.calls.append(call)
        return len(self.calls) - 1 == self.failing

    def open(self, path: Any, flags: int, mode: int = 0o644) -> int:
        """Open, and remember by which name."""
        if self._count("open"):
            raise self.error
        fd = super().open(path, flags, mode)
        self.open_files[fd] = Path(path)
        return fd

    def close(self, fd: int) -> None:
        """Close, failing or not."""
        fails = self._count("close")
        del self.open_files[fd]
        super().close(fd)
        if fails:
            raise self.error

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all, or half and fail."""
        fails = self._count("pwrite")
        super().pwrite(fd, data[: len(data) // 2] if fails else data, offset)
        if fails:
            raise self.error

    def fsync(self, fd: int) -> None:
        """Keep what the file has now as durable."""
        if self._count("fsync"):
            raise self.error
        data = self.open_files[fd].read_bytes()
        hook, self.during_fsync = self.during_fsync, None
        if hook is not None:
            hook()
        self._synced[self.open_files[fd]] = data

    def sync_dir(self, path: Any) -> None:
        """Keep the names that the directory has now."""
        if self._count("sync_dir"):
            raise self.error
        self._named.update(Path(path).iterdir())

    def unlink(self, path: Any) -> None:
        """Remove a name."""
        if self._count("unlink"):
            raise self.error
        super().unlink(path)

    def replace(self, source: Any, target: Any) -> None:
        """Rename."""
        if self._count("replace"):
            raise self.error
        super().replace(source, target)
