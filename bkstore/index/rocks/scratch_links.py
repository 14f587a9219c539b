"""Reading a RocksDB directory without touching it: locks, and a scratch directory of links.

rocksdict writes a side file into every directory it opens, read-only opens included, and fails
where it may not. So a database is read through a scratch directory: links to the table files
and write-ahead logs, a copy of the manifest, which names them. The original stays as it was,
also without write permission.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bkstore.errors import CorruptionError, DirectoryInUse, UnsupportedLayout
from bkstore.files.disk_changes import OS_FILES
from bkstore.files.opening import check_regular, open_regular, opened, past_hole, read_whole
from bkstore.files.os_errors import readable, writing
from bkstore.files.scratch import scratch_directory
from bkstore.index.rocks import after_fork

_DESCRIPTORS = "/proc/self/fd"
CAN_HOLD = os.path.isdir(_DESCRIPTORS)
"""Whether an open file can be opened again after it was removed."""

_OPENED = ("CURRENT", "IDENTITY", "LOCK", "LOG", "rocksdict-config.json")
_NUMBERED = ("MANIFEST-", "OPTIONS-")
_DATA = re.compile(r"\d+\.(log|sst|blob)")
_LIMITS = {"CURRENT": 1 << 10, "MANIFEST": 4 << 30, "LOG": 1 << 40}  # a manifest rolls at 1 GiB
_MOST = 16 << 20
_HOLES = 128 << 20  # more than RocksDB allocates ahead
_TAIL = 64 << 20
_COPIED = 1 << 20

_open_for_writing: set[str] = set()
"""Databases this process writes."""

_probing = threading.Lock()
"""Held while a lock file is open to be asked about: closing it would free a database that a
thread opens meanwhile, so `claim` waits for it."""


def _forget_claims() -> None:
    global _probing
    _open_for_writing.clear()
    _probing = threading.Lock()


os.register_at_fork(after_in_child=_forget_claims)


def claim(path: Path) -> None:
    """Remember that this process writes the database at `path`; call before it is opened."""
    with _probing:
        _open_for_writing.add(os.path.realpath(path))


def release(path: Path) -> None:
    """Forget `claim`."""
    _open_for_writing.discard(os.path.realpath(path))


def manifest_path(path: Path) -> Path:
    """Return the manifest that CURRENT names; raise unless `path` looks like a database."""
    if not path.is_dir():
        if os.path.lexists(path):
            raise CorruptionError(path, None, "cannot be read: is no folder")
        raise UnsupportedLayout(f"{path}: no such RocksDB directory")
    current = path / "CURRENT"
    try:
        text = read_whole(current, _LIMITS["CURRENT"])
    except FileNotFoundError:
        raise CorruptionError(current, None, "missing: the database cannot be opened") from None
    name = text.decode("ascii", "replace").rstrip("\n")
    digits = name.removeprefix("MANIFEST-")
    if not (text.endswith(b"\n") and digits != name and digits.isdecimal()):
        raise CorruptionError(current, 0, f"names no manifest: {name[:40]!r}")
    try:
        _check_size(path / name)
    except FileNotFoundError:
        missing = "missing: CURRENT names this manifest"
        raise CorruptionError(path / name, None, missing) from None
    return path / name


def check_files(path: Path) -> None:
    """Raise `CorruptionError` for what RocksDB would wait for, or read without an end.

    That is, for names that it opens itself: what is no regular file, what is longer than it can
    be, and what it reads from end to end with more holes than it leaves. A `stat` a file.
    """
    for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
        try:
            if entry.name in _OPENED or entry.name.startswith(_NUMBERED):
                info = _check_size(path / entry.name)
            elif _DATA.fullmatch(entry.name):
                info = check_regular(entry.path)
            else:
                continue
            holes = info.st_size - 512 * info.st_blocks
            if holes > _HOLES and not entry.name.endswith((".sst", ".blob")):
                reason = f"{info.st_size} bytes, of which {holes} were never written"
                raise CorruptionError(entry.path, None, reason)
        except FileNotFoundError:  # gone since the listing
            continue


def _check_size(file: Path) -> os.stat_result:
    limit = _LIMITS.get(file.name.partition("-")[0], _MOST)
    info = check_regular(file)
    if info.st_size > limit:
        raise CorruptionError(file, limit, f"is longer than the {limit} bytes that it may have")
    return info


def in_use(path: Path, why: str = "is open in another place") -> DirectoryInUse:
    """Return the error for a database that somebody writes."""
    return DirectoryInUse(
        f"{path} {why}: stop it, copy the directory, or read it live (live=True, --live)"
    )


def check_not_in_use(path: Path) -> None:
    """Raise `DirectoryInUse` if a process holds the database's lock. Touches nothing."""
    with _probing:
        used = os.path.realpath(path) in _open_for_writing or _is_locked(path / "LOCK")
    if used:
        raise in_use(path)


