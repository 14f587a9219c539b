"""Frames: every message of either protocol behind an i32 that says how many bytes it has.

The length is big-endian and does not count itself. A frame with its four bytes may be as long as
the limit, no longer. Source: netty's `LengthFieldBasedFrameDecoder` as `BookieNettyServer` sets
it up, and recorded conversations.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.syntax.framing import find_frames
from bkstore.ids import Int64Array

MAX_FRAME = 5 << 20
"""`nettyMaxFrameSizeBytes`: most bytes of a frame, its length field among them."""

PREFIX = 4
_LENGTH = struct.Struct(">i")


def frame(*parts: bytes | memoryview, limit: int | None = None) -> bytes:
    """Return the frame of a message that comes in parts; one copy of them.

    `limit` is the most bytes that it may have, its length field among them; None for no limit (a
    real bookie holds its answers to none). `InvalidArgument` above it, or above 2^31-1.

    >>> frame(bytes.fromhex("02010000"), b"...").hex(" ", 4)
    '000000 07020100 002e2e2e'
    """
    size = sum(map(len, parts))
    most = 2**31 - 1 + PREFIX if limit is None else limit
    if size + PREFIX > most:
        raise InvalidArgument(f"frame of {size + PREFIX} bytes is above the limit of {most}")
    return b"".join((_LENGTH.pack(size), *parts))


class FrameSplitter:
    """Cuts the bytes of one direction of a connection into messages, as they come.

    It holds what was fed and not yet taken: with all frames taken after each feed, less than
    `limit` bytes. Each byte is copied twice, however small the pieces are. Not safe between
    threads.

    >>> splitter = FrameSplitter()
    >>> splitter.feed(frame(b"one") + frame(b"two")[:5])
    >>> list(splitter.frames()), splitter.pending
    ([b'one'], 5)
    """

    def __init__(self, limit: int = MAX_FRAME) -> None:
        if not PREFIX <= limit < 2**31:
            raise InvalidArgument(f"frame limit {limit} is outside {PREFIX}..{2**31 - 1}")
        self._limit = limit
        self._held = bytearray()
        self._begin = 0  # of what was not taken
        self._taken = 0
        self._damage: CorruptionError | None = None

    @property
    def pending(self) -> int:
        """Bytes that were fed and are in no frame that was taken."""
        return len(self._held) - self._begin

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add the next bytes of the stream; after damage they are dropped."""
        if self._damage is None:
            self._held += data

    def frames(self) -> Iterator[bytes]:
        """Yield the messages that are whole, without their lengths.

        Raises `CorruptionError` with the offset in the stream at a length that is negative or
        above the limit, as soon as its four bytes are here, and from then on at each call:
        nothing says where the next frame begins.
        """
        while self._damage is None and len(self._held) - self._begin >= PREFIX:
            begin = self._begin + PREFIX
            (size,) = _LENGTH.unpack_from(self._held, self._begin)
            if not 0 <= size <= self._limit - PREFIX:
                self._refuse(size)
                break
            if len(self._held) < begin + size:
                break
            with memoryview(self._held) as view:
                message = bytes(view[begin : begin + size])
            self._begin = begin + size
            self._taken += PREFIX + size
            yield message
        del self._held[: self._begin]  # once for all that were there
        self._begin = 0
        if self._damage is not None:
            raise self._damage

    def waiting(self) -> bytes:
        """Return a copy of what was fed and not yet taken."""
        return bytes(memoryview(self._held)[self._begin :])

    def skip(self, size: int) -> None:
        """Take whole frames of so many bytes, which the caller has looked at."""
        self._taken += size
        del self._held[: self._begin + size]
        self._begin = 0

    def stretch(self, most: int, enough: int) -> tuple[bytes, Int64Array, Int64Array]:
        """Take many messages: return a copy of their frames, where each begins, how long it is.

        At most `most` messages, int64[n] each, up to the one that passes `enough` bytes. There
        are none where the next is not whole yet, and none before a length that `frames` refuses:
        it says so then. About 10 ns each where all are of one size, else 150, and 10 us.
        """
        with memoryview(self._held)[self._begin :] as view:
            found = find_frames(np.frombuffer(view, np.uint8))
            long = found.sizes > self._limit - PREFIX
            count = min(int(long.argmax()) if long.any() else long.size, most)
            offsets, sizes = found.offsets[:count], found.sizes[:count]
            count = int(np.cumsum(sizes + PREFIX).searchsorted(enough)) + 1
            offsets, sizes = offsets[:count], sizes[:count]
            end = int(offsets[-1] + sizes[-1]) if offsets.size else 0
            data = bytes(view[:end])
            del found
        self._taken += end
        del self._held[: self._begin + end]
        self._begin = 0
        return data, offsets, sizes

    def _refuse(self, size: int) -> None:
        most = self._limit - PREFIX
        reason = f"frame length {size} is {'negative' if size < 0 else f'above {most}'}"
        self._damage = CorruptionError(None, self._taken, reason)
        self._held.clear()
        self._begin = 0

    def end(self) -> None:
        """Say that the stream is over; `CorruptionError` if it ends inside a frame."""
        if self._damage is not None:
            raise self._damage
        if self.pending:
            reason = f"stream ends {self.pending} bytes into a frame"
            raise CorruptionError(None, self._taken, reason)
