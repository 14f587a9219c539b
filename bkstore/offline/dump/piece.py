"""Writing one piece of a dump: its Parquet files in a folder, and what was met on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bkstore.errors import BkstoreError, SystemRefused
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.ids import LedgerId, log_ids, positions
from bkstore.index.api import Finding, IndexBatch, LedgerState
from bkstore.offline.dump.group_rows import Condenser, Summary
from bkstore.offline.dump.index_rows import PieceIndex
from bkstore.offline.dump.log_rows import log_tables
from bkstore.offline.dump.parquet import ParquetFile
from bkstore.offline.dump.plan import Piece
from bkstore.offline.dump.record_lengths import RecordLengths
from bkstore.offline.reading.ledger_ranges import SORTED_BY, LedgerRange
from bkstore.tables import (
    ENTRIES,
    ENTRY_LOGS,
    GROUPS,
    LEDGERS,
    LOG_LEDGERS,
    Table,
)

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1 << 16

Report = Callable[[int], None]


@dataclass(frozen=True)
class FileDone:
    """A finished Parquet file: its table, its name in the work folder, rows and bytes.

    `ledgers`: it is sorted, and from which ledger to which.
    """

    table: str
    name: str
    rows: int
    bytes: int
    ledgers: LedgerRange | None = None

    @property
    def order(self) -> dict[str, Any]:
        """What a manifest says of how it is sorted; nothing where it is not."""
        if self.ledgers is None:
            return {}
        return {"sorted_by": list(SORTED_BY[self.table]), **self.ledgers.to_json()}


@dataclass
class PieceDone:
    """What one piece gave."""

    files: list[FileDone] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def write_piece(
    piece: Piece,
    folder: Path,
    report: Report,
    files: Files = OS_FILES,
    index: PieceIndex | None = None,
) -> PieceDone:
    """Write the piece's tables into `folder`, durable but for their names there.

    `index` has the rows in place of the piece's own index, for those that lie nowhere else.
    Damage is in the result's findings. Raises `BkstoreError` where the piece cannot be opened,
    `WriteFailed` where the system refuses. `report` is called with the index rows so far.
    Memory: a row group of each table, a scan batch, and some 300 bytes a ledger.
    """
    done = PieceDone()
    schemas = (ENTRY_LOGS, LOG_LEDGERS) if piece.kind == "logs" else (ENTRIES, GROUPS, LEDGERS)
    with ExitStack() as stack:
        targets = {
            schema.name: stack.enter_context(
                ParquetFile(folder / f"{piece.name}.{schema.name}", schema, files)
            )
            for schema in schemas
        }
        if piece.kind == "logs":
            for table in log_tables(piece, done.findings):
                targets[table.schema.name].write(table)
        else:
            rows = stack.enter_context(PieceIndex(piece)) if index is None else index
            _IndexPiece(piece, rows, targets, done.findings).write(report)
    for name, file in targets.items():
        done.files.append(FileDone(name, file.path.name, file.rows, file.bytes, file.ledgers))
    return done


class _IndexPiece:
    """Writes `entries`, `groups` and `ledgers` of one range of ledgers."""

    def __init__(
        self,
        piece: Piece,
        index: PieceIndex,
        targets: dict[str, ParquetFile],
        findings: list[Finding],
    ) -> None:
        self.piece = piece
        self.index = index
        self.targets = targets
        self.findings = findings
        self.lengths = RecordLengths(piece.logs) if piece.length else None
        self.summaries: dict[LedgerId, Summary] = {}
        self.unread: set[LedgerId] = set()
        self.vague = False
        self.schema = ENTRIES.to_arrow()
        self.constants: tuple[Any, Any] | None = None

    def write(self, report: Report) -> None:
        groups = self.targets["groups"]
        condense = Condenser(self.piece.bookie, groups.write, self.summaries)
        for rows in self._rows(condense):
            self.targets["entries"].write_arrow(self._entry_rows(rows))
            condense.add(rows)
            report(self.targets["entries"].rows)
        condense.finish()
        self._check_doubtful()
        self._write_ledgers()
        if self.lengths is not None:
            self.findings += self.lengths.findings()

    def _rows(self, condense: Condenser) -> Iterator[IndexBatch]:
        """Yield the rows, and keep which ledgers damage that names none may have touched.

        Those are the one whose rows it cut, and any in the batch that came with the finding.
        """
        seen = 0
        for rows in self.index.rows(self.findings):
            doubtful = self._new_damage(seen)
            seen = len(self.findings)
            if doubtful:
                self.unread.update(name for name, _, _ in rows.by_ledger())
                if condense.ledger is not None:
                    self.unread.add(condense.ledger)
            yield rows
        if self._new_damage(seen) and condense.ledger is not None:
            self.unread.add(condense.ledger)

    def _new_damage(self, seen: int) -> bool:
        new = [f for f in self.findings[seen:] if f.severity == "damage" and f.ledger is None]
        self.vague |= bool(new)
        return bool(new)

    def _check_doubtful(self) -> None:
        """Take those out of `unread` whose rows read in full are those that were written."""
        if self.vague:  # a ledger without rows may have lost all of them
            self.unread.update(n for n in self.index.ledgers() if n not in self.summaries)
        for name in sorted(self.unread):
            try:
                entries, _ = self.index.index.items(name)
            except SystemRefused:
                raise
            except BkstoreError:  # the damage that was found already
                continue
            if entries.size == self.summaries.get(name, (0, None, None))[0]:
                self.unread.discard(name)
        self.unread.update(
            found.ledger for found in self.findings if found.ledger and found.severity == "damage"
        )

    def _entry_rows(self, rows: IndexBatch) -> pa.Table:
        """Return rows of `entries` as Arrow; the columns of one value are made once."""
        import pyarrow as pa

        size = rows.entry_id.size
        if self.constants is None or len(self.constants[0]) < size:
            names = pa.repeat(pa.scalar(self.piece.bookie), size)
            self.constants = names, pa.nulls(size, pa.int64())
        names, nulls = (column.slice(0, size) for column in self.constants)
        arrays = [
            names,
            pa.array(rows.dir_index, pa.int32()),
            *map(pa.array, (rows.scope_id, rows.ledger_id, rows.entry_id)),
            pa.array(log_ids(rows.location)),
            pa.array(positions(rows.location)),
            nulls if self.lengths is None else pa.array(self.lengths.of(rows)),
        ]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _write_ledgers(self) -> None:
        rows: list[tuple[Any, ...]] = []
        known = set(self.findings)
        for name in self.index.ledgers():
            rows.append(self._ledger_row(name, known))
            if len(rows) == _ROWS:
                self.targets["ledgers"].write(Table.from_rows(LEDGERS, rows))
                rows = []
        self.targets["ledgers"].write(Table.from_rows(LEDGERS, rows))

    def _ledger_row(self, name: LedgerId, known: set[Finding]) -> tuple[Any, ...]:
        summary: tuple[int | None, int | None, int | None] = (None, None, None)
        if name not in self.unread:
            summary = self.summaries.get(name, (0, None, None))
        index, piece = self.index.index, self.piece
        state: LedgerState | None = None
        try:
            state, odd = index.checked_state(name)
            self.findings += odd
        except BkstoreError as error:
            found = Finding.of(error, name)
            if found not in known:  # a bad header stops entries and state alike
                self.findings.append(found)
        shown: tuple[Any, ...] = (None,) * 4
        if state is not None:
            limbo = state.limbo if index.supports_limbo else None
            shown = (state.fenced, limbo, state.explicit_lac, state.master_key)
        ids = (*name.signed, name.qualified_name)
        return (piece.bookie, *ids, *summary, *shown, piece.layout)
