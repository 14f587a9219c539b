"""Reading a RocksDB directory without touching it: locks, and a scratch directory of links.

rocksdict writes a side file into every directory it opens, read-only opens included, and fails
where it may not. So a database is read through a scratch directory: links to the table files
and write-ahead logs, copies of the small files that name them. The original stays as it was,
also without write permission.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bkstore.errors import CorruptionError, DirectoryInUse, UnsupportedLayout

__all__ = ["check_not_in_use", "claim", "link_copy", "release", "require_database"]

_LINKED = (".sst", ".log", ".blob")
_COPIED = ("CURRENT", "IDENTITY", "MANIFEST-", "OPTIONS-")

_open_for_writing: set[str] = set()
"""Databases this process writes. Their LOCK file must not even be opened here: closing any
descriptor of a file drops all POSIX locks the process holds on it."""


def claim(path: Path) -> None:
    """Remember that this process writes the database at `path`."""
    _open_for_writing.add(os.path.realpath(path))


def release(path: Path) -> None:
    """Forget `claim`."""
    _open_for_writing.discard(os.path.realpath(path))


def require_database(path: Path) -> None:
    """Raise unless `path` looks like a RocksDB directory with a CURRENT file."""
    if not path.is_dir():
        raise UnsupportedLayout(f"{path}: no such RocksDB directory")
    current = path / "CURRENT"
    try:
        text = current.read_bytes()
    except FileNotFoundError:
        raise CorruptionError(current, None, "missing: the database cannot be opened") from None
    name = text.decode("ascii", "replace").rstrip("\n")
    if not name.startswith("MANIFEST-") or not text.endswith(b"\n"):
        raise CorruptionError(current, 0, f"names no manifest: {name[:40]!r}")
    if not (path / name).is_file():
        raise CorruptionError(path / name, None, "missing: CURRENT names this manifest")


def check_not_in_use(path: Path) -> None:
    """Raise `DirectoryInUse` if a process holds the database's lock. Touches nothing."""
    if os.path.realpath(path) in _open_for_writing or _lock_holder(path / "LOCK") is not None:
        raise DirectoryInUse(
            f"{path} is open in another place: stop it, copy the directory, or read it live "
            "(live=True, --live)"
        )


def _lock_holder(lock: Path) -> int | None:
    """Return the process that holds a write lock on `lock`, None if there is none."""
    try:
        fd = os.open(lock, os.O_RDONLY)
    except (FileNotFoundError, PermissionError):
        return None
    try:
        return _query_lock(fd)
    finally:
        os.close(fd)


def _query_lock(fd: int) -> int | None:
    # struct flock: l_type, l_whence, l_start, l_len, l_pid, whose order differs by system.
    if sys.platform == "darwin":
        layout = "@qqihh"
        asked = struct.pack(layout, 0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
        answer = struct.unpack(layout, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
        kind, pid = answer[3], answer[2]
    else:
        layout = "@hhqqi4x"
        asked = struct.pack(layout, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = struct.unpack(layout, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
        kind, pid = answer[0], answer[4]
    return None if kind == fcntl.F_UNLCK else pid


@contextmanager
def link_copy(path: Path) -> Iterator[Path]:
    """Yield a scratch directory that stands for the database at `path`; remove it afterwards.

    Small files first: the table files that a copied manifest names exist at that moment. Cost:
    one link a file, and a copy of the manifest.
    """
    scratch = Path(tempfile.mkdtemp(prefix="bkstore-rocksdb-"))
    try:
        names = sorted(os.listdir(path))
        for name in names:
            if name.startswith(_COPIED):
                shutil.copyfile(path / name, scratch / name)
        for name in sorted(os.listdir(path)):
            if name.endswith(_LINKED):
                os.symlink(os.path.realpath(path / name), scratch / name)
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
