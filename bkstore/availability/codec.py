"""The bytes of an availability answer: `docs/formats/availability.md`.

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

from bkstore.arguments import shown
from bkstore.availability.sequence_groups import INT32_MAX, Groups, sequence_count, sequences
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.ids import MAX_ENTRY_ID

HEADER_SIZE = 64
GROUP_SIZE = 24
VERSION = 0
MOST_GROUPS = (INT32_MAX - HEADER_SIZE) // GROUP_SIZE
"""Groups of one answer: a Java array, which a bookie sends and a client reads, holds no more."""

Encoding = Literal["grouped", "bookkeeper"]

_FEW = 8
_AT_A_TIME = 1 << 16
_LONGEST_CUT = INT32_MAX * _AT_A_TIME
_HEADER, _ROW = Struct(">ii"), Struct(">qqii")
_GROUP = np.dtype([("first", ">i8"), ("last", ">i8"), ("size", ">i4"), ("period", ">i4")])


def encode(groups: Groups, encoding: Encoding = "grouped") -> bytes:
    """Return the bytes of canonical groups.

    "grouped" is BP-34 as designed; "bookkeeper" writes one group per sequence, which is what
    every released encoder does (it never joins two sequences). O(groups), or O(sequences).
    Raises `InvalidArgument`, before it allocates, for more than `MOST_GROUPS`.
    """
    if encoding not in ("grouped", "bookkeeper"):
        raise InvalidArgument(f"unknown encoding {shown(encoding)}: 'grouped' or 'bookkeeper'")
    apart = encoding == "bookkeeper"
    long = groups.size > INT32_MAX
    cut = (-(-groups.size[long] // INT32_MAX)).tolist()  # such a group is one sequence
    count = sequence_count(groups) if apart else groups.first.size
    count += sum(cut) - len(cut)
    if count > MOST_GROUPS:
        raise InvalidArgument(
            f"{count} sequence groups, one {'a sequence' if apart else 'each'}, are above the "
            f"{MOST_GROUPS} that an answer can hold"
        )
    if not cut and not apart:
        return write_raw(groups)
    written = BytesIO()
    written.write(_header(count))
    for some in _slices(groups, apart):
        if apart:
            some = _apart(some)
        written.write(_rows(_cut_long(some) if cut else some))
    return written.getvalue()


def _slices(groups: Groups, apart: bool) -> Iterator[Groups]:
    """Yield groups from which few are made: many at a time, or a piece of a very long one."""
    for at in range(0, groups.first.size, _AT_A_TIME):
        some = Groups(*(column[at : at + _AT_A_TIME] for column in groups))
        few = not apart or sequence_count(some) <= 2 * _AT_A_TIME
        if few and int(some.size.max()) <= _LONGEST_CUT:
            yield some
            continue
        for row in np.stack(some, axis=1).tolist():
            for piece in _row_pieces(row, apart):
                yield Groups(*np.array([piece], np.int64).T)


def _row_pieces(row: list[int], apart: bool) -> Iterator[tuple[int, int, int, int]]:
    first, last, size, period = row
    if first == last:
        for start in range(first, first + size, _LONGEST_CUT):
            yield start, start, min(_LONGEST_CUT, first + size - start), 0
    elif apart:
        step = period * _AT_A_TIME
        for start in range(first, last + 1, step):
            yield start, min(last, start + step - period), size, period
    else:
        yield first, last, size, period


def _apart(groups: Groups) -> Groups:
    starts, ends = sequences(groups)
    return Groups(starts, starts, ends - starts, np.zeros_like(starts))


def _cut_long(groups: Groups) -> Groups:
    """Cut sequences whose size does not fit the i32 field into groups that touch."""
    pieces = -(-groups.size // INT32_MAX)
    which = np.repeat(np.arange(groups.size.size), pieces)
    nth = np.arange(which.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = groups.first[which] + nth * INT32_MAX
    size = np.minimum(groups.size[which] - nth * INT32_MAX, INT32_MAX)
    last = np.where(pieces[which] > 1, first, groups.last[which])
    return Groups(first, last, size, groups.period[which])


def write_raw(groups: Groups) -> bytes:
    """Return header and groups exactly as given; sizes and periods must fit i32."""
    return _header(groups.first.size) + _rows(groups)


def _header(count: int) -> bytes:
    return _HEADER.pack(VERSION, count) + bytes(HEADER_SIZE - _HEADER.size)


def _rows(groups: Groups) -> bytes:
    rows = np.empty(groups.first.size, _GROUP)
    for name, column in zip(_GROUP.names or (), groups):
        rows[name] = column
    return rows.tobytes()


def read_raw(data: bytes | bytearray | memoryview, *, any_header: bool = False) -> Groups:
    """Return the groups as stored, unchecked but for the bytes they need.

    `any_header` accepts what the real decoder accepts: negative versions and counts.
    Raises `CorruptionError` with the offset of the field at fault.
    """
    view = _octets(data)
    if len(view) < HEADER_SIZE:
        raise CorruptionError(None, len(view), f"header needs {HEADER_SIZE} bytes, {len(view)} are")
    version, stored = (int(v) for v in np.frombuffer(view, ">i4", 2))
    if version > VERSION or (version < 0 and not any_header):
        raise CorruptionError(None, 0, f"unsupported header version {version}")
    if stored < 0 and not any_header:
        raise CorruptionError(None, 4, f"number of sequence groups {stored} is negative")
    room = (len(view) - HEADER_SIZE) // GROUP_SIZE
    if stored > room:
        reason = f"{stored} sequence groups announced, bytes for {room} are there"
        raise CorruptionError(None, HEADER_SIZE + room * GROUP_SIZE, reason)
    rows = np.frombuffer(view, _GROUP, max(stored, 0), HEADER_SIZE)
    return Groups(*(rows[name].astype(np.int64) for name in _GROUP.names or ()))


def _octets(data: bytes | bytearray | memoryview) -> memoryview:
    try:
        view = memoryview(data)
    except TypeError:
        raise InvalidArgument(f"an encoded answer is bytes, not {type(data).__name__}") from None
    try:
        return view.cast("B")
    except (TypeError, ValueError):  # not contiguous, or of elements that `cast` does not know
        return memoryview(view.tobytes())


def decode(data: bytes | bytearray | memoryview) -> Groups:
    """Return the groups, ascending and disjoint; `CorruptionError(offset, reason)` if they
    cannot be a set of entry ids. Bytes after the last group are ignored, as upstream does.
    """
    return checked(read_raw(data))


def checked(groups: Groups) -> Groups:
    """Return rows in any order as groups, ascending and disjoint; raises like `decode`."""
    order = np.argsort(groups.first, kind="stable")
    groups = groups.take(order)
    span, many = groups.last - groups.first, groups.last != groups.first
    _refuse(groups.first < 0, order, 0, "first sequence start is negative")
    _refuse(groups.last < groups.first, order, 8, "last sequence start lies before the first")
    _refuse(groups.size < 1, order, 16, "sequence size is less than 1")
    _refuse(many & (groups.period == 0), order, 20, "several sequences with period 0")
    _refuse(many & (groups.period <= groups.size), order, 20, "period does not exceed the size")
    _refuse(span % np.maximum(groups.period, 1) != 0, order, 8, "last start is off the period")
    _refuse(groups.last > MAX_ENTRY_ID + 1 - groups.size, order, 8, "entry ids beyond 2^63-2")
    overlap = np.zeros(order.size, np.bool_)
    overlap[1:] = groups.ends[:-1] > groups.first[1:]
    _refuse(overlap, order, 0, "sequence groups overlap")
    return groups._replace(period=np.where(many, groups.period, 0))


def decode_few(data: bytes | bytearray | memoryview) -> Groups | None:
    """Return the groups of sound bytes that hold few, in canonical form; None of all others.

    What a striped ledger needs, at a tenth of the time of `decode` and `grouping.fold`.
    """
    if not isinstance(data, (bytes, bytearray)) or len(data) < HEADER_SIZE + GROUP_SIZE:
        return None
    version, count = _HEADER.unpack_from(data)
    if version != VERSION or not 1 <= count <= _FEW or len(data) < HEADER_SIZE + count * GROUP_SIZE:
        return None
    rows = list(_ROW.iter_unpack(data[HEADER_SIZE : HEADER_SIZE + count * GROUP_SIZE]))
    end, step, before = -1, 0, 0
    for first, last, size, period in rows:
        span = last - first
        if first <= end or size < 1 or last > MAX_ENTRY_ID + 1 - size:
            return None
        if (span <= 0 or period <= size or span % period) if period else span:
            return None
        distance = first - (end - before)
        if size == before and (step == distance or (step == 0 and distance <= INT32_MAX)):
            return None  # by the greedy rule it belongs to the group before
        end, step, before = last + size, period, size
    return Groups(*np.array(rows, np.int64).T)


def _refuse(bad: np.ndarray, order: np.ndarray, field: int, reason: str) -> None:
    if bad.any():
        at = int(order[bad].min())
        raise CorruptionError(None, HEADER_SIZE + at * GROUP_SIZE + field, f"group {at}: {reason}")
