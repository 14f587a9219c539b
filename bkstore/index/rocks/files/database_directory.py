"""A database's directory before it is read: who writes it, and files that cannot be RocksDB's."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

from bkstore.errors import CorruptionError, DirectoryInUse, UnsupportedLayout
from bkstore.files.lock_files import has_posix_lock
from bkstore.files.opening import check_regular, read_file
from bkstore.index.rocks.files import after_fork

_FIXED_NAMES = ("CURRENT", "IDENTITY", "LOCK", "LOG", "rocksdict-config.json")
_NUMBERED_PREFIXES = ("MANIFEST-", "OPTIONS-")
DATA_FILE = re.compile(r"\d+\.(log|sst|blob)")
_MAX_BYTES_OF = {"CURRENT": 1 << 10, "MANIFEST": 4 << 30, "LOG": 1 << 40}  # manifests roll at 1 GiB
_MAX_OTHER_BYTES = 16 << 20
_MAX_UNWRITTEN_BYTES = 128 << 20  # more than RocksDB allocates ahead
_open_for_writing: set[str] = set()
"""Databases this process writes."""

_probe_lock = threading.Lock()
"""Held while a LOCK file is open for a query: closing it would drop the lock of a database that
another thread opens meanwhile, so `register_writer` waits for it."""


def _forget_claims() -> None:
    global _probe_lock
    _open_for_writing.clear()
    _probe_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_claims)


def register_writer(path: Path) -> None:
    """Record that this process writes the database at `path`; call before opening it."""
    with _probe_lock:
        _open_for_writing.add(os.path.realpath(path))


def unregister_writer(path: Path) -> None:
    """Forget `register_writer`."""
    _open_for_writing.discard(os.path.realpath(path))


def find_manifest(path: Path) -> Path:
    """Return the path of the manifest (the list of live table files) that the file CURRENT names.
    Raises `UnsupportedLayout` if `path` does not exist, `CorruptionError` if it is no database."""
    if not path.is_dir():
        if os.path.lexists(path):
            raise CorruptionError(path, None, "cannot be read: is not a directory")
        raise UnsupportedLayout(f"{path}: no such RocksDB directory")
    current = path / "CURRENT"
    try:
        text = read_file(current, _MAX_BYTES_OF["CURRENT"])
    except FileNotFoundError:
        raise CorruptionError(current, None, "missing: the database cannot be opened") from None
    manifest_name = text.decode("ascii", "replace").rstrip("\n")
    digits = manifest_name.removeprefix("MANIFEST-")
    if not (text.endswith(b"\n") and digits != manifest_name and digits.isdecimal()):
        raise CorruptionError(current, 0, f"does not name a manifest: {manifest_name[:40]!r}")
    try:
        _check_size(path / manifest_name)
    except FileNotFoundError:
        missing = "missing: CURRENT refers to this manifest"
        raise CorruptionError(path / manifest_name, None, missing) from None
    return path / manifest_name


def check_files(path: Path) -> None:
    """Raise `CorruptionError` for a file that would make RocksDB hang or read endlessly. Such a
    file is one that RocksDB opens although it is not regular (a pipe, say), is longer than
    possible, or has larger holes than RocksDB leaves, if it is read in full. One `stat` each."""
    for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
        try:
            if entry.name in _FIXED_NAMES or entry.name.startswith(_NUMBERED_PREFIXES):
                file_stat = _check_size(path / entry.name)
            elif DATA_FILE.fullmatch(entry.name):
                file_stat = check_regular(entry.path)
            else:
                continue
            is_read_in_full = not entry.name.endswith((".sst", ".blob"))
            unwritten = file_stat.st_size - 512 * file_stat.st_blocks
            if is_read_in_full and unwritten > _MAX_UNWRITTEN_BYTES:
                reason = f"{file_stat.st_size} bytes, of which {unwritten} were never written"
                raise CorruptionError(entry.path, None, reason)
        except FileNotFoundError:  # gone since the listing
            continue


def _check_size(file: Path) -> os.stat_result:
    max_bytes = _MAX_BYTES_OF.get(file.name.partition("-")[0], _MAX_OTHER_BYTES)
    file_stat = check_regular(file)
    if file_stat.st_size > max_bytes:
        raise CorruptionError(file, max_bytes, f"is longer than the limit of {max_bytes} bytes")
    return file_stat


def list_changing_files(path: Path) -> list[tuple[str, int, int]]:
    """Return (name, inode, bytes) of CURRENT, the manifests, tables and logs: if two listings are
    equal, no row was written between them."""
    listed: list[tuple[str, int, int]] = []
    for entry in os.scandir(path):
        if entry.name.startswith(("CURRENT", "MANIFEST-")) or DATA_FILE.fullmatch(entry.name):
            try:
                file_stat = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # gone since the listing
                continue
            listed.append((entry.name, file_stat.st_ino, file_stat.st_size))
    return sorted(listed)


def in_use_error(path: Path, reason: str = "is open elsewhere") -> DirectoryInUse:
    """Return the error for a database that somebody writes."""
    advice = "stop it, copy the directory, or read it live (live=True, --live)"
    return DirectoryInUse(f"{path} {reason}: {advice}")


def check_not_in_use(path: Path) -> None:
    """Raise `DirectoryInUse` if a process, also this one, has the database open for writing, and so
    holds its lock. Changes nothing."""
    with _probe_lock:
        # The lock may be one of this process, unless it was forked: a child inherits descriptors,
        # but not the parent's locks.
        may_be_own = not after_fork.has_lost_threads()
        is_written_here = os.path.realpath(path) in _open_for_writing
        is_in_use = is_written_here or has_posix_lock(path / "LOCK", may_be_own=may_be_own)
    if is_in_use:
        raise in_use_error(path)
