"""Dumping the indexes of bookie directories to Parquet: `entries`, `groups` and `ledgers`.

One pass over each index, in bounded memory. OUT gets a folder for each table, and in it one
file for each bookie (one for each of its directories where ledgers are spread over several),
sorted by scope, ledger and entry in unsigned order. Entry logs are not opened, so `length`
stays null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bkstore.availability import grouping, scanning, sequences
from bkstore.availability.sequences import Groups
from bkstore.errors import InvalidArgument
from bkstore.ids import LedgerId, log_ids, positions
from bkstore.index.api import Finding, IndexBatch
from bkstore.offline.parquet import ParquetFile
from bkstore.storage.directory import BookieDir
from bkstore.storage.summaries import ledger_row
from bkstore.tables import ENTRIES, GROUPS, LEDGERS, Repeated, Schema, Table

__all__ = ["TABLES", "DumpResult", "dump"]

TABLES: tuple[Schema, ...] = (ENTRIES, GROUPS, LEDGERS)
_PIECE = 1 << 16

Progress = Callable[[str, int], None]


@dataclass
class DumpResult:
    """What a dump wrote: rows by table, and the findings met on the way."""

    rows: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def add(self, table: str, rows: int) -> None:
        """Count rows of a table."""
        self.rows[table] = self.rows.get(table, 0) + rows


def dump(bookies: Sequence[BookieDir], out: Path, progress: Progress | None = None) -> DumpResult:
    """Write the three tables of every bookie below `out`; return what was written.

    `out` must be new or empty. Bookies need distinct ids. Damage does not stop the dump: it is
    in the result's findings. Memory: one row group of each table, and 56 bytes a ledger.
    """
    ids = [bookie.bookie_id for bookie in bookies]
    if len({_file_name(name).casefold() for name in ids}) != len(ids):
        raise InvalidArgument(
            f"bookie ids are not distinct as file names: {', '.join(ids)}; give --bookie-id"
        )
    for bookie in bookies:
        bookie.refuse_output(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidArgument(f"{out}: is there and not an empty folder")
    result = DumpResult(rows={schema.name: 0 for schema in TABLES})
    for bookie in bookies:
        one = _dump_one(bookie, out, progress)
        for table, rows in one.rows.items():
            result.add(table, rows)
        result.findings += one.findings + bookie.findings()
        bookie.check_unchanged()
    return result


def _dump_one(bookie: BookieDir, out: Path, progress: Progress | None) -> DumpResult:
    result = DumpResult()
    summaries: dict[LedgerId, tuple[int, int, int]] = {}
    name = _file_name(bookie.bookie_id)
    parts = _by_directory(bookie.scan(findings=result.findings))
    for number, part in enumerate(_at_least_one(parts)):
        with ExitStack() as stack:
            entries, groups = (
                stack.enter_context(
                    ParquetFile(out / schema.name / f"{name}-{number:05d}.parquet", schema)
                )
                for schema in (ENTRIES, GROUPS)
            )
            condense = _Condenser(bookie.bookie_id, groups, summaries)
            for rows in part:
                for table in _entry_tables(bookie.bookie_id, rows):
                    entries.write(table)
                condense.add(rows)
                if progress is not None:
                    progress(bookie.bookie_id, entries.rows)
            condense.finish()
        result.add("entries", entries.rows)
        result.add("groups", groups.rows)
    _dump_ledgers(bookie, out / "ledgers" / f"{name}-00000.parquet", summaries, result)
    return result


def _at_least_one(parts: Iterator[Iterator[IndexBatch]]) -> Iterator[Iterator[IndexBatch]]:
    """Yield an empty part where there is none: a bookie without entries has empty tables."""
    yield next(parts, iter(()))
    yield from parts


def _file_name(bookie_id: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in bookie_id)


def _by_directory(batches: Iterator[IndexBatch]) -> Iterator[Iterator[IndexBatch]]:
    """Split a scan where its order starts again: at the next directory's database."""
    ahead: list[IndexBatch] = []
    last: LedgerId | None = None

    def run() -> Iterator[IndexBatch]:
        nonlocal last
        yield ahead.pop()
        for rows in batches:
            first = _id_at(rows, 0)
            restarts = last is not None and first < last
            last = _id_at(rows, -1)
            if restarts:
                ahead.append(rows)
                return
            yield rows

    for rows in batches:
        last = _id_at(rows, -1)
        ahead.append(rows)
        while ahead:
            yield run()


