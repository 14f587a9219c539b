"""Limits on the bytes and seconds of a connection, and on the number of connections.

A connection carries one request. `LimitedConnection` stands between the socket and the HTTP parser,
which does not limit the time that a request takes to arrive, nor pipelined requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

_HEAD_END = b"\r\n\r\n"
_METHODS_WITHOUT_BODY = (b"GET ", b"HEAD ", b"OPTIONS ")
_LINGER_SECONDS = 1.0
_CHUNK_OVERHEAD = 1024  # bytes that a chunked encoding may add to a body
_TIMED_CHUNKS = 10
"""A client that takes longer than `Limits.seconds` for so many chunks of a long answer may be cut
off for others."""


@dataclass(frozen=True)
class Limits:
    """Limits of the HTTP server.

    `connections` are open at once. `head` and `body` are the most bytes of those parts of a
    request. `seconds` is the time for a request to arrive, and for the client to take an answer, or
    each 64 KiB of a longer one. At most `waiting` requests wait for the disk, and as many for the
    metadata store, so that connections are left for others. At most `streams` long answers are sent
    at once.
    """

    connections: int = 100
    waiting: int = 40
    head: int = 16 << 10
    body: int = 16 << 10
    seconds: float = 10.0
    streams: int = 8


@dataclass
class OpenConnections:
    """The connections that are served, and the refused ones that are about to close."""

    served: dict[asyncio.BaseTransport, LimitedConnection] = field(default_factory=dict)
    closing: set[asyncio.BaseTransport] = field(default_factory=set)


class StreamedAnswer:
    """A long answer that is being sent, with the times when its client took the last chunks."""

    def __init__(self, transport: asyncio.BaseTransport | None) -> None:
        """Begin as if the client had just taken all of the timed chunks."""
        self.transport = transport
        self.is_writing = self.has_ended = False
        now = asyncio.get_running_loop().time()
        self.chunk_times = deque([now] * _TIMED_CHUNKS, _TIMED_CHUNKS)

    def end_chunk(self) -> None:
        """Note that the client has taken the chunk."""
        self.is_writing = False
        self.chunk_times.append(asyncio.get_running_loop().time())


class StreamSlots:
    """Slots for long answers. If none becomes free in time, the slowest client is cut off."""

    def __init__(self, limits: Limits) -> None:
        self._max_seconds = limits.seconds
        self._slots = asyncio.Semaphore(limits.streams)
        self._active: set[StreamedAnswer] = set()

    async def acquire(self, transport: asyncio.BaseTransport | None) -> StreamedAnswer:
        """Take a slot. Raises `TimeoutError` if none is free in time and no client is slow."""
        try:
            async with asyncio.timeout(self._max_seconds):
                await self._slots.acquire()
        except TimeoutError:
            if not self._abort_slowest():
                raise
            async with asyncio.timeout(self._max_seconds):
                await self._slots.acquire()
        stream = StreamedAnswer(transport)
        self._active.add(stream)
        return stream

    def release(self, stream: StreamedAnswer) -> None:
        """Free the slot. Idempotent."""
        if not stream.has_ended:
            stream.has_ended = True
            self._active.discard(stream)
            self._slots.release()

    def _abort_slowest(self) -> bool:
        """Cut off the slowest client, free its slot and return True; return False if none is too
        slow. A client is too slow if it took more than the permitted seconds for its last
        `_TIMED_CHUNKS` chunks."""
        since = asyncio.get_running_loop().time() - self._max_seconds
        writing = (stream for stream in self._active if stream.is_writing)
        # the first of the kept times is that of the oldest of the last few chunks
        slow = [stream for stream in writing if stream.chunk_times[0] < since]
        if not slow:
            return False
        slowest = min(slow, key=lambda stream: stream.chunk_times[0])
        if slowest.transport is not None:
            slowest.transport.abort()  # type: ignore[attr-defined]
        self.release(slowest)
        return True


class LimitedConnection(asyncio.Protocol):
    """Passes one request on to an HTTP protocol; refuses requests and connections above the
    limits."""

    def __init__(
        self, http_protocol: asyncio.Protocol, connections: OpenConnections, limits: Limits
    ) -> None:
        self._http = http_protocol
        self._connections = connections
        self._limits = limits
        self._head = b""
        self._head_complete = self._refused = False
        self._body_room = limits.body + _CHUNK_OVERHEAD  # bytes that are still passed on
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection, or answer 503 if there are too many."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._http.connection_made(transport)
        if len(self._connections.served) < self._limits.connections:
            self._connections.served[transport] = self
            self.start_timeout()
        else:
            self._refuse_connection(503, "too many connections")

    def start_timeout(self) -> None:
        """Start the timeout for the client to send its request or take its answer."""
        self.stop_timeout()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._limits.seconds, self._on_timeout)

    def stop_timeout(self) -> None:
        """Stop the timeout of the client, while the server works."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self) -> None:
        """End the connection: its request, or the client's reading, has taken too long."""
        if self._head_complete:  # the client does not take its answer: a refusal would not arrive
            self._transport.abort()
        else:
            self._refuse_connection(
                408, f"no request arrived within {self._limits.seconds:g} seconds"
            )

    def data_received(self, data: bytes) -> None:
        """Pass a request's head to the HTTP server, then its body up to the limit; drop the rest,
        and any body of a GET, so that none of it is taken for a second request."""
        if self._refused:
            return
        if not self._head_complete:
            data = self._take_head(data)
        if data and not self._head.startswith(_METHODS_WITHOUT_BODY):
            # the HTTP server has refused a body above `limits.body` (413) before this cuts it
            data, self._body_room = data[: self._body_room], max(self._body_room - len(data), 0)
            if data:
                self._http.data_received(data)

    def _take_head(self, data: bytes) -> bytes:
        """Pass on the head once it is complete; return the bytes of the body that came with it."""
        self._head += data
        end = self._head.find(_HEAD_END)
        if end > self._limits.head or (end < 0 and len(self._head) > self._limits.head):
            self._refuse_connection(
                431, f"a request's head may have at most {self._limits.head} bytes"
            )
            return b""
        if end < 0:
            return b""
        end += len(_HEAD_END)
        head, body = self._head[:end], self._head[end:]
        self._head, self._head_complete = head, True
        self._http.data_received(head)
        return body

    def eof_received(self) -> bool:
        """Keep the connection open if an answer is still to be sent: the client may still read."""
        return self._head_complete or self._refused

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the connection."""
        self.stop_timeout()
        self._connections.served.pop(self._transport, None)
        self._connections.closing.discard(self._transport)
        self._http.connection_lost(error)

    def pause_writing(self) -> None:
        """Tell the HTTP protocol that the client reads slowly."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Tell the HTTP protocol that the client reads again."""
        self._http.resume_writing()

    def _refuse_connection(self, status: int, reason: str) -> None:
        """Answer with an error, then close after `_LINGER_SECONDS` in which input is dropped: to
        close with unread bytes could drop the answer. Call it only before the head is complete,
        because the HTTP protocol may answer afterwards."""
        body = f"{reason}\n".encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
            "Content-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.stop_timeout()
        self._refused = True
        self._connections.served.pop(self._transport, None)
        if len(self._connections.closing) >= self._limits.connections:  # too many wait to close
            self._transport.abort()
            return
        self._connections.closing.add(self._transport)
        self._transport.write(head.encode("ascii") + body)
        with suppress(OSError):  # the client has reset the connection
            self._transport.write_eof()
        self._timer = asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._transport.abort)
