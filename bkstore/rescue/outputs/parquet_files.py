"""Rescued ledgers as one Parquet table: an entry a row, with its payload."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.formats.entry import RecordBatch
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.offline.dump.parquet import ParquetTableWriter
from bkstore.rescue.ledger_plans import LedgerPlan
from bkstore.rescue.outputs.folders import write_metadata
from bkstore.rescue.outputs.payloads import PayloadReader
from bkstore.rescue.rescue_job import RescueJob, RescueOutput
from bkstore.tables import RESCUED_ENTRIES, Table

_FILE_BYTES = 1 << 30
"""Payload bytes after which another file begins."""


class ParquetOutput(RescueOutput):
    """Files ``entries-00000.parquet`` and so on in `folder`, of the table `RESCUED_ENTRIES`, sorted
    by ledger and entry; ``metadata.json`` beside them has the ledgers' metadata with passwords."""

    def __init__(self, folder: Path, files: Files = OS_FILES) -> None:
        self._folder = folder
        self._files = files
        self._stack = ExitStack()
        self._file_count = 0
        self._writer: ParquetTableWriter | None = None
        self._bytes = 0

    def begin(self, job: RescueJob) -> None:
        """Begin the first file."""
        self._payloads = PayloadReader(job.secrets)
        self._open_file()

    def add(self, plan: LedgerPlan, records: RecordBatch) -> None:
        """Append rows, as a row group."""
        writer = self._writer
        if writer is None or self._bytes >= _FILE_BYTES:
            writer = self._open_file()
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
        writer.end_row_group()
        self._bytes += int(records.sizes.sum())

    def _open_file(self) -> ParquetTableWriter:
        """Complete the current file, and begin another."""
        self._stack.close()
        path = self._folder / f"entries-{self._file_count:05d}.parquet"
        writer = ParquetTableWriter(path, RESCUED_ENTRIES, self._files)
        self._writer = self._stack.enter_context(writer)
        self._file_count += 1
        self._bytes = 0
        return writer

    def finish(self, ledgers: dict[LedgerId, LedgerMetadata]) -> None:
        """Complete the last file, and write the metadata."""
        self._stack.close()
        write_metadata(self._folder, ledgers, self._files)

    def close(self) -> None:
        """Close a file that is open."""
        self._stack.close()
