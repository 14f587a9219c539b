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

from bkstore.errors import CorruptionError
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
from bkstore.offline.index_building.assembly import build
from bkstore.offline.index_building.ledger_states import compare_states, put_states
from bkstore.offline.index_building.row_comparison import compare_rows
from bkstore.offline.index_building.row_writers import TreeWriter, row_writer, rows_of_directory
from bkstore.storage.directories.layout import Layout

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
    total = 0
    with HierarchicalIndex(list(currents), writable=True, files=files) as index:
        writer = TreeWriter(currents[0], index, states, "write rocksdb")
        for batch in rows:
            writer.add(0, batch)
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
    total, count = 0, len(currents)
    writers = [row_writer("rocksdb", work / f"tables-{number}", files) for number in range(count)]
    for batch in rows:
        for number, writer in enumerate(writers):
            writer.add(number, rows_of_directory(batch, number, count))
        total += batch.entry_id.size
        report(batch.entry_id.size)
    made = [piece for writer in writers for piece in writer.finish()]
    build("rocksdb", currents, made, states, files)
    if flags is not None:  # where that of ledger 0 would be
        path = currents[0] / "ledgers"
        with closing(Database(path, database_options("ledgers"), files=files)) as database:
            database.put(FLAGS_KEY, flags.to_bytes(8, "big"))
            database.sync()
    return total


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
