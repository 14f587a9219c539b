"""Frames: every message of either protocol after its length in bytes, an i32.

The length is big-endian and does not count itself; a frame's limit counts it. Source: netty's
`LengthFieldBasedFrameDecoder` as `BookieNettyServer` configures it, recorded conversations.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.syntax.framing import find_frames
from bkstore.ids import Int64Array

MAX_FRAME_BYTES = 5 << 20
"""`nettyMaxFrameSizeBytes`: the most bytes of a frame, its length field included."""

LENGTH_BYTES = 4
_LENGTH = struct.Struct(">i")


def frame(*parts: bytes | memoryview, limit: int | None = None) -> bytes:
    """Return the frame of a message given in parts, which are copied once.

    `limit` is the most bytes of the frame, its length field included; None is no limit, as for
    BookKeeper's answers. Raises `InvalidArgument` above it, or above 2^31-1.

    >>> frame(bytes.fromhex("02010000"), b"...").hex(" ", 4)
    '000000 07020100 002e2e2e'
    """
    size = LENGTH_BYTES + sum(map(len, parts))
    max_size = 2**31 - 1 + LENGTH_BYTES if limit is None else limit
    if size > max_size:
        raise InvalidArgument(f"frame of {size} bytes is above the limit of {max_size}")
    return b"".join((_LENGTH.pack(size - LENGTH_BYTES), *parts))


class FrameSplitter:
    """Splits the bytes of one direction of a connection into messages, as they arrive.

    It holds the bytes fed but not yet taken: fewer than `limit` if all frames are taken after each
    feed. Each byte is copied twice, however small the chunks are. Not safe between threads.

    >>> splitter = FrameSplitter()
    >>> splitter.feed(frame(b"one") + frame(b"two")[:5])
    >>> list(splitter.frames()), splitter.pending_bytes
    ([b'one'], 5)
    """

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        """Accept frames of at most `limit` bytes, their length fields included."""
        if not LENGTH_BYTES <= limit < 2**31:
            raise InvalidArgument(f"frame limit {limit} is outside {LENGTH_BYTES}..{2**31 - 1}")
        self._limit = limit
        self._buffer = bytearray()
        self._start = 0  # of the bytes not taken, in `_buffer`
        self._taken_bytes = 0
        self._damage: CorruptionError | None = None

    @property
    def pending_bytes(self) -> int:
        """The number of bytes fed but not yet taken."""
        return len(self._buffer) - self._start

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add the next bytes of the stream. They are dropped after a bad length."""
        if self._damage is None:
            self._buffer += data

    def frames(self) -> Iterator[bytes]:
        """Yield the complete messages, without their lengths. At a length that is negative or above
        the limit it raises `CorruptionError` with the offset in the stream; so does every later
        call, because the start of the next frame is unknown."""
        while self._damage is None and len(self._buffer) - self._start >= LENGTH_BYTES:
            start = self._start + LENGTH_BYTES
            (size,) = _LENGTH.unpack_from(self._buffer, self._start)
            if not 0 <= size <= self._limit - LENGTH_BYTES:
                self._fail_on_length(size)
                break
            if len(self._buffer) < start + size:  # incomplete: more bytes are needed
                break
            with memoryview(self._buffer) as view:
                message = bytes(view[start : start + size])
            self._start = start + size
            self._taken_bytes += LENGTH_BYTES + size
            yield message
        # Deleting shifts the bytes that are left: once for all frames taken, not for each.
        del self._buffer[: self._start]
        self._start = 0
        if self._damage is not None:
            raise self._damage

    def peek(self) -> bytes:
        """Return a copy of the bytes fed but not yet taken."""
        return bytes(memoryview(self._buffer)[self._start :])

    def skip(self, size: int) -> None:
        """Take whole frames of `size` bytes, which the caller has read from `peek`."""
        self._taken_bytes += size
        del self._buffer[: self._start + size]
        self._start = 0

    def take_frames(self, max_count: int, target_size: int) -> tuple[bytes, Int64Array, Int64Array]:
        """Take many messages; return a copy of their frames, and the offset and size of each
        message in it, both int64[n].

        Takes at most `max_count` messages, up to the one that reaches `target_size` bytes. Returns
        none if the next message is incomplete, or at a bad length, which `frames` then reports.
        About 10 us, and a message 10 ns if all have one size, else 150 ns.
        """
        with memoryview(self._buffer)[self._start :] as view:
            frames = find_frames(np.frombuffer(view, np.uint8))
            # take the messages before a bad length, at most `max_count`, until `target_size` bytes
            is_too_long = frames.sizes > self._limit - LENGTH_BYTES
            count = int(is_too_long.argmax()) if is_too_long.any() else is_too_long.size
            count = min(count, max_count)
            offsets, sizes = frames.offsets[:count], frames.sizes[:count]
            count = int(np.cumsum(sizes + LENGTH_BYTES).searchsorted(target_size)) + 1
            offsets, sizes = offsets[:count], sizes[:count]
            end = int(offsets[-1] + sizes[-1]) if offsets.size else 0
            data = bytes(view[:end])
            del frames  # a view of the buffer, which would forbid the deletion below
        self._taken_bytes += end
        del self._buffer[: self._start + end]
        self._start = 0
        return data, offsets, sizes

    def _fail_on_length(self, size: int) -> None:
        """Drop all bytes, and keep the error for a bad length."""
        max_size = self._limit - LENGTH_BYTES
        reason = f"frame length {size} is {'negative' if size < 0 else f'above {max_size}'}"
        self._damage = CorruptionError(None, self._taken_bytes, reason)
        self._buffer.clear()
        self._start = 0

    def feed_eof(self) -> None:
        """End the stream. Raises `CorruptionError` if it ends inside a frame."""
        if self._damage is not None:
            raise self._damage
        if self.pending_bytes:
            reason = f"stream ends {self.pending_bytes} bytes into a frame"
            raise CorruptionError(None, self._taken_bytes, reason)
