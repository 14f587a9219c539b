"""Finding whole frames in a buffer: a chain of sizes (i32), each followed by so many bytes. Entry
logs are such chains; so are journals, with padding in between. A size gives the offset of the next:
only frames of equal size can be checked thousands at a time. Source: `DefaultEntryLogger`."""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.ids import Int64Array

Bytes = npt.NDArray[np.uint8]

SIZE_FIELD_BYTES = 4
"""Bytes of the size field before each record."""

_unpack_size = Struct(">i").unpack_from
_MIN_EQUAL_FRAMES = 64  # frames of one size in a row, before thousands are tested at once
_MAX_FRAMES_AT_ONCE = 4096


class Frames(NamedTuple):
    """Whole frames: the offset of each record (after its size field), and its size. At `end` no
    whole frame begins: the end of the buffer, a frame cut by it, or a size below the smallest."""

    offsets: Int64Array
    sizes: Int64Array
    end: int


def integers_at_every_offset(data: Bytes, dtype: str) -> npt.NDArray[Any]:
    """Return big-endian integers of every offset of `data`: element i is the one at byte i. A view,
    to index with arrays (`take` would copy it): quicker than gathering bytes."""
    count = max(data.size - np.dtype(dtype).itemsize + 1, 0)
    return np.ndarray(count, dtype, data, strides=(1,)) if count else np.empty(0, dtype)


def read_int64s(data: Bytes, offsets: Int64Array, field_offset: int = 0) -> Int64Array:
    """Return the i64 at each offset + `field_offset`, which must end in `data`. About 5 ns each."""
    stored = integers_at_every_offset(data, ">i8")[offsets + field_offset]
    return stored.astype(np.int64)


def windows(data: Bytes, width: int) -> npt.NDArray[np.void]:
    """Return the `width` bytes at every offset of `data`; element i begins at byte i. A view."""
    return np.ndarray((data.size - width + 1,), f"V{width}", data, strides=(1,))


def bytes_at(data: Bytes, offsets: Int64Array, width: int) -> npt.NDArray[np.uint8]:
    """Return the `width` bytes at each offset, uint8[n, width], a copy."""
    if not offsets.size or not width:
        return np.empty((offsets.size, width), np.uint8)
    return windows(data, width)[offsets].view(np.uint8).reshape(offsets.size, width)


def find_frames(
    data: Bytes, start: int = 0, min_size: int = 1, padding: int | None = None
) -> Frames:
    """Return the whole frames of the chain that begins at `start`: a frame is an i32 size and so
    many bytes, and the next one follows. The chain ends at a size below `min_size`, which is at
    least 1, and at a frame that is not complete. A size equal to `padding` is no frame: it is
    skipped together with an i32 length and so many bytes. Cost: about 10 ns a frame if sizes are
    equal, otherwise 150.

    >>> data = np.frombuffer(bytes.fromhex("00000002 aaaa 00000001 bb 00000009 cc"), np.uint8)
    >>> find_frames(data)
    Frames(offsets=array([ 4, 10]), sizes=array([2, 1]), end=11)
    """
    sizes, offset = integers_at_every_offset(data, ">i4"), start
    run = no_run = _EqualRun(size=0, length=0)
    offset_parts: list[Int64Array] = []
    while True:
        # One frame after the other until many in a row are of one size, then many at a time.
        frame_offsets, offset, run = _follow_chain(data, offset, min_size, padding, run)
        offset_parts.append(frame_offsets)
        if run.length < _MIN_EQUAL_FRAMES:  # so the chain has ended
            break
        frame_offsets, offset = _follow_equal(sizes, data.size, offset, run.size)
        offset_parts.append(frame_offsets)
        if frame_offsets.size < _MIN_EQUAL_FRAMES:  # too few: count anew before the next try
            run = no_run
    all_offsets = np.concatenate(offset_parts)
    return Frames(all_offsets + SIZE_FIELD_BYTES, sizes[all_offsets].astype(np.int64), offset)


class _EqualRun(NamedTuple):
    """The latest frames of equal size, in a row or with padding in between: size and count."""

    size: int
    length: int


def _follow_chain(
    data: Bytes, offset: int, min_size: int, padding: int | None, run: _EqualRun
) -> tuple[Int64Array, int, _EqualRun]:
    """Follow the chain of frames to its end, or until `_MIN_EQUAL_FRAMES` sizes in a row were
    equal; `run` is the row of equal sizes before `offset`. Return the offsets of the frames, the
    offset at which this stopped, and the row of equal sizes there."""
    frame_offsets: list[int] = []
    add, buffer, end = frame_offsets.append, data.data, data.size
    last_start, (last_size, equal_count) = end - SIZE_FIELD_BYTES, run
    equal_count = min(equal_count, _MIN_EQUAL_FRAMES - 1)  # so that the loop is entered
    while offset <= last_start and equal_count < _MIN_EQUAL_FRAMES:
        (size,) = _unpack_size(buffer, offset)
        frame_end = offset + SIZE_FIELD_BYTES + size
        if size < min_size or frame_end > end:
            padding_end = _padding_end(buffer, offset) if size == padding else end + 1
            if padding_end > end:  # incomplete padding, or none: the chain ends
                break
            offset = padding_end
            continue
        add(offset)
        offset = frame_end
        equal_count = equal_count + 1 if size == last_size else 1
        last_size = size
    return np.array(frame_offsets, np.int64), offset, _EqualRun(last_size, equal_count)


def _padding_end(buffer: memoryview, offset: int) -> int:
    """Return the end of the padding at `offset`; past the end of the buffer if it is incomplete."""
    past_end = len(buffer) + 1
    if offset + 2 * SIZE_FIELD_BYTES > len(buffer):
        return past_end
    (zeros,) = _unpack_size(buffer, offset + SIZE_FIELD_BYTES)
    return offset + 2 * SIZE_FIELD_BYTES + zeros if zeros >= 0 else past_end


def _follow_equal(
    sizes: npt.NDArray[Any], end: int, offset: int, size: int
) -> tuple[Int64Array, int]:
    """Follow frames of one `size`, thousands at a time; stop before the first of another size.
    `sizes` has the integer at every offset of the buffer, which ends at `end`. Return the offsets
    of the frames, and the offset at which this stopped."""
    step, start = SIZE_FIELD_BYTES + size, offset
    while (count := min((end - offset) // step, _MAX_FRAMES_AT_ONCE)) > 0:
        is_same = sizes[offset : offset + (count - 1) * step + 1 : step] == size
        if not is_same.all():
            offset += int(is_same.argmin()) * step
            break
        offset += count * step
    return np.arange(start, offset, step), offset


def run_end(data: Bytes, offset: int, byte: int) -> int:
    """Return the offset of the first byte from `offset` on that is not `byte`, or the end of the
    data. About 50 us a MiB."""
    block = 4096
    while offset < data.size:
        is_same = data[offset : offset + block] == byte
        if not is_same.all():
            return offset + int(is_same.argmin())
        offset += is_same.size
        block = min(2 * block, 1 << 20)
    return offset
