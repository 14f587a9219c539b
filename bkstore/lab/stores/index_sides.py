"""Index implementations that hold the same rows: how each is filled, and opened for queries."""

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
from bkstore.lab.measuring.latencies_and_costs import INDEX_FILE_ENDINGS
from bkstore.lab.stores.tuned_rocks import Change, TunedFiles
from bkstore.lab.workloads.index_loads import IndexLoad, Put


class Layered(LayeredSource):
    """A memtable over RocksDB that also looks up locations, as a storage looks them up in both."""

    unflushed: MemtableIndex
    flushed: RocksIndex

    def get(self, ledger: LedgerLike, entry: int) -> int | None:
        """Return the location of one entry: the memtable's, otherwise the one on disk."""
        return self.unflushed.get(ledger, entry) or self.flushed.get(ledger, entry)

    def get_many(self, ledger: LedgerLike, entries: Int64Array) -> Int64Array:
        """Return the locations of many entries; only those not in memory are looked up on disk."""
        locations = self.unflushed.get_many(ledger, entries)
        missing = np.flatnonzero(locations == 0)
        if missing.size:
            locations[missing] = self.flushed.get_many(ledger, entries[missing])
        return locations


Source = EntryIndex | Layered
OpenIndex = Callable[[Path, bool], EntryIndex]  # opens the index in a directory, writable or not


def open_index_files(directory: Path, writable: bool) -> EntryIndex:
    """Open an index of index files."""
    return HierarchicalIndex(directory, writable=writable)


def rocksdb_opener(*changes: Change) -> OpenIndex:
    """Return a function that opens RocksDB with a bookie's options after these changes."""
    files = TunedFiles(*changes)
    return lambda directory, writable: RocksIndex(directory, writable=writable, files=files)


@dataclass(frozen=True)
class IndexSide:
    """An implementation: how its index on disk (if any) is opened, the share kept in memory, and
    the endings of the files that count as index."""

    open_index: OpenIndex | None
    in_memory: float = 0.0
    file_endings: tuple[str, ...] = INDEX_FILE_ENDINGS

    def fill(self, load: IndexLoad, directory: Path) -> MemtableIndex:
        """Write a load to disk, durably, except for its last part: `in_memory` is the share that
        comes into the returned memtable instead, as in a bookie before a flush."""
        disk_puts, memory_puts = _split_load(load, self.in_memory)
        if self.open_index is not None:
            is_writable = True
            with self.open_index(directory, is_writable) as index:
                _put_all(index, disk_puts)
        memory = MemtableIndex()
        _put_all(memory, memory_puts)
        for ledger_id in memory.ledgers():
            memory.entries(ledger_id)  # the first read sorts the ledger: this is part of the cost
        return memory

    def open_once(self, directory: Path) -> None:
        """Open the index on disk for reading, and close it."""
        if self.open_index is not None:
            self.open_index(directory, False).close()

    @contextmanager
    def open_source(self, directory: Path, memory: MemtableIndex) -> Iterator[Source]:
        """Yield what answers the queries: the index on disk, the memtable, or, if a share of the
        rows is in memory, the memtable in front of the index."""
        if self.open_index is None:
            yield memory
            return
        is_writable = False
        with self.open_index(directory, is_writable) as index:
            if self.in_memory and isinstance(index, RocksIndex):  # `Layered` takes no other one
                yield Layered(memory, index)
            else:
                yield index


def _split_load(load: IndexLoad, memory_share: float) -> tuple[list[Put], list[Put]]:
    """Split the puts: those written to disk first, and the last share, kept in memory."""
    puts = list(load.puts)
    rows_so_far = np.cumsum([put.entry_ids.size for put in puts])
    rows_on_disk = rows_so_far[-1] * (1 - memory_share)
    first_in_memory = int(np.searchsorted(rows_so_far, rows_on_disk, side="right"))
    return puts[:first_in_memory], puts[first_in_memory:]


def _put_all(index: EntryIndex, puts: Sequence[Put]) -> None:
    for put in puts:
        index.put_many(put.ledger_id, put.entry_ids, put.locations)
