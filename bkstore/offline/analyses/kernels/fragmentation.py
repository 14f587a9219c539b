"""Kernel for `fragmentation`: the number of logs and contiguous stretches of each ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bkstore.ids import Int64Array
from bkstore.offline.analyses.kernels.batch_blocks import qualified_names
from bkstore.offline.analyses.kernels.index_columns import dictionary_codes, entry_ids, int64
from bkstore.offline.reading.ledger_ranges import run_starts
from bkstore.tables import FRAGMENTATION, Table

if TYPE_CHECKING:
    import pyarrow as pa

_ENTRY_KEYS = ("scope_id", "ledger_id", "entry_id")

_Key = tuple[str, int, int]


@dataclass
class _Ledger:
    """Counts of a ledger that the next batch may continue, and the location of its last entry.

    A place is an entry log: directory index << 32 | log id.
    """

    key: _Key
    entries: int
    logs: Int64Array
    log_changes: int
    stretches: int
    last_log: int
    last_position: int

    def row(self) -> tuple[Any, ...]:
        _, scope, ledger = self.key
        (name,) = qualified_names([scope], [ledger])
        counts = (self.entries, self.logs.size, self.log_changes, self.stretches)
        return (*self.key, name, *counts, self.entries / self.stretches)


class Fragmentation:
    """Entries to `fragmentation` rows, in one pass. O(entries); memory: a batch, a ledger's logs.

    Columns: bookie (none if `bookie` is given), scope_id, ledger_id, entry_id, dir_index, log_id,
    position; sorted by bookie, ledger, entry, then by log and position. Directory and log id
    identify a log. With `repeated`, an entry may have several rows, and the last one counts.
    """

    def __init__(self, bookie: str | None = None, *, repeated: bool = False) -> None:
        self.bookie = bookie
        self.repeated = repeated

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of `fragmentation`."""
        open_ledger: _Ledger | None = None
        for batch in _last_rows(batches) if self.repeated else batches:
            if batch.num_rows:
                entry_ids(batch)  # only validated: the rows are sorted by them
                runs = _LedgerRuns(batch, self.bookie)
                finished = runs.before_last(open_ledger)
                open_ledger = runs.last(open_ledger)
                yield from finished
        if open_ledger is not None:
            yield from Table.from_rows(FRAGMENTATION, [open_ledger.row()]).to_arrow().to_batches()


