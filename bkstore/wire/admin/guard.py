"""Guard: what one connection may cost: bytes, seconds, requests; and how many there may be.

A connection carries one request. It stands between a socket and the HTTP parser, which has no
limit on the time that a request takes to arrive, nor on requests that are sent ahead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

_REASONS = {
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}
_HEAD_END = b"\r\n\r\n"
_BODILESS = (b"GET ", b"HEAD ", b"OPTIONS ")
_LAST_WORD_SECONDS = 1.0
_FRAMING = 1024  # what chunks of a body add to it
_PACE = 10
"""Chunks that a reader must take within `Limits.seconds`, or give way to others."""


@dataclass(frozen=True)
class Limits:
    """Bounds of the HTTP side: bytes, seconds, counts.

    `seconds` is what a request may take to arrive, and an answer, or 64 KiB of a longer one, to
    be taken. `waiting` requests may wait for the disk at once, and as many for the metadata
    store, so that connections are left for those that wait for nothing. `streams` long answers
    are sent at once.
    """

    connections: int = 100
    waiting: int = 40
    head: int = 16 << 10
    body: int = 16 << 10
    seconds: float = 10.0
    streams: int = 8


@dataclass
class Connections:
    """Those that are served, and those that were refused and have a moment left."""

    served: dict[asyncio.BaseTransport, Guard] = field(default_factory=dict)
    leaving: set[asyncio.BaseTransport] = field(default_factory=set)


class Stream:
    """One long answer that is being sent: when its last chunks were taken."""

    def __init__(self, transport: asyncio.BaseTransport | None) -> None:
        self.transport = transport
        self.writing = False
        self.ended = False
        now = asyncio.get_running_loop().time()
        self.taken = deque([now] * _PACE, _PACE)

    def begin_chunk(self) -> None:
        """Note that it is the reader's turn."""
        self.writing = True

    def end_chunk(self) -> None:
        """Note that the reader has taken a chunk."""
        self.writing = False
        self.taken.append(asyncio.get_running_loop().time())


class Streams:
    """Slots for long answers. Where all are taken for too long, the slowest reader gives way."""

    def __init__(self, limits: Limits) -> None:
        self._seconds = limits.seconds
        self._slots = asyncio.Semaphore(limits.streams)
        self._sent: set[Stream] = set()

    async def begin(self, transport: asyncio.BaseTransport | None) -> Stream:
        """Take a slot; raises `TimeoutError` if none is free in time and no reader is slow."""
        try:
            async with asyncio.timeout(self._seconds):
                await self._slots.acquire()
        except TimeoutError:
            if not self._cut_slowest():
                raise
            async with asyncio.timeout(self._seconds):
                await self._slots.acquire()
        stream = Stream(transport)
        self._sent.add(stream)
        return stream

    def end(self, stream: Stream) -> None:
        """Give the slot back. Idempotent."""
        if not stream.ended:
            stream.ended = True
            self._sent.discard(stream)
            self._slots.release()

    def _cut_slowest(self) -> bool:
        """Hang up on the reader that took longest for its last chunks, if that was too long."""
        late = asyncio.get_running_loop().time() - self._seconds
        slow = [each for each in self._sent if each.writing and each.taken[0] < late]
        if not slow:
            return False
        slowest = min(slow, key=lambda each: each.taken[0])
        if slowest.transport is not None:
            slowest.transport.abort()  # type: ignore[attr-defined]
        self.end(slowest)
        return True


class Guard(asyncio.Protocol):
    """Passes one request on to an HTTP protocol; ends what is too large, too slow, too many."""

    def __init__(self, http: asyncio.Protocol, known: Connections, limits: Limits) -> None:
        self._http = http
        self._known = known
        self._limits = limits
        self._head = b""
        self._whole = self._refused = False
        self._room = limits.body + _FRAMING
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, or say that there are too many."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._http.connection_made(transport)
        if len(self._known.served) < self._limits.connections:
            self._known.served[transport] = self
            self.wait()
        else:
            self._refuse(503, "too many connections")

    def wait(self) -> None:
        """Begin to count the seconds that the other side may take."""
        self.go_on()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._limits.seconds, self._late)

    def go_on(self) -> None:
        """Stop counting: it is this side's turn."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        if self._whole:  # an answer that is not taken: nothing would reach the other side
            self._transport.abort()
        else:
            self._refuse(408, f"no request came within {self._limits.seconds:g} seconds")

    def data_received(self, data: bytes) -> None:
        """Pass on a head, then of a body what there is room for, then nothing."""
        if self._refused:
            return
        if not self._whole:
            data = self._of_head(data)
        if data and not self._head.startswith(_BODILESS):
            data, self._room = data[: self._room], max(self._room - len(data), 0)
            if data:
                self._http.data_received(data)

    def _of_head(self, data: bytes) -> bytes:
        """Pass on what belongs to the head; return what came behind it."""
        self._head += data
        end = self._head.find(_HEAD_END)
        if end > self._limits.head or (end < 0 and len(self._head) > self._limits.head):
            self._refuse(431, f"a request's head has at most {self._limits.head} bytes")
            return b""
        if end < 0:
            return b""
        end += len(_HEAD_END)
        head, rest = self._head[:end], self._head[end:]
        self._head, self._whole = head, True
        self._http.data_received(head)
        return rest

    def eof_received(self) -> bool:
        """Stay open where an answer is due or on its way: the other side may still read."""
        return self._whole or self._refused

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the connection."""
        self.go_on()
        self._known.served.pop(self._transport, None)
        self._known.leaving.discard(self._transport)
        self._http.connection_lost(error)

    def pause_writing(self) -> None:
        """Pass on that the other side reads slowly."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the other side reads again."""
        self._http.resume_writing()

    def _refuse(self, status: int, reason: str) -> None:
        """Say why and hang up, after a moment in which what still comes is thrown away.

        A socket that is closed with bytes unread takes the answer with it. Only before a
        request is whole: then nobody else writes.
        """
        body = f"{reason}\n".encode()
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.go_on()
        self._refused = True
        self._known.served.pop(self._transport, None)
        if len(self._known.leaving) >= self._limits.connections:
            self._transport.abort()
            return
        self._known.leaving.add(self._transport)
        self._transport.write(head.encode("ascii") + body)
        with suppress(OSError):  # the other side has reset the connection
            self._transport.write_eof()
        self._timer = asyncio.get_running_loop().call_later(
            _LAST_WORD_SECONDS, self._transport.abort
        )
