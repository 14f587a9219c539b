"""Many v2 requests at once, as arrays: adds under one master key, reads of entries in a row.

A client with a window of requests sends frames that say the same but for their ids and records.
`group_requests` finds them in what was received; `add_responses` and `read_responses` are the
frames of their answers, one behind the other. Layouts are those of `requests` and `responses`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.formats.entry import V1_HEADER, RecordBatch
from bkstore.formats.syntax.framing import Bytes, bytes_at, words, words_at
from bkstore.ids import Int64Array
from bkstore.wire.status import Status
from bkstore.wire.v2.header import CURRENT, MASTER_KEY, Flags, Opcode, PacketHeader

__all__ = ["AddRequests", "ReadRequests", "add_responses", "group_requests", "read_responses"]

_HEADER = 4
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


def group_requests(
    buffer: bytes, offsets: Int64Array, sizes: Int64Array
) -> Iterator[tuple[int, AddRequests | ReadRequests | None]]:
    """Yield (how many messages, the requests that they are), in order.

    Message i is ``buffer[offsets[i]:][:sizes[i]]``. None for messages that `decode_request` has
    to look at one by one: all other requests, a few alike, what is damaged. About 0.1 us each.
    """
    data = np.frombuffer(buffer, np.uint8)
    if _all_alike(data, offsets, sizes):
        head = int.from_bytes(buffer[int(offsets[0]) :][:_HEADER], "big")
        yield offsets.size, _requests(data, buffer, head, offsets, sizes)
        return
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


def _all_alike(data: Bytes, offsets: Int64Array, sizes: Int64Array) -> bool:
    """Return whether all messages are one group, as a client's window is: a quick look.

    Only where they are of one size, and equally far apart.
    """
    if offsets.size < _FEW or (sizes != sizes[0]).any() or _kinds(data, offsets[:1], sizes)[0] < 0:
        return False
    step = int(offsets[1] - offsets[0])
    if (offsets[1:] - offsets[:-1] != step).any():
        return False
    is_read = int(sizes[0]) == _READ
    equal, ids = (_HEADER + 8, _HEADER) if is_read else (_RECORD, _RECORD)
    table = np.ndarray((offsets.size, ids + 16), np.uint8, data, int(offsets[0]), strides=(step, 1))
    if (table[:, :equal] != table[0, :equal]).any() or (table[:, [ids, ids + 8]] >= 0x80).any():
        return False
    entries = words(data, offsets, ids + 8)
    return not is_read or bool((entries[1:] - entries[:-1] == 1).all())


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
