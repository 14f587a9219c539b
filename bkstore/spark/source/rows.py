"""Reading one partition of ``spark.read.format("bookie")``: a table's rows as Arrow batches.

`entries` come straight from the index. The other tables are made by the code that makes dumps
(`offline.dump_piece`), in a temp folder: what a query says is what a dump would say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bkstore.errors import BkstoreError, CorruptionError, DirectoryInUse
from bkstore.files.disk_changes import Files
from bkstore.files.scratch import scratch_directory
from bkstore.ids import log_ids, positions
from bkstore.index.api import Finding, IndexBatch
from bkstore.offline.dump.index_rows import PieceIndex
from bkstore.offline.dump.piece import write_piece
from bkstore.offline.dump.plan import Piece, fingerprint
from bkstore.offline.dump.record_lengths import RecordLengths
from bkstore.offline.reading.manifest import finding_to_json
from bkstore.spark.source.filters import Bounds
from bkstore.tables import BOOKIE_FINDINGS, ENTRIES, Schema, Table

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH = 1 << 17


@dataclass(frozen=True)
class Part:
    """A partition: pieces of one bookie with their fingerprints, or findings that are known."""

    bookie: str
    pieces: tuple[tuple[Piece, str], ...] = ()
    findings: tuple[Finding, ...] = ()


class _Unsynced(Files):
    """Files that nobody needs after a crash."""

    def fsync(self, fd: int) -> None:
        """Do nothing."""

    def sync_dir(self, path: object) -> None:
        """Do nothing."""


def read_part(
    part: Part, table: Schema, bounds: Bounds, skip_damage: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted rows of a partition, of the table's types, in bounded memory.

    Unless `skip_damage`, bytes that cannot be read raise `CorruptionError`; `DirectoryInUse`
    where files changed meanwhile.
    """
    if part.findings:
        yield from _found(part.bookie, part.findings)
    for piece, key in part.pieces:
        findings: list[Finding] = []
        try:
            for batch in _piece_rows(piece, table, findings):
                _check_damage(findings, table, skip_damage)
                yield from _wanted(batch, table, bounds)
        except BkstoreError as error:
            if table != BOOKIE_FINDINGS and not skip_damage:
                raise
            findings.append(Finding.of(error))
        _check_damage(findings, table, skip_damage)
        if not piece.live and fingerprint(piece) != key:
            raise DirectoryInUse(
                f"{piece.bookie}: files changed while they were read: stop the bookie, copy "
                "the directory, or read it live (option live)"
            )
        if table == BOOKIE_FINDINGS:
            yield from _found(part.bookie, tuple(findings))


def _check_damage(findings: list[Finding], table: Schema, skip_damage: bool) -> None:
    if skip_damage or table == BOOKIE_FINDINGS:
        return
    for found in findings:
        if found.severity == "damage":
            hint = "; option damage=skip reads the rest, table findings says what it lacks"
            raise CorruptionError(found.file, found.offset, found.detail + hint)


def _piece_rows(piece: Piece, table: Schema, findings: list[Finding]) -> Iterator[pa.RecordBatch]:
    if table == ENTRIES:
        yield from _entries(piece, findings)
        return
    import pyarrow.parquet as pq

    with scratch_directory("piece") as folder:
        done = write_piece(piece, folder, _nobody, _Unsynced())
        findings += done.findings
        for file in done.files:
            if file.table == table.name:
                with pq.ParquetFile(folder / file.name) as opened:
                    yield from opened.iter_batches(_BATCH, use_threads=False)


def _nobody(rows: int) -> None:
    """Take the rows that were read so far."""


def _entries(piece: Piece, findings: list[Finding]) -> Iterator[pa.RecordBatch]:
    lengths = RecordLengths(piece.logs) if piece.length else None
    with PieceIndex(piece) as index:
        for rows in index.rows(findings, _BATCH):
            yield _entry_batch(piece.bookie, rows, None if lengths is None else lengths.of(rows))
    if lengths is not None:
        findings += lengths.findings()


def _entry_batch(bookie: str, rows: IndexBatch, lengths: Any) -> pa.RecordBatch:
    import pyarrow as pa

    size = rows.entry_id.size
    columns = [
        pa.repeat(pa.scalar(bookie), size),
        pa.array(rows.dir_index, pa.int32()),
        *map(pa.array, (rows.scope_id, rows.ledger_id, rows.entry_id)),
        pa.array(log_ids(rows.location)),
        pa.array(positions(rows.location)),
        pa.nulls(size, pa.int64()) if lengths is None else pa.array(lengths),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ENTRIES.to_arrow())


def _wanted(batch: pa.RecordBatch, table: Schema, bounds: Bounds) -> Iterator[pa.RecordBatch]:
    """Yield the batch without rows of other ledgers, where the table has ledgers."""
    if batch.num_rows and not bounds.everything and has_ledgers(table):
        import pyarrow as pa

        scopes, ledgers = (batch.column(name).to_numpy() for name in ("scope_id", "ledger_id"))
        batch = batch.filter(pa.array(bounds.mask(scopes, ledgers)))
    if batch.num_rows:
        yield batch


def has_ledgers(table: Schema) -> bool:
    """Whether each row of the table is about a ledger, so that a filter on ids is for us."""
    return table != BOOKIE_FINDINGS and {"scope_id", "ledger_id"} <= set(table.names)


def _found(bookie: str, findings: tuple[Finding, ...]) -> Iterator[pa.RecordBatch]:
    rows = [(bookie, *finding_to_json(found).values()) for found in findings]
    if rows:
        yield from Table.from_rows(BOOKIE_FINDINGS, rows).to_arrow().to_batches()
