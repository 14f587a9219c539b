"""Many v2 requests at once, as arrays: adds under one master key, reads of consecutive entries.

A client with a window of requests sends frames that differ only in their ids and records.
`decode_leading_group` decodes those of one size at the front, which is fast; `group_requests` finds
all groups. `encode_add_responses` and `encode_read_responses` encode their answers. Layouts:
`requests`, `responses`. A scope is the upper 64 bits of a 128-bit ledger id; BookKeeper's ledgers
are in scope 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.formats.entry import V1_HEADER, RecordBatch
from bkstore.formats.syntax.framing import Bytes, bytes_at, integers_at_every_offset, read_int64s
from bkstore.ids import Int64Array
from bkstore.wire.status_codes import Status
from bkstore.wire.v2.header import CURRENT_VERSION, MASTER_KEY_LENGTH, Flags, Opcode, PacketHeader

_PREFIX_SIZE, _HEADER_SIZE = 4, 4
_RECORD_OFFSET = _HEADER_SIZE + MASTER_KEY_LENGTH
_READ_SIZE = _HEADER_SIZE + 16
_MIN_GROUP = 4
"""The fewest similar requests that are decoded as arrays, which costs about 50 us each time."""

_RESPONSE = np.dtype(
    [("length", ">i4"), ("header", ">u4"), ("status", ">i4"), ("ledger", ">i8"), ("entry", ">i8")]
)
"""The frame of an answer to an add, and the first fields of that to a read."""

_FENCING = int(Flags.DO_FENCING)


class AddRequests(NamedTuple):
    """Adds of records in scope 0 with the same master key, flags and version. `batch` refers to the
    records in the received buffer, or in a copy; `ledger_ids` is int64[n]."""

    master_key: bytes
    batch: RecordBatch
    ledger_ids: Int64Array
    flags: int
    version: int


class ReadRequests(NamedTuple):
    """Reads of consecutive entries of one ledger, without fencing; int64[n], as sent."""

    ledger_ids: Int64Array
    entry_ids: Int64Array
    version: int


def decode_leading_group(
    data: bytes, max_count: int, target_bytes: int
) -> tuple[int, AddRequests | ReadRequests] | tuple[int, None]:
    """Return the byte count and the requests of similar frames at the front of `data`, or (0, None)
    if fewer than `_MIN_GROUP` are. Similar frames have one size and packet header, and are adds
    with one master key, or reads of consecutive entries of one ledger. Takes at most `max_count`
    frames, up to the one that passes `target_bytes`. About 30 us, and 10 ns a request."""
    frame_size = _PREFIX_SIZE + int.from_bytes(data[:_PREFIX_SIZE], "big")
    header = int.from_bytes(data[_PREFIX_SIZE : _PREFIX_SIZE + _HEADER_SIZE], "big")
    if not _is_groupable(header, frame_size - _PREFIX_SIZE):
        return 0, None
    # view all frames as rows with the layout of the first
    count = min(len(data) // frame_size, max_count, target_bytes // frame_size + 1)
    if count < _MIN_GROUP:
        return 0, None
    is_read = header >> 16 & 0xFF == Opcode.READ_ENTRY
    rows = np.frombuffer(data, _frame_layout(frame_size, is_read), count)
    ledgers, entries = rows["ledger"].astype(np.int64), rows["entry"].astype(np.int64)
    # keep the rows before the first that differs from row 0, or is not the next entry to read
    is_similar = (ledgers >= 0) & (entries >= 0)
    # the 20 bytes of a master key are three integers
    for field in ("head",) if is_read else ("head", "key", "key+8", "key+16"):
        is_similar &= rows[field] == rows[field][0]
    if is_read:
        is_similar &= (ledgers == ledgers[0]) & (entries - entries[0] == np.arange(count))
    if not is_similar.all():
        count = int(is_similar.argmin())
        ledgers, entries = ledgers[:count], entries[:count]
    if count < _MIN_GROUP:
        return 0, None
    if is_read:
        return count * frame_size, ReadRequests(ledgers, entries, header >> 24)
    batch = _framed_records(data, count, frame_size, entries)
    master_key = data[_PREFIX_SIZE + _HEADER_SIZE :][:MASTER_KEY_LENGTH]
    adds = AddRequests(master_key, batch, ledgers, header & 0xFFFF, header >> 24)
    return count * frame_size, adds


@lru_cache(256)
def _frame_layout(size: int, is_read: bool) -> np.dtype[np.void]:
    """Return the layout of similar frames, as integers, which compare fast: `head` is length and
    packet header together, `key`, `key+8` and `key+16` are the bytes of the master key."""
    key_offset = _PREFIX_SIZE + _HEADER_SIZE
    ids_offset = _PREFIX_SIZE + (_HEADER_SIZE if is_read else _RECORD_OFFSET)
    fields = {"head": (">u8", 0), "ledger": (">i8", ids_offset), "entry": (">i8", ids_offset + 8)}
    if not is_read:
        fields |= {"key": (">u8", key_offset), "key+8": (">u8", key_offset + 8)}
        fields["key+16"] = (">u4", key_offset + 16)
    names, (formats, offsets) = list(fields), zip(*fields.values())
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


def _framed_records(data: bytes, count: int, frame_size: int, entry_ids: Int64Array) -> RecordBatch:
    """Return a copy of the records of adds of one size, each with its length before it."""
    # Frames of one size are rows of a table (uint8[count, frame_size]); the record begins at the
    # same column in each.
    record_size = frame_size - _PREFIX_SIZE - _RECORD_OFFSET
    table = np.empty((count, _PREFIX_SIZE + record_size), np.uint8)
    table[:, :_PREFIX_SIZE] = np.frombuffer(record_size.to_bytes(_PREFIX_SIZE, "big"), np.uint8)
    frames = np.frombuffer(data, np.uint8, count * frame_size).reshape(count, frame_size)
    table[:, _PREFIX_SIZE:] = frames[:, _PREFIX_SIZE + _RECORD_OFFSET :]
    offsets = np.arange(_PREFIX_SIZE, table.size, _PREFIX_SIZE + record_size)
    sizes = np.full(count, record_size)
    return RecordBatch.of_frames(entry_ids, table.data.cast("B"), offsets, sizes)


def _is_groupable(header: int, size: int) -> bool:
    """Return whether a message can be in a group: an add of a record, or a read without fencing."""
    version, opcode = header >> 24, header >> 16 & 0xFF
    if not 1 <= version <= CURRENT_VERSION:
        return False
    if opcode == Opcode.READ_ENTRY:
        return size == _READ_SIZE and not header & _FENCING
    return opcode == Opcode.ADD_ENTRY and size >= _RECORD_OFFSET + V1_HEADER


def group_requests(
    buffer: bytes, offsets: Int64Array, sizes: Int64Array
) -> Iterator[tuple[int, AddRequests | ReadRequests | None]]:
    """Yield pairs of a message count and the requests in those messages, in order. Message i is
    ``buffer[offsets[i]:][:sizes[i]]``. The requests are None for messages to decode by
    `decode_request`: other requests, small groups, damaged messages. About 0.1 us each."""
    # `bounds` separate the groups, or runs of messages that cannot be in one (header -1).
    data = np.frombuffer(buffer, np.uint8)
    headers = _group_headers(data, offsets, sizes)
    starts = np.flatnonzero(_starts_group(data, offsets, headers)) + 1
    bounds = [0, *starts.tolist(), len(headers)]
    ungrouped_count = 0
    for start, stop in pairwise(bounds if len(headers) else ()):
        if headers[start] < 0 or stop - start < _MIN_GROUP:
            ungrouped_count += stop - start
            continue
        if ungrouped_count:
            yield ungrouped_count, None
            ungrouped_count = 0
        rows = slice(start, stop)
        group = _decode_group(data, buffer, int(headers[start]), offsets[rows], sizes[rows])
        yield stop - start, group
    if ungrouped_count:
        yield ungrouped_count, None


def _group_headers(data: Bytes, offsets: Int64Array, sizes: Int64Array) -> Int64Array:
    """Return the packet header of each message that can be part of a group, -1 for others."""
    group_headers = np.full(offsets.size, -1, np.int64)
    # Only messages that are long enough for a header and ids.
    long_rows = np.flatnonzero(sizes >= _READ_SIZE)
    offsets, sizes = offsets[long_rows], sizes[long_rows]
    headers = integers_at_every_offset(data, ">u4")[offsets].astype(np.int64)
    versions, opcodes = headers >> 24, headers >> 16 & 0xFF
    # Each kind of request by its header and size; of these, those with ids that are not negative.
    is_known_version = (versions >= 1) & (versions <= CURRENT_VERSION)
    is_read = is_known_version & (opcodes == Opcode.READ_ENTRY) & (sizes == _READ_SIZE)
    is_read &= headers & _FENCING == 0
    is_read[is_read] = _have_valid_ids(data, offsets[is_read] + _HEADER_SIZE)
    is_add = is_known_version & (opcodes == Opcode.ADD_ENTRY)
    is_add &= sizes >= _RECORD_OFFSET + V1_HEADER
    is_add[is_add] = _have_valid_ids(data, offsets[is_add] + _RECORD_OFFSET)
    is_groupable = is_read | is_add
    group_headers[long_rows[is_groupable]] = headers[is_groupable]
    return group_headers


def _have_valid_ids(data: Bytes, id_offsets: Int64Array) -> npt.NDArray[np.bool_]:
    """Return whether the ledger and the entry id at each offset are not negative."""
    is_valid: npt.NDArray[np.bool_] = (data[id_offsets] < 0x80) & (data[id_offsets + 8] < 0x80)
    return is_valid


def _starts_group(data: Bytes, offsets: Int64Array, headers: Int64Array) -> npt.NDArray[np.bool_]:
    """Return for each message but the first whether it starts a new group."""
    is_new = headers[1:] != headers[:-1]
    opcodes = np.where(headers < 0, 0, headers >> 16 & 0xFF)  # no opcode without a valid header
    # an add with the header of the one before starts a group if its master key is another
    add_rows = np.flatnonzero((opcodes[1:] == Opcode.ADD_ENTRY) & ~is_new)
    if add_rows.size:
        key_offsets = offsets + _HEADER_SIZE
        keys_before = bytes_at(data, key_offsets[add_rows], MASTER_KEY_LENGTH)
        keys_after = bytes_at(data, key_offsets[add_rows + 1], MASTER_KEY_LENGTH)
        is_new[add_rows] = (keys_before != keys_after).any(axis=1)
    # a read with the header of the one before starts a group unless it is of the next entry
    read_rows = np.flatnonzero((opcodes[1:] == Opcode.READ_ENTRY) & ~is_new)
    if read_rows.size:
        ids_before = offsets[read_rows] + _HEADER_SIZE
        ids_after = offsets[read_rows + 1] + _HEADER_SIZE
        is_new[read_rows] = read_int64s(data, ids_before) != read_int64s(data, ids_after)
        is_new[read_rows] |= read_int64s(data, ids_before, 8) + 1 != read_int64s(data, ids_after, 8)
    return np.asarray(is_new, np.bool_)


def _decode_group(
    data: Bytes, buffer: bytes, header: int, offsets: Int64Array, sizes: Int64Array
) -> AddRequests | ReadRequests:
    """Return the requests of messages, at `offsets` of `buffer`, that have the same packet header
    and, for adds, the same master key. `data` is `buffer` as an array."""
    # The header has version (8 bits), opcode (8) and flags (16).
    version, opcode, flags = header >> 24, header >> 16 & 0xFF, header & 0xFFFF
    ids_offset = _HEADER_SIZE if opcode == Opcode.READ_ENTRY else _RECORD_OFFSET
    ledgers = read_int64s(data, offsets, ids_offset)
    entries = read_int64s(data, offsets, ids_offset + 8)
    if opcode == Opcode.READ_ENTRY:
        return ReadRequests(ledgers, entries, version)
    batch = RecordBatch(entries, buffer, offsets + _RECORD_OFFSET, sizes - _RECORD_OFFSET)
    master_key = buffer[int(offsets[0]) + _HEADER_SIZE :][:MASTER_KEY_LENGTH]
    return AddRequests(master_key, batch, ledgers, flags, version)


def encode_add_responses(
    version: int, status: Status, ledger_ids: Int64Array, entry_ids: Int64Array
) -> bytes:
    """Return the frames of the answers to adds, all with one status. About 10 ns each.

    >>> encode_add_responses(2, Status.EOK, np.array([7]), np.array([3])).hex(" ", 4)
    '00000018 02010000 00000000 00000000 00000007 00000000 00000003'
    """
    return _response_fields(version, Opcode.ADD_ENTRY, status, ledger_ids, entry_ids).tobytes()


def encode_read_responses(
    version: int, ledger_ids: Int64Array, entry_ids: Int64Array, batch: RecordBatch
) -> bytes:
    """Return the frames of the answers to reads whose records are those of the batch, in order.
    A frame is an answer's fixed fields, then its record. About 30 ns each if the records have one
    size, otherwise 300."""
    fields = _response_fields(version, Opcode.READ_ENTRY, Status.EOK, ledger_ids, entry_ids)
    fields["length"] += batch.sizes
    record_size = int(batch.sizes[0])
    if (batch.sizes != record_size).any():  # of several sizes: join fields and records in turn
        parts: list[bytes] = [b""] * (2 * len(batch))
        parts[::2] = fields.view(f"V{_RESPONSE.itemsize}").tolist()
        parts[1::2] = batch.records()
        return b"".join(parts)
    # of one size: a table with a row of bytes for each frame, filled by columns
    buffer = np.frombuffer(batch.buffer, np.uint8)
    table = np.empty((len(batch), _RESPONSE.itemsize + record_size), np.uint8)
    table[:, : _RESPONSE.itemsize] = fields.view(np.uint8).reshape(len(batch), -1)
    table[:, _RESPONSE.itemsize :] = bytes_at(buffer, batch.offsets, record_size)
    return table.tobytes()


def _response_fields(
    version: int, opcode: Opcode, status: Status, ledger_ids: Int64Array, entry_ids: Int64Array
) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """Return the fields of answers as an array, with frame lengths that count no record."""
    fields = np.empty(ledger_ids.size, _RESPONSE)
    header = int.from_bytes(PacketHeader(version, opcode).to_bytes(), "big")
    fields["length"], fields["header"] = _RESPONSE.itemsize - _PREFIX_SIZE, header
    fields["status"], fields["ledger"], fields["entry"] = status.v2, ledger_ids, entry_ids
    return fields
