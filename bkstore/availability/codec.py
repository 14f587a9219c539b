"""The encoding of a set of entry ids: `docs/formats/availability.md`.

    offset  type    field
    0       i32     version, 0
    4       i32     number of sequence groups (BP-34's text says entries; the code is right)
    8       u8[56]  zero
    64      24 x n  i64 first sequence start, i64 last sequence start,
                    i32 sequence size, i32 sequence period; ascending

All integers are big-endian. Persisted format: do not renumber. Source: BP-34 and
`AvailabilityOfEntriesOfLedger` (constants HEADER_SIZE 64, V0 = 0).
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from struct import Struct
from typing import Literal

import numpy as np

from bkstore.arguments import describe_value
from bkstore.availability.sequence_groups import INT32_MAX, Groups, count_sequences, ungroup
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.ids import MAX_ENTRY_ID

HEADER_SIZE = 64
GROUP_SIZE = 24
VERSION = 0
MAX_GROUPS = (INT32_MAX - HEADER_SIZE) // GROUP_SIZE
"""The most groups that one Java array, which a bookie sends and a client reads, can hold."""

Encoding = Literal["grouped", "bookkeeper"]
Octets = bytes | bytearray | memoryview

_FEW = 8  # groups up to which `decode_if_few` decodes
_CHUNK_ROWS = 1 << 16
"""Rows (of 24 bytes) that are encoded at a time: the memory of the intermediate arrays."""

_MAX_PART_IDS = INT32_MAX * _CHUNK_ROWS
"""Ids of one sequence in a chunk: more would be more than `_CHUNK_ROWS` rows of an i32 size."""

_HEADER, _ROW = Struct(">ii"), Struct(">qqii")
_GROUP = np.dtype([("first", ">i8"), ("last", ">i8"), ("size", ">i4"), ("period", ">i4")])
_FIRST, _LAST, _SIZE, _PERIOD = 0, 8, 16, 20  # the offsets of the fields of a group


def encode(groups: Groups, encoding: Encoding = "grouped") -> bytes:
    """Return the bytes of canonical groups. "grouped" is BP-34 as designed, O(groups); "bookkeeper"
    writes one group per sequence, as every released encoder does, O(sequences). Raises
    `InvalidArgument`, before it allocates, for more than `MAX_GROUPS`."""
    if encoding not in ("grouped", "bookkeeper"):
        given = describe_value(encoding)
        raise InvalidArgument(f"unknown encoding {given}: 'grouped' or 'bookkeeper'")
    one_row_per_sequence = encoding == "bookkeeper"
    # A group too long for the i32 size is one sequence, which is written as several rows: its size
    # divided by the largest i32, rounded up.
    is_oversized = groups.size > INT32_MAX
    oversized_row_counts = (-(-groups.size[is_oversized] // INT32_MAX)).tolist()
    count = count_sequences(groups) if one_row_per_sequence else groups.first.size
    count += sum(oversized_row_counts) - len(oversized_row_counts)
    if count > MAX_GROUPS:
        each = "one a sequence" if one_row_per_sequence else "one each"
        raise InvalidArgument(f"{count} sequence groups, {each}, exceed the limit of {MAX_GROUPS}")
    if not oversized_row_counts and not one_row_per_sequence:
        return encode_unchecked(groups)
    output = BytesIO()
    output.write(_pack_header(count))
    for chunk in _split_into_chunks(groups, one_row_per_sequence):
        if one_row_per_sequence:
            chunk = ungroup(chunk)
        output.write(_pack_rows(_cut_oversized(chunk) if oversized_row_counts else chunk))
    return output.getvalue()


def _split_into_chunks(groups: Groups, one_row_per_sequence: bool) -> Iterator[Groups]:
    """Yield the groups in chunks whose encoding is short enough to be made in memory. A group is
    encoded as one row, or with `one_row_per_sequence` as a row for each of its sequences."""
    for start in range(0, groups.first.size, _CHUNK_ROWS):
        chunk = Groups(*(column[start : start + _CHUNK_ROWS] for column in groups))
        has_few_rows = not one_row_per_sequence or count_sequences(chunk) <= 2 * _CHUNK_ROWS
        if has_few_rows and int(chunk.size.max()) <= _MAX_PART_IDS:
            yield chunk
            continue
        # Too many rows: a chunk for each group, or for each part of a long one.
        for group in np.stack(chunk, axis=1).tolist():
            for part in _split_group(group, one_row_per_sequence):
                yield Groups(*np.array([part], np.int64).T)


def _split_group(
    group: list[int], one_row_per_sequence: bool
) -> Iterator[tuple[int, int, int, int]]:
    """Yield the parts of one group (first sequence start, last sequence start, size, period), each
    a group of this form. A single sequence is cut into parts of `_MAX_PART_IDS` ids, as a size has
    32 bits; with `one_row_per_sequence` a group of several is cut into parts of `_CHUNK_ROWS`
    sequences."""
    first, last, size, period = group
    if first == last:
        for start in range(first, first + size, _MAX_PART_IDS):
            yield start, start, min(_MAX_PART_IDS, first + size - start), 0
    elif one_row_per_sequence:
        part_length = period * _CHUNK_ROWS
        for start in range(first, last + 1, part_length):
            yield start, min(last, start + part_length - period), size, period
    else:
        yield first, last, size, period


def _cut_oversized(groups: Groups) -> Groups:
    """Return the groups, with each sequence that is too long for the 32 bits of its size cut into
    several touching ones."""
    # Each result row is row number `nth` of group `owner`; most groups are one row.
    row_counts = -(-groups.size // INT32_MAX)
    owner = np.repeat(np.arange(groups.size.size), row_counts)
    nth = np.arange(owner.size) - np.repeat(np.cumsum(row_counts) - row_counts, row_counts)
    first = groups.first[owner] + nth * INT32_MAX
    size = np.minimum(groups.size[owner] - nth * INT32_MAX, INT32_MAX)
    last = np.where(row_counts[owner] > 1, first, groups.last[owner])
    return Groups(first, last, size, groups.period[owner])


def encode_unchecked(groups: Groups) -> bytes:
    """Return the header and the groups exactly as given; sizes and periods must fit i32."""
    return _pack_header(groups.first.size) + _pack_rows(groups)


def _pack_header(count: int) -> bytes:
    """Return the header: version, number of groups, and zeros."""
    return _HEADER.pack(VERSION, count) + bytes(HEADER_SIZE - _HEADER.size)


def _pack_rows(groups: Groups) -> bytes:
    """Return the bytes of the groups, a row each."""
    rows = np.empty(groups.first.size, _GROUP)
    for field, column in zip(_GROUP.names or (), groups):
        rows[field] = column
    return rows.tobytes()


def decode_unchecked(data: Octets, *, any_header: bool = False) -> Groups:
    """Return the groups as stored; checks only the header and the number of bytes. `any_header`
    accepts negative versions and counts, as BookKeeper's decoder does (a negative count is 0
    groups). Raises `CorruptionError` (offset, reason)."""
    view = _as_octets(data)
    if len(view) < HEADER_SIZE:
        reason = f"header needs {HEADER_SIZE} bytes, {len(view)} are there"
        raise CorruptionError(None, len(view), reason)
    version, count = (int(value) for value in np.frombuffer(view, ">i4", 2))
    if version > VERSION or (version < 0 and not any_header):
        raise CorruptionError(None, 0, f"unsupported header version {version}")
    if count < 0 and not any_header:
        raise CorruptionError(None, 4, f"number of sequence groups {count} is negative")
    available = (len(view) - HEADER_SIZE) // GROUP_SIZE
    if count > available:
        reason = f"{count} sequence groups announced, but bytes for {available} are there"
        raise CorruptionError(None, HEADER_SIZE + available * GROUP_SIZE, reason)
    rows = np.frombuffer(view, _GROUP, max(count, 0), HEADER_SIZE)
    return Groups(*(rows[field].astype(np.int64) for field in _GROUP.names or ()))


def _as_octets(data: Octets) -> memoryview:
    """Return a view of the bytes; raises `InvalidArgument` for anything else."""
    try:
        view = memoryview(data)
    except TypeError:
        type_name = type(data).__name__
        raise InvalidArgument(f"an encoded answer must be bytes, not {type_name}") from None
    try:
        return view.cast("B")
    except (TypeError, ValueError):  # not contiguous, or of elements that `cast` does not know
        return memoryview(view.tobytes())


def decode(data: Octets) -> Groups:
    """Return the groups, ascending and disjoint; ignores bytes after them, as BookKeeper. Raises
    `CorruptionError` (offset, reason) if they cannot be a set of entry ids."""
    return sort_and_check(decode_unchecked(data))


def sort_and_check(groups: Groups) -> Groups:
    """Return groups, given in any order, in ascending order. Raises `CorruptionError`, as `decode`,
    for a group that contradicts itself, and for groups that overlap. The offset of the error is
    that of the wrong field in the encoded bytes, in which the groups have the given order."""
    order = np.argsort(groups.first, kind="stable")
    groups = groups.take(order)
    first, last, size, period = groups
    has_many = last != first
    # Check each group by itself. `order` has its number in the bytes.
    _refuse_if(first < 0, order, _FIRST, "first sequence start is negative")
    _refuse_if(last < first, order, _LAST, "last sequence start is before the first")
    _refuse_if(size < 1, order, _SIZE, "sequence size is less than 1")
    _refuse_if(has_many & (period == 0), order, _PERIOD, "several sequences with period 0")
    _refuse_if(has_many & (period <= size), order, _PERIOD, "period does not exceed the size")
    is_off_period = (last - first) % np.maximum(period, 1) != 0
    _refuse_if(is_off_period, order, _LAST, "last start is off the period")
    _refuse_if(last > MAX_ENTRY_ID + 1 - size, order, _LAST, "entry ids beyond 2^63-2")
    # Check each group against the one before it.
    overlaps = np.zeros(order.size, np.bool_)
    overlaps[1:] = groups.ends[:-1] > first[1:]
    _refuse_if(overlaps, order, _FIRST, "sequence groups overlap")
    return groups._replace(period=np.where(has_many, period, 0))


def decode_if_few(data: Octets) -> Groups | None:
    """Return the groups of encoded bytes if these are valid, canonical, and at most 8; None for all
    others, which the caller decodes in general. This does for a striped ledger, and takes a tenth
    of the time of `decode` and `grouping.canonicalize`."""
    if not isinstance(data, (bytes, bytearray)) or len(data) < HEADER_SIZE + GROUP_SIZE:
        return None
    version, count = _HEADER.unpack_from(data)
    if version != VERSION or not 1 <= count <= _FEW or len(data) < HEADER_SIZE + count * GROUP_SIZE:
        return None
    rows = list(_ROW.iter_unpack(data[HEADER_SIZE : HEADER_SIZE + count * GROUP_SIZE]))
    previous_end, previous_period, previous_size = -1, 0, 0
    for first, last, size, period in rows:
        if first <= previous_end or size < 1 or last > MAX_ENTRY_ID + 1 - size:
            return None
        if period == 0:
            is_valid = last == first
        else:
            is_valid = last > first and period > size and (last - first) % period == 0
        if not is_valid:
            return None
        # Canonical groups are as large as possible: a sequence joins the group before it if it has
        # the same size, and that group has no period yet or the sequence follows at its period.
        distance = first - (previous_end - previous_size)
        has_no_period_yet = previous_period == 0 and distance <= INT32_MAX
        if size == previous_size and (previous_period == distance or has_no_period_yet):
            return None
        previous_end, previous_period, previous_size = last + size, period, size
    return Groups(*np.array(rows, np.int64).T)


def _refuse_if(bad: np.ndarray, order: np.ndarray, field_offset: int, reason: str) -> None:
    """Raise `CorruptionError` with the offset of a field in the first group as stored that is bad:
    group i of the sorted ones is group ``order[i]`` of those."""
    if bad.any():
        index = int(order[bad].min())
        offset = HEADER_SIZE + index * GROUP_SIZE + field_offset
        raise CorruptionError(None, offset, f"group {index}: {reason}")