def _is_locked(lock: Path) -> bool:
    """Return whether a process holds a write lock on `lock`, this one included.

    The file is not opened where this process has it open already: closing any descriptor of
    a file drops all POSIX locks that the process holds on it.
    """
    try:
        info = check_regular(lock)
        # What a child has open of its parent's is no lock of its own.
        if not after_fork.lost_threads() and _open_in_this_process(info):
            return True
        fd = open_regular(lock)
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

    Logs first, then the manifest and CURRENT, which names it, then the tables that it names:
    whatever a writer flushes meanwhile is in a log that was there or in a table that is. With
    `held` (where the system can), files are held open until it is closed, so that a writer cannot
    take them away. Cost: one link a file, and a copy of the manifest. Raises `CorruptionError`
    for what is no regular file, or longer than it can be.
    """
    with scratch_directory("rocksdb") as top:
        scratch = top / "copy"
        with writing(scratch):
            OS_FILES.mkdir(scratch)
        _link(path, scratch, (".log",), held)
        manifest = manifest_path(path)
        copy_start(manifest, scratch / manifest.name)
        with writing(scratch):
            OS_FILES.write_file(
                scratch / "CURRENT", os.fsencode(manifest.name) + b"\n", durable=False
            )
        _link(path, scratch, (".sst", ".blob"), held)
        yield scratch


def copy_start(source: Path, target: Path, size: int | None = None) -> None:
    """Copy the first `size` bytes of a file (None: all that it has now); holes stay holes."""
    with ExitStack() as stack:
        with readable(source):
            file = stack.enter_context(opened(source))
            stop = os.fstat(file.fileno()).st_size if size is None else size
        with writing(target):
            copy = OS_FILES.fresh(target)
        stack.callback(OS_FILES.close, copy)
        at = 0
        while True:
            with readable(source):
                data = past_hole(file.fileno(), at)
                if data is None or data >= stop:
                    break
                part = os.pread(file.fileno(), min(_COPIED, stop - data), data)
            if not part:
                break
            with writing(target):
                OS_FILES.pwrite(copy, part, data)
            at = data + len(part)
        with writing(target):
            OS_FILES.truncate(copy, stop)


def cut_tails(scratch: Path, torn: Iterable[tuple[Path, int]]) -> None:
    """Let files of a scratch directory end where their last whole record does.

    Only those with much behind it, which RocksDB would read through: a copy stands for them.
    """
    for path, offset in torn:
        link = scratch / path.name
        if os.stat(link).st_size - offset > _TAIL:
            copy_start(link, scratch / "cut", offset)
            with writing(link):
                OS_FILES.replace(scratch / "cut", link)


def _link(path: Path, scratch: Path, suffixes: tuple[str, ...], held: ExitStack | None) -> None:
    for name in sorted(os.listdir(path)):
        if not (name.endswith(suffixes) and _DATA.fullmatch(name)):
            continue
        target = os.path.realpath(path / name)
        check_regular(path / name)
        if held is not None and CAN_HOLD:
            fd = open_regular(target)
            held.callback(os.close, fd)
            target = f"{_DESCRIPTORS}/{fd}"
        with writing(scratch):
            OS_FILES.symlink(target, scratch / name)
