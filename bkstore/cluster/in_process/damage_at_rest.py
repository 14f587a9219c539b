"""Damage the files of a closed bookie: delete index rows, change records in entry logs.

Index rows are deleted as in the tests with BookKeeper's auditor: an index file's slot is set to 0,
a key of `locations` is deleted. Formats: `docs/formats/idxfile.md`, `docs/formats/rocksdb.md`. A
scope is the upper 64 bits of a 128-bit ledger id; BookKeeper's ledgers are in scope 0.
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

EntriesLike = int | Availability | npt.ArrayLike | Iterable[int]
"""One entry id, several, or an `Availability`."""

RecordPart = Literal["payload", "header"]

_check_part = choice("payload", "header")

_NO_ENTRIES = np.empty(0, np.int64)


def to_entry_ids(entries: EntriesLike) -> Int64Array:
    """Return sorted distinct entry ids, int64[n]; raises `InvalidArgument` for other values.

    >>> to_entry_ids(7).tolist(), to_entry_ids(range(3, 0, -1)).tolist()
    ([7], [1, 2, 3])
    """
    if isinstance(entries, Availability):
        return entries.entries()
    single = isinstance(entries, (int, np.integer))
    return np.unique(as_entry_ids([entries] if single else entries))  # type: ignore[arg-type]


def delete_index_rows(indexes: Sequence[Path], ledger: LedgerId, entries: Int64Array) -> Int64Array:
    """Delete entries from a bookie's index, durably; return those that were in it. `indexes` are
    the ``current/`` directories with the index; the bookie must be closed. Entry logs keep the
    records. About 2 us a row, plus the time to open a database."""
    lost = [_NO_ENTRIES]
    for current in indexes:
        file = current / index_path(ledger)
        database = current / ("locations-128" if ledger.scope else "locations")
        if file.is_file():
            lost.append(_clear_slots(file, entries))
        if database.is_dir():
            lost.append(_delete_rows(database, ledger, entries))
    return np.unique(np.concatenate(lost))


def _clear_slots(path: Path, entry_ids: Int64Array) -> Int64Array:
    """Zero the entries' slots in an index file; return the entries that it had."""
    slot_count = (os.path.getsize(path) - HEADER_SIZE) // SLOT_SIZE
    cleared = []
    with path.open("r+b") as file:
        for entry in entry_ids[entry_ids < slot_count].tolist():
            file.seek(HEADER_SIZE + SLOT_SIZE * entry)
            if any(file.read(SLOT_SIZE)):
                file.seek(HEADER_SIZE + SLOT_SIZE * entry)
                file.write(bytes(SLOT_SIZE))
                cleared.append(entry)
        file.flush()
        os.fsync(file.fileno())
    return np.array(cleared, np.int64)


def _delete_rows(path: Path, ledger: LedgerId, entry_ids: Int64Array) -> Int64Array:
    """Delete the entries' rows in a database of locations; return the entries that it had."""
    from bkstore.index.rocks.database import Database  # imported here: RocksDB is optional
    from bkstore.index.rocks.keys import entry_keys
    from bkstore.index.rocks.options import database_options

    keys = entry_keys(ledger, entry_ids)
    database = Database(path, database_options("locations"))
    try:
        values = database.get_list(keys)
        for key, value in zip(keys, values):
            if value is not None:
                database.delete(key)
        database.sync()
    finally:
        database.close()
    return entry_ids[np.array([value is not None for value in values], np.bool_)]


def corrupt_record(
    bookie: Bookie, ledger: LedgerId, entry_id: int, part: RecordPart
) -> tuple[Path, int]:
    """Change one byte of a stored record in its entry log; return (log, offset). "payload" changes
    the last byte: the bookie serves it, and the digest does not match. "header" changes the entry
    id: the bookie reports damage. Checkpoints first. Raises `NoSuchEntry`."""
    _check_part("part", part)
    record = bookie.read_entry(ledger, entry_id)
    bookie.checkpoint()
    for write_path in bookie.storage.write_paths:
        location = write_path.get_location(ledger, entry_id)
        if location is not None:
            log_id, position = split_location(location)
            log = Path(write_path.logger.path(log_id))
            offset = position + (len(record) - 1 if part == "payload" else _entry_id_end(record))
            _invert_byte(log, offset)
            return log, offset
    raise NoSuchEntry(f"entry {entry_id} of ledger {ledger} is in no entry log")


def _entry_id_end(record: bytes) -> int:
    """Return the offset of the last byte of the entry id, which follows a byte and scope and ledger
    (8 bytes each), or in scope 0 the ledger only."""
    return 24 if record_header(record).size == V2_HEADER else 15


def _invert_byte(path: Path, offset: int) -> None:
    """Invert all bits of one byte of a file, durably."""
    with path.open("r+b") as file:
        file.seek(offset)
        old_byte = file.read(1)
        file.seek(offset)
        file.write(bytes([old_byte[0] ^ 0xFF]))
        file.flush()
        os.fsync(file.fileno())
