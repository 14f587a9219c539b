"""Rows of a bulk load: in the order of their keys, one a key, as a table file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bkstore.files.disk_changes import Files
from bkstore.index.api import IndexBatch, check_put
from bkstore.index.rocks.tables.key_order import compare_keys
from bkstore.index.rocks.tables.table_writer import TableFileWriter


def sort_rows(rows: IndexBatch, is_scoped: bool) -> IndexBatch:
    """Return the rows of ledgers in scope 0, or if `is_scoped` of ledgers in any other scope (those
    have 128-bit ids and a database of their own), in the order of their keys. Of rows with equal
    keys the last one is kept. Raises `InvalidArgument` for invalid ids or locations. 5 ns a row if
    they are in order, else some 200."""
    is_wanted = (rows.scope_id != 0) == is_scoped
    if not is_wanted.all():
        rows = _take(rows, np.flatnonzero(is_wanted))
    check_put(rows.entry_id, rows.location)
    keys = np.array((rows.scope_id, rows.ledger_id, rows.entry_id)).view(np.uint64)
    are_ascending, _ = compare_keys(keys[:, :-1], keys[:, 1:])  # each key and the next one
    if are_ascending.all():
        return rows
    sort_order = np.lexsort(keys[::-1])  # stable; the last array is the first to sort by
    keys = keys[:, sort_order]
    is_last = np.append((keys[:, 1:] != keys[:, :-1]).any(axis=0), True)
    return _take(rows, sort_order[is_last])


def _take(rows: IndexBatch, selection: np.ndarray[tuple[int], np.dtype[np.int64]]) -> IndexBatch:
    return IndexBatch(*(column[selection] for column in rows))


def write_rows(path: Path, rows: IndexBatch, is_scoped: bool, files: Files) -> None:
    """Write sorted rows as a table file."""
    ledger_columns = [rows.scope_id] if is_scoped else []
    columns = [*ledger_columns, rows.ledger_id, rows.entry_id]
    with TableFileWriter(path, len(columns), files) as writer:
        writer.add(columns, rows.location)
        writer.finish()
