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
from tools.bench.cases import Context

SCOPE_0 = LedgerId(0, 7)
SCOPED = LedgerId(0x1234_5678_9ABC_DEF0, 7)

_ENTRY_BYTES = 1024
"""The distance between neighboring entries in the imagined entry log."""


def stored_ids(count: int, ensemble_size: int, write_quorum: int) -> Int64Array:
    """Return the first `count` entry ids that bookie 1 of an ensemble stores."""
    last = count * ensemble_size // write_quorum + ensemble_size
    return schedule.expected(0, last, 1, ensemble_size, write_quorum).entries()[:count]


def locations_of(ids: Int64Array) -> Int64Array:
    """Return consecutive locations, as a flush writes the entries, in logs of 1 GiB."""
    offsets = np.arange(ids.size, dtype=np.int64) * _ENTRY_BYTES
    return make_locations(offsets >> 30, (offsets & (2**30 - 1)) + 1028)


def new_directory(context: Context) -> Path:
    """Return a new empty directory below the benchmark's own."""
    return Path(tempfile.mkdtemp(dir=context.directory))


Ledgers = dict[LedgerLike, Int64Array]
"""The entry ids of each ledger."""


@contextmanager
def idx_index(context: Context, ledgers: Ledgers) -> Iterator[HierarchicalIndex]:
    """Yield an index of .idx files with the ledgers, open for reading; delete it afterwards."""
    directory = new_directory(context)
    with HierarchicalIndex(directory, writable=True) as index:
        for ledger, ids in ledgers.items():
            index.put_many(ledger, ids, locations_of(ids))
    with HierarchicalIndex(directory) as index:
        yield index
    shutil.rmtree(directory)


@contextmanager
def rocks_index(context: Context, ledgers: Ledgers) -> Iterator[Path]:
    """Yield the directory of a RocksDB index with the ledgers; delete it afterwards."""
    directory = new_directory(context)
    with RocksIndex(directory, writable=True) as index:
        for ledger, ids in ledgers.items():
            index.put_many(ledger, ids, locations_of(ids))
    yield directory
    shutil.rmtree(directory)
