"""Connection: the bytes of one client in, its requests to the pools, answers out."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

from bkstore.errors import CorruptionError
from bkstore.wire import v2
from bkstore.wire.detection import RequestDecoder
from bkstore.wire.frames import PREFIX, FrameSplitter
from bkstore.wire.server.authentication import Authentication
from bkstore.wire.server.core import Core
from bkstore.wire.server.requests import of_v2, of_v3
from bkstore.wire.server.requests.operations import Answer, Operation, Read, Ready, StartTls
from bkstore.wire.server.tls_socket import TlsSocket
from bkstore.wire.status import Status

_log = logging.getLogger(__name__)

_LINGER = 1.0  # seconds for a client to take its last answers and hang up

_TLS_PIECE = 256 << 10
"""Bytes that TLS is given at once: its buffer stays as large as it ever was."""

_STEP = ("AUTH", Status.EOK)

_REQUEST_COST = 1536
"""Bytes of memory that a waiting request takes beside those of its frame: a long poll with its
decoded message, its timer and its place in queues, measured. Others take less."""


_WORTH = 256
"""Bytes received from which on requests are looked for that are alike."""


class Connection(asyncio.Protocol):
    """One client.

    Writes keep their order, and so do reads; one group of each is with the storage at a time.
    What cannot be decoded ends the connection: what came before is answered, what comes behind
    is dropped. It is read from as long as there is room for more requests (`ServerOptions`), and
    nothing is asked of the storage for a client that does not take its answers. Where the server
    has users, it is served once it has authenticated as one (`authentication`), not before.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._options = core.options
        self._splitter = FrameSplitter(core.options.max_frame)
        self._decoder = RequestDecoder(extended=core.extended)
        self._handshake = None if core.users is None else Authentication(core.users)
        """None once it is complete, and where none is asked for."""
        self._writes: deque[Operation] = deque()
        self._reads: deque[Operation] = deque()
        self._write_busy = self._read_busy = False
        self._parked: set[Read] = set()
        self._waiting = self._waiting_bytes = 0
        self._reading = True
        self._damaged = False
        self._paused: set[str] = set()  # buffers of answers that the client does not take
        self._ending = self._hung_up = self._finished = self._lost = False
        self._may_start_tls = core.tls is not None
        self._start_tls: StartTls | None = None
        self._behind_start_tls: list[Ready] = []
        self._tls_socket: TlsSocket | None = None
        self._stream_ended = False  # without a word in TLS
        self._tls_handshake: asyncio.Task[None] | None = None
        self._early: list[bytes] = []  # decrypted before the handshake is told to be over
        self._moved = core.loop.time()
        self._unsent = 0
        self.held = 0

    # -- what the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new client, unless there are too many."""
        self._transport = cast(asyncio.Transport, transport)
        many = len(self._core.connections) >= self._core.max_connections
        self._core.connections.add(self)
        if many or self._core.stopping:
            _log.warning("a client is refused: %d are connected", len(self._core.connections))
            self._finished = self._ending = True
            self._transport.abort()
        elif self._handshake is not None:
            self._core.strangers.add(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes: whole frames become operations."""
        self._moved = self._core.loop.time()
        if self._ending:
            return
        if self._tls_handshake is not None:
            self._early.append(data)
            return
        self._splitter.feed(data)
        self._go_on()

    def eof_received(self) -> bool:
        """Answer what waits, then close: the client may still listen."""
        self._hung_up = True
        self.end()
        return not self._finished and not self._transport.get_extra_info("sslcontext")

    def pause_writing(self) -> None:
        """Ask nothing of the storage until the client has taken its answers."""
        self._pause("transport")

    def resume_writing(self) -> None:
        """Go on."""
        self._resume("transport")

    def pause_socket(self) -> None:
        """Likewise, where the buffer below TLS is full."""
        self._pause("socket")

    def resume_socket(self) -> None:
        """Go on."""
        self._resume("socket")

    def _pause(self, buffer: str) -> None:
        self._paused.add(buffer)
        self._unsent = self._unsent_bytes()
        self._moved = self._core.loop.time()

    def _resume(self, buffer: str) -> None:
        self._paused.discard(buffer)
        self._go_on()

    def _unsent_bytes(self) -> int:
        """Return the bytes of answers that the client has not taken, those below TLS included."""
        below = 0 if self._tls_socket is None else self._tls_socket.unsent_bytes
        return self._transport.get_write_buffer_size() + below

    def end_of_stream(self) -> None:
        """Answer what waits, then close: the client of TLS has ended its side of the socket.

        What it sent before may lie in the TLS as long as this is not read from.
        """
        self._stream_ended = True
        if self._reading:
            self._hung_up = True
            self.end()

    def connection_lost(self, error: Exception | None) -> None:
        """Drop what waits; what is with the storage will be done, and not answered."""
        self._lost = True
        for read in self._parked:
            self._core.polls.forget(read)
        self._writes.clear()
        self._reads.clear()
        self._core.strangers.forget(self)
        self._core.held -= self.held
        self.held = 0
        self._core.connections.discard(self)

    # -- requests

    def _take_frames(self) -> None:
        """Take whole frames as long as there is room for more; the rest stays as bytes."""
        if not self._splitter.pending or self._damaged or self._lost or self._finished:
            return
        try:
            if self._decoder.version == 2 and self._handshake is None:
                self._take_stretches()
            if self._is_full():
                return
            for message in self._splitter.frames():
                self._take(message)
                if self._is_full():
                    return
        except CorruptionError as error:
            _log.debug("%s: connection closed", error)
            self._damaged = True
            self.end()

    def _is_full(self) -> bool:
        """Return whether no more requests are taken now; at the end, memory does not matter."""
        return (
            self._waiting >= self._options.max_waiting
            or self._waiting_bytes >= self._options.max_waiting_bytes
            or (self._core.over and not self._ending)
        )

    def _take_stretches(self) -> None:
        """Take frames of v2 as long as there is room; requests alike become one operation."""
        while self._splitter.pending > _WORTH and not self._is_full():
            room = self._options.max_waiting - self._waiting
            enough = self._options.max_waiting_bytes - self._waiting_bytes
            size, window = v2.leading_window(self._splitter.waiting(), room, enough)
            if window is not None:
                self._splitter.skip(size)
                self._queue(of_v2.operation_of_many(window), size)
                continue
            data, offsets, sizes = self._splitter.stretch(room, enough)
            if not offsets.size:
                return
            start = 0
            for count, requests in v2.group_requests(data, offsets, sizes):
                here = slice(start, start + count)
                if requests is not None:
                    size = int(sizes[here].sum()) + PREFIX * count
                    self._queue(of_v2.operation_of_many(requests), size)
                else:
                    for place, size in zip(offsets[here].tolist(), sizes[here].tolist()):
                        self._take(data[place : place + size])
                start += count

    def _take(self, message: bytes) -> None:
        request = self._decoder.decode(message)
        if self._start_tls is not None:
            self._take_behind_start_tls(request, len(message) + PREFIX)
            return
        operation = self._operation_of(request)
        if operation is not None:
            self._queue(operation, len(message) + PREFIX)

    def _queue(self, operation: Operation, size: int) -> None:
        operation.started, operation.size = self._moved, size
        self._waiting += operation.count
        self._waiting_bytes += operation.size
        if isinstance(operation, Ready):
            self._send([operation.answer(operation.status)])
        elif isinstance(operation, StartTls):
            self._start_tls = operation
        elif operation.writes:
            self._writes.append(operation)
        else:
            self._reads.append(operation)

    def _operation_of(self, request: Any) -> Operation | None:
        """Return what a request asks; None for one that gets no answer."""
        if self._handshake is not None:
            operation = self._handshake.operation_of(
                self._decoder.version, request, tls=self._may_start_tls
            )
            if self._handshake.complete:
                self._core.strangers.forget(self)
                self._handshake = None
            return operation
        if self._decoder.version == 2:
            return of_v2.operation_of(request)
        return of_v3.operation_of(request, tls=self._may_start_tls)

    def _go_on(self) -> None:
        """Give the storage what there is for it, read on if there is room, end if it is time."""
        if not self._paused:
            self._take_frames()
        if self._lost or self._finished:
            return
        if not self._paused:
            if self._writes and not self._write_busy:
                self._write_busy = True
                self._core.write(self._group(self._writes), self._stored, self._written)
            if self._reads and not self._read_busy and not self._core.over:
                self._read_busy = True
                self._core.read(self._group(self._reads), self._read)
        self._account()
        full = bool(self._paused) or self._is_full() or self._start_tls is not None
        if full == self._reading and not self._ending:
            self._reading = not full
            if full:
                self._transport.pause_reading()
            else:
                self._moved = self._core.loop.time()  # until now it was kept from moving
                self._transport.resume_reading()
                if self._stream_ended:  # TLS hands out what it has before that
                    self._core.loop.call_soon(self.end_of_stream)
        if not self._waiting and self._ending:
            if not (self._paused and self._splitter.pending):  # where a request may be
                self._finish()
        elif self._waiting == 1 and self._start_tls is not None:
            self._upgrade(self._start_tls)

    def _group(self, queue: deque[Operation]) -> list[Operation]:
        """Take operations off a queue: `max_group` requests, or as many as there are."""
        group: list[Operation] = []
        room = self._options.max_group
        while queue and room:
            first = queue.popleft()
            if first.count > room:
                queue.appendleft(first.part(room, first.count))
                first = first.part(0, room)
            group.append(first)
            room -= first.count
        return group

    # -- answers

    def _stored(self) -> None:
        self._write_busy = False
        if self._core.polls.waiting:
            self._core.polls.wake()
        self._go_on()

    def _written(self, answers: Sequence[Answer]) -> None:
        self._send(answers)
        self._go_on()

    def _read(self, answers: Sequence[Answer | Read], left: Sequence[Operation]) -> None:
        """Send answers; what is left comes again, long polls later."""
        self._read_busy = False
        if self._lost:
            return
        self._send([answer for answer in answers if isinstance(answer, Answer)])
        for answer in answers:
            if isinstance(answer, Read):
                answer.expired = self._ending
                self._park(answer)
        self._reads.extendleft(reversed(left))
        self._go_on()

    def _park(self, read: Read) -> None:
        if self._ending:
            read.expired = True
            self._reads.append(read)
            return
        self._parked.add(read)
        self._core.polls.park(read, self._unpark)

    def _unpark(self, read: Read) -> None:
        self._parked.discard(read)
        self._reads.append(read)
        self._go_on()

    def _send(self, answers: Sequence[Answer]) -> None:
        if self._lost:
            return
        for operation, _, _ in answers:
            self._waiting -= operation.count
            self._waiting_bytes -= operation.size
        if answers:
            self._core.observe(answers)  # before they go: who has an answer finds it counted
            self._write(b"".join([answer.frame for answer in answers]))

    def _write(self, data: bytes) -> None:
        if self._tls_socket is None:
            self._transport.write(data)
            return
        with memoryview(data) as view:
            for start in range(0, len(view), _TLS_PIECE):
                self._transport.write(bytes(view[start : start + _TLS_PIECE]))

    # -- TLS

    def _take_behind_start_tls(self, request: Any, size: int) -> None:
        """Keep the first step of an authentication, to be answered in TLS; refuse all else.

        Real clients send it in the clear with START_TLS, before that is answered. It says nothing,
        so whoever has put it there has gained nothing.
        """
        begins = self._handshake is not None and not self._handshake.begun
        if self._behind_start_tls or not begins or self._decoder.version == 2:
            raise CorruptionError(None, None, "request behind START_TLS")
        operation = self._operation_of(request)
        if not isinstance(operation, Ready) or (operation.name, operation.status) != _STEP:
            raise CorruptionError(None, None, "request behind START_TLS")
        operation.started, operation.size = self._moved, size
        self._behind_start_tls.append(operation)

    def _upgrade(self, operation: StartTls) -> None:
        """Answer START_TLS, the last answer in the clear, and begin the handshake."""
        self._send([operation.answer(Status.EOK)])
        if self._splitter.pending or self._ending:
            _log.debug("a request in the clear behind START_TLS: connection closed")
            self.end()
            self._go_on()
            return
        self._tls_handshake = self._core.loop.create_task(self._shake_hands())
        self._core.tasks.add(self._tls_handshake)
        self._tls_handshake.add_done_callback(self._core.tasks.discard)

    async def _shake_hands(self) -> None:
        assert self._core.tls is not None
        try:
            transport = await self._core.loop.start_tls(
                self._transport, self, self._core.tls, server_side=True
            )
        except (OSError, asyncio.CancelledError) as error:
            _log.info("TLS handshake failed: %s", error)
            self._transport.abort()
            self.connection_lost(None)  # which no protocol may be there to say
            return
        finally:
            self._tls_handshake = None
        if transport is None or self._lost:
            return
        self._tls_socket = TlsSocket(self._transport, self)
        self._transport = transport
        self._may_start_tls = False
        self._start_tls = None
        self._reading = True
        kept, self._behind_start_tls = self._behind_start_tls, []
        self._waiting += len(kept)
        self._waiting_bytes += sum(operation.size for operation in kept)
        self._send([operation.answer(operation.status) for operation in kept])
        early, self._early = self._early, []
        for data in early:  # it came in one piece with the client's end of the handshake
            self.data_received(data)
        self._go_on()

    # -- room, and the end

    def _account(self) -> None:
        waiting = self._waiting_bytes + self._waiting * _REQUEST_COST
        held = self._splitter.pending + waiting + self._unsent_bytes()
        self._core.held += held - self.held
        if self._handshake is not None:
            self._core.strangers.count(self, held - self.held)
        self.held = held

    def sweep(self, now: float) -> None:
        """Let go of a peer that has stalled; see whether there is room again."""
        unsent = self._unsent_bytes()
        if unsent != self._unsent:
            self._unsent, self._moved = unsent, now
        still = now - self._moved
        if unsent or (self._splitter.pending and self._reading):
            if still > self._options.stall_timeout:
                _log.info("a client has stalled for %.1f s: closed", still)
                self.abort()
        elif self._finished and still > _LINGER:
            self.abort()
        if not self._reading or self._reads:
            self._go_on()

    def end(self) -> None:
        """Read no more; answer what waits, then close."""
        if self._ending or self._lost:
            return
        self._ending = True
        if self._tls_handshake is not None:
            self._tls_handshake.cancel()
            return
        for read in list(self._parked):
            self._core.polls.expire(read)
        self._go_on()

    def _finish(self) -> None:
        """Close behind the last answer, without a reset that could overtake it.

        A socket that is closed while bytes lie unread in it resets the connection: so they are
        read and dropped for a moment.
        """
        self._finished = True
        self._moved = self._core.loop.time()
        if self._hung_up or not self._transport.can_write_eof():
            self._transport.close()
            return
        try:
            self._transport.write_eof()
        except OSError:  # the client has reset it, while it was not read from
            self._transport.abort()
            return
        if not self._reading:
            self._transport.resume_reading()

    def descriptor(self) -> int:
        """Return that of the client's socket, -1 once it is closed."""
        return int(self._transport.get_extra_info("socket").fileno())

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()
