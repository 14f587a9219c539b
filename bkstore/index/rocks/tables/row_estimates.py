"""Estimates of how many rows a range of keys has, from the indexes of table files: no row is read,
where a seek for each range would read a block of every level."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from bkstore.errors import CorruptionError
from bkstore.ids import Int64Array
from bkstore.index.rocks.tables.table_reader import TableReader


def estimate_rows(tables: Iterable[TableReader], prefixes: Sequence[bytes]) -> Int64Array:
    """Return about how many rows of the files have keys with each of the `prefixes`, which are
    sorted, distinct and of one width: int64[n]. The rows of a file are spread over its blocks by
    their sizes, those of a block evenly over the prefixes that may be in it; deleted and replaced
    rows count too. A file whose index is damaged counts as empty: reading its rows reports that.
    Cost: a binary search for each block."""
    if not prefixes:
        return np.empty(0, np.int64)
    width = len(prefixes[0])
    sorted_prefixes = np.array(prefixes, f"S{width}")
    # The change of the estimate from each prefix to the next one; one more for the end.
    changes = np.zeros(len(prefixes) + 1)
    for table in tables:
        try:
            index, (first_key, end_key) = table.index, table.key_bounds
        except CorruptionError:
            continue
        if not len(index):  # such as a file of range deletes alone
            continue
        # A block has keys from the separator before it up to its own. The last separator may be
        # far above the last key.
        ends = [*index.separators[:-1], min(index.separators[-1], end_key or index.separators[-1])]
        bounds = np.array([key[:width] for key in [first_key, *ends]], f"S{width}")
        first = np.searchsorted(sorted_prefixes, bounds[:-1], "left")
        stop = np.searchsorted(sorted_prefixes, bounds[1:], "right")
        has_some = stop > first
        first, stop = first[has_some], stop[has_some]
        rows = table.properties.entries * (index.sizes / index.sizes.sum())[has_some]
        np.add.at(changes, first, rows / (stop - first))
        np.subtract.at(changes, stop, rows / (stop - first))
    return np.rint(np.cumsum(changes[:-1])).astype(np.int64)
