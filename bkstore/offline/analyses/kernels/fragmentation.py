"""Fragmentation: in how many logs and stretches the entries of each ledger lie, as a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bkstore.ids import Int64Array
from bkstore.offline.analyses.kernels.index_columns import codes, entry_ids, int64
from bkstore.offline.analyses.kernels.whole_ledger_blocks import qualified_names
from bkstore.offline.reading.ledger_ranges import run_starts
from bkstore.tables import FRAGMENTATION, Table

if TYPE_CHECKING:
    import pyarrow as pa

_KEYS = ("scope_id", "ledger_id", "entry_id")

_Key = tuple[str, int, int]


@dataclass
class _Ledger:
    """The ledger that the next batch may go on with: what was counted, and its last row."""

    key: _Key
    entries: int
    places: Int64Array
    log_changes: int
    stretches: int
    place: int
    position: int

    def row(self) -> tuple[Any, ...]:
        """Return its row of `fragmentation`."""
        _, scope, ledger = self.key
        (name,) = qualified_names([scope], [ledger])
        counts = (self.entries, self.places.size, self.log_changes, self.stretches)
        return (*self.key, name, *counts, self.entries / self.stretches)


class Fragmentation:
    """Entries to `fragmentation` rows: a pass over rows that come by ledger.

    Columns: bookie (none if `bookie` is given), scope_id, ledger_id, entry_id, dir_index, log_id,
    position; sorted by bookie and ledger, then by entry, of one entry by log and position. A log
    is told by directory and id. With `repeated`, entries may have several rows, of which the last
    counts. O(entries); memory: a batch, and the logs of one ledger.
    """

    def __init__(self, bookie: str | None = None, *, repeated: bool = False) -> None:
        self.bookie = bookie
        self.repeated = repeated

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of `fragmentation`."""
        open_one: _Ledger | None = None
        for batch in _last_places(batches) if self.repeated else batches:
            if batch.num_rows:
                entry_ids(batch)  # the order is by them; nothing else of them is asked
                rows = _Runs(batch, self.bookie)
                done = rows.before_last(open_one)
                open_one = rows.last(open_one)
                yield from done
        if open_one is not None:
            yield from Table.from_rows(FRAGMENTATION, [open_one.row()]).to_arrow().to_batches()


