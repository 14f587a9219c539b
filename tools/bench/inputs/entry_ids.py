"""The data sets of the rows: entry ids of a bookie, locations, indexes on disk."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bkstore import schedule
from bkstore.ids import Int64Array, LedgerId, make_locations
from bkstore.index.api import LedgerLike
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from tools.bench.measure import Context

SCOPE_0 = LedgerId(0, 7)
SCOPED = LedgerId(0x1234_5678_9ABC_DEF0, 7)

_ENTRY_BYTES = 1024
"""Distance of neighbours in the imagined entry log."""


def held_ids(count: int, ensemble_size: int, write_quorum: int) -> Int64Array:
    """Return the first `count` entry ids that bookie 1 of an ensemble holds."""
    last = count * ensemble_size // write_quorum + ensemble_size
    return schedule.expected(0, last, 1, ensemble_size, write_quorum).entries()[:count]


def locations_of(ids: Int64Array) -> Int64Array:
    """Return locations one entry after the other, as a flush writes them, in 1 GiB logs."""
    place = np.arange(ids.size, dtype=np.int64) * _ENTRY_BYTES
    return make_locations(place >> 30, (place & (2**30 - 1)) + 1028)


def new_directory(context: Context) -> Path:
    """Return a new empty directory below the benchmark's own."""
    return Path(tempfile.mkdtemp(dir=context.directory))


@contextmanager
def idx_index(
    context: Context, ledgers: dict[LedgerLike, Int64Array]
) -> Iterator[HierarchicalIndex]:
    """Yield an index of .idx files opened for reading, holding the ledgers; remove it after."""
    top = new_directory(context)
    with HierarchicalIndex(top, writable=True) as index:
        for ledger, ids in ledgers.items():
            index.put_many(ledger, ids, locations_of(ids))
    with HierarchicalIndex(top) as index:
        yield index
    shutil.rmtree(top)


@contextmanager
def rocks_index(context: Context, ledgers: dict[LedgerLike, Int64Array]) -> Iterator[Path]:
    """Yield the directory of a RocksDB index that holds the ledgers; remove it after."""
    top = new_directory(context)
    with RocksIndex(top, writable=True) as index:
        for ledger, ids in ledgers.items():
            index.put_many(ledger, ids, locations_of(ids))
    yield top
    shutil.rmtree(top)
