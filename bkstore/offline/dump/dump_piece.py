"""Write one piece of a dump: its Parquet files in a folder, and the findings."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from heapq import merge
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bkstore.availability import Availability
from bkstore.errors import BkstoreError, SystemRefused
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.ids import Int64Array, LedgerId, log_ids_of, positions_of
from bkstore.index.api import Finding, IndexBatch, LedgerState
from bkstore.index.damage_runs import add_unreported
from bkstore.offline.dump.group_rows import GroupCollector, LedgerSummary
from bkstore.offline.dump.index_rows import PieceIndex
from bkstore.offline.dump.log_rows import log_tables
from bkstore.offline.dump.parquet import ParquetTableWriter
from bkstore.offline.dump.plan import DumpPiece
from bkstore.offline.dump.record_lengths import RecordLengths
from bkstore.offline.reading.ledger_ranges import SORTED_BY, LedgerRange
from bkstore.tables import (
    ENTRIES,
    ENTRIES_WITH_MESSAGES,
    ENTRY_LOGS,
    GROUPS,
    LEDGERS,
    LOG_LEDGERS,
    Schema,
    Table,
)

if TYPE_CHECKING:
    import pyarrow as pa

_LEDGERS_PER_WRITE = 1 << 16
_EMPTY_SUMMARY: LedgerSummary = (0, None, None)

ReportRows = Callable[[int], None]


@dataclass(frozen=True)
class WrittenFile:
    """A finished Parquet file: table, name in the work folder, rows, bytes, ledgers if sorted."""

    table: str
    name: str
    rows: int
    bytes: int
    ledger_range: LedgerRange | None = None

    @property
    def manifest_order(self) -> dict[str, Any]:
        """The fields of a manifest on the order of the file; empty if it is not sorted."""
        if self.ledger_range is None:
            return {}
        return {"sorted_by": list(SORTED_BY[self.table]), **self.ledger_range.to_json()}


@dataclass
class PieceResult:
    """The files and findings of one piece.

    `log_ids` are the entry logs that its locations name, as inclusive ranges, ascending;
    `source_digest` says what it was made from (None: read live).
    """

    files: list[WrittenFile] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    log_ids: list[list[int]] = field(default_factory=list)
    source_digest: str | None = None


def write_piece(
    piece: DumpPiece,
    folder: Path,
    report: ReportRows,
    files: Files = OS_FILES,
    index: PieceIndex | None = None,
) -> PieceResult:
    """Write the piece's tables into `folder`, durably except for their names there.

    `index` replaces the piece's own index, for rows that are not on disk. Damage is in the findings
    of the result. `report` is called with the number of index rows so far. Raises `BkstoreError` if
    the piece cannot be opened, `WriteFailed` if the system refuses. Memory: a row group of each
    table, a scan batch, and some 300 bytes a ledger.
    """
    result = PieceResult()
    schemas = [ENTRY_LOGS, LOG_LEDGERS]
    if piece.kind != "logs":
        schemas = [entries_schema(piece), GROUPS, LEDGERS]
    with ExitStack() as stack:
        targets = {
            schema.name: stack.enter_context(
                ParquetTableWriter(folder / f"{piece.name}.{schema.name}", schema, files)
            )
            for schema in schemas
        }
        if piece.kind == "logs":
            for table in log_tables(piece, result.findings):
                targets[table.schema.name].write(table)
        else:
            rows = stack.enter_context(PieceIndex(piece)) if index is None else index
            index_piece = _IndexPiece(piece, rows, targets, result.findings)
            index_piece.write(report)
            result.log_ids = index_piece.log_ids()
    for name, file in targets.items():
        counts = (file.row_count, file.byte_count)
        result.files.append(WrittenFile(name, file.path.name, *counts, file.ledger_range))
    return result


def entries_schema(piece: DumpPiece) -> Schema:
    """Return the columns of a piece's entries."""
    return ENTRIES_WITH_MESSAGES if piece.with_messages else ENTRIES


