"""A directory written through a `CrashFiles`, for the tests of that file layer."""

from __future__ import annotations

import os
import random
from pathlib import Path

from bkstore.testing.crash import CrashFiles

CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL
SEEDS = 60


class Disk:
    """A directory written through a `CrashFiles`; descriptors are closed at the end."""

    def __init__(self, top: Path) -> None:
        self.root = top / "disk"
        self.root.mkdir()
        self.top = top
        self.files = CrashFiles()
        self.fds: list[int] = []
        self._crashes = 0

    def open(self, name: str, flags: int = CREATE) -> int:
        """Return a descriptor for a file below the root."""
        fd = self.files.open(self.root / name, flags)
        self.fds.append(fd)
        return fd

    def durable(self, name: str, data: bytes) -> int:
        """Make a file whose bytes and name are durable."""
        fd = self.open(name)
        self.files.pwrite(fd, data, 0)
        self.files.fsync(fd)
        self.files.sync_dir((self.root / name).parent)
        return fd

    def after_crash(self, keep: random.Random | None = None) -> dict[str, bytes]:
        """Return the files that a power loss leaves, and their bytes; a folder is b"/"."""
        self._crashes += 1
        left = self.files.crash(self.root, self.top / f"crash-{self._crashes}", keep)
        return {
            str(path.relative_to(left)): b"/" if path.is_dir() else path.read_bytes()
            for path in sorted(left.rglob("*"))
        }

    def outcomes(self) -> list[dict[str, bytes]]:
        """Return what many power losses leave, each choosing by itself."""
        return [self.after_crash(random.Random(seed)) for seed in range(SEEDS)]

    def contents(self, name: str) -> set[bytes | None]:
        """Return every content that a file has in `outcomes`; None where it is gone."""
        return {left.get(name) for left in self.outcomes()}
