"""What can be read out of one entry log, damaged or not, and a fresh log of it.

A scan finds records by their sizes. The old index knows more: where records begin that a wrong
size leads over, and which of the records scanned are where they should be. So both are asked.
A fresh log has the header, the records as they lie in the old one, less the damage between them,
and a ledgers map. Its id is the old one's.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.errors import BkstoreError, CorruptionError
from bkstore.files.disk_changes import Files
from bkstore.files.os_errors import syncing, writing
from bkstore.formats.entry import V1_HEADER, V2_HEADER, record_header, rows_of_ledgers
from bkstore.formats.entrylog import (
    HEADER_SIZE,
    MAP_FIELDS_OFFSET,
    PREFIX,
    VERSION_1,
    VERSION_2,
    LogHeader,
    encode_header,
    encode_ledgers_map,
    encode_map_fields,
)
from bkstore.ids import MAX_ENTRY_ID, Int64Array, LedgerId, positions
from bkstore.index.api import Finding, IndexBatch
from bkstore.storage.directories.file_listing import LogFile
from bkstore.storage.entry_log.open_log import HARD_LIMIT
from bkstore.storage.entry_log.resync import LogBytes, look
from bkstore.storage.entry_log.scan import scan_log

_COPY = 4 << 20
_HEAD = PREFIX + V2_HEADER


class LostBytes(NamedTuple):
    """A stretch of a log that holds nothing that can be read."""

    offset: int
    bytes: int
    why: str = "no record can be read there"


@dataclass
class LogRecords:
    """The records of a log by position, int64[n] each, as `LogBatch` has them.

    `confirmed` says which of them the old index names; `missing` has its rows that no record
    bears out. `hidden` counts records that the index found and the scan did not. `damaged` says
    whether a copy of the log would carry damage over, `lost` which stretches between the records
    hold nothing; where the log is `unreadable`, that is all of it.
    """

    scope_id: Int64Array
    ledger_id: Int64Array
    entry_id: Int64Array
    position: Int64Array
    size: Int64Array
    confirmed: npt.NDArray[np.bool_]
    missing: IndexBatch
    hidden: int = 0
    lost: list[LostBytes] = field(default_factory=list)
    damaged: bool = False
    unreadable: bool = False

    def rows(self, dir_index: int, log_id: int, located: Int64Array) -> IndexBatch:
        """Return the records as rows, with these positions."""
        directory = np.full(located.size, dir_index, np.int64)
        place = (np.int64(log_id) << np.int64(32)) | located
        return IndexBatch(directory, self.scope_id, self.ledger_id, self.entry_id, place)


def read_records(
    log: LogFile, old: IndexBatch, findings: list[Finding], most: int = MAX_ENTRY_ID
) -> LogRecords:
    """Return what a scan finds in a log, held against the rows `old` of the index into it.

    `add_hidden_records` goes on from there. Entries above `most` are left out, as no index has a
    place for them. Damage is told in `findings`; a log that cannot be read at all has no records.
    Memory: some 100 bytes a record.
    """
    met: list[Finding] = []
    columns: list[tuple[Int64Array, ...]] = []
    unreadable = False
    try:
        for batch in scan_log(log.path, met):
            keep = np.flatnonzero(batch.entry_id <= most)
            some = batch if keep.size == len(batch) else batch.where(keep)
            ids = (some.scope_id, some.ledger_id, some.entry_id)
            # Copies: views would keep the window that they were read from.
            columns.append(tuple(map(np.array, (*ids, some.position, some.size))))
    except BkstoreError as error:
        met.append(Finding.of(error))
        unreadable = not columns
    findings += met
    empty = tuple(np.empty(0, np.int64) for _ in range(5))
    scope, ledger, entry, position, size = map(np.concatenate, zip(*(columns or [empty])))
    borne, rest = _borne_out((scope, ledger, entry, position), old)
    found = LogRecords(scope, ledger, entry, position, size, borne, rest)
    found.unreadable = unreadable
    found.damaged = any(finding.severity == "damage" for finding in met)
    return found


def _borne_out(
    scanned: tuple[Int64Array, ...], old: IndexBatch
) -> tuple[npt.NDArray[np.bool_], IndexBatch]:
    """Return which records the index names, and its rows that name none of them."""
    scope, ledger, entry, position = scanned
    wanted = positions(old.location)
    borne = np.zeros(position.size, np.bool_)
    if not position.size or not wanted.size:
        return borne, old
    at = np.minimum(np.searchsorted(position, wanted), position.size - 1)
    fits = (position[at] == wanted) & (entry[at] == old.entry_id)
    fits &= (ledger[at] == old.ledger_id) & (scope[at] == old.scope_id)
    borne[at[fits]] = True
    return borne, IndexBatch(*(column[~fits] for column in old))


def add_hidden_records(data: LogBytes, found: LogRecords, most: int) -> None:
    """Add the records that the index names and the scan passed over; note what bytes are lost.

    Cost: a read for each row that the scan did not bear out, in the order of the log.
    """
    _add_hidden(data, found, most)
    found.damaged |= found.hidden > 0
    found.lost = _lost(data, found) if found.damaged else []


def _add_hidden(data: LogBytes, found: LogRecords, most: int) -> None:
    rest = found.missing
    sizes = np.zeros(rest.location.size, np.int64)
    names = zip(rest.scope_id.tolist(), rest.ledger_id.tolist(), rest.entry_id.tolist())
    for at, (place, name) in enumerate(zip(positions(rest.location).tolist(), names)):
        sizes[at] = _size_at(data, place, name) if name[2] <= most else 0
    there = np.flatnonzero(sizes)
    if not there.size:
        return
    new = (rest.scope_id, rest.ledger_id, rest.entry_id, positions(rest.location), sizes)
    old = (found.scope_id, found.ledger_id, found.entry_id, found.position, found.size)
    order = np.argsort(np.concatenate((found.position, new[3][there])), kind="stable")
    joined = [np.concatenate((one, other[there]))[order] for one, other in zip(old, new)]
    found.scope_id, found.ledger_id, found.entry_id, found.position, found.size = joined
    found.confirmed = np.concatenate((found.confirmed, np.ones(there.size, np.bool_)))[order]
    found.missing = IndexBatch(*(column[sizes == 0] for column in rest))
    found.hidden = int(there.size)


def _size_at(data: LogBytes, position: int, name: tuple[int, int, int]) -> int:
    """Return the size of the record at a position, 0 where it is none, or another entry's."""
    start = position - PREFIX
    if start < HEADER_SIZE or position + V1_HEADER > data.size:
        return 0
    try:
        head = data.peek(start, _HEAD)
        size = int.from_bytes(head[:PREFIX], "big", signed=True)
        if not V1_HEADER <= size <= data.size - position:
            return 0
        header = record_header(head[PREFIX : PREFIX + size])
    except CorruptionError:
        return 0
    return size if (*header.ledger.signed, header.entry_id) == name else 0


