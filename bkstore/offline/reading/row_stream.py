"""Streaming the rows of a read: the requested columns of the relevant row groups, in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bkstore.errors import CorruptionError
from bkstore.ids import Int64Array
from bkstore.offline.reading.dump_file import (
    check_footer,
    has_only_bookie,
    outside_range_error,
    row_groups,
)
from bkstore.offline.reading.file_locations import opened_parquet
from bkstore.offline.reading.file_parts import FilePart, locate_part
from bkstore.offline.reading.freed_memory import keep_freed_memory
from bkstore.offline.reading.ledger_ranges import (
    LEDGER_COLUMNS,
    OrderCheck,
    ledger_pair_at,
    search_ledger,
)
from bkstore.offline.reading.read_tasks import FileRead
from bkstore.tables.dump import DUMP_TABLES

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

BATCH_ROWS = 1 << 18
"""Default number of rows in a batch: some 2 MiB per column."""


def read_rows(
    read: FileRead,
    columns: Sequence[str],
    sorted_by: Sequence[str] = (),
    *,
    batch_rows: int = BATCH_ROWS,
    threads: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of a read's rows in the order of the file, in bounded memory.

    The file is compared with the manifest: its row count, these columns, that all rows are of
    `read.bookie`, that ledgers are in `read.ledger_range` (if their columns are read), and, if the
    read is declared sorted, that rows are in the order of `sorted_by`, which begins with the two
    columns of the ledger. Raises `CorruptionError` if they differ (for the first row out of order),
    and for a file that is not Parquet; `UnsupportedLayout` for other columns. `threads` decode
    columns in parallel. Memory: a batch, a row group's compressed columns, 62 MiB kept when freed.
    """
    order_check = OrderCheck()
    keep_freed_memory()
    with opened_parquet(read.path) as file:
        # Compare what the footer shows with the manifest.
        needed = {*columns, *(("bookie",) if read.bookie is not None else ())}
        check_footer(read.path, file, DUMP_TABLES[read.table], tuple(needed), read.rows)
        part = locate_part(read, row_groups(file.metadata))
        bookie_to_check = read.bookie
        if bookie_to_check is not None and has_only_bookie(file.metadata, bookie_to_check):
            bookie_to_check = None  # proved by statistics: the column need not be read
        read_columns = list(columns)
        if bookie_to_check is not None and "bookie" not in columns:
            read_columns.append("bookie")
        # Read the row groups of this part, and compare each batch of rows with the manifest.
        groups = range(part.first_group, part.stop_group)
        batches = file.iter_batches(batch_rows, groups, columns=read_columns, use_threads=threads)
        for rows in batches:
            if bookie_to_check is not None:
                _verify_bookie(read.path, rows, bookie_to_check)
                rows = rows.select(list(columns))
            if not read.is_sorted or not rows.num_rows:  # a part of whole row groups
                _verify_range(read, rows)
                yield rows
                continue
            # Of sorted rows, take those of the ledgers of this part.
            keys = [_int64(read, rows, name) for name in sorted_by]
            _verify_order(read, order_check, keys)
            scope, ledger = keys[:2]
            is_above = part.last_ledger and ledger_pair_at(scope, ledger, 0) > part.last_ledger
            if part.continues and is_above:
                return  # the rest is another read's, which verifies it
            start, stop = _select_rows(part, scope, ledger)
            if start < stop:
                yield rows.slice(start, stop - start)


def check_bookie(location: str, file: pq.ParquetFile, bookie: str) -> None:
    """Raise `CorruptionError` unless all rows are of this bookie, by statistics or the column."""
    if not has_only_bookie(file.metadata, bookie):
        for rows in file.iter_batches(BATCH_ROWS, columns=["bookie"], use_threads=False):
            _verify_bookie(location, rows, bookie)


def _verify_bookie(location: str, rows: pa.RecordBatch, bookie: str) -> None:
    """Raise `CorruptionError` if rows are of another bookie than the manifest says."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for stored in pc.unique(rows.column("bookie")).cast(pa.large_binary()).to_pylist():
        if stored != bookie.encode():
            text = "null" if stored is None else stored.decode(errors="backslashreplace")
            reason = f"has rows of bookie {text}, the manifest says that all are of {bookie}"
            raise CorruptionError(location, None, reason)


def _int64(read: FileRead, rows: pa.RecordBatch, name: str) -> Int64Array:
    if rows.column(name).null_count:
        raise CorruptionError(read.path, None, f"null in column {name}")
    values: Int64Array = rows.column(name).to_numpy(zero_copy_only=False)
    return values.astype(np.int64, copy=False)


def _verify_order(read: FileRead, order_check: OrderCheck, keys: Sequence[Int64Array]) -> None:
    """Raise `CorruptionError` if sorted rows are out of order, or outside the declared range.
    `keys` are their sort columns: scope, ledger, and possibly a third."""
    first_unsorted = order_check.add(keys)
    if first_unsorted is not None:
        key_text = ", ".join(str(int(column[first_unsorted])) for column in keys)
        reason = f"the manifest says that it is sorted, but ({key_text}) comes after a later row"
        raise CorruptionError(read.path, None, reason)
    if read.ledger_range is None:
        return
    scope, ledger, *_ = keys
    for row in (0, -1):  # in order, so all others are between
        ends_with = ledger_pair_at(scope, ledger, row)
        if not read.ledger_range.first <= ends_with <= read.ledger_range.last:
            raise outside_range_error(read.path, ends_with, read.ledger_range)


def _verify_range(read: FileRead, rows: pa.RecordBatch) -> None:
    """Raise `CorruptionError` if unsorted rows have a ledger outside the declared range."""
    if read.ledger_range is None or not set(LEDGER_COLUMNS) <= set(rows.schema.names):
        return
    scope, ledger = (_int64(read, rows, name) for name in LEDGER_COLUMNS)
    scopes, ledgers = (column.view(np.uint64) for column in (scope, ledger))
    first_scope, first_ledger = map(np.uint64, read.ledger_range.first)
    last_scope, last_ledger = map(np.uint64, read.ledger_range.last)
    is_outside = (scopes < first_scope) | ((scopes == first_scope) & (ledgers < first_ledger))
    is_outside |= (scopes > last_scope) | ((scopes == last_scope) & (ledgers > last_ledger))
    if is_outside.any():
        first_outside = ledger_pair_at(scope, ledger, int(np.argmax(is_outside)))
        raise outside_range_error(read.path, first_outside, read.ledger_range)


def _select_rows(part: FilePart, scope: Int64Array, ledger: Int64Array) -> tuple[int, int]:
    """Return (start, stop) of the rows of a sorted batch whose ledgers are in the part: those above
    its `after_ledger`, up to its `last_ledger`."""
    start, stop = 0, int(scope.size)
    if part.after_ledger is not None and ledger_pair_at(scope, ledger, 0) <= part.after_ledger:
        start = search_ledger(scope, ledger, part.after_ledger)
    if part.last_ledger is not None and ledger_pair_at(scope, ledger, -1) > part.last_ledger:
        stop = search_ledger(scope, ledger, part.last_ledger)
    return start, stop