class _IndexPiece:
    """Writes `entries`, `groups` and `ledgers` of one range of ledgers. `targets` are the writers
    of the tables, by name."""

    def __init__(
        self,
        piece: DumpPiece,
        index: PieceIndex,
        targets: dict[str, ParquetTableWriter],
        findings: list[Finding],
    ) -> None:
        self.piece = piece
        self.index = index
        self.targets = targets
        self.findings = findings
        self.lengths: RecordLengths | None = None
        if piece.with_lengths:
            self.lengths = RecordLengths(piece.logs, with_messages=piece.with_messages)
        self.summaries: dict[LedgerId, LedgerSummary] = {}  # of the ledgers with rows
        self.doubtful_ledgers: set[LedgerId] = set()  # damage may have hidden entries of these
        self._named_logs = np.empty(0, np.int64)  # ids, ascending and distinct
        self.schema = entries_schema(piece).to_arrow()
        # A column of the bookie id and one of nulls, as long as the longest batch so far:
        # `_entries_table` slices them.
        self.constant_columns: tuple[Any, Any] | None = None

    def write(self, report: ReportRows) -> None:
        """Write the piece's entries, then its groups and ledgers, which are known after all
        entries. `report` is called with the number of rows so far."""
        groups = self.targets["groups"]
        # The collector also fills `summaries`: the entry count, first and last entry by ledger.
        group_collector = GroupCollector(self.piece.bookie_id, groups.write, self.summaries)
        for rows in self.index.rows(self.findings):
            self._note_logs(log_ids_of(rows.location))
            self.targets["entries"].write_arrow(self._entries_table(rows))
            group_collector.add(rows)
            report(self.targets["entries"].row_count)
        group_collector.finish()
        self._recheck_doubtful_ledgers()
        self._write_ledgers()
        if self.lengths is not None:
            self.findings += self.lengths.findings()

    def log_ids(self) -> list[list[int]]:
        """Return the entry logs that locations name, as inclusive ranges."""
        ranges: list[list[int]] = Availability.from_entries(self._named_logs).ranges().tolist()
        return ranges

    def _note_logs(self, log_ids: Int64Array) -> None:
        """Add the logs that rows point into to the named logs."""
        # Consecutive rows are mostly in one log: only the first of each run has to be sorted.
        is_first = np.diff(log_ids, prepend=-1) != 0
        self._named_logs = np.union1d(self._named_logs, log_ids[is_first])

    def _recheck_doubtful_ledgers(self) -> None:
        """Find the ledgers of which damage may have hidden entries: those whose keys it overlaps,
        unless reading the ledger alone gives as many entries as were written."""
        # Ledgers without a written row are among them: damage may hide all of their rows.
        self.doubtful_ledgers.update(self.index.doubtful_ledgers())
        for ledger_id in sorted(self.doubtful_ledgers):
            try:
                entry_count = len(self.index.index.availability(ledger_id))
            except SystemRefused:
                raise
            except BkstoreError:  # the damage is in the findings already
                continue
            written_count, _, _ = self.summaries.get(ledger_id, _EMPTY_SUMMARY)
            if entry_count == written_count:
                self.doubtful_ledgers.discard(ledger_id)
        # A ledger that a finding of damage names stays doubtful in any case.
        damage = (f for f in self.findings if f.severity == "damage")
        self.doubtful_ledgers.update(f.ledger for f in damage if f.ledger is not None)

    def _entries_table(self, rows: IndexBatch) -> pa.Table:
        """Return rows of `entries` as Arrow; constant columns are made once and sliced."""
        import pyarrow as pa

        row_count = rows.entry_id.size
        if self.constant_columns is None or len(self.constant_columns[0]) < row_count:
            bookie_ids = pa.repeat(pa.scalar(self.piece.bookie_id), row_count)
            self.constant_columns = bookie_ids, pa.nulls(row_count, pa.int64())
        bookie_ids, nulls = (column.slice(0, row_count) for column in self.constant_columns)
        arrays = [
            bookie_ids,
            pa.array(rows.dir_index, pa.int32()),
            *map(pa.array, (rows.scope_id, rows.ledger_id, rows.entry_id)),
            pa.array(log_ids_of(rows.location)),
            pa.array(positions_of(rows.location)),
        ]
        # Without `with_lengths`, lengths are null; without messages, only lengths are written.
        if self.lengths is None:
            arrays.append(nulls)
        else:
            columns = self.lengths.read_columns(rows)
            arrays += map(pa.array, columns if self.piece.with_messages else columns[:1])
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _write_ledgers(self) -> None:
        """Write the rows of the piece's ledgers, some at a time. Among them are ledgers that damage
        of the index hides, if they have entries: it is not known that they are deleted."""
        rows: list[tuple[Any, ...]] = []
        add_unreported(self.findings, self.index.listing_damage())
        known_findings = set(self.findings)
        hidden_ledgers = self.index.hidden_ledgers(self.summaries)
        for ledger_id in merge(self.index.ledgers(), sorted(hidden_ledgers)):
            rows.append(self._ledger_row(ledger_id, known_findings))
            if len(rows) == _LEDGERS_PER_WRITE:
                self.targets["ledgers"].write(Table.from_rows(LEDGERS, rows))
                rows = []
        self.targets["ledgers"].write(Table.from_rows(LEDGERS, rows))

    def _ledger_row(self, ledger_id: LedgerId, known_findings: set[Finding]) -> tuple[Any, ...]:
        """Return a row of `ledgers`: null where damage hides entries or state."""
        summary: tuple[int | None, int | None, int | None] = (None, None, None)
        if ledger_id not in self.doubtful_ledgers:
            summary = self.summaries.get(ledger_id, _EMPTY_SUMMARY)
        index, piece = self.index.index, self.piece
        state: LedgerState | None = None
        try:
            state, oddities = index.checked_state(ledger_id)
            self.findings += oddities
        except BkstoreError as error:
            finding = Finding.of(error, ledger_id)
            # The damage may be known: a bad header of an index file hides the entries as well, and
            # a damaged block the states of many ledgers, with a finding that names none of them.
            if known_findings.isdisjoint((finding, replace(finding, ledger=None))):
                self.findings.append(finding)
        state_fields: tuple[Any, ...] = (None,) * 4
        if state is not None:
            limbo = state.limbo if index.supports_limbo else None
            state_fields = (state.fenced, limbo, state.explicit_lac, state.master_key)
        ids = (*ledger_id.signed, ledger_id.qualified_name)
        return (piece.bookie_id, *ids, *summary, *state_fields, piece.layout)