def _id_at(rows: IndexBatch, at: int) -> LedgerId:
    return LedgerId.from_signed(int(rows.scope_id[at]), int(rows.ledger_id[at]))


def _entry_tables(bookie_id: str, rows: IndexBatch) -> Iterator[Table]:
    for at in range(0, rows.entry_id.size, _PIECE):
        part = IndexBatch(*(column[at : at + _PIECE] for column in rows))
        size = part.entry_id.size
        columns: tuple[Any, ...] = (
            Repeated(bookie_id, size),
            part.dir_index,
            part.scope_id,
            part.ledger_id,
            part.entry_id,
            log_ids(part.location),
            positions(part.location),
            Repeated(None, size),
        )
        yield Table(ENTRIES, dict(zip(ENTRIES.names, columns)))


class _Condenser:
    """Gathers the sequence groups of each ledger from batches that may cut it anywhere."""

    def __init__(
        self, bookie_id: str, file: ParquetFile, summaries: dict[LedgerId, tuple[int, int, int]]
    ) -> None:
        self.bookie_id = bookie_id
        self.file = file
        self.summaries = summaries
        self.ledger: LedgerId | None = None
        self.parts: list[Groups] = []
        self.waiting: list[tuple[LedgerId, Groups]] = []

    def add(self, rows: IndexBatch) -> None:
        for ledger, entries, _ in rows.by_ledger():
            if ledger != self.ledger:
                self._close_ledger()
                self.ledger = ledger
            self.parts.append(scanning.from_ids(entries))
        if len(self.waiting) > _PIECE // 16:
            self._write()

    def finish(self) -> None:
        self._close_ledger()
        self._write()

    def _close_ledger(self) -> None:
        if self.ledger is not None:
            groups = grouping.join(self.parts)
            first, last = int(groups.first[0]), int(groups.ends[-1]) - 1
            self.summaries[self.ledger] = (sequences.count(groups), first, last)
            self.waiting.append((self.ledger, groups))
        self.ledger, self.parts = None, []

    def _write(self) -> None:
        if not self.waiting:
            return
        sizes = [groups.first.size for _, groups in self.waiting]
        ids = np.array([ledger.signed for ledger, _ in self.waiting], np.int64)
        columns: tuple[Any, ...] = (
            Repeated(self.bookie_id, sum(sizes)),
            np.repeat(ids[:, 0], sizes),
            np.repeat(ids[:, 1], sizes),
            *(np.concatenate(parts) for parts in zip(*(groups for _, groups in self.waiting))),
        )
        self.file.write(Table(GROUPS, dict(zip(GROUPS.names, columns))))
        self.waiting = []


def _dump_ledgers(
    bookie: BookieDir,
    path: Path,
    summaries: dict[LedgerId, tuple[int, int, int]],
    result: DumpResult,
) -> None:
    damaged = {found.ledger for found in result.findings if found.severity == "damage"}
    rows: list[tuple[Any, ...]] = []
    with ParquetFile(path, LEDGERS) as file:
        for ledger in bookie.index.ledgers():
            empty = None if ledger in damaged or None in damaged else (0, None, None)
            whole = None if ledger in damaged else summaries.get(ledger)
            rows.append(ledger_row(bookie, ledger, whole or empty, result.findings))
            if len(rows) == _PIECE:
                file.write(Table.from_rows(LEDGERS, rows))
                rows = []
        file.write(Table.from_rows(LEDGERS, rows))
    result.add("ledgers", file.rows)
