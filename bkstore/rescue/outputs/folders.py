"""Rescued ledgers as files: a folder for each ledger, which needs nothing else to be read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from bkstore.errors import CorruptionError
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import convert_sync_errors, convert_write_errors
from bkstore.formats.entry import RecordBatch
from bkstore.formats.metadata.json_file import ClusterMetadata, encode_file
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.rescue.ledger_plans import LedgerPlan
from bkstore.rescue.outputs.payloads import PayloadReader
from bkstore.rescue.rescue_job import RescueJob, RescueOutput

METADATA_FILE = "metadata.json"
ENTRIES_FILE = "entries.csv"
PAYLOADS_FILE = "payloads"
_CSV_HEADER = "entry_id,offset,bytes,lac,length\n"


class FolderOutput(RescueOutput):
    """A folder for each ledger in `folder`, named by the ledger's id (its qualified name in a
    scope): ``payloads`` has all payloads one after the other, ``entries.csv`` a line for each entry
    with the offset and size of its payload. ``metadata.json`` in `folder` itself has the metadata
    of all ledgers, with passwords: it is readable by its owner alone."""

    def __init__(self, folder: Path, files: Files = OS_FILES) -> None:
        self._folder = folder
        self._files = files
        self._ledger: LedgerId | None = None
        self._stack = ExitStack()
        self._unsynced: list[LedgerId] = []

    @property
    def description(self) -> str:
        """See `RescueOutput`."""
        return "folders"

    def begin(self, job: RescueJob, state: Any = None) -> None:
        """Make a folder for each ledger. `state` has the ledger whose files are not complete, with
        the sizes of both."""
        self._payloads = PayloadReader(job.secrets)
        with convert_write_errors(self._folder):
            self._files.makedirs(self._folder)
        for ledger_id in job.plans:
            with convert_write_errors(self._path(ledger_id)):
                self._files.mkdir(self._path(ledger_id))
        with convert_sync_errors(self._folder):
            self._files.sync_dir(self._folder)
        if state is not None:
            last_ledger = LedgerId(*state["ledger"])
            for ledger_id in job.plans:
                if ledger_id > last_ledger:
                    self._remove_files(ledger_id)
            self._open_ledger(last_ledger, state["payload_bytes"], state["entries_bytes"])

    def _remove_files(self, ledger_id: LedgerId) -> None:
        """Remove the files of a ledger that were begun after the checkpoint."""
        folder = self._path(ledger_id)
        for path in (folder / PAYLOADS_FILE, folder / ENTRIES_FILE):
            with convert_write_errors(path), suppress(FileNotFoundError):
                self._files.unlink(path)

    def _path(self, ledger_id: LedgerId) -> Path:
        return self._folder / folder_name(ledger_id)

    def add(self, plan: LedgerPlan, records: RecordBatch) -> None:
        """Append payloads and lines."""
        if plan.metadata.ledger != self._ledger:
            self._open_ledger(plan.metadata.ledger)
            self._entries_file.append(_CSV_HEADER.encode())
        batch = self._payloads.read(plan.metadata.ledger, records)
        sizes = np.fromiter(map(len, batch.payloads), np.int64, len(batch.payloads))
        offsets = self._payload_file.size + np.cumsum(sizes) - sizes
        columns = (batch.entry_id, offsets, sizes, batch.lac, batch.length)
        lines = map("%d,%d,%d,%d,%d\n".__mod__, zip(*(column.tolist() for column in columns)))
        self._payload_file.append(b"".join(batch.payloads))
        self._entries_file.append("".join(lines).encode())

    def _open_ledger(
        self, ledger_id: LedgerId, payload_bytes: int = 0, entries_bytes: int = 0
    ) -> None:
        """Open both files of a ledger, and cut off what is after the given sizes."""
        self._stack.close()
        self._ledger = ledger_id
        self._unsynced.append(ledger_id)
        folder, open_file = self._path(ledger_id), self._stack.enter_context
        self._payload_file = open_file(
            _appended_file(folder / PAYLOADS_FILE, payload_bytes, self._files)
        )
        self._entries_file = open_file(
            _appended_file(folder / ENTRIES_FILE, entries_bytes, self._files)
        )

    def checkpoint(self) -> Any:
        """Sync all files and folders."""
        assert self._ledger is not None
        self._payload_file.sync()
        self._entries_file.sync()
        self._sync_folders()
        return {
            "ledger": self._ledger,
            "payload_bytes": self._payload_file.size,
            "entries_bytes": self._entries_file.size,
        }

    def _sync_folders(self) -> None:
        """Sync the folders of the ledgers whose files are new."""
        for ledger_id in self._unsynced:
            folder = self._path(ledger_id)
            with convert_sync_errors(folder):
                self._files.sync_dir(folder)
        self._unsynced = []

    def finish(self, ledgers: dict[LedgerId, LedgerMetadata]) -> None:
        """Sync all files, and write the metadata."""
        self._stack.close()
        self._sync_folders()
        write_metadata(self._folder, ledgers, self._files)

    def close(self) -> None:
        """Close files that are open."""
        self._stack.close()


def folder_name(ledger_id: LedgerId) -> str:
    """Return the name of a ledger's folder.

    >>> folder_name(LedgerId(0, 7)), folder_name(LedgerId(1, 7))
    ('7', '00000000000000010000000000000007')
    """
    return str(ledger_id.ledger) if ledger_id.scope == 0 else ledger_id.qualified_name


def write_metadata(folder: Path, ledgers: dict[LedgerId, LedgerMetadata], files: Files) -> None:
    """Write the metadata of ledgers, passwords included, to ``metadata.json``, for its owner."""
    path = folder / METADATA_FILE
    data = encode_file(ClusterMetadata(tuple(ledgers.values())), passwords=True)
    with convert_write_errors(path):
        files.write_file(path, data, mode=0o600)
    with convert_sync_errors(folder):
        files.sync_dir(folder)


class _AppendedFile:
    """A file that grows at its end."""

    def __init__(self, path: Path, fd: int, size: int, files: Files) -> None:
        self.size = size
        self._path = path
        self._fd = fd
        self._files = files

    def append(self, data: bytes) -> None:
        with convert_write_errors(self._path):
            self._files.pwrite(self._fd, data, self.size)
        self.size += len(data)

    def sync(self) -> None:
        with convert_sync_errors(self._path):
            self._files.fsync(self._fd)


@contextmanager
def _appended_file(path: Path, size: int, files: Files) -> Iterator[_AppendedFile]:
    """Yield a new file, or the first `size` bytes of one that is there; it is synced and closed at
    the end."""
    with convert_write_errors(path):
        fd = files.open(path, os.O_RDWR | os.O_NOFOLLOW) if size else files.create_new(path)
    try:
        if size:
            _cut_off(fd, path, size, files)
        appended_file = _AppendedFile(path, fd, size, files)
        yield appended_file
        appended_file.sync()
    finally:
        files.close(fd)


def _cut_off(fd: int, path: Path, size: int, files: Files) -> None:
    """Cut off what follows the first `size` bytes of a file."""
    if os.fstat(fd).st_size < size:
        raise CorruptionError(path, size, "is shorter than when it was synced")
    with convert_write_errors(path):
        files.truncate(fd, size)
