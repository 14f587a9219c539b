"""Rescued ledgers as one Parquet table: an entry a row, with its payload."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import convert_sync_errors, convert_write_errors
from bkstore.formats.entry import RecordBatch
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.offline.dump.parquet import ParquetTableWriter
from bkstore.rescue.ledger_plans import LedgerPlan
from bkstore.rescue.outputs.folders import write_metadata
from bkstore.rescue.outputs.payloads import PayloadReader
from bkstore.rescue.rescue_job import RescueJob, RescueOutput
from bkstore.tables import RESCUED_ENTRIES, Table

FILE_BYTES = 256 << 20
"""Bytes of records after which another file begins, at a checkpoint."""

_GROUP_BYTES = 8 << 20


class ParquetOutput(RescueOutput):
    """Files ``entries-00000.parquet`` and so on in `folder`, of the table `RESCUED_ENTRIES`, sorted
    by ledger and entry; ``metadata.json`` beside them has the ledgers' metadata with passwords."""

    def __init__(self, folder: Path, files: Files = OS_FILES) -> None:
        self._folder = folder
        self._files = files
        self._stack = ExitStack()
        self._file_count = 0
        self._writer: ParquetTableWriter | None = None
        self._bytes = self._group_bytes = 0

    @property
    def description(self) -> str:
        """See `RescueOutput`."""
        return "parquet"

    def begin(self, job: RescueJob, state: Any = None) -> None:
        """Begin the first file, or the one after the complete ones, whose number is in `state`."""
        self._payloads = PayloadReader(job.secrets)
        if state is not None:
            self._file_count = state["files"]
            self._remove_later_files()
        if not self._file_count:
            self._open_file()

    def _remove_later_files(self) -> None:
        """Remove files that were begun after the checkpoint."""
        for path in self._folder.glob("entries-*.parquet"):
            if path.name >= self._path(self._file_count).name:
                with convert_write_errors(path):
                    self._files.unlink(path)

    def _path(self, number: int) -> Path:
        return self._folder / f"entries-{number:05d}.parquet"

    def add(self, plan: LedgerPlan, records: RecordBatch) -> None:
        """Append rows; a row group has some 8 MiB."""
        writer = self._writer or self._open_file()
        batch = self._payloads.read(plan.metadata.ledger, records)
        scope, ledger = plan.metadata.ledger.signed
        count = len(batch.payloads)
        columns: dict[str, Any] = {
            "scope_id": np.full(count, scope),
            "ledger_id": np.full(count, ledger),
            "entry_id": batch.entry_id,
            "lac": batch.lac,
            "length": batch.length,
            "payload": batch.payloads,
        }
        writer.write(Table(RESCUED_ENTRIES, columns))
        record_bytes = int(records.sizes.sum())
        self._bytes += record_bytes
        self._group_bytes += record_bytes
        if self._group_bytes >= _GROUP_BYTES:
            writer.end_row_group()
            self._group_bytes = 0

    def _open_file(self) -> ParquetTableWriter:
        """Begin the next file."""
        writer = ParquetTableWriter(self._path(self._file_count), RESCUED_ENTRIES, self._files)
        self._writer = self._stack.enter_context(writer)
        self._file_count += 1
        self._bytes = self._group_bytes = 0
        return writer

    def checkpoint(self) -> Any:
        """Complete the current file if it is large enough; None for a smaller one: its rows cannot
        be read before it is complete."""
        if self._bytes < FILE_BYTES:
            return None
        self._complete_file()
        return {"files": self._file_count}

    def _complete_file(self) -> None:
        self._stack.close()
        self._writer = None
        with convert_sync_errors(self._folder):
            self._files.sync_dir(self._folder)

    def finish(self, ledgers: dict[LedgerId, LedgerMetadata]) -> None:
        """Complete the last file, and write the metadata."""
        self._complete_file()
        write_metadata(self._folder, ledgers, self._files)

    def close(self) -> None:
        """Close a file that is open."""
        self._stack.close()
