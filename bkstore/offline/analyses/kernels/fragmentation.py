"""Kernel for `fragmentation`: the number of entry logs and of stretches of each ledger. A stretch
is a series of entries of the ledger at ascending positions of one log."""

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
    """Counts of a ledger that the next batch may continue, and the location of its last entry. A
    log is written as directory index << 32 | log id."""

    key: _Key
    entries: int
    logs: Int64Array
    log_changes: int
    stretches: int
    last_log: int
    last_position: int

    def row(self) -> tuple[Any, ...]:
        """Return the row of the table: key, name, counts and entries per stretch."""
        _, scope, ledger = self.key
        (name,) = qualified_names([scope], [ledger])
        counts = (self.entries, self.logs.size, self.log_changes, self.stretches)
        return (*self.key, name, *counts, self.entries / self.stretches)


class Fragmentation:
    """Entries to `fragmentation` rows, in one pass. O(entries); memory: a batch, a ledger's logs.
    Columns: bookie (none if `bookie` is given), scope_id, ledger_id, entry_id, dir_index, log_id,
    position; sorted by bookie, ledger, entry, then by log and position. Directory and log id
    identify a log. With `repeated`, an entry may have several rows, and the last one counts."""

    def __init__(self, bookie: str | None = None, *, repeated: bool = False) -> None:
        self.bookie = bookie
        self.repeated = repeated

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of `fragmentation`."""
        open_ledger: _Ledger | None = None  # the last ledger so far, of which more rows may come
        for batch in _last_rows(batches) if self.repeated else batches:
            if batch.num_rows:
                entry_ids(batch)  # only validated: the rows are sorted by them
                runs = _LedgerRuns(batch, self.bookie)
                yield from runs.finished_rows(open_ledger)
                open_ledger = runs.last_ledger(open_ledger)
        if open_ledger is not None:
            yield from Table.from_rows(FRAGMENTATION, [open_ledger.row()]).to_arrow().to_batches()


class _LedgerRuns:
    """A batch cut into runs: a run is the adjacent rows of one ledger. The first run may continue
    the last ledger of the batch before."""

    def __init__(self, batch: pa.RecordBatch, bookie: str | None) -> None:
        self._ledger_ids = (int64(batch, "scope_id"), int64(batch, "ledger_id"))
        # Row n is of bookie names[codes[n]]; with `bookie` given, all rows are of that one.
        self._bookie_codes: Int64Array | None = None
        self._bookie_names = [bookie or ""]
        if bookie is None:
            self._bookie_codes, self._bookie_names = dictionary_codes(batch, "bookie")
        self._log_keys = int64(batch, "dir_index") << 32
        self._log_keys += int64(batch, "log_id")
        self._position = int64(batch, "position")
        bookie_columns = () if self._bookie_codes is None else (self._bookie_codes,)
        self._starts = run_starts(*bookie_columns, *self._ledger_ids)
        self._bounds = np.append(self._starts, batch.num_rows)
        self._count_changes()

    def _count_changes(self) -> None:
        """Count the log changes and the stretches of each run, and find the rows that begin a run
        or another log."""
        # The first row of a run changes no log, and begins a stretch; row 0 begins a run.
        changes_log = np.empty(self._log_keys.size, np.bool_)
        np.not_equal(self._log_keys[1:], self._log_keys[:-1], out=changes_log[1:])
        changes_log[self._starts] = False
        begins_stretch = np.empty(self._log_keys.size, np.bool_)
        np.less_equal(self._position[1:], self._position[:-1], out=begins_stretch[1:])
        begins_stretch |= changes_log
        begins_stretch[self._starts] = True
        self._changes = self._count_per_run(np.flatnonzero(changes_log))
        self._stretches = self._count_per_run(np.flatnonzero(begins_stretch))
        begins_log = changes_log
        begins_log[self._starts] = True
        self._log_starts = np.flatnonzero(begins_log)

    def _count_per_run(self, rows: Int64Array) -> Int64Array:
        return np.diff(np.searchsorted(rows, self._bounds))

    def _count_logs(self, run_count: int) -> Int64Array:
        """Return the number of distinct logs of each of the first `run_count` runs."""
        # The rows of these runs that begin a run or another log, and the number of the run of each.
        log_starts = self._log_starts
        log_starts = log_starts[: np.searchsorted(log_starts, self._bounds[run_count])]
        run_numbers = np.searchsorted(self._starts, log_starts, "right") - 1
        logs = self._log_keys[log_starts]
        # A run may return to a log, so sort the (run, log) pairs and count the distinct ones.
        order = np.lexsort((logs, run_numbers))
        distinct = run_starts(run_numbers[order], logs[order])
        return np.bincount(run_numbers[order][distinct], minlength=run_count)

    def _ledger_key(self, run: int) -> _Key:
        """Return (bookie, scope, ledger) of a run of rows."""
        first_row = int(self._starts[run])
        scope, ledger = (int(column[first_row]) for column in self._ledger_ids)
        code = 0 if self._bookie_codes is None else int(self._bookie_codes[first_row])
        return self._bookie_names[code], scope, ledger

    def _continues_ledger(self, before: _Ledger | None) -> bool:
        """Return whether the first run continues the ledger `before`."""
        return before is not None and before.key == self._ledger_key(0)

    def _merge_run(self, run: int, before: _Ledger | None) -> _Ledger:
        """Return the figures of the ledger of a run (its adjacent rows). If it is the first run of
        the batch and continues the ledger `before`, the figures of both are added up."""
        first_row, last_row = int(self._bounds[run]), int(self._bounds[run + 1]) - 1
        # All logs of the run are in the rows where it begins or goes on to another log.
        log_range = np.searchsorted(self._log_starts, (first_row, last_row + 1))
        logs = np.unique(self._log_keys[self._log_starts[slice(*log_range)]])
        merged = _Ledger(
            self._ledger_key(run),
            last_row + 1 - first_row,
            logs,
            int(self._changes[run]),
            int(self._stretches[run]),
            last_log=int(self._log_keys[last_row]),
            last_position=int(self._position[last_row]),
        )
        if run == 0 and before is not None and self._continues_ledger(before):
            changes_log = bool(self._log_keys[first_row] != before.last_log)
            merged.entries += before.entries
            merged.logs = np.union1d(logs, before.logs)
            merged.log_changes += before.log_changes + changes_log
            merged.stretches += before.stretches
            if not changes_log and self._position[first_row] > before.last_position:
                merged.stretches -= 1  # the last stretch of `before` goes on
        return merged

    def last_ledger(self, before: _Ledger | None) -> _Ledger:
        return self._merge_run(self._starts.size - 1, before)

    def finished_rows(self, before: _Ledger | None) -> Iterator[pa.RecordBatch]:
        """Yield the output rows of all ledgers that end in this batch or ended with `before`: of
        all runs but the last, which the next batch may continue."""
        # The ledger `before` has ended, unless the first run continues it and is the last one, too.
        merged_rows = []
        run_count = self._starts.size - 1
        first = 0
        if before is not None and not self._continues_ledger(before):
            merged_rows.append(before.row())
        elif before is not None and run_count:
            merged_rows.append(self._merge_run(0, before).row())
            first = 1
        if merged_rows:
            yield from Table.from_rows(FRAGMENTATION, merged_rows).to_arrow().to_batches()
        if first < run_count:
            yield from self._output_table(first, run_count).to_arrow().to_batches()

    def _output_table(self, first: int, stop: int) -> Table:
        """Return the output rows of the runs from `first` to before `stop`."""
        chosen = slice(first, stop)
        starts = self._starts[chosen]
        scopes, ledgers = (column[starts].tolist() for column in self._ledger_ids)
        bookies: Any = [self._bookie_names[0]] * starts.size
        if self._bookie_codes is not None:
            bookies = [self._bookie_names[code] for code in self._bookie_codes[starts]]
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
    """Yield the last row of each entry, which is the newest, from rows sorted by bookie, ledger,
    entry and location. The last row of a batch waits for the next batch. Memory: a batch."""
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
    """Return for each row but the last whether the next row is of another entry, or of another
    bookie if the table has several."""
    columns = [int64(batch, name) for name in _ENTRY_KEYS]
    if "bookie" in batch.schema.names:
        columns.append(dictionary_codes(batch, "bookie")[0])
    is_last = np.zeros(batch.num_rows - 1, np.bool_)
    for column in columns:
        is_last |= column[1:] != column[:-1]
    return is_last
