"""Reading a RocksDB directory without changing it: locks, and a scratch directory of links.
rocksdict writes a side file into every directory it opens, even read-only, and fails if it may not.
So a database is read through a scratch directory with links to the table files and write-ahead
logs, and a copy of the manifest. The original may be write-protected."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bkstore.errors import CorruptionError, DirectoryInUse, UnsupportedLayout
from bkstore.files.disk_changes import OS_FILES
from bkstore.files.lock_files import has_posix_lock
from bkstore.files.opening import (
    check_regular,
    next_data_offset,
    open_for_reading,
    open_regular,
    read_file,
)
from bkstore.files.os_errors import convert_read_errors, convert_write_errors
from bkstore.files.scratch import scratch_directory
from bkstore.index.rocks import after_fork

_DESCRIPTORS = "/proc/self/fd"
CAN_REOPEN_UNLINKED = os.path.isdir(_DESCRIPTORS)
"""Whether an open file can be opened again after it was removed."""

_FIXED_NAMES = ("CURRENT", "IDENTITY", "LOCK", "LOG", "rocksdict-config.json")
_NUMBERED_PREFIXES = ("MANIFEST-", "OPTIONS-")
_DATA_FILE = re.compile(r"\d+\.(log|sst|blob)")
_MAX_BYTES_OF = {"CURRENT": 1 << 10, "MANIFEST": 4 << 30, "LOG": 1 << 40}  # manifests roll at 1 GiB
_MAX_OTHER_BYTES = 16 << 20
_MAX_UNWRITTEN_BYTES = 128 << 20  # more than RocksDB allocates ahead
_MAX_TAIL_BYTES = 64 << 20
_COPY_CHUNK_BYTES = 1 << 20

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
    """Return the manifest that CURRENT names. Raises `UnsupportedLayout` if `path` does not exist,
    `CorruptionError` if it is no database."""
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
    """Raise `CorruptionError` for a file that would make RocksDB hang or read endlessly: one that
    it opens and that is not regular or is longer than possible, or that it reads in full and has
    larger holes than RocksDB leaves. One `stat` for each file."""
    for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
        try:
            if entry.name in _FIXED_NAMES or entry.name.startswith(_NUMBERED_PREFIXES):
                file_stat = _check_size(path / entry.name)
            elif _DATA_FILE.fullmatch(entry.name):
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


def in_use_error(path: Path, reason: str = "is open elsewhere") -> DirectoryInUse:
    """Return the error for a database that somebody writes."""
    advice = "stop it, copy the directory, or read it live (live=True, --live)"
    return DirectoryInUse(f"{path} {reason}: {advice}")


def check_not_in_use(path: Path) -> None:
    """Raise `DirectoryInUse` if a process holds the database's lock. Changes nothing."""
    with _probe_lock:
        # A forked child inherits descriptors, but not the parent's locks.
        may_be_own = not after_fork.has_lost_threads()
        is_written_here = os.path.realpath(path) in _open_for_writing
        is_in_use = is_written_here or has_posix_lock(path / "LOCK", may_be_own=may_be_own)
    if is_in_use:
        raise in_use_error(path)


@contextmanager
def link_copy(path: Path, open_files: ExitStack | None = None) -> Iterator[Path]:
    """Yield a scratch directory with links to the database at `path`; remove it afterwards. Logs
    come first, then the manifest and CURRENT, then the tables: so rows that a writer flushes
    meanwhile are in a log already linked or in a table linked later. With `open_files` (where the
    system permits), files stay open until it is closed, so that a writer cannot remove them. Cost:
    one link for each file, and a copy of the manifest. Raises `CorruptionError` for a file that is
    not regular, or longer than possible."""
    with scratch_directory("rocksdb") as scratch_top:
        scratch = scratch_top / "copy"
        with convert_write_errors(scratch):
            OS_FILES.mkdir(scratch)
        _link_files(path, scratch, (".log",), open_files)
        manifest = find_manifest(path)
        copy_prefix(manifest, scratch / manifest.name)
        with convert_write_errors(scratch):
            name_line = os.fsencode(manifest.name) + b"\n"
            OS_FILES.write_file(scratch / "CURRENT", name_line, durable=False)
        _link_files(path, scratch, (".sst", ".blob"), open_files)
        yield scratch


def copy_prefix(source: Path, target: Path, size: int | None = None) -> None:
    """Copy the first `size` bytes of a file (None: all that it has now); holes stay holes."""
    with ExitStack() as open_files:
        with convert_read_errors(source):
            file = open_files.enter_context(open_for_reading(source))
            stop = os.fstat(file.fileno()).st_size if size is None else size
        with convert_write_errors(target):
            copy_fd = OS_FILES.create_new(target)
        open_files.callback(OS_FILES.close, copy_fd)
        position = 0
        while True:
            with convert_read_errors(source):
                data_offset = next_data_offset(file.fileno(), position)
                if data_offset is None or data_offset >= stop:
                    break
                chunk_size = min(_COPY_CHUNK_BYTES, stop - data_offset)
                chunk = os.pread(file.fileno(), chunk_size, data_offset)
            if not chunk:
                break
            with convert_write_errors(target):
                OS_FILES.pwrite(copy_fd, chunk, data_offset)
            position = data_offset + len(chunk)
        with convert_write_errors(target):
            OS_FILES.truncate(copy_fd, stop)  # as long as the source, if that ends in a hole


def truncate_torn_tails(scratch: Path, torn_tails: Iterable[tuple[Path, int]]) -> None:
    """Cut files at the end of their last whole record if a long tail follows, which RocksDB would
    read in full; a copy replaces the link in `scratch`."""
    for path, tail_offset in torn_tails:
        link_path = scratch / path.name
        if os.stat(link_path).st_size - tail_offset > _MAX_TAIL_BYTES:
            copy_prefix(link_path, scratch / "cut", tail_offset)
            with convert_write_errors(link_path):
                OS_FILES.replace(scratch / "cut", link_path)


def _link_files(
    path: Path, scratch: Path, suffixes: tuple[str, ...], open_files: ExitStack | None
) -> None:
    """Link the database's files of these suffixes into `scratch`. With `open_files` the links lead
    to open descriptors, through which a file can be read after a writer removed it."""
    for file_name in sorted(os.listdir(path)):
        if not (file_name.endswith(suffixes) and _DATA_FILE.fullmatch(file_name)):
            continue
        target = os.path.realpath(path / file_name)
        check_regular(path / file_name)
        if open_files is not None and CAN_REOPEN_UNLINKED:
            fd = open_regular(target)
            open_files.callback(os.close, fd)
            target = f"{_DESCRIPTORS}/{fd}"
        with convert_write_errors(scratch):
            OS_FILES.symlink(target, scratch / file_name)
