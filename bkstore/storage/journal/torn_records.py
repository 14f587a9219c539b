"""Torn journal records: writes of which a crash left only some sectors.

A journal has no checksums. Where a power loss took the last sectors of a record that was not
synced yet, they read as zeros, and the record looks whole: upstream replays it, under whatever
ids are left of it, over an entry that was acknowledged long ago. Entries with a CRC can be
checked without a password, though; where that does not help, what is there already stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from bkstore.errors import BkstoreError, CorruptionError
from bkstore.files.opening import opened
from bkstore.files.os_errors import readable
from bkstore.formats.entry import RecordBatch, decode, decode_explicit_lac
from bkstore.formats.journal import JournalRecord
from bkstore.formats.syntax.framing import PREFIX, bytes_at
from bkstore.ids import Int64Array, LedgerId
from bkstore.storage.ledger_storage import LedgerStorage

__all__ = ["blank_sectors", "has_crc", "is_unwritten", "suspicious", "why_torn"]

_SECTOR = 512
_KEYLESS = ("CRC32C", "CRC32")
_FEWEST = 4  # zero bytes at the end of a key: 2^-32 for a whole one


def suspicious(offsets: Int64Array, batch: RecordBatch) -> Int64Array:
    """Return which entries have a later sector that may be all zeros in the file, int64[k].

    `offsets` are those of the length fields in the file, ascending; the batch lies in one piece
    of it. Where that piece ends inside a sector, the rest of it is not known here. Those that
    are not named are not torn; `blank_sectors` and `is_unwritten` tell of the others. About 5 ns
    an entry.
    """
    data = np.frombuffer(batch.buffer, np.uint8)
    base = int(offsets[0]) - int(batch.offsets[0]) + PREFIX  # of the piece
    first = (int(offsets[0]) // _SECTOR + 1) * _SECTOR - base
    end = int(batch.offsets[-1] + batch.sizes[-1])
    starts = first + _SECTOR * np.flatnonzero(data[first:end:_SECTOR] == 0)
    whole = starts[starts + _SECTOR <= data.size]
    blank = whole[~bytes_at(data, whole, _SECTOR).any(axis=1)]
    cut = [start for start in starts[whole.size :].tolist() if not data[start:].any()]
    blank = base + np.concatenate((blank, np.array(cut, np.int64)))
    rows = np.searchsorted(offsets, blank) - 1
    return np.unique(rows[blank < offsets[rows] + PREFIX + batch.sizes[rows]])


def blank_sectors(offset: int, record: JournalRecord) -> list[int]:
    """Return the offsets of the later sectors of which a record has nothing but zeros.

    `offset` is that of the record's length field. Under a microsecond for most records. Fence
    records have none: torn ones have another id.
    """
    body = record.body
    behind = 0 if record.kind == "add" else 20 if record.ledger.scope == 0 else 29
    start, end = offset + 4 + behind, offset + 4 + behind + len(body)
    found = []
    for sector in range((offset // _SECTOR + 1) * _SECTOR, end, _SECTOR):
        part = body[max(sector - start, 0) : max(sector + _SECTOR - start, 0)]
        if part and part.count(0) == len(part):
            found.append(sector)
    return found


def is_unwritten(path: Path, sectors: Iterable[int]) -> bool:
    """Return whether all of one of these sectors is zero in the file.

    A sector is written whole or not at all: what follows a record in its last sector (padding,
    the next record) shows that it was.
    """
    with readable(path), opened(path) as file:
        for sector in sectors:
            file.seek(sector)
            if not any(file.read(_SECTOR)):
                return True
    return False


def why_torn(record: JournalRecord, storage: LedgerStorage) -> str | None:
    """Return why a record with an unwritten sector is not to be replayed, None if it is.

    An entry whose CRC fits is whole. One whose does not is torn if its ledger's last entry has
    a CRC; else (HMAC, no digest) it must not replace what is there.
    """
    if record.kind == "master_key":
        key = record.body
        return "key" if any(key) and not any(key[-_FEWEST:]) else None
    if record.kind not in ("add", "explicit_lac") or has_crc(record):
        return None
    if _ledger_has_crcs(storage, record.ledger):
        return "digest"
    if record.kind == "add" and _is_there(storage, record):
        return "entry that is there"
    return None


def has_crc(record: JournalRecord) -> bool:
    """Return whether an entry or explicit LAC has a CRC that fits: it is whole then."""
    if record.kind == "add":
        return any(_fits(decode, record.body, digest) for digest in _KEYLESS)
    return any(_fits(decode_explicit_lac, record.body, digest) for digest in _KEYLESS)


def _fits(check: Callable[[bytes, str, str], object], body: bytes, digest: str) -> bool:
    try:
        check(body, digest, "")
    except CorruptionError:
        return False
    return True


def _ledger_has_crcs(storage: LedgerStorage, ledger: LedgerId) -> bool:
    try:
        last = storage.read_entry(ledger)
    except BkstoreError:  # unknown, empty, unreadable: it says nothing
        return False
    return any(_fits(decode, last, digest) for digest in _KEYLESS)


def _is_there(storage: LedgerStorage, record: JournalRecord) -> bool:
    return bool(storage.entries(record.ledger, record.entry_id, record.entry_id).size)