def _lost(data: LogBytes, found: LogRecords) -> list[LostBytes]:
    """Return the stretches between the records that are neither padding nor a ledgers map."""
    starts = np.append(found.position - PREFIX, data.size)
    ends = np.concatenate(([HEADER_SIZE], np.maximum.accumulate(found.position + found.size)))
    lost = []
    for at in np.flatnonzero(starts > ends).tolist():
        begin, end = int(ends[at]), int(starts[at])
        while begin < end:
            place = look(data, begin)
            if place.kind not in ("frame", "padding", "zeros") or place.end > end:
                lost.append(LostBytes(begin, end - begin))
                break
            begin = place.end
    return lost


def fresh_positions(found: LogRecords) -> Int64Array:
    """Return where the records lie in a fresh log, int64[n]."""
    placed: Int64Array = HEADER_SIZE + np.cumsum(found.size + PREFIX) - found.size
    return placed


def write_fresh(
    data: LogBytes,
    target: Path,
    found: LogRecords,
    files: Files,
) -> int:
    """Write the records of the log `data` into a fresh one, durably but for its name; return its
    bytes.

    They lie at `fresh_positions`. Neighbours are copied together. A map that would not fit below
    2^31-1 bytes is left out, as a bookie does. `WriteFailed` where the system refuses.
    """
    version = VERSION_2 if np.any(found.scope_id) else VERSION_1
    with writing(target):
        fd = files.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with writing(target):
            files.pwrite(fd, encode_header(LogHeader(version)), 0)
        end = _copy_frames(data, target, fd, found, files)
        sizes = _bytes_of_each(found)
        ledgers_map = encode_ledgers_map(sizes)
        if ledgers_map and end + len(ledgers_map) <= HARD_LIMIT:
            with writing(target):
                files.pwrite(fd, ledgers_map, end)
                files.pwrite(fd, encode_map_fields(end, len(sizes)), MAP_FIELDS_OFFSET)
            end += len(ledgers_map)
        with syncing(target):
            files.fsync(fd)
    finally:
        files.close(fd)
    return end


def _copy_frames(
    data: LogBytes,
    target: Path,
    fd: int,
    found: LogRecords,
    files: Files,
) -> int:
    """Copy all frames, one behind the other; return where they end."""
    starts, ends = found.position - PREFIX, found.position + found.size
    opens = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    first = np.concatenate(([0], opens)) if starts.size else opens
    last = np.append(opens, starts.size) - 1 if starts.size else opens
    out = HEADER_SIZE
    for begin, end in zip(starts[first].tolist(), ends[last].tolist()):
        while begin < end:
            piece = data.peek(begin, min(end - begin, _COPY))
            with writing(target):
                files.pwrite(fd, piece, out)
            begin, out = begin + len(piece), out + len(piece)
    return out


def _bytes_of_each(found: LogRecords) -> dict[LedgerId, int]:
    return {
        name: int(found.size[rows].sum()) + PREFIX * rows.size
        for name, rows in rows_of_ledgers(found.scope_id, found.ledger_id)
    }
