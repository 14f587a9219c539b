"""One bookie of a dump as a side of a comparison: its tables `ledgers` and `groups`, merged."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bkstore.availability import Availability
from bkstore.errors import BkstoreError, CorruptionError, InvalidArgument
from bkstore.ids import Int64Array, LedgerId
from bkstore.offline.diff.ledger_sides import ComparedLedger, ComparedState
from bkstore.offline.reading.dump_file import DumpFile
from bkstore.offline.reading.file_locations import opened_parquet
from bkstore.offline.reading.ledger_ranges import LEDGER_COLUMNS, run_starts
from bkstore.offline.reading.manifest import MANIFEST
from bkstore.offline.reading.open_dump import Dump, open_dump

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 1 << 16
_GROUP_COLUMNS = ("first_sequence_start", "last_sequence_start", "sequence_size", "sequence_period")
_STATE_COLUMNS = (*LEDGER_COLUMNS, "entries", *ComparedState._fields)

_Row = tuple[LedgerId, Any]
"""A ledger, and its sequence groups or its state, from one file."""


def is_dump(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a dump: a folder with a manifest.

    >>> is_dump("nowhere")
    False
    """
    return os.path.lexists(Path(path) / MANIFEST)


class DumpSide:
    """A bookie of a dump as a side; `bookie` is required if the dump has several.

    Merges its Parquet files, which are sorted by ledger. Memory: a block of rows per file. Raises
    what `open_dump` raises, and `InvalidArgument` for a bookie that was not dumped.
    """

    def __init__(self, path: str | os.PathLike[str], bookie: str | None = None) -> None:
        self._dump = open_dump(path)
        self.bookie = _choose_bookie(self._dump, bookie)
        self._dump.check("groups", "ledgers")

    @property
    def name(self) -> str:
        """The path of the dump, and the bookie."""
        return f"{self._dump.path} ({self.bookie})"

    def ledgers(self, only_ledger: LedgerId | None = None) -> Iterator[ComparedLedger]:
        """Yield each known ledger once, or the given one, in unsigned order."""
        groups = self._merge_files("groups", (*LEDGER_COLUMNS, *_GROUP_COLUMNS), _read_groups)
        grouped = groupby(groups, key=itemgetter(0))
        next_ledger = next(grouped, None)
        for ledger_id, state in self._merge_files("ledgers", _STATE_COLUMNS, _read_states):
            # Skip the groups of ledgers that are not known.
            while next_ledger is not None and next_ledger[0] < ledger_id:
                next_ledger = next(grouped, None)
            group_rows: list[Int64Array] = []
            if next_ledger is not None and next_ledger[0] == ledger_id:
                group_rows = [rows for _, rows in next_ledger[1]]
                next_ledger = next(grouped, None)
            if only_ledger in (None, ledger_id):
                yield self._ledger_of_rows(ledger_id, state, group_rows)

    def _ledger_of_rows(
        self, ledger_id: LedgerId, row: dict[str, Any], group_rows: list[Int64Array]
    ) -> ComparedLedger:
        entries: Availability | BkstoreError
        state: ComparedState | BkstoreError
        if row["entries"] is None:
            entries = BkstoreError("the dump could not read them")
        else:
            entries = _availability(group_rows)
        if row["fenced"] is None:
            state = BkstoreError("the dump could not read it")
        else:
            state = ComparedState(*(row[name] for name in ComparedState._fields))
        return ComparedLedger(ledger_id, entries, state)

    def _merge_files(self, table: str, columns: tuple[str, ...], rows: Any) -> Iterator[_Row]:
        files = [file for file in self._dump.files[table] if file.bookie == self.bookie]
        streams = [_verify_order(file, rows(self._batches(file, columns))) for file in files]
        return merge(*streams, key=itemgetter(0))

    def _batches(self, file: DumpFile, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        with opened_parquet(file.path) as parquet_file:
            yield from parquet_file.iter_batches(_BATCH_ROWS, columns=list(columns))


def _choose_bookie(dump: Dump, bookie: str | None) -> str:
    """Return the bookie to read; raises `InvalidArgument` if it cannot be, or is ambiguous."""
    known_bookies = ", ".join(sorted(dump.bookies)) or "none"
    if bookie is None:
        if len(dump.bookies) == 1:
            return dump.bookies[0]
        raise InvalidArgument(f"{dump.path}: choose a bookie; it has {known_bookies}")
    if bookie in dump.unread_bookies:
        raise InvalidArgument(f"{dump.path}: {dump.unread_bookies[bookie]}")
    if bookie not in dump.bookies:
        raise InvalidArgument(f"{dump.path}: has no bookie {bookie!r:.60}: it has {known_bookies}")
    return bookie


def _availability(group_rows: list[Int64Array]) -> Availability | BkstoreError:
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
    for row in rows:
        if previous is not None and row[0] < previous:
            reason = f"ledger {row[0]} comes after ledger {previous}"
            raise CorruptionError(file.path, None, reason)
        previous = row[0]
        yield row


def _read_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[_Row]:
    for batch in batches:
        scopes, ledgers = (batch.column(column).to_numpy() for column in (0, 1))
        rows = np.stack([batch.column(column).to_numpy() for column in range(2, 6)], axis=1)
        starts = run_starts(scopes, ledgers)
        for lo, hi in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)]):
            yield LedgerId.from_signed(int(scopes[lo]), int(ledgers[lo])), rows[lo:hi]


def _read_states(batches: Iterable[pa.RecordBatch]) -> Iterator[_Row]:
    for batch in batches:
        for row in batch.to_pylist():
            yield LedgerId.from_signed(row["scope_id"], row["ledger_id"]), row
