"""Rescued ledgers as files: a folder for each ledger, which needs nothing else to be read."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

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

    def begin(self, job: RescueJob) -> None:
        """Make a folder for each ledger."""
        self._payloads = PayloadReader(job.secrets)
        for ledger_id in job.plans:
            with convert_write_errors(self._path(ledger_id)):
                self._files.makedirs(self._path(ledger_id))

    def _path(self, ledger_id: LedgerId) -> Path:
        return self._folder / folder_name(ledger_id)

    def add(self, plan: LedgerPlan, records: RecordBatch) -> None:
        """Append payloads and lines."""
        if plan.metadata.ledger != self._ledger:
            self._open_ledger(plan.metadata.ledger)
        batch = self._payloads.read(plan.metadata.ledger, records)
        lines, offset = io.StringIO(), self._payload_file.size
        columns = (batch.entry_id.tolist(), batch.lac.tolist(), batch.length.tolist())
        for entry_id, lac, length, payload in zip(*columns, batch.payloads):
            lines.write(f"{entry_id},{offset},{len(payload)},{lac},{length}\n")
            offset += len(payload)
        self._payload_file.append(b"".join(batch.payloads))
        self._entries_file.append(lines.getvalue().encode())

    def _open_ledger(self, ledger_id: LedgerId) -> None:
        self._stack.close()
        self._ledger = ledger_id
        folder = self._path(ledger_id)
        open_file = self._stack.enter_context
        self._payload_file = open_file(_appended_file(folder / PAYLOADS_FILE, self._files))
        self._entries_file = open_file(_appended_file(folder / ENTRIES_FILE, self._files))
        self._entries_file.append(_CSV_HEADER.encode())

    def finish(self, ledgers: dict[LedgerId, LedgerMetadata]) -> None:
        """Sync all files, and write the metadata."""
        self._stack.close()
        for ledger_id in ledgers:
            folder = self._path(ledger_id)
            with convert_sync_errors(folder):
                self._files.sync_dir(folder)
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
        files.write_file(path, data)
        os.chmod(path, 0o600)
    with convert_sync_errors(folder):
        files.sync_dir(folder)


class _AppendedFile:
    """A new file that grows at its end."""

    def __init__(self, path: Path, fd: int, files: Files) -> None:
        self.size = 0
        self._path = path
        self._fd = fd
        self._files = files

    def append(self, data: bytes) -> None:
        with convert_write_errors(self._path):
            self._files.pwrite(self._fd, data, self.size)
        self.size += len(data)


@contextmanager
def _appended_file(path: Path, files: Files) -> Iterator[_AppendedFile]:
    """Yield a new file, which is synced and closed at the end."""
    with convert_write_errors(path):
        fd = files.create_new(path)
    try:
        yield _AppendedFile(path, fd, files)
        with convert_sync_errors(path):
            files.fsync(fd)
    finally:
        files.close(fd)
