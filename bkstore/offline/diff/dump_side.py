"""One bookie of a dump as a side of a comparison: its tables `ledgers` and `groups`, merged."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator
from heapq import merge
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bkstore.availability import Availability
from bkstore.errors import BkstoreError, CorruptionError, InvalidArgument
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import Finding, UnknownLedgers
from bkstore.offline.diff.ledger_sides import ComparedLedger, ComparedState
from bkstore.offline.reading.dump_file import DumpFile
from bkstore.offline.reading.file_locations import opened_parquet
from bkstore.offline.reading.ledger_ranges import LEDGER_COLUMNS, run_starts
from bkstore.offline.reading.manifest import MANIFEST, finding_from_json
from bkstore.offline.reading.open_dump import Dump, open_dump

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 1 << 16
_GROUP_COLUMNS = ("first_sequence_start", "last_sequence_start", "sequence_size", "sequence_period")
_STATE_COLUMNS = (*LEDGER_COLUMNS, "entries", *ComparedState._fields)

_Row = tuple[LedgerId, Any]  # a ledger, and its sequence groups or its state, from one file


def is_dump(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a dump: a folder with a manifest.

    >>> is_dump("nowhere")
    False
    """
    return os.path.lexists(Path(path) / MANIFEST)


class DumpSide:
    """A bookie of a dump as a side; `bookie` is required if the dump has several. Merges its
    Parquet files, which are sorted by ledger. Memory: a block of rows per file. Raises what
    `open_dump` raises, and `InvalidArgument` for a bookie that was not dumped."""

    def __init__(self, path: str | os.PathLike[str], bookie: str | None = None) -> None:
        self._dump = open_dump(path)
        self.bookie = _choose_bookie(self._dump, bookie)
        self._dump.check("groups", "ledgers")

    @property
    def name(self) -> str:
        """The path of the dump, and the bookie."""
        return f"{self._dump.path} ({self.bookie})"

    def ledgers(self, chosen: Container[LedgerId] | None = None) -> Iterator[ComparedLedger]:
        """Yield each known ledger once, of the chosen ones if given, in unsigned order."""
        # Go through both tables in the order of ledgers. A ledger has rows in `groups` only if it
        # has entries.
        groups = self._merge_files("groups", (*LEDGER_COLUMNS, *_GROUP_COLUMNS), _read_groups)
        groups_by_ledger = groupby(groups, key=itemgetter(0))
        next_groups = next(groups_by_ledger, None)
        for ledger_id, state_row in self._merge_files("ledgers", _STATE_COLUMNS, _read_states):
            # Skip the groups of ledgers that are not known.
            while next_groups is not None and next_groups[0] < ledger_id:
                next_groups = next(groups_by_ledger, None)
            group_rows: list[Int64Array] = []
            if next_groups is not None and next_groups[0] == ledger_id:
                group_rows = [rows for _, rows in next_groups[1]]
                next_groups = next(groups_by_ledger, None)
            if chosen is None or ledger_id in chosen:
                yield self._compared_ledger(ledger_id, state_row, group_rows)

    def hidden_ledgers(self) -> list[tuple[UnknownLedgers, Finding]]:
        """Return all ledgers for each damage of a `ledgers` database that the dump reports: its
        tables do not have the range of ids that it hides."""
        rows = self._dump.read("findings").to_pylist()
        return [
            (UnknownLedgers(LedgerId(0, 0), LedgerId(-1, -1)), finding_from_json(row))
            for row in rows
            if row["bookie"] == self.bookie
            and row["severity"] == "damage"
            and row["file"] is not None
            and Path(row["file"]).parent.name in ("ledgers", "ledgers-128")
        ]

    def _compared_ledger(
        self, ledger_id: LedgerId, state_row: dict[str, Any], group_rows: list[Int64Array]
    ) -> ComparedLedger:
        """Return a ledger from its row of `ledgers`, which has nulls for what the dump could not
        read, and its rows of `groups`."""
        entries: Availability | BkstoreError = BkstoreError("the dump could not read them")
        state: ComparedState | BkstoreError = BkstoreError("the dump could not read it")
        if state_row["entries"] is not None:
            entries = _to_availability(group_rows)
        if state_row["fenced"] is not None:
            state = ComparedState(*(state_row[name] for name in ComparedState._fields))
        return ComparedLedger(ledger_id, entries, state)

    def _merge_files(self, table: str, columns: tuple[str, ...], read: Any) -> Iterator[_Row]:
        files = [file for file in self._dump.files[table] if file.bookie == self.bookie]
        streams = [_verify_order(file, read(self._read_batches(file, columns))) for file in files]
        return merge(*streams, key=itemgetter(0))

    def _read_batches(self, file: DumpFile, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        with opened_parquet(file.path) as parquet_file:
            yield from parquet_file.iter_batches(_BATCH_ROWS, columns=list(columns))


def _choose_bookie(dump: Dump, bookie: str | None) -> str:
    """Return the name of the bookie whose rows are read; with None the only one of the dump. Raises
    `InvalidArgument` if it is not in the dump, was not readable when the dump was made, or if None
    is given and the dump has several."""
    known_bookies = ", ".join(sorted(dump.bookies)) or "none"
    if bookie is None:
        if len(dump.bookies) == 1:
            return dump.bookies[0]
        raise InvalidArgument(
            f"{dump.path}: choose a bookie by --bookie-a or --bookie-b; it has {known_bookies}"
        )
    if bookie in dump.unread_bookies:
        raise InvalidArgument(f"{dump.path}: {dump.unread_bookies[bookie]}")
    if bookie not in dump.bookies:
        raise InvalidArgument(f"{dump.path}: has no bookie {bookie!r:.60}: it has {known_bookies}")
    return bookie


def _to_availability(group_rows: list[Int64Array]) -> Availability | BkstoreError:
    """Return the entries that a ledger's rows of `groups` describe, int64[n, 4] from each of
    several files. If the rows are invalid, the error is returned, not raised."""
    if not group_rows:
        return Availability()
    try:
        rows = np.concatenate(group_rows)
        return Availability.from_groups(rows[np.argsort(rows[:, 0], kind="stable")])
    except BkstoreError as error:
        return error


def _verify_order(file: DumpFile, rows: Iterable[_Row]) -> Iterator[_Row]:
    """Yield the rows; raises `CorruptionError` if the file is not sorted by ledger."""
    previous: LedgerId | None = None
    for ledger, groups_or_state in rows:
        if previous is not None and ledger < previous:
            reason = f"ledger {ledger} comes after ledger {previous}"
            raise CorruptionError(file.path, None, reason)
        previous = ledger
        yield ledger, groups_or_state


def _read_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[_Row]:
    """Yield each ledger's sequence groups in each batch, as int64[n, 4]."""
    for batch in batches:
        scopes, ledgers, *group_columns = (column.to_numpy() for column in batch.columns)
        rows = np.stack(group_columns, axis=1)
        starts = run_starts(scopes, ledgers)
        for start, end in pairwise([*starts.tolist(), len(rows)]):
            yield LedgerId.from_signed(int(scopes[start]), int(ledgers[start])), rows[start:end]


def _read_states(batches: Iterable[pa.RecordBatch]) -> Iterator[_Row]:
    for batch in batches:
        for row in batch.to_pylist():
            yield LedgerId.from_signed(row["scope_id"], row["ledger_id"]), row
