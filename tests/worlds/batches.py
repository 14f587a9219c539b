"""Batches of records in every shape that a caller may hand in, made from a list of bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from bkstore.formats.entry import RecordBatch

__all__ = ["SHAPES", "shaped"]

PREFIX = 4


def _framed(records: Sequence[bytes], entries: Sequence[int]) -> RecordBatch:
    """Return frames and nothing else, as the encoder makes them."""
    frames = [len(record).to_bytes(PREFIX, "big") + record for record in records]
    starts = [sum(map(len, frames[:at])) + PREFIX for at in range(len(frames))]
    return _batch(b"".join(frames), records, entries, starts)


def _inside(records: Sequence[bytes], entries: Sequence[int]) -> RecordBatch:
    """Return frames in the middle of a buffer, as `between` makes them."""
    framed = _framed(records, entries)
    buffer = b"\xee" * 7 + bytes(framed.buffer) + b"\xee" * 9
    return RecordBatch(framed.entries, buffer, framed.offsets + 7, framed.sizes)


def _bare(records: Sequence[bytes], entries: Sequence[int]) -> RecordBatch:
    """Return records without a size before them, from the first byte of the buffer on."""
    starts = [sum(map(len, records[:at])) for at in range(len(records))]
    return _batch(b"".join(records), records, entries, starts)


def _apart(records: Sequence[bytes], entries: Sequence[int]) -> RecordBatch:
    """Return records with four other bytes before each: frames, but for the sizes."""
    starts, buffer = [], b""
    for record in records:
        buffer += b"\xee" * PREFIX
        starts.append(len(buffer))
        buffer += record
    return _batch(buffer, records, entries, starts)


def _last_size_wrong(records: Sequence[bytes], entries: Sequence[int]) -> RecordBatch:
    """Return frames of which the last says another size."""
    framed = _framed(records, entries)
    buffer = bytearray(framed.buffer)
    if records:
        at = int(framed.offsets[-1])
        buffer[at - PREFIX : at] = (len(records[-1]) + 1).to_bytes(PREFIX, "big")
    return RecordBatch(framed.entries, bytes(buffer), framed.offsets, framed.sizes)


def _mixed(records: Sequence[bytes], entries: Sequence[int]) -> RecordBatch:
    """Return frames that lie in another order in the buffer, some of them one behind the other."""
    order = list(range(len(records)))
    random.Random(len(order)).shuffle(order)
    order = sorted(order[: len(order) // 2]) + order[len(order) // 2 :]
    found = _framed([records[at] for at in order], [entries[at] for at in order])
    return found.take(np.argsort(np.array(order, np.int64)))


def _twice(records: Sequence[bytes], entries: Sequence[int]) -> RecordBatch:
    """Return frames of which equal ones share their bytes."""
    different = list(dict.fromkeys(records))
    framed = _framed(different, [0] * len(different))
    found = framed.take(np.array([different.index(record) for record in records], np.int64))
    return RecordBatch(np.array(entries, np.int64), found.buffer, found.offsets, found.sizes)


def _changeable(records: Sequence[bytes], entries: Sequence[int]) -> RecordBatch:
    """Return frames in memory that can be written."""
    framed = _framed(records, entries)
    view = memoryview(bytearray(framed.buffer))
    return RecordBatch(framed.entries, view, framed.offsets, framed.sizes)


def _array(records: Sequence[bytes], entries: Sequence[int]) -> RecordBatch:
    """Return frames in the memory of an array."""
    framed = _framed(records, entries)
    data = np.frombuffer(bytes(framed.buffer), np.uint8).copy()
    return RecordBatch(framed.entries, data.data, framed.offsets, framed.sizes)


def _batch(
    buffer: bytes, records: Sequence[bytes], entries: Sequence[int], starts: list[int]
) -> RecordBatch:
    return RecordBatch(
        np.array(entries, np.int64),
        buffer,
        np.array(starts, np.int64),
        np.array([len(record) for record in records], np.int64),
    )


SHAPES: dict[str, Callable[[Sequence[bytes], Sequence[int]], RecordBatch]] = {
    "of": RecordBatch.of,
    "framed": _framed,
    "inside": _inside,
    "bare": _bare,
    "apart": _apart,
    "last size wrong": _last_size_wrong,
    "mixed": _mixed,
    "twice": _twice,
    "changeable": _changeable,
    "array": _array,
}
"""How records lie in a batch's buffer; all of them mean the same."""


def shaped(shape: str, records: Sequence[bytes], entries: Sequence[int]) -> RecordBatch:
    """Return records as a batch of one of the `SHAPES`."""
    return SHAPES[shape](list(records), list(entries))
