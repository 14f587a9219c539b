"""Blank sectors: what a crash left of journal records that were not synced yet.

A disk writes sectors whole or not at all, and in any order. One that was not written reads as
zeros where the file was preallocated, or became that long.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from bkstore.files.opening import opened
from bkstore.files.os_errors import readable
from bkstore.formats.entry import RecordBatch
from bkstore.formats.journal import JournalRecord
from bkstore.formats.syntax.framing import PREFIX, bytes_at
from bkstore.ids import Int64Array

_SECTOR = 512
_LONGEST_IDS = 29 + PREFIX
"""Flags, scope, ledger, entry and the size of a body: what a record cannot be read without."""


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
    behind = 0 if record.kind == "add" else 20 if record.ledger.scope == 0 else 29
    return _blank(offset, offset + PREFIX + behind, record.body)


def _blank(offset: int, start: int, data: bytes) -> list[int]:
    """Return the later sectors of the record at `offset` in which `data`, from `start` on, is
    nothing but zeros."""
    found = []
    for sector in range((offset // _SECTOR + 1) * _SECTOR, start + len(data), _SECTOR):
        part = data[max(sector - start, 0) : max(sector + _SECTOR - start, 0)]
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


def lacks_ids(path: Path, offset: int, data: bytes) -> bool:
    """Return whether a sector was not written that the ids or the size of a record reach into.

    `data` is the record at `offset`, without its length. A record of which no more was written
    cannot be read, and is no damage: a power loss leaves such.
    """
    return is_unwritten(path, _blank(offset, offset + PREFIX, data[:_LONGEST_IDS])[:1])
