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
_MAX_PIECE_IDS = INT32_MAX * _CHUNK_ROWS
_HEADER, _ROW = Struct(">ii"), Struct(">qqii")
_GROUP = np.dtype([("first", ">i8"), ("last", ">i8"), ("size", ">i4"), ("period", ">i4")])


def encode(groups: Groups, encoding: Encoding = "grouped") -> bytes:
    """Return the bytes of canonical groups. O(groups), or O(sequences). "grouped" is BP-34 as
    designed; "bookkeeper" writes one group per sequence, as every released encoder does. Raises
    `InvalidArgument`, before it allocates, for more than `MAX_GROUPS`."""
    if encoding not in ("grouped", "bookkeeper"):
        given = describe_value(encoding)
        raise InvalidArgument(f"unknown encoding {given}: 'grouped' or 'bookkeeper'")
    ungroups = encoding == "bookkeeper"
    oversized = groups.size > INT32_MAX
    piece_counts = (-(-groups.size[oversized] // INT32_MAX)).tolist()  # each is one sequence
    count = count_sequences(groups) if ungroups else groups.first.size
    count += sum(piece_counts) - len(piece_counts)
    if count > MAX_GROUPS:
        each = "one a sequence" if ungroups else "one each"
        raise InvalidArgument(f"{count} sequence groups, {each}, exceed the limit of {MAX_GROUPS}")
    if not piece_counts and not ungroups:
        return encode_unchecked(groups)
    output = BytesIO()
    output.write(_pack_header(count))
    for chunk in _split(groups, ungroups):
        if ungroups:
            chunk = ungroup(chunk)
        output.write(_pack_rows(_cut_oversized(chunk) if piece_counts else chunk))
    return output.getvalue()


def _split(groups: Groups, ungroups: bool) -> Iterator[Groups]:
    """Yield parts that encode to a limited number of rows: many groups, or a part of a long one."""
    for start in range(0, groups.first.size, _CHUNK_ROWS):
        chunk = Groups(*(column[start : start + _CHUNK_ROWS] for column in groups))
        is_small = not ungroups or count_sequences(chunk) <= 2 * _CHUNK_ROWS
        if is_small and int(chunk.size.max()) <= _MAX_PIECE_IDS:
            yield chunk
            continue
        for row in np.stack(chunk, axis=1).tolist():
            for part in _split_row(row, ungroups):
                yield Groups(*np.array([part], np.int64).T)


def _split_row(row: list[int], ungroups: bool) -> Iterator[tuple[int, int, int, int]]:
    first, last, size, period = row
    if first == last:
        for start in range(first, first + size, _MAX_PIECE_IDS):
            yield start, start, min(_MAX_PIECE_IDS, first + size - start), 0
    elif ungroups:
        step = period * _CHUNK_ROWS
        for start in range(first, last + 1, step):
            yield start, min(last, start + step - period), size, period
    else:
        yield first, last, size, period


def _cut_oversized(groups: Groups) -> Groups:
    """Return the groups with sequences too long for the i32 size cut into touching groups."""
    counts = -(-groups.size // INT32_MAX)
    owner = np.repeat(np.arange(groups.size.size), counts)
    nth = np.arange(owner.size) - np.repeat(np.cumsum(counts) - counts, counts)
    first = groups.first[owner] + nth * INT32_MAX
    size = np.minimum(groups.size[owner] - nth * INT32_MAX, INT32_MAX)
    last = np.where(counts[owner] > 1, first, groups.last[owner])
    return Groups(first, last, size, groups.period[owner])


def encode_unchecked(groups: Groups) -> bytes:
    """Return the header and the groups exactly as given; sizes and periods must fit i32."""
    return _pack_header(groups.first.size) + _pack_rows(groups)


def _pack_header(count: int) -> bytes:
    return _HEADER.pack(VERSION, count) + bytes(HEADER_SIZE - _HEADER.size)


def _pack_rows(groups: Groups) -> bytes:
    rows = np.empty(groups.first.size, _GROUP)
    for field, column in zip(_GROUP.names or (), groups):
        rows[field] = column
    return rows.tobytes()


def decode_unchecked(data: Octets, *, any_header: bool = False) -> Groups:
    """Return the groups as stored; checks only the header and the number of bytes. `any_header`
    accepts negative versions and counts. Raises `CorruptionError` (offset, reason)."""
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
    try:
        view = memoryview(data)
    except TypeError:
        given = type(data).__name__
        raise InvalidArgument(f"an encoded answer must be bytes, not {given}") from None
    try:
        return view.cast("B")
    except (TypeError, ValueError):  # not contiguous, or of elements that `cast` does not know
        return memoryview(view.tobytes())


def decode(data: Octets) -> Groups:
    """Return the groups, ascending and disjoint; ignores bytes after them, as upstream does. Raises
    `CorruptionError` (offset, reason) if they cannot be a set of entry ids."""
    return sort_and_check(decode_unchecked(data))


def sort_and_check(groups: Groups) -> Groups:
    """Return groups in any order as ascending and disjoint ones; raises what `decode` raises."""
    order = np.argsort(groups.first, kind="stable")
    groups = groups.take(order)
    span, multi = groups.last - groups.first, groups.last != groups.first
    _refuse_if(groups.first < 0, order, 0, "first sequence start is negative")
    _refuse_if(groups.last < groups.first, order, 8, "last sequence start is before the first")
    _refuse_if(groups.size < 1, order, 16, "sequence size is less than 1")
    _refuse_if(multi & (groups.period == 0), order, 20, "several sequences with period 0")
    _refuse_if(multi & (groups.period <= groups.size), order, 20, "period does not exceed the size")
    _refuse_if(span % np.maximum(groups.period, 1) != 0, order, 8, "last start is off the period")
    _refuse_if(groups.last > MAX_ENTRY_ID + 1 - groups.size, order, 8, "entry ids beyond 2^63-2")
    overlap = np.zeros(order.size, np.bool_)
    overlap[1:] = groups.ends[:-1] > groups.first[1:]
    _refuse_if(overlap, order, 0, "sequence groups overlap")
    return groups._replace(period=np.where(multi, groups.period, 0))


def decode_if_few(data: Octets) -> Groups | None:
    """Return the canonical groups of valid bytes with at most 8 groups; None for all others. Enough
    for a striped ledger, in a tenth of the time of `decode` and `grouping.fold`."""
    if not isinstance(data, (bytes, bytearray)) or len(data) < HEADER_SIZE + GROUP_SIZE:
        return None
    version, count = _HEADER.unpack_from(data)
    if version != VERSION or not 1 <= count <= _FEW or len(data) < HEADER_SIZE + count * GROUP_SIZE:
        return None
    rows = list(_ROW.iter_unpack(data[HEADER_SIZE : HEADER_SIZE + count * GROUP_SIZE]))
    prev_end, step, prev_size = -1, 0, 0
    for first, last, size, period in rows:
        span = last - first
        if first <= prev_end or size < 1 or last > MAX_ENTRY_ID + 1 - size:
            return None
        if (span <= 0 or period <= size or span % period) if period else span:
            return None
        distance = first - (prev_end - prev_size)  # from the start of the previous sequence
        if size == prev_size and (step == distance or (step == 0 and distance <= INT32_MAX)):
            return None  # not canonical: by the greedy rule it belongs to the previous group
        prev_end, step, prev_size = last + size, period, size
    return Groups(*np.array(rows, np.int64).T)


def _refuse_if(bad: np.ndarray, order: np.ndarray, field: int, reason: str) -> None:
    if bad.any():
        i = int(order[bad].min())
        raise CorruptionError(None, HEADER_SIZE + i * GROUP_SIZE + field, f"group {i}: {reason}")
