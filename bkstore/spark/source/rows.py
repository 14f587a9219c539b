"""Reading one partition of ``spark.read.format("bookie")``: a table's rows as Arrow batches.

A piece is a part of a bookie that is read alone: a range of its index rows, or some of its entry
logs (`offline.dump.plan`). `entries` are read directly from the index. The other tables are written
by the code that writes dumps (`offline.dump.dump_piece`), to a temp folder: a query returns the
same rows as a dump.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bkstore.errors import BkstoreError, CorruptionError, DirectoryInUse
from bkstore.files.disk_changes import UnsyncedFiles
from bkstore.files.scratch import scratch_directory
from bkstore.ids import log_ids_of, positions_of
from bkstore.index.api import Finding, IndexBatch
from bkstore.offline.dump.dump_piece import write_piece
from bkstore.offline.dump.index_rows import PieceIndex
from bkstore.offline.dump.plan import DumpPiece, fingerprint
from bkstore.offline.dump.record_lengths import RecordLengths
from bkstore.offline.reading.manifest import finding_to_json
from bkstore.spark.source.filters import Bounds
from bkstore.tables import BOOKIE_FINDINGS, ENTRIES, Schema, Table

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 1 << 17


@dataclass(frozen=True)
class TablePartition:
    """A partition: pieces of one bookie with their fingerprints, or findings of the planning."""

    bookie_id: str
    pieces: tuple[tuple[DumpPiece, str], ...] = ()
    findings: tuple[Finding, ...] = ()


def read_partition(
    partition: TablePartition, table: Schema, bounds: Bounds, skip_damage: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the selected rows of a partition, of the table's types, in bounded memory. Raises
    `CorruptionError` for bad bytes unless `skip_damage`, `DirectoryInUse` if files changed."""
    if partition.findings:
        yield from _finding_rows(partition.bookie_id, partition.findings)
    for piece, planned_fingerprint in partition.pieces:
        findings: list[Finding] = []
        try:
            for batch in _rows_of(piece, table, findings):
                _check_damage(findings, table, skip_damage)  # before rows after the damage
                yield from _select_rows(batch, table, bounds)
        except BkstoreError as error:
            if table != BOOKIE_FINDINGS and not skip_damage:
                raise
            findings.append(Finding.of(error))
        _check_damage(findings, table, skip_damage)
        if not piece.live and fingerprint(piece) != planned_fingerprint:
            raise DirectoryInUse(
                f"{piece.bookie_id}: files changed while they were read: stop the bookie, copy "
                "the directory, or read it live (option live)"
            )
        if table == BOOKIE_FINDINGS:
            yield from _finding_rows(partition.bookie_id, tuple(findings))


def _check_damage(findings: list[Finding], table: Schema, skip_damage: bool) -> None:
    """Raise `CorruptionError` for the first damage, unless damage is skipped or queried."""
    if skip_damage or table == BOOKIE_FINDINGS:
        return
    for finding in findings:
        if finding.severity == "damage":
            hint = "; option damage=skip reads the rest, the table findings lists what is missing"
            raise CorruptionError(finding.file, finding.offset, finding.detail + hint)


def _rows_of(piece: DumpPiece, table: Schema, findings: list[Finding]) -> Iterator[pa.RecordBatch]:
    """Yield the table's rows of a piece; add what is wrong with it to `findings`."""
    if table == ENTRIES:  # its rows are those of the index, so they need no file between
        yield from _entry_rows(piece, findings)
        return
    import pyarrow.parquet as pq

    # The other tables are computed from many rows. The code of dumps does that in bounded memory,
    # but only into files.
    with scratch_directory("piece") as folder:
        written = write_piece(piece, folder, report=lambda _rows: None, files=UnsyncedFiles())
        findings += written.findings
        for file in written.files:
            if file.table == table.name:
                with pq.ParquetFile(folder / file.name) as parquet_file:
                    yield from parquet_file.iter_batches(_BATCH_ROWS, use_threads=False)


def _entry_rows(piece: DumpPiece, findings: list[Finding]) -> Iterator[pa.RecordBatch]:
    """Yield a piece's index rows, with record lengths if asked for."""
    lengths = RecordLengths(piece.logs) if piece.with_lengths else None
    with PieceIndex(piece) as index:
        for index_rows in index.rows(findings, _BATCH_ROWS):
            row_lengths = None if lengths is None else lengths.read_lengths(index_rows)
            yield _entry_batch(piece.bookie_id, index_rows, row_lengths)
    if lengths is not None:
        findings += lengths.findings()


def _entry_batch(bookie: str, rows: IndexBatch, lengths: Any) -> pa.RecordBatch:
    """Return index rows as an Arrow batch of the `entries` table."""
    import pyarrow as pa

    row_count = rows.entry_id.size
    columns = [
        pa.repeat(pa.scalar(bookie), row_count),
        pa.array(rows.dir_index, pa.int32()),
        *map(pa.array, (rows.scope_id, rows.ledger_id, rows.entry_id)),
        pa.array(log_ids_of(rows.location)),
        pa.array(positions_of(rows.location)),
        pa.nulls(row_count, pa.int64()) if lengths is None else pa.array(lengths),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ENTRIES.to_arrow())


def _select_rows(batch: pa.RecordBatch, table: Schema, bounds: Bounds) -> Iterator[pa.RecordBatch]:
    """Yield the batch's selected rows: all of them if the table has no ledger ids."""
    if batch.num_rows and not bounds.selects_all and has_ledgers(table):
        import pyarrow as pa

        scopes, ledgers = (batch.column(name).to_numpy() for name in ("scope_id", "ledger_id"))
        batch = batch.filter(pa.array(bounds.mask(scopes, ledgers)))
    if batch.num_rows:
        yield batch


def has_ledgers(table: Schema) -> bool:
    """Return whether each row of the table is about a ledger, so that filters on ids apply."""
    return table != BOOKIE_FINDINGS and {"scope_id", "ledger_id"} <= set(table.names)


def _finding_rows(bookie: str, findings: tuple[Finding, ...]) -> Iterator[pa.RecordBatch]:
    """Yield the findings as rows of the table `findings`; nothing if there are none."""
    rows = [(bookie, *finding_to_json(finding).values()) for finding in findings]
    if rows:
        yield from Table.from_rows(BOOKIE_FINDINGS, rows).to_arrow().to_batches()