class _LedgerRuns:
    """A batch as runs of rows of one ledger; the first may continue the last ledger before it."""

    def __init__(self, batch: pa.RecordBatch, bookie: str | None) -> None:
        self._keys = [int64(batch, "scope_id"), int64(batch, "ledger_id")]
        self._names = [bookie or ""]
        number = None
        if bookie is None:
            number, self._names = dictionary_codes(batch, "bookie")
            self._keys.insert(0, number)
        self._bookie_codes = number
        self._log_keys = int64(batch, "dir_index") << 32
        self._log_keys += int64(batch, "log_id")
        self._position = int64(batch, "position")
        self._starts = run_starts(*self._keys)
        self._bounds = np.append(self._starts, batch.num_rows)
        self._count()

    def _count(self) -> None:
        """Count the log changes and stretches of each run; its first row begins a stretch."""
        changed = np.empty(self._log_keys.size, np.bool_)
        np.not_equal(self._log_keys[1:], self._log_keys[:-1], out=changed[1:])
        changed[self._starts] = False
        broken = np.empty(self._log_keys.size, np.bool_)
        np.less_equal(self._position[1:], self._position[:-1], out=broken[1:])
        broken |= changed
        broken[self._starts] = True
        self._changes = self._per_run(np.flatnonzero(changed))
        self._stretches = self._per_run(np.flatnonzero(broken))
        changed[self._starts] = True
        self._log_starts = np.flatnonzero(changed)  # rows that begin a run or another log

    def _per_run(self, rows: Int64Array) -> Int64Array:
        return np.diff(np.searchsorted(rows, self._bounds))

    def _count_logs(self, runs: int) -> Int64Array:
        """Return int64[runs]: the number of distinct logs of each of the first runs."""
        heads = self._log_starts[: np.searchsorted(self._log_starts, self._bounds[runs])]
        run_numbers = np.searchsorted(self._starts, heads, "right") - 1
        logs = self._log_keys[heads]
        order = np.lexsort((logs, run_numbers))
        distinct = run_starts(run_numbers[order], logs[order])
        return np.bincount(run_numbers[order][distinct], minlength=runs)

    def _key(self, run: int) -> _Key:
        first_row = int(self._starts[run])
        scope, ledger = (int(column[first_row]) for column in self._keys[-2:])
        code = 0 if self._bookie_codes is None else int(self._bookie_codes[first_row])
        return self._names[code], scope, ledger

    def _continues(self, before: _Ledger | None) -> bool:
        """Return whether the first run continues the ledger `before`."""
        return before is not None and before.key == self._key(0)

    def _merge_run(self, run: int, before: _Ledger | None) -> _Ledger:
        """Return a run as a ledger, added to the ledger `before` if the first run continues it."""
        lo, hi = int(self._bounds[run]), int(self._bounds[run + 1])
        heads = self._log_starts[slice(*np.searchsorted(self._log_starts, (lo, hi)))]
        logs = np.unique(self._log_keys[heads])
        changes, stretches = int(self._changes[run]), int(self._stretches[run])
        merged = _Ledger(self._key(run), hi - lo, logs, changes, stretches, 0, 0)
        if run == 0 and before is not None and self._continues(before):
            changed = bool(self._log_keys[lo] != before.last_log)
            merged.entries += before.entries
            merged.logs = np.union1d(logs, before.logs)
            merged.log_changes += before.log_changes + changed
            merged.stretches += before.stretches
            merged.stretches -= not (changed or self._position[lo] <= before.last_position)
        merged.last_log = int(self._log_keys[hi - 1])
        merged.last_position = int(self._position[hi - 1])
        return merged

    def last(self, before: _Ledger | None) -> _Ledger:
        return self._merge_run(self._starts.size - 1, before)

    def before_last(self, before: _Ledger | None) -> Iterator[pa.RecordBatch]:
        """Yield the output rows of all ledgers that end in this batch or ended with `before`."""
        ended = []
        runs = self._starts.size - 1
        first = 0
        if before is not None and not self._continues(before):
            ended.append(before.row())
        elif before is not None and runs:
            ended.append(self._merge_run(0, before).row())
            first = 1
        if ended:
            yield from Table.from_rows(FRAGMENTATION, ended).to_arrow().to_batches()
        if first < runs:
            yield from self._output_table(first, runs).to_arrow().to_batches()

    def _output_table(self, first: int, stop: int) -> Table:
        chosen = slice(first, stop)
        starts = self._starts[chosen]
        scopes, ledgers = (column[starts].tolist() for column in self._keys[-2:])
        bookies: Any = [self._names[0]] * starts.size
        if self._bookie_codes is not None:
            bookies = [self._names[code] for code in self._bookie_codes[starts]]
        entries = np.diff(self._bounds[first : stop + 1])
        stretches = self._stretches[chosen]
        columns = {
            "bookie": bookies,
            "scope_id": scopes,
            "ledger_id": ledgers,
            "qualified_name": qualified_names(scopes, ledgers),
            "entries": entries,
            "logs": self._count_logs(stop)[chosen],
            "log_changes": self._changes[chosen],
            "stretches": stretches,
            "mean_stretch": entries / stretches,
        }
        return Table(FRAGMENTATION, columns)


def _last_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the last row of each entry, from rows sorted by bookie, ledger, entry and location.

    A load keeps the same row (`OrderedRows`). Memory: a batch.
    """
    import pyarrow as pa

    last_row: pa.RecordBatch | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        if last_row is not None:
            (batch,) = pa.Table.from_batches([last_row, batch]).combine_chunks().to_batches()
        last_row = batch.slice(batch.num_rows - 1)
        is_last = _is_last_of_entry(batch)
        complete_rows = batch.slice(0, batch.num_rows - 1)
        yield complete_rows if is_last.all() else complete_rows.filter(pa.array(is_last))
    if last_row is not None:
        yield last_row


def _is_last_of_entry(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return for each row but the last whether the next row is of another entry."""
    columns = [int64(batch, name) for name in _ENTRY_KEYS]
    if "bookie" in batch.schema.names:
        columns.append(dictionary_codes(batch, "bookie")[0])
    is_last = np.zeros(batch.num_rows - 1, np.bool_)
    for column in columns:
        is_last |= column[1:] != column[:-1]
    return is_last