class _Runs:
    """A batch as runs of rows of one ledger, each counted by itself; the first may go on."""

    def __init__(self, batch: pa.RecordBatch, bookie: str | None) -> None:
        self._keys = [int64(batch, "scope_id"), int64(batch, "ledger_id")]
        self._names = [bookie or ""]
        number = None
        if bookie is None:
            number, self._names = codes(batch, "bookie")
            self._keys.insert(0, number)
        self._number = number
        self._place = int64(batch, "dir_index") << 32
        self._place += int64(batch, "log_id")
        self._position = int64(batch, "position")
        self._starts = run_starts(*self._keys)
        self._bounds = np.append(self._starts, batch.num_rows)
        self._count()

    def _count(self) -> None:
        """Count logs' changes and stretches of each run, its first row as a stretch's first."""
        changed = np.empty(self._place.size, np.bool_)
        np.not_equal(self._place[1:], self._place[:-1], out=changed[1:])
        changed[self._starts] = False
        broken = np.empty(self._place.size, np.bool_)
        np.less_equal(self._position[1:], self._position[:-1], out=broken[1:])
        broken |= changed
        broken[self._starts] = True
        self._changes = self._per_run(np.flatnonzero(changed))
        self._stretches = self._per_run(np.flatnonzero(broken))
        changed[self._starts] = True
        self._heads = np.flatnonzero(changed)  # every log of a run begins at one of these

    def _per_run(self, rows: Int64Array) -> Int64Array:
        return np.diff(np.searchsorted(rows, self._bounds))

    def _logs(self, runs: int) -> Int64Array:
        """Return int64[runs]: how many different logs each of the first runs lies in."""
        heads = self._heads[: np.searchsorted(self._heads, self._bounds[runs])]
        run = np.searchsorted(self._starts, heads, "right") - 1
        place = self._place[heads]
        order = np.lexsort((place, run))
        new = run_starts(run[order], place[order])
        return np.bincount(run[order][new], minlength=runs)

    def _key(self, run: int) -> _Key:
        at = int(self._starts[run])
        scope, ledger = (int(column[at]) for column in self._keys[-2:])
        return self._names[0 if self._number is None else int(self._number[at])], scope, ledger

    def _goes_on(self, before: _Ledger | None) -> bool:
        return before is not None and before.key == self._key(0)

    def _joined(self, run: int, before: _Ledger | None) -> _Ledger:
        """Return a run as a ledger, together with what came `before` if it is of the same."""
        lo, hi = int(self._bounds[run]), int(self._bounds[run + 1])
        heads = self._heads[slice(*np.searchsorted(self._heads, (lo, hi)))]
        places = np.unique(self._place[heads])
        changes, stretches = int(self._changes[run]), int(self._stretches[run])
        found = _Ledger(self._key(run), hi - lo, places, changes, stretches, 0, 0)
        if run == 0 and before is not None and self._goes_on(before):
            changed = bool(self._place[lo] != before.place)
            found.entries += before.entries
            found.places = np.union1d(places, before.places)
            found.log_changes += before.log_changes + changed
            found.stretches += before.stretches
            found.stretches -= not (changed or self._position[lo] <= before.position)
        found.place, found.position = int(self._place[hi - 1]), int(self._position[hi - 1])
        return found

    def last(self, before: _Ledger | None) -> _Ledger:
        """Return the last ledger, which the next batch may go on with."""
        return self._joined(self._starts.size - 1, before)

    def before_last(self, before: _Ledger | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all ledgers that end here, that of `before` among them."""
        ended = []
        runs = self._starts.size - 1
        first = 0
        if before is not None and not self._goes_on(before):
            ended.append(before.row())
        elif before is not None and runs:
            ended.append(self._joined(0, before).row())
            first = 1
        if ended:
            yield from Table.from_rows(FRAGMENTATION, ended).to_arrow().to_batches()
        if first < runs:
            yield from self._table(first, runs).to_arrow().to_batches()

    def _table(self, first: int, stop: int) -> Table:
        here = slice(first, stop)
        starts = self._starts[here]
        scopes, ledgers = (column[starts].tolist() for column in self._keys[-2:])
        names: Any = [self._names[0]] * starts.size
        if self._number is not None:
            names = [self._names[each] for each in self._number[starts]]
        entries = np.diff(self._bounds[first : stop + 1])
        stretches = self._stretches[here]
        made = {
            "bookie": names,
            "scope_id": scopes,
            "ledger_id": ledgers,
            "qualified_name": qualified_names(scopes, ledgers),
            "entries": entries,
            "logs": self._logs(stop)[here],
            "log_changes": self._changes[here],
            "stretches": stretches,
            "mean_stretch": entries / stretches,
        }
        return Table(FRAGMENTATION, made)


def _last_places(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows that come by bookie, ledger, entry and place: of each entry the last.

    Loads keep the same one of several (`OrderedRows`). Memory: a batch; the last row of each
    waits for the next.
    """
    import pyarrow as pa

    held: pa.RecordBatch | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        if held is not None:
            (batch,) = pa.Table.from_batches([held, batch]).combine_chunks().to_batches()
        held = batch.slice(batch.num_rows - 1)
        ends = _ends_of_entries(batch)
        before = batch.slice(0, batch.num_rows - 1)
        yield before if ends.all() else before.filter(pa.array(ends))
    if held is not None:
        yield held


def _ends_of_entries(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return for each row but the last whether the next one is another entry's."""
    columns = [int64(batch, name) for name in _KEYS]
    if "bookie" in batch.schema.names:
        columns.append(codes(batch, "bookie")[0])
    ends = np.zeros(batch.num_rows - 1, np.bool_)
    for column in columns:
        ends |= column[1:] != column[:-1]
    return ends
