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
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bkstore.errors import CorruptionError, DirectoryInUse, UnsupportedLayout
from bkstore.index import rocks_fork

__all__ = [
    "CAN_HOLD",
    "check_not_in_use",
    "claim",
    "in_use",
    "link_copy",
    "manifest_path",
    "release",
]

_DESCRIPTORS = "/proc/self/fd"
CAN_HOLD = os.path.isdir(_DESCRIPTORS)
"""Whether an open file can be opened again after it was removed."""

_COPIED = ("CURRENT", "IDENTITY", "MANIFEST-", "OPTIONS-")

_open_for_writing: set[str] = set()
"""Databases this process writes."""


def _forget_claims() -> None:
    _open_for_writing.clear()


os.register_at_fork(after_in_child=_forget_claims)


def claim(path: Path) -> None:
    """Remember that this process writes the database at `path`."""
    _open_for_writing.add(os.path.realpath(path))


def release(path: Path) -> None:
    """Forget `claim`."""
    _open_for_writing.discard(os.path.realpath(path))


def manifest_path(path: Path) -> Path:
    """Return the manifest that CURRENT names; raise unless `path` looks like a database."""
    if not path.is_dir():
        raise UnsupportedLayout(f"{path}: no such RocksDB directory")
    current = path / "CURRENT"
    try:
        text = current.read_bytes()
    except FileNotFoundError:
        raise CorruptionError(current, None, "missing: the database cannot be opened") from None
    name = text.decode("ascii", "replace").rstrip("\n")
    digits = name.removeprefix("MANIFEST-")
    if not (text.endswith(b"\n") and digits != name and digits.isdecimal()):
        raise CorruptionError(current, 0, f"names no manifest: {name[:40]!r}")
    if not (path / name).is_file():
        raise CorruptionError(path / name, None, "missing: CURRENT names this manifest")
    return path / name


def in_use(path: Path, why: str = "is open in another place") -> DirectoryInUse:
    """Return the error for a database that somebody writes."""
    return DirectoryInUse(
        f"{path} {why}: stop it, copy the directory, or read it live (live=True, --live)"
    )


def check_not_in_use(path: Path) -> None:
    """Raise `DirectoryInUse` if a process holds the database's lock. Touches nothing."""
    if os.path.realpath(path) in _open_for_writing or _is_locked(path / "LOCK"):
        raise in_use(path)


def _is_locked(lock: Path) -> bool:
    """Return whether a process holds a write lock on `lock`, this one included.

    The file is not opened where this process has it open already: closing any descriptor of
    a file drops all POSIX locks that the process holds on it.
    """
    try:
        info = os.stat(lock)
        # What a child has open of its parent's is no lock of its own.
        if not rocks_fork.lost_threads() and _open_in_this_process(info):
            return True
        fd = os.open(lock, os.O_RDONLY)
    except (FileNotFoundError, PermissionError):  # never opened by RocksDB, or not for us to see
        return False
    try:
        return _query_lock(fd)
    finally:
        os.close(fd)


def _open_in_this_process(info: os.stat_result) -> bool:
    for name in os.listdir("/dev/fd"):
        try:
            if os.path.samestat(os.fstat(int(name)), info):
                return True
        except OSError:  # the descriptor of the listing itself, or one closed meanwhile
            continue
    return False


def _query_lock(fd: int) -> bool:
    # struct flock: l_type, l_whence, l_start, l_len, l_pid, whose order differs by system.
    if sys.platform == "darwin":
        layout = "@qqihh"
        asked = struct.pack(layout, 0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
        kind = struct.unpack(layout, fcntl.fcntl(fd, fcntl.F_GETLK, asked))[3]
    else:
        layout = "@hhqqi4x"
        asked = struct.pack(layout, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind = struct.unpack(layout, fcntl.fcntl(fd, fcntl.F_GETLK, asked))[0]
    return bool(kind != fcntl.F_UNLCK)


@contextmanager
def link_copy(path: Path, held: ExitStack | None = None) -> Iterator[Path]:
    """Yield a scratch directory that stands for the database at `path`; remove it afterwards.

    Logs first, then the small files, then the tables that a copied manifest names: whatever a
    writer flushes meanwhile is in a log that was there or in a table that is. With `held`
    (where the system can), files are held open until it is closed, so that a writer cannot
    take them away. Cost: one link a file, and a copy of the manifest.
    """
    scratch = Path(tempfile.mkdtemp(prefix="bkstore-rocksdb-"))
    try:
        _link(path, scratch, (".log",), held)
        for name in sorted(os.listdir(path)):
            if name.startswith(_COPIED):
                shutil.copyfile(path / name, scratch / name)
        _link(path, scratch, (".sst", ".blob"), held)
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _link(path: Path, scratch: Path, suffixes: tuple[str, ...], held: ExitStack | None) -> None:
    for name in sorted(os.listdir(path)):
        if not name.endswith(suffixes):
            continue
        target = os.path.realpath(path / name)
        if held is not None and CAN_HOLD:
            fd = os.open(target, os.O_RDONLY)
            held.callback(os.close, fd)
            target = f"{_DESCRIPTORS}/{fd}"
        os.symlink(target, scratch / name)
