"""Writing ordered rows and states as the index of a target, and proving that they are in it.

RocksDB databases are made of table files (no write-ahead log, no compaction), a set for each
directory; index files are written page by page. Afterwards the target is opened as any bookie's
directory is, and each row and state compared with what was to be written.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.files.disk_changes import Files
from bkstore.files.os_errors import writing
from bkstore.formats.ledgerdata import FLAGS_KEY
from bkstore.ids import LedgerId
from bkstore.index.api import DEFAULT_BATCH, EntryIndex, IndexBatch, LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.partitioned import PartitionedIndex
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.options import database_options
from bkstore.index.scope_marker import write_marker
from bkstore.offline.load.build import filled
from bkstore.offline.load.index_files import TableWriter
from bkstore.offline.load.ledger_states import compare_states, put_states
from bkstore.offline.load.verify import compare_rows
from bkstore.storage.directories.layout import Layout

_STATES_PER_FLUSH = 1 << 16
_LEDGERS_PER_FLUSH = 4096

Report = Callable[[int], None]


def in_key_order(index: EntryIndex) -> Iterator[IndexBatch]:
    """Yield all rows of an index by scope, ledger and entry, whatever directory they are in.

    `dir_index` is the directory's number. Memory: a batch for each directory.
    """
    if not isinstance(index, PartitionedIndex):
        yield from index.scan()
        return
    gathered: list[IndexBatch] = []
    size = 0
    parts = [_by_ledger(part, at, len(index.parts)) for at, part in enumerate(index.parts)]
    for _, rows in heapq.merge(*parts, key=lambda pair: pair[0]):
        gathered.append(rows)
        size += rows.entry_id.size
        if size >= DEFAULT_BATCH:
            yield IndexBatch.joined(gathered)
            gathered, size = [], 0
    if gathered:
        yield IndexBatch.joined(gathered)


def _by_ledger(part: EntryIndex, at: int, count: int) -> Iterator[tuple[LedgerId, IndexBatch]]:
    for rows in part.scan():
        for name, entries, locations in rows.by_ledger():
            if name.ledger % count == at:
                yield name, IndexBatch.of_ledger(name, entries, locations, at)


def write_index(
    to: Layout,
    currents: Sequence[Path],
    rows: Iterable[IndexBatch],
    states: Mapping[LedgerId, LedgerState],
    flags: int | None,
    work: Path,
    files: Files,
    report: Report,
) -> int:
    """Write rows that come by key, and the states; return how many rows. Durable at return.

    `flags` are RocksDB's storage flags. A ledger with rows and no state gets an empty one.
    """
    for current in currents:
        with writing(current):
            files.makedirs(current)
    if to == "idx":
        return _write_tree(currents, rows, states, files, report)
    return _write_databases(currents, rows, states, flags, work, files, report)


def _write_tree(
    currents: Sequence[Path],
    rows: Iterable[IndexBatch],
    states: Mapping[LedgerId, LedgerState],
    files: Files,
    report: Report,
) -> int:
    if any(name.scope for name in states):
        for current in currents:
            write_marker(current, files)
    total, last, begun = 0, None, 0
    with HierarchicalIndex(list(currents), writable=True, files=files) as index:
        for batch in rows:
            for name, entries, locations in batch.by_ledger():
                if name != last:
                    last, begun = name, begun + 1
                    if begun % _LEDGERS_PER_FLUSH == 0:
                        index.flush()
                    if name in states:
                        index.set_state(name, states[name])
                try:
                    index.put_many(name, entries, locations)
                except InvalidArgument as error:
                    raise InvalidArgument(f"ledger {name}: {error}: write rocksdb") from error
            total += batch.entry_id.size
            report(batch.entry_id.size)
        put_states(index, states, _LEDGERS_PER_FLUSH)
    return total


def _write_databases(
    currents: Sequence[Path],
    rows: Iterable[IndexBatch],
    states: Mapping[LedgerId, LedgerState],
    flags: int | None,
    work: Path,
    files: Files,
    report: Report,
) -> int:
    count, total = len(currents), 0
    writers = []
    for at in range(count):
        folder = work / f"tables-{at}"
        with writing(folder):
            files.makedirs(folder)
        writers.append(TableWriter(folder))
    for batch in rows:
        for at, part in _by_home(batch, count):
            writers[at].add(at, part)
        total += batch.entry_id.size
        report(batch.entry_id.size)
    for at, current in enumerate(currents):
        mine = {name: state for name, state in states.items() if name.ledger % count == at}
        with filled("rocksdb", current, writers[at].finish(), mine, files) as index:
            put_states(index, mine, _STATES_PER_FLUSH)
    if flags is not None:  # where that of ledger 0 would be
        path = currents[0] / "ledgers"
        with closing(Database(path, database_options("ledgers"), files=files)) as database:
            database.put(FLAGS_KEY, flags.to_bytes(8, "big"))
            database.sync()
    return total


def _by_home(rows: IndexBatch, count: int) -> Iterator[tuple[int, IndexBatch]]:
    """Yield the rows of each directory: ledger L lies in number ``L mod n``."""
    if count == 1:
        yield 0, rows
        return
    homes = rows.ledger_id.view(np.uint64) % np.uint64(count)
    for at in range(count):
        here = np.flatnonzero(homes == at)
        if here.size:
            yield at, IndexBatch(*(column[here] for column in rows))


def compare_index(
    index: EntryIndex,
    rows: Iterable[IndexBatch],
    states: Mapping[LedgerId, LedgerState],
    place: Path,
    report: Report,
) -> int:
    """Return how many rows the index has; raise `CorruptionError` unless they are `rows`.

    Each ledger, entry, location and state is compared, and the list of ledgers.
    """

    def told() -> Iterator[IndexBatch]:
        for batch in rows:
            yield batch
            report(batch.entry_id.size)

    origin = "what it is made of"
    count = compare_rows(told(), in_key_order(index), place, origin)
    compare_states(index, states, place, origin)
    known = set(index.ledgers())
    if known != states.keys():
        odd = min(known ^ states.keys())
        raise CorruptionError(place, None, f"ledger {odd} is not in both index and source")
    return count
