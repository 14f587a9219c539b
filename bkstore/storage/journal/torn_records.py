"""Torn records: journal records of which a power loss took a part, and their blank sectors.

A disk writes sectors whole or not at all, in any order. A sector that was not written reads as
zeros if the file was preallocated or extended over it, and the record looks whole, as a journal has
no checksums. BookKeeper replays it, under whatever ids are left of it, over an entry that was
acknowledged long ago. But entries with a CRC can be checked without a password; and an unverifiable
record must not replace a stored entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bkstore.errors import BkstoreError, CorruptionError, SystemRefused
from bkstore.files.opening import open_for_reading
from bkstore.files.os_errors import convert_read_errors
from bkstore.formats.entry import CHECKSUMS, RecordBatch, decode_explicit_lac, matching_checksum
from bkstore.formats.journal import JournalRecord
from bkstore.formats.syntax.framing import SIZE_FIELD_BYTES, bytes_at
from bkstore.ids import Int64Array, LedgerId

if TYPE_CHECKING:
    from bkstore.storage.ledger_storage import LedgerStorage

_TORN_KEY_ZEROS = 4  # a key ending so is torn; 2^-32 of the intact ones do
_SECTOR = 512
_MAX_IDS_SIZE = 29 + SIZE_FIELD_BYTES
"""Size of flags, scope, ledger, entry and body length, without which a record is unreadable."""


def find_suspicious_rows(offsets: Int64Array, batch: RecordBatch) -> Int64Array:
    """Return the rows of entries that may be torn, int64[k]: after the sector in which they begin,
    they have one that is all zeros, as far as this batch shows it.

    `offsets` are those of the length fields in the file, ascending. The batch lies in one chunk of
    the file; the bytes after the chunk are unknown. Check the entries returned with
    `find_blank_sectors` and `has_unwritten_sector`; no other is torn. About 5 ns an entry.
    """
    data = np.frombuffer(batch.buffer, np.uint8)
    # In `data`: the first sector after the first length field, and the end of the last entry.
    data_offset = int(offsets[0]) - int(batch.offsets[0]) + SIZE_FIELD_BYTES  # in the file
    first_sector = (int(offsets[0]) // _SECTOR + 1) * _SECTOR - data_offset
    data_end = int(batch.offsets[-1] + batch.sizes[-1])
    # Sectors whose first byte is zero, then those of only zeros, as far as the chunk has them.
    candidates = first_sector + _SECTOR * np.flatnonzero(data[first_sector:data_end:_SECTOR] == 0)
    complete = candidates[candidates + _SECTOR <= data.size]
    blank_starts = complete[~bytes_at(data, complete, _SECTOR).any(axis=1)]
    cut_off = [start for start in candidates[complete.size :].tolist() if not data[start:].any()]
    blank_starts = data_offset + np.concatenate((blank_starts, np.array(cut_off, np.int64)))
    # A sector concerns the entry whose length field precedes it, unless the entry ends before it.
    rows = np.searchsorted(offsets, blank_starts) - 1
    return np.unique(rows[blank_starts < offsets[rows] + SIZE_FIELD_BYTES + batch.sizes[rows]])


def find_blank_sectors(offset: int, record: JournalRecord) -> list[int]:
    """Return the offsets of the later sectors in which a record has nothing but zeros, `offset`
    being that of its length field; none for fence records: a torn one reads as another kind."""
    # The body of an entry ("add") is the whole record. Before other bodies are ledger id, kind and
    # body length: 20 bytes, or 29 with flags and a scope (upper half of a 128-bit ledger id).
    header_size = 0 if record.kind == "add" else 20 if record.ledger.scope == 0 else 29
    return _find_blank_sectors(offset, offset + SIZE_FIELD_BYTES + header_size, record.body)


def _find_blank_sectors(record_offset: int, data_offset: int, data: bytes) -> list[int]:
    """Return the sectors after that of the record's offset in which its `data` has only zeros."""
    blank_offsets = []
    first_sector = (record_offset // _SECTOR + 1) * _SECTOR
    for sector in range(first_sector, data_offset + len(data), _SECTOR):
        start = sector - data_offset  # negative if the sector begins before `data`
        sector_data = data[max(start, 0) : max(start + _SECTOR, 0)]
        if sector_data and sector_data.count(0) == len(sector_data):
            blank_offsets.append(sector)
    return blank_offsets


def has_unwritten_sector(path: Path, sectors: Iterable[int]) -> bool:
    """Return whether one of these sectors is all zeros in the file, so was never written. A disk
    writes whole sectors: if a record's last sector has any other data, such as padding or the next
    record, then it was written, and the record really ends in zeros."""
    with convert_read_errors(path), open_for_reading(path) as file:
        for sector in sectors:
            file.seek(sector)
            if not any(file.read(_SECTOR)):
                return True
    return False


def has_unwritten_ids(path: Path, offset: int, data: bytes) -> bool:
    """Return whether a later sector with a part of the record's ids or size was not written, as
    after a power loss, which is no damage. `data` is the record at `offset`, without its length."""
    blank_sectors = _find_blank_sectors(offset, offset + SIZE_FIELD_BYTES, data[:_MAX_IDS_SIZE])
    return has_unwritten_sector(path, blank_sectors[:1])


def find_torn_reason(record: JournalRecord, storage: LedgerStorage) -> str | None:
    """Return why a record with an unwritten sector must not be replayed, or None if it may be. A
    master key that ends in four zeros is torn. An entry or explicit LAC with a matching CRC is
    whole; without one it is torn if its ledger's last entry has one. If the ledger has no CRCs,
    nothing tells; then the record is replayed unless the entry is stored already."""
    if record.kind == "master_key":
        key = record.body
        return "key" if key and not any(key[-_TORN_KEY_ZEROS:]) else None
    if record.kind not in ("add", "explicit_lac") or crc_matches(record):
        return None
    if _ledger_has_crcs(storage, record.ledger):
        return "digest"
    if record.kind == "add" and _is_stored(storage, record):
        return "entry already stored"
    return None


def crc_matches(record: JournalRecord) -> bool:
    """Return whether an entry or explicit LAC has a matching CRC, so that it is whole."""
    if record.kind == "add":
        return matching_checksum(record.body) is not None
    for digest_type in CHECKSUMS:
        with suppress(CorruptionError):
            decode_explicit_lac(record.body, digest_type)
            return True
    return False


def _ledger_has_crcs(storage: LedgerStorage, ledger: LedgerId) -> bool:
    """Return whether the ledger's last entry has a matching CRC."""
    try:
        last_record = storage.read_entry(ledger)
    except SystemRefused:
        raise
    except BkstoreError:  # unknown, empty or unreadable ledger: no evidence
        return False
    return matching_checksum(last_record) is not None


def _is_stored(storage: LedgerStorage, record: JournalRecord) -> bool:
    return bool(storage.entries(record.ledger, record.entry_id, record.entry_id).size)
