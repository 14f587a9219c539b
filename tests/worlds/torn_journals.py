"""Journals of which a crash left a record up to a sector's end."""

from __future__ import annotations

import struct
from pathlib import Path

from bkstore import Bookie
from bkstore.formats.entry import Entry, encode
from bkstore.formats.syntax.framing import SIZE_FIELD_BYTES
from bkstore.storage.journal import list_journal_files, scan_journal
from bkstore.storage.options import JournalOptions

__all__ = ["KEY", "SECTOR", "first_record", "torn_inside"]

KEY = b"k" * 20
SECTOR = 512


def first_record() -> bytes:
    """Return the entry that is whole in each: 0 of ledger 7."""
    return encode(Entry(7, 0, -1, 5, b"first"), "CRC32C", "pw")


def torn_inside(top: Path, record: bytes, there: int, behind: bytes = b"") -> int:
    """Leave a bookie's journal with a key, an entry, and the first `there` bytes of one frame more,
    up to a sector's end; return the last one's offset. `behind` are the sectors that follow."""
    with Bookie.open(top, "sorted", journal=JournalOptions(preallocate=0)) as bookie:
        bookie.add_entry(first_record(), KEY)
        bookie.close(checkpoint=False)
    _, path = list_journal_files(top / "journal" / "current")[-1]
    data = path.read_bytes()
    end = max(offset + SIZE_FIELD_BYTES + len(found) for offset, found in scan_journal(path))
    sector = (end // SECTOR + 2) * SECTOR
    offset = sector - there
    gap = struct.pack(">ii", -0x100, offset - end - 8) + bytes(offset - end - 8)
    frame = struct.pack(">i", len(record)) + record
    path.write_bytes(data[:end] + gap + frame[:there] + (behind or bytes(4 * SECTOR)))
    return offset
