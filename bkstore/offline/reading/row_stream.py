"""The rows of a task: columns that are asked for, row groups that may have them, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from bkstore.errors import CorruptionError
from bkstore.ids import Int64Array
from bkstore.offline.reading.dump_file import check_footer, is_pure, outside, row_groups
from bkstore.offline.reading.file_parts import FilePart, part_of
from bkstore.offline.reading.kept_memory import keep_freed_memory
from bkstore.offline.reading.ledger_ranges import OrderWatch, ledger_at
from bkstore.offline.reading.places import opened_parquet
from bkstore.offline.reading.read_tasks import Read
from bkstore.tables.dump import DUMP_TABLES

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

BATCH_ROWS = 1 << 18
"""Rows of a batch: some 2 MiB a column."""

_IDS = ("scope_id", "ledger_id")
_ENDS: tuple[Literal["left", "right"], ...] = ("left", "right")


def read_rows(
    read: Read,
    columns: Sequence[str],
    sorted_by: Sequence[str] = (),
    *,
    batch: int = BATCH_ROWS,
    threads: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of a read's rows in the order of the file, in bounded memory.

    The file is held against the manifest: its rows, these columns, that all rows are of
    `read.bookie`; that ledgers are those of `read.ledgers`, if their columns are read; and where
    the read is declared sorted the order of `sorted_by` (of which the first two are the ledger's).
    Raises `CorruptionError` where it is otherwise, for the first row that is out of order, and for
    what is no Parquet, `UnsupportedLayout` for other columns.
    `threads` decodes columns beside each other. Memory: a batch, and the compressed columns of a
    row group; of what a process frees, it keeps up to 62 MiB from then on.
    """
    watch = OrderWatch()
    keep_freed_memory()
    with opened_parquet(read.path) as file:
        needed = {*columns, *(("bookie",) if read.bookie is not None else ())}
        check_footer(read.path, file, DUMP_TABLES[read.table], tuple(needed), read.rows)
        part = part_of(read, row_groups(file.metadata))
        asks = read.bookie
        if asks is not None and is_pure(file.metadata, asks):
            asks = None  # only the rows could tell more
        wanted = [*columns, *(("bookie",) if asks is not None and "bookie" not in columns else ())]
        batches = file.iter_batches(
            batch, range(part.first, part.stop), columns=wanted, use_threads=threads
        )
        for rows in batches:
            if asks is not None:
                _check_bookie(read.path, rows, asks)
                rows = rows.select(list(columns))
            if not read.is_sorted or not rows.num_rows:
                _check_range(read, rows)
                yield rows
                continue
            keys = [_int64(read, rows, name) for name in sorted_by]
            _check(read, watch, keys)
            if part.goes_on and part.upto and ledger_at(keys[0], keys[1], 0) > part.upto:
                return
            mine = _wanted(part, keys[0], keys[1])
            if mine.start < mine.stop:
                yield rows.slice(mine.start, mine.stop - mine.start)


def check_bookie(place: str, file: pq.ParquetFile, bookie: str) -> None:
    """Raise `CorruptionError` unless all rows are of this bookie.

    Reads its column where statistics do not tell: not so of files that bkstore has written.
    """
    if not is_pure(file.metadata, bookie):
        for rows in file.iter_batches(BATCH_ROWS, columns=["bookie"], use_threads=False):
            _check_bookie(place, rows, bookie)


def _check_bookie(place: str, rows: pa.RecordBatch, bookie: str) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in pc.unique(rows.column("bookie")).cast(pa.large_binary()).to_pylist():
        if name != bookie.encode():
            shown = "null" if name is None else name.decode(errors="backslashreplace")
            reason = f"has rows of bookie {shown}, the manifest says that all are of {bookie}"
            raise CorruptionError(place, None, reason)


def _int64(read: Read, rows: pa.RecordBatch, name: str) -> Int64Array:
    if rows.column(name).null_count:
        raise CorruptionError(read.path, None, f"null in column {name}")
    found: Int64Array = rows.column(name).to_numpy(zero_copy_only=False)
    return found.astype(np.int64, copy=False)


def _check(read: Read, watch: OrderWatch, keys: Sequence[Int64Array]) -> None:
    odd = watch.add(keys)
    if odd is not None:
        shown = ", ".join(str(int(column[odd])) for column in keys)
        reason = f"the manifest says that it is sorted, and ({shown}) stands behind a later row"
        raise CorruptionError(read.path, None, reason)
    for row in (0, -1):
        ledger, said = ledger_at(keys[0], keys[1], row), read.ledgers
        if said is not None and not said.first <= ledger <= said.last:
            raise outside(read.path, ledger, said)


def _check_range(read: Read, rows: pa.RecordBatch) -> None:
    """Look at the ledgers of rows in any order."""
    if read.ledgers is None or not set(_IDS) <= set(rows.schema.names):
        return
    scope, ledger = (_int64(read, rows, name) for name in _IDS)
    scopes, ledgers = (column.view(np.uint64) for column in (scope, ledger))
    low, first, high, last = (np.uint64(each) for ends in read.ledgers for each in ends)
    odd = (scopes < low) | ((scopes == low) & (ledgers < first))
    odd |= (scopes > high) | ((scopes == high) & (ledgers > last))
    if odd.any():
        raise outside(read.path, ledger_at(scope, ledger, int(np.argmax(odd))), read.ledgers)


def _wanted(part: FilePart, scope: Int64Array, ledger: Int64Array) -> slice:
    """Return which rows of a sorted batch are in the range of ledgers."""
    start, stop = 0, int(scope.size)
    if part.above is not None and ledger_at(scope, ledger, 0) <= part.above:
        start = behind(scope, ledger, part.above)
    if part.upto is not None and ledger_at(scope, ledger, -1) > part.upto:
        stop = behind(scope, ledger, part.upto)
    return slice(start, stop)


def behind(
    scope: Int64Array,
    ledger: Int64Array,
    key: tuple[int, int],
    side: Literal["left", "right"] = "right",
) -> int:
    """Return the first of sorted rows whose ledger is above `key`; their number if none is.

    With `side` "left" the first whose ledger is `key` or above it.
    """
    scopes, ledgers = (column.view(np.uint64) for column in (scope, ledger))
    lo, hi = (int(np.searchsorted(scopes, np.uint64(key[0]), end)) for end in _ENDS)
    return lo + int(np.searchsorted(ledgers[lo:hi], np.uint64(key[1]), side))
