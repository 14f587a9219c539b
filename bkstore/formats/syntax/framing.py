"""Finding whole frames in a buffer: a size (i32), then as many bytes, one behind the other.

Entry logs are such chains, and journals, with padding in between. Each size says where the next
one is, so a chain has to be followed frame by frame; only where frames are of one size can
thousands be checked at once. What a frame holds is not looked at here. Source of the framing:
`DefaultEntryLogger`.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.ids import Int64Array

Bytes = npt.NDArray[np.uint8]

PREFIX = 4
"""Bytes of the size that stands before each record."""

_SIZE = Struct(">i").unpack_from
_PROBE = 64  # frames of one size in a row, before thousands of that size are looked for
_EQUAL = 4096


class Frames(NamedTuple):
    """Whole frames: where each record begins (behind its size), and how long it is.

    `end` is where the first thing stands that is not a whole frame: the end of the buffer, a
    frame that is cut by it, a size below the smallest.
    """

    offsets: Int64Array
    sizes: Int64Array
    end: int


def words_at(data: Bytes, dtype: str) -> npt.NDArray[Any]:
    """Return big-endian integers of every offset of `data`: element i is the one at byte i.

    A view, to index with arrays (`take` would copy it): quicker than gathering bytes.
    """
    count = max(data.size - np.dtype(dtype).itemsize + 1, 0)
    return np.ndarray(count, dtype, data, strides=(1,)) if count else np.empty(0, dtype)


def words(data: Bytes, offsets: Int64Array, skip: int = 0) -> Int64Array:
    """Return the i64 at each offset + skip, which must end inside `data`. About 5 ns each."""
    found: Int64Array = words_at(data, ">i8")[offsets + skip].astype(np.int64)
    return found


def windows(data: Bytes, width: int) -> npt.NDArray[np.void]:
    """Return the `width` bytes from each place of `data` on; element i begins at byte i. A view."""
    return np.ndarray((data.size - width + 1,), f"V{width}", data, strides=(1,))


def bytes_at(data: Bytes, offsets: Int64Array, width: int) -> npt.NDArray[np.uint8]:
    """Return the `width` bytes at each offset, uint8[n, width], a copy."""
    if not offsets.size or not width:
        return np.empty((offsets.size, width), np.uint8)
    return windows(data, width)[offsets].view(np.uint8).reshape(offsets.size, width)


def find_frames(
    data: Bytes, start: int = 0, smallest: int = 1, padding: int | None = None
) -> Frames:
    """Return the whole frames of the chain that begins at `start`.

    A size below `smallest`, which is at least 1, ends the chain; but where it is `padding`, and
    another i32 and as many bytes as that one says are there, they are passed by. Cost: about
    10 ns a frame where sizes are equal, else 150, and as much for a padding.

    >>> data = np.frombuffer(bytes.fromhex("00000002 aaaa 00000001 bb 00000009 cc"), np.uint8)
    >>> find_frames(data)
    Frames(offsets=array([ 4, 10]), sizes=array([2, 1]), end=11)
    """
    sizes, at, run = words_at(data, ">i4"), start, _Run(0, 0)
    parts: list[Int64Array] = []
    while True:
        found, at, run = _followed(data, at, smallest, padding, run)
        parts.append(found)
        if run.length < _PROBE:
            break
        found, at = _equal(sizes, data.size, at, run.size)
        parts.append(found)
        if found.size < _PROBE:  # too short to be looked for again behind a padding
            run = _Run(0, 0)
    places = np.concatenate(parts)
    return Frames(places + PREFIX, sizes[places].astype(np.int64), at)


class _Run(NamedTuple):
    """How many frames of one size there were last, in a row or with padding in between."""

    size: int
    length: int


def _followed(
    data: Bytes, at: int, smallest: int, padding: int | None, run: _Run
) -> tuple[Int64Array, int, _Run]:
    """Follow the chain to its end, or until many sizes in a row were equal; `run` goes on.

    Returns the places of the sizes, where the chain goes on or ends, and the run there.
    """
    found: list[int] = []
    add, raw, end = found.append, data.data, data.size
    last, (before, equal) = end - PREFIX, run
    equal = min(equal, _PROBE - 1)
    while at <= last and equal < _PROBE:
        (size,) = _SIZE(raw, at)
        after = at + PREFIX + size
        if size < smallest or after > end:
            behind = _behind_padding(raw, at) if size == padding else end + 1
            if behind > end:
                break
            at = behind
            continue
        add(at)
        at = after
        equal = equal + 1 if size == before else 1
        before = size
    return np.array(found, np.int64), at, _Run(before, equal)


def _behind_padding(raw: memoryview, at: int) -> int:
    """Return where the padding that begins at `at` ends; beyond the end where it is not whole."""
    beyond = len(raw) + 1
    if at + 2 * PREFIX > len(raw):
        return beyond
    (zeros,) = _SIZE(raw, at + PREFIX)
    return at + 2 * PREFIX + zeros if zeros >= 0 else beyond


def _equal(sizes: npt.NDArray[Any], end: int, at: int, size: int) -> tuple[Int64Array, int]:
    """Follow frames of one size, thousands at a time; stop before the first of another."""
    step, start = PREFIX + size, at
    while (count := min((end - at) // step, _EQUAL)) > 0:
        same = sizes[at : at + (count - 1) * step + 1 : step] == size
        if not same.all():
            at += int(same.argmin()) * step
            break
        at += count * step
    return np.arange(start, at, step), at


def run_end(data: Bytes, at: int, value: int) -> int:
    """Return where a run of bytes `value` that begins at `at` ends. About 50 us a MiB."""
    block = 4096
    while at < data.size:
        same = data[at : at + block] == value
        if not same.all():
            return at + int(same.argmin())
        at += same.size
        block = min(2 * block, 1 << 20)
    return at
