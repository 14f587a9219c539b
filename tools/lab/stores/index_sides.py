"""Forms of an index that hold the same rows: how each is filled, and opened to be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bkstore.ids import Int64Array
from bkstore.index.api import EntryIndex, LedgerLike
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.layered import LayeredSource
from bkstore.index.memtable import MemtableIndex
from bkstore.index.rocks import RocksIndex
from tools.lab.stores.tuned_rocks import Change, TunedFiles
from tools.lab.workloads.index_loads import IndexLoad, Put


class Layered(LayeredSource):
    """A memtable over RocksDB, asked for locations as well, as a storage asks its two."""

    top: MemtableIndex
    below: RocksIndex

    def get(self, ledger: LedgerLike, entry: int) -> int | None:
        """Return the location of one entry: the memtable's, else the one on disk."""
        return self.top.get(ledger, entry) or self.below.get(ledger, entry)

    def get_many(self, ledger: LedgerLike, entries: Int64Array) -> Int64Array:
        """Return the locations of many entries; only what memory lacks is asked of the disk."""
        found = self.top.get_many(ledger, entries)
        absent = np.flatnonzero(found == 0)
        if absent.size:
            found[absent] = self.below.get_many(ledger, entries[absent])
        return found


Source = EntryIndex | Layered
Opening = Callable[[Path, bool], EntryIndex]


def idx_files(top: Path, writable: bool) -> EntryIndex:
    """Open index files."""
    return HierarchicalIndex(top, writable=writable)


def rocksdb(*changes: Change) -> Opening:
    """Return what opens RocksDB with a bookie's options, changed so."""
    return lambda top, writable: RocksIndex(top, writable=writable, files=TunedFiles(*changes))


@dataclass(frozen=True)
class IndexSide:
    """A form: how its index on disk is opened (if any), and its share that is in memory."""

    open: Opening | None
    in_memory: float = 0.0

    def filled(self, load: IndexLoad, top: Path) -> MemtableIndex:
        """Put a load below `top`, durably, and the last of it into memory; return that."""
        below, above = _split(load, self.in_memory)
        if self.open is not None:
            with self.open(top, True) as index:
                _fill(index, below)
        memory = MemtableIndex()
        _fill(memory, above)
        for name in memory.ledgers():
            memory.entries(name)  # sorted at the first read: part of the price
        return memory

    def open_once(self, top: Path) -> None:
        """Open what is on disk for reading, and close it."""
        if self.open is not None:
            self.open(top, False).close()

    @contextmanager
    def opened(self, top: Path, memory: MemtableIndex) -> Iterator[Source]:
        """Yield what is asked: the index on disk, memory, or one over the other."""
        if self.open is None:
            yield memory
            return
        with self.open(top, False) as index:
            yield (
                Layered(memory, index)
                if isinstance(index, RocksIndex) and self.in_memory
                else index
            )


def _split(load: IndexLoad, share: float) -> tuple[list[Put], list[Put]]:
    """Return the puts that go to disk, and the last ones, that stay in memory."""
    puts = list(load.puts)
    ends = np.cumsum([put.entries.size for put in puts])
    first = int(np.searchsorted(ends, ends[-1] * (1 - share), side="right"))
    return puts[:first], puts[first:]


def _fill(index: EntryIndex, puts: Sequence[Put]) -> None:
    for put in puts:
        index.put_many(put.ledger, put.entries, put.locations)
