"""Many v2 requests at once, as arrays: adds under one master key, reads of entries in a row.

A client with a window of requests sends frames that say the same but for their ids and records.
`leading_window` sees those of one size at a look, `group_requests` finds all; `add_responses` and
`read_responses` are the frames of their answers, one behind the other. Layouts are those of
`requests` and `responses`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.formats.entry import V1_HEADER, RecordBatch
from bkstore.formats.syntax.framing import Bytes, bytes_at, words, words_at
from bkstore.ids import Int64Array
from bkstore.wire.status import Status
from bkstore.wire.v2.header import CURRENT, MASTER_KEY, Flags, Opcode, PacketHeader

_PREFIX, _HEADER = 4, 4
_RECORD = _HEADER + MASTER_KEY
_READ = _HEADER + 16
_FEW = 4
"""Requests alike that are not worth arrays, which cost some 50 us a time."""

_FIELDS = np.dtype(
    [("frame", ">i4"), ("header", ">u4"), ("status", ">i4"), ("ledger", ">i8"), ("entry", ">i8")]
)
"""What each answer to an add is, and what one to a read begins with."""

_FENCING = int(Flags.DO_FENCING)


class AddRequests(NamedTuple):
    """Adds of records of scope 0 under one master key, with the same flags and version.

    `batch` has the records as they stand in the buffer; `ledgers` is int64[n].
    """

    master_key: bytes
    batch: RecordBatch
    ledgers: Int64Array
    flags: int
    version: int


class ReadRequests(NamedTuple):
    """Reads of consecutive entries of one ledger, which do not fence; int64[n], as sent."""

    ledgers: Int64Array
    entries: Int64Array
    version: int


def leading_window(
    data: bytes, most: int, enough: int
) -> tuple[int, AddRequests | ReadRequests] | tuple[int, None]:
    """Return the bytes and the requests of the frames that `data` begins with, if they are alike.

    At most `most` frames of one size, up to the one that passes `enough` bytes, which are one of
    the groups that `group_requests` finds; (0, None) where they are few or none. About 30 us, and
    10 ns a request.
    """
    frame_size = _PREFIX + int.from_bytes(data[:_PREFIX], "big")
    head = int.from_bytes(data[_PREFIX : _PREFIX + _HEADER], "big")
    if not _is_groupable(head, frame_size - _PREFIX):
        return 0, None
    count = min(len(data) // frame_size, most, enough // frame_size + 1)
    if count < _FEW:
        return 0, None
    is_read = head >> 16 & 0xFF == Opcode.READ_ENTRY
    rows = np.frombuffer(data, _frame_layout(frame_size, is_read), count)
    ledgers, entries = rows["ledger"].astype(np.int64), rows["entry"].astype(np.int64)
    fits = (ledgers >= 0) & (entries >= 0)
    for name in ("head",) if is_read else ("head", "key", "key+8", "key+16"):
        fits &= rows[name] == rows[name][0]
    if is_read:
        fits &= (ledgers == ledgers[0]) & (entries - entries[0] == np.arange(count))
    if not fits.all():
        count = int(fits.argmin())
        ledgers, entries = ledgers[:count], entries[:count]
    if count < _FEW:
        return 0, None
    if is_read:
        return count * frame_size, ReadRequests(ledgers, entries, head >> 24)
    batch = _framed_records(data, count, frame_size, entries)
    key = data[_PREFIX + _HEADER :][:MASTER_KEY]
    adds = AddRequests(key, batch, ledgers, head & 0xFFFF, head >> 24)
    return count * frame_size, adds


@lru_cache(256)
def _frame_layout(frame_size: int, is_read: bool) -> np.dtype[np.void]:
    """Return where the fields are that frames alike have: `head` is length and packet header."""
    key, ids = _PREFIX + _HEADER, _PREFIX + (_HEADER if is_read else _RECORD)
    fields = {"head": (">u8", 0), "ledger": (">i8", ids), "entry": (">i8", ids + 8)}
    if not is_read:
        fields |= {"key": (">u8", key), "key+8": (">u8", key + 8), "key+16": (">u4", key + 16)}
    formats, offsets = zip(*fields.values())
    return np.dtype(
        {"names": list(fields), "formats": formats, "offsets": offsets, "itemsize": frame_size}
    )


def _framed_records(data: bytes, count: int, frame_size: int, entries: Int64Array) -> RecordBatch:
    """Return a copy of the records of adds of one size, as journals and entry logs frame them."""
    size = frame_size - _PREFIX - _RECORD
    table = np.empty((count, _PREFIX + size), np.uint8)
    table[:, :_PREFIX] = np.frombuffer(size.to_bytes(_PREFIX, "big"), np.uint8)
    rows = np.frombuffer(data, np.uint8, count * frame_size).reshape(count, frame_size)
    table[:, _PREFIX:] = rows[:, _PREFIX + _RECORD :]
    offsets = np.arange(_PREFIX, table.size, _PREFIX + size)
    return RecordBatch.of_frames(entries, table.data.cast("B"), offsets, np.full(count, size))


def _is_groupable(head: int, size: int) -> bool:
    """Return whether a message of this packet header and size may go with its like."""
    version, opcode = head >> 24, head >> 16 & 0xFF
    if not 1 <= version <= CURRENT:
        return False
    if opcode == Opcode.READ_ENTRY:
        return size == _READ and not head & _FENCING
    return opcode == Opcode.ADD_ENTRY and size >= _RECORD + V1_HEADER


def group_requests(
    buffer: bytes, offsets: Int64Array, sizes: Int64Array
) -> Iterator[tuple[int, AddRequests | ReadRequests | None]]:
    """Yield (how many messages, the requests that they are), in order.

    Message i is ``buffer[offsets[i]:][:sizes[i]]``. None for messages that `decode_request` has
    to look at one by one: all other requests, a few alike, what is damaged. About 0.1 us each.
    """
    data = np.frombuffer(buffer, np.uint8)
    kinds = _kinds(data, offsets, sizes)
    bounds = [0, *(np.flatnonzero(_changes(data, offsets, kinds)) + 1).tolist(), len(kinds)]
    single = 0
    for start, stop in pairwise(bounds if len(kinds) else ()):
        if kinds[start] < 0 or stop - start < _FEW:
            single += stop - start
            continue
        if single:
            yield single, None
            single = 0
        part = slice(start, stop)
        yield stop - start, _requests(data, buffer, int(kinds[start]), offsets[part], sizes[part])
    if single:
        yield single, None


def _kinds(data: Bytes, offsets: Int64Array, sizes: Int64Array) -> Int64Array:
    """Return the packet header of each message that may go with its like, -1 for others."""
    kinds = np.full(offsets.size, -1, np.int64)
    sizes = sizes[: offsets.size]
    long = np.flatnonzero(sizes >= _READ)
    heads = words_at(data, ">u4")[offsets[long]].astype(np.int64)
    versions, opcodes = heads >> 24, heads >> 16 & 0xFF
    known = (versions >= 1) & (versions <= CURRENT)
    reads = known & (opcodes == Opcode.READ_ENTRY) & (sizes[long] == _READ)
    reads &= heads & _FENCING == 0
    reads[reads] = _are_positive(data, offsets[long[reads]] + _HEADER)
    adds = known & (opcodes == Opcode.ADD_ENTRY) & (sizes[long] >= _RECORD + V1_HEADER)
    adds[adds] = _are_positive(data, offsets[long[adds]] + _RECORD)
    fit = reads | adds
    kinds[long[fit]] = heads[fit]
    return kinds


def _are_positive(data: Bytes, places: Int64Array) -> npt.NDArray[np.bool_]:
    """Return whether ledger and entry id, which stand at each place, are not negative."""
    positive: npt.NDArray[np.bool_] = (data[places] < 0x80) & (data[places + 8] < 0x80)
    return positive


def _changes(data: Bytes, offsets: Int64Array, kinds: Int64Array) -> npt.NDArray[np.bool_]:
    """Return for each message but the first whether it is of another group than the one before."""
    changes = kinds[1:] != kinds[:-1]
    opcodes = np.where(kinds < 0, 0, kinds >> 16 & 0xFF)
    adds = np.flatnonzero((opcodes[1:] == Opcode.ADD_ENTRY) & ~changes)
    if adds.size:
        keys = [bytes_at(data, offsets[rows] + _HEADER, MASTER_KEY) for rows in (adds, adds + 1)]
        changes[adds] = (keys[0] != keys[1]).any(axis=1)
    reads = np.flatnonzero((opcodes[1:] == Opcode.READ_ENTRY) & ~changes)
    if reads.size:
        before, behind = offsets[reads] + _HEADER, offsets[reads + 1] + _HEADER
        changes[reads] = words(data, before) != words(data, behind)
        changes[reads] |= words(data, before, 8) + 1 != words(data, behind, 8)
    return np.asarray(changes, np.bool_)


def _requests(
    data: Bytes, buffer: bytes, head: int, offsets: Int64Array, sizes: Int64Array
) -> AddRequests | ReadRequests:
    version, opcode, flags = head >> 24, head >> 16 & 0xFF, head & 0xFFFF
    if opcode == Opcode.READ_ENTRY:
        ids = (words(data, offsets, _HEADER), words(data, offsets, _HEADER + 8))
        return ReadRequests(*ids, version)
    first = int(offsets[0]) + _HEADER
    places = offsets + _RECORD
    batch = RecordBatch(words(data, places, 8), buffer, places, sizes - _RECORD)
    key = buffer[first : first + MASTER_KEY]
    return AddRequests(key, batch, words(data, places), flags, version)


def add_responses(version: int, status: Status, ledgers: Int64Array, entries: Int64Array) -> bytes:
    """Return the frames of answers to adds, all with one status. Some 10 ns each.

    >>> add_responses(2, Status.EOK, np.array([7]), np.array([3])).hex(" ", 4)
    '00000018 02010000 00000000 00000000 00000007 00000000 00000003'
    """
    return _fields(version, Opcode.ADD_ENTRY, status, ledgers, entries).tobytes()


def read_responses(
    version: int, ledgers: Int64Array, entries: Int64Array, batch: RecordBatch
) -> bytes:
    """Return the frames of answers to reads that found the records of a batch, in its order.

    Some 30 ns each where records are of one size, 300 where not.
    """
    fields = _fields(version, Opcode.READ_ENTRY, Status.EOK, ledgers, entries)
    fields["frame"] += batch.sizes
    size = int(batch.sizes[0])
    if (batch.sizes != size).any():
        parts: list[bytes] = [b""] * (2 * len(batch))
        parts[::2], parts[1::2] = fields.view(f"V{_FIELDS.itemsize}").tolist(), batch.records()
        return b"".join(parts)
    table = np.empty((len(batch), _FIELDS.itemsize + size), np.uint8)
    table[:, : _FIELDS.itemsize] = fields.view(np.uint8).reshape(len(batch), -1)
    table[:, _FIELDS.itemsize :] = bytes_at(
        np.frombuffer(batch.buffer, np.uint8), batch.offsets, size
    )
    return table.tobytes()


def _fields(
    version: int, opcode: Opcode, status: Status, ledgers: Int64Array, entries: Int64Array
) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    fields = np.empty(ledgers.size, _FIELDS)
    header = int.from_bytes(PacketHeader(version, opcode).to_bytes(), "big")
    fields["frame"], fields["header"] = _FIELDS.itemsize - 4, header
    fields["status"], fields["ledger"], fields["entry"] = status.v2, ledgers, entries
    return fields
