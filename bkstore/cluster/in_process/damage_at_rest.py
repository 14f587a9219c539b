"""Damage to a bookie at rest: index rows that go, records that change in their entry log.

What `Cluster.lose` and `Cluster.corrupt` do to a bookie's files. The files of an index are changed
as the losses were made that the real auditor was shown: an index file's slot becomes 0, a key of
`locations` is deleted. Formats: `docs/formats/idxfile.md`, `docs/formats/rocksdb.md`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from bkstore.arguments import choice
from bkstore.availability import Availability
from bkstore.errors import NoSuchEntry
from bkstore.formats.entry import V2_HEADER, record_header
from bkstore.formats.idxfile import HEADER_SIZE, SLOT_SIZE, index_path
from bkstore.ids import Int64Array, LedgerId, as_entry_ids, split_location
from bkstore.storage.bookie import Bookie

Entries = int | Availability | npt.ArrayLike | Iterable[int]
"""One entry id, several, or an `Availability`."""

Part = Literal["payload", "header"]

_check_part = choice("payload", "header")

_NONE = np.empty(0, np.int64)


def entry_ids(entries: Entries) -> Int64Array:
    """Return entry ids, int64[n] sorted and distinct; `InvalidArgument` for what is none.

    >>> entry_ids(7).tolist(), entry_ids(range(3, 0, -1)).tolist()
    ([7], [1, 2, 3])
    """
    if isinstance(entries, Availability):
        return entries.entries()
    single = isinstance(entries, (int, np.integer))
    return np.unique(as_entry_ids([entries] if single else entries))  # type: ignore[arg-type]


def drop_index_rows(indexes: Sequence[Path], ledger: LedgerId, entries: Int64Array) -> Int64Array:
    """Take entries out of a bookie's index, durably; return those that were in it.

    `indexes` are the ``current/`` directories with the index, closed by their writer. Records
    stay in their entry logs. About 2 us a row, and what opening a database takes.
    """
    lost = [_NONE]
    for current in indexes:
        file = current / index_path(ledger)
        database = current / ("locations-128" if ledger.scope else "locations")
        if file.is_file():
            lost.append(_clear_slots(file, entries))
        if database.is_dir():
            lost.append(_delete_rows(database, ledger, entries))
    return np.unique(np.concatenate(lost))


def _clear_slots(path: Path, entries: Int64Array) -> Int64Array:
    """Write zeros over the slots of an index file that stand for the entries."""
    slots = (os.path.getsize(path) - HEADER_SIZE) // SLOT_SIZE
    there = []
    with path.open("r+b") as file:
        for entry in entries[entries < slots].tolist():
            file.seek(HEADER_SIZE + SLOT_SIZE * entry)
            if any(file.read(SLOT_SIZE)):
                file.seek(HEADER_SIZE + SLOT_SIZE * entry)
                file.write(bytes(SLOT_SIZE))
                there.append(entry)
        file.flush()
        os.fsync(file.fileno())
    return np.array(there, np.int64)


def _delete_rows(path: Path, ledger: LedgerId, entries: Int64Array) -> Int64Array:
    # RocksDB is loaded where it is needed only.
    from bkstore.index.rocks.database import Database
    from bkstore.index.rocks.keys import entry_keys
    from bkstore.index.rocks.options import database_options

    keys = entry_keys(ledger, entries)
    database = Database(path, database_options("locations"))
    try:
        found = database.get_list(keys)
        for key, value in zip(keys, found):
            if value is not None:
                database.delete(key)
        database.sync()
    finally:
        database.close()
    return entries[np.array([value is not None for value in found], np.bool_)]


def corrupt_record(bookie: Bookie, ledger: LedgerId, entry: int, part: Part) -> tuple[Path, int]:
    """Change one byte of a stored record in its entry log; return (log, offset).

    "payload" changes the last byte: the bookie serves it, and the digest does not match. "header"
    changes the entry id: the bookie itself tells of damage. Everything that the bookie has in
    memory is written out first. `NoSuchEntry` where the entry is not here.
    """
    _check_part("part", part)
    record = bookie.read_entry(ledger, entry)
    bookie.checkpoint()
    for path in bookie.storage.paths:
        location = path.location(ledger, entry)
        if location is not None:
            log_id, position = split_location(location)
            log = Path(path.logger.path(log_id))
            at = position + (len(record) - 1 if part == "payload" else _last_of_entry_id(record))
            _flip(log, at)
            return log, at
    raise NoSuchEntry(f"entry {entry} of ledger {ledger} is in no entry log")


def _last_of_entry_id(record: bytes) -> int:
    """Return where the lowest byte of the entry id stands in a record."""
    return 24 if record_header(record).size == V2_HEADER else 15


def _flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(1)
        file.seek(at)
        file.write(bytes([old[0] ^ 0xFF]))
        file.flush()
        os.fsync(file.fileno())
