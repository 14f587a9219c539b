"""One bookie of a dump as a side of a comparison: its `ledgers` and `groups`, merged."""

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
from bkstore.offline.diff.sides import Held, Kept
from bkstore.offline.reading.dump_file import DumpFile
from bkstore.offline.reading.ledger_ranges import run_starts
from bkstore.offline.reading.manifest import MANIFEST
from bkstore.offline.reading.open_dump import Dump, open_dump
from bkstore.offline.reading.places import opened_parquet

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1 << 16
_GROUP = ("first_sequence_start", "last_sequence_start", "sequence_size", "sequence_period")
_STATE = ("scope_id", "ledger_id", "entries", "master_key", "fenced", "limbo", "explicit_lac")

_Row = tuple[LedgerId, Any]
"""A ledger, and what one file says of it: its sequence groups, or its state."""


def is_dump(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is that of a dump: a folder with a manifest.

    >>> is_dump("nowhere")
    False
    """
    return os.path.lexists(Path(path) / MANIFEST)


class DumpSide:
    """A bookie of a dump as a side; which one must be said where there are several.

    Its Parquet files are merged, each of which has its ledgers in order. Memory: a block of rows
    of each file. Raises what `open_dump` raises, `InvalidArgument` for a bookie that the dump
    does not have or could not read.
    """

    def __init__(self, path: str | os.PathLike[str], bookie: str | None = None) -> None:
        self._dump = open_dump(path)
        self.bookie = _chosen(self._dump, bookie)
        self._dump.check("groups", "ledgers")

    @property
    def name(self) -> str:
        """The path of the dump, and the bookie."""
        return f"{self._dump.path} ({self.bookie})"

    def ledgers(self, only: LedgerId | None = None) -> Iterator[Held]:
        """Yield each known ledger once, or the one that is asked for, in unsigned order."""
        groups = self._merged("groups", ("scope_id", "ledger_id", *_GROUP), _groups)
        grouped = groupby(groups, key=itemgetter(0))
        ahead = next(grouped, None)
        for name, state in self._merged("ledgers", _STATE, _states):
            while ahead is not None and ahead[0] < name:  # rows of a ledger that is not known
                ahead = next(grouped, None)
            parts: list[Int64Array] = []
            if ahead is not None and ahead[0] == name:
                parts = [part for _, part in ahead[1]]
                ahead = next(grouped, None)
            if only in (None, name):
                yield self._held(name, state, parts)

    def _held(self, name: LedgerId, row: dict[str, Any], parts: list[Int64Array]) -> Held:
        here: Availability | BkstoreError
        state: Kept | BkstoreError
        if row["entries"] is None:
            here = BkstoreError("the dump could not read them")
        else:
            here = _availability(parts)
        if row["fenced"] is None:
            state = BkstoreError("the dump could not read it")
        else:
            state = Kept(row["master_key"], row["fenced"], row["limbo"], row["explicit_lac"])
        return Held(name, here, state)

    def _merged(self, table: str, columns: tuple[str, ...], rows: Any) -> Iterator[_Row]:
        files = [file for file in self._dump.files[table] if file.bookie == self.bookie]
        streams = [_in_order(file, rows(self._batches(file, columns))) for file in files]
        return merge(*streams, key=itemgetter(0))

    def _batches(self, file: DumpFile, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        with opened_parquet(file.path) as opened:
            yield from opened.iter_batches(_ROWS, columns=list(columns))


def _chosen(dump: Dump, bookie: str | None) -> str:
    there = ", ".join(sorted(dump.bookies)) or "none"
    if bookie is None:
        if len(dump.bookies) == 1:
            return dump.bookies[0]
        raise InvalidArgument(f"{dump.path}: which bookie is meant? it has {there}")
    if bookie in dump.unread:
        raise InvalidArgument(f"{dump.path}: {dump.unread[bookie]}")
    if bookie not in dump.bookies:
        raise InvalidArgument(f"{dump.path}: has no bookie {bookie!r:.60}: it has {there}")
    return bookie


def _availability(parts: list[Int64Array]) -> Availability | BkstoreError:
    if not parts:
        return Availability()
    try:
        rows = np.concatenate(parts)
        return Availability.from_groups(rows[np.argsort(rows[:, 0], kind="stable")])
    except BkstoreError as error:
        return error


def _in_order(file: DumpFile, rows: Iterable[_Row]) -> Iterator[_Row]:
    """Yield the rows; `CorruptionError` where a file does not have its ledgers in order."""
    before: LedgerId | None = None
    for row in rows:
        if before is not None and row[0] < before:
            reason = f"ledger {row[0]} stands behind ledger {before}"
            raise CorruptionError(file.path, None, reason)
        before = row[0]
        yield row


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[_Row]:
    for batch in batches:
        scope, number = (batch.column(at).to_numpy() for at in (0, 1))
        rows = np.stack([batch.column(at).to_numpy() for at in range(2, 6)], axis=1)
        starts = run_starts(scope, number)
        for lo, hi in zip(starts.tolist(), [*starts[1:].tolist(), len(rows)]):
            yield LedgerId.from_signed(int(scope[lo]), int(number[lo])), rows[lo:hi]


def _states(batches: Iterable[pa.RecordBatch]) -> Iterator[_Row]:
    for batch in batches:
        for row in batch.to_pylist():
            yield LedgerId.from_signed(row["scope_id"], row["ledger_id"]), row
