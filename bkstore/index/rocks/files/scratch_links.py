"""Reading a RocksDB directory by RocksDB without changing it: a scratch directory of links.
rocksdict writes a side file into every directory it opens, even read-only, and fails if it may not.
So RocksDB reads a database through a scratch directory with links to the table files and logs, and
a copy of the manifest. The original may be write-protected."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bkstore.files.disk_changes import OS_FILES
from bkstore.files.opening import check_regular, next_data_offset, open_for_reading, open_regular
from bkstore.files.os_errors import convert_read_errors, convert_write_errors
from bkstore.files.scratch import scratch_directory
from bkstore.index.rocks.files.database_directory import DATA_FILE, find_manifest
from bkstore.index.rocks.files.manifest_file import TornTail

_DESCRIPTORS = "/proc/self/fd"
CAN_REOPEN_UNLINKED = os.path.isdir(_DESCRIPTORS)
"""Whether an open file can be opened again after it was removed."""

_MAX_TAIL_BYTES = 64 << 20
_COPY_CHUNK_BYTES = 1 << 20


@contextmanager
def link_copy(path: Path, open_files: ExitStack | None = None) -> Iterator[Path]:
    """Yield a scratch directory with links to the files of the database at `path`, so that RocksDB
    can open it without writing into `path`; remove it afterwards. Logs are linked first, then the
    manifest and CURRENT copied, then tables linked: so rows that a writer flushes meanwhile are in
    a log already linked or in a table linked later. With `open_files` (where the system permits),
    files stay open until it is closed, so that they can be read even if a writer removes them.
    Cost: one link for each file. Raises `CorruptionError` for a file that is not regular, or longer
    than possible."""
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


def truncate_torn_tails(scratch: Path, torn_tails: Iterable[TornTail]) -> None:
    """Shorten files that end inside a record. RocksDB would read a long tail in full, so a copy
    without it replaces the link in `scratch`; a short tail stays."""
    for path, tail_offset, _ in torn_tails:
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
        if not (file_name.endswith(suffixes) and DATA_FILE.fullmatch(file_name)):
            continue
        target = os.path.realpath(path / file_name)
        check_regular(path / file_name)
        if open_files is not None and CAN_REOPEN_UNLINKED:
            fd = open_regular(target)
            open_files.callback(os.close, fd)
            target = f"{_DESCRIPTORS}/{fd}"
        with convert_write_errors(scratch):
            OS_FILES.symlink(target, scratch / file_name)
