"""Connection: decode one client's bytes, pass its requests to the pools, send the answers.

The pools are threads that call the storage. A long poll is a read that waits until the ledger's LAC
advances; it is parked with the server's `long_polls` meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

from bkstore.errors import CorruptionError
from bkstore.wire import v2
from bkstore.wire.frames import LENGTH_BYTES, FrameSplitter
from bkstore.wire.protocol_detection import RequestDecoder
from bkstore.wire.server.authentication import Authentication
from bkstore.wire.server.requests import v2_requests, v3_requests
from bkstore.wire.server.requests.operations import (
    EncodedResponse,
    ImmediateOperation,
    Operation,
    ReadAnswer,
    ReadOperation,
    StartTlsOperation,
)
from bkstore.wire.server.shared_state import SharedState
from bkstore.wire.server.tls_socket import TlsSocket, write_to_tls
from bkstore.wire.status_codes import Status

_log = logging.getLogger(__name__)

_LINGER_SECONDS = 1.0  # seconds for a client to take its last answers and hang up

_AUTH_ACCEPTED = ("AUTH", Status.EOK)

_REQUEST_OVERHEAD_BYTES = 1536
"""Memory that a waiting request takes beyond its frame, measured for a long poll with its decoded
message, its timer and its queue slots. Other requests take less."""


_MIN_BATCH_BYTES = 256
"""Received bytes above which v2 requests that differ only in their ids are decoded together."""


class ServedConnection(asyncio.Protocol):
    """One client, whose writes keep their order, as do its reads.

    The storage has at most one group of each at a time. A frame that cannot be decoded ends the
    connection: earlier requests are answered, later bytes are dropped. The socket is read while
    there is room for more requests (`ServerOptions`). Nothing is passed to the storage while the
    client does not take its answers. If the server has users, the client must first authenticate.
    """

    def __init__(self, server: SharedState) -> None:
        self._server = server
        self._options = server.options
        self._splitter = FrameSplitter(server.options.max_frame)
        self._decoder = RequestDecoder(extended=server.extended)
        self._authentication = None if server.users is None else Authentication(server.users)
        """None once the client has authenticated, or if the server does not require it."""
        self._writes: deque[Operation] = deque()
        self._reads: deque[Operation] = deque()
        self._is_writing_group = self._is_reading_group = False  # the storage has a group
        self._parked_polls: set[ReadOperation] = set()
        self._waiting_count = self._waiting_bytes = 0  # of requests that are not answered
        self._is_reading = True
        self._undecodable = False  # the rest of the stream, after a bad frame
        self._paused_buffers: set[str] = set()  # full output buffers: "transport", "socket"
        # no more requests are taken; the client sends no more; the last answer is sent; it is gone
        self._ending = self._client_hung_up = self._finished = self._lost = False
        self._may_start_tls = server.tls is not None
        self._start_tls: StartTlsOperation | None = None  # until TLS has begun
        self._kept_auth_steps: list[ImmediateOperation] = []  # to be answered once TLS has begun
        self._tls_socket: TlsSocket | None = None
        self._socket_ended = False  # without a TLS close_notify
        self._tls_handshake_task: asyncio.Task[None] | None = None
        self._decrypted_early: list[bytes] = []  # decrypted before `start_tls` has returned
        self._last_progress = server.loop.time()
        self._last_unsent_bytes = 0
        self.held_bytes = 0

    # -- calls from the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register a new client, or abort it if there are too many or the server is stopping."""
        self._transport = cast(asyncio.Transport, transport)
        is_over_limit = len(self._server.connections) >= self._server.max_connections
        self._server.connections.add(self)
        if is_over_limit or self._server.is_stopping:
            _log.warning("a client is refused: %d are connected", len(self._server.connections))
            self._finished = self._ending = True
            self._transport.abort()
        elif self._authentication is not None:
            self._server.unauthenticated.add(self)

    def data_received(self, data: bytes) -> None:
        """Take received bytes and turn whole frames into operations."""
        self._last_progress = self._server.loop.time()
        if self._ending:
            return
        if self._tls_handshake_task is not None:
            self._decrypted_early.append(data)
            return
        self._splitter.feed(data)
        self._advance()

    def eof_received(self) -> bool:
        """Answer the waiting requests, then close: the client may still read its answers."""
        self._client_hung_up = True
        self.drain()
        # True keeps the transport open for answers; asyncio does not support that for TLS
        return not self._finished and not self._transport.get_extra_info("sslcontext")

    def pause_writing(self) -> None:
        """Pass nothing to the storage until the client has taken its answers."""
        self._pause_taking("transport")

    def resume_writing(self) -> None:
        """Resume work after `pause_writing`."""
        self._resume_taking("transport")

    def pause_socket(self) -> None:
        """Pass nothing to the storage while the socket's buffer below TLS is full."""
        self._pause_taking("socket")

    def resume_socket(self) -> None:
        """Resume work after `pause_socket`."""
        self._resume_taking("socket")

    def _pause_taking(self, buffer: str) -> None:
        self._paused_buffers.add(buffer)
        self._last_unsent_bytes = self._unsent_bytes()
        self._last_progress = self._server.loop.time()

    def _resume_taking(self, buffer: str) -> None:
        self._paused_buffers.discard(buffer)
        self._advance()

    def _unsent_bytes(self) -> int:
        """Return how many bytes of answers are buffered here and below TLS."""
        socket_bytes = 0 if self._tls_socket is None else self._tls_socket.unsent_bytes
        return self._transport.get_write_buffer_size() + socket_bytes

    def socket_eof_received(self) -> None:
        """Answer the waiting requests, then close: a TLS client has ended its side of the socket.
        While reading is paused TLS may hold earlier bytes; `_advance` then calls this again."""
        self._socket_ended = True
        if self._is_reading:
            self._client_hung_up = True
            self.drain()

    def connection_lost(self, error: Exception | None) -> None:
        """Drop the waiting requests. Those already passed to the storage are carried out, but not
        answered."""
        self._lost = True
        for read in self._parked_polls:
            self._server.long_polls.cancel(read)
        self._writes.clear()
        self._reads.clear()
        self._server.unauthenticated.discard(self)
        self._server.held_bytes -= self.held_bytes
        self.held_bytes = 0
        self._server.connections.discard(self)

    # -- requests

    def _take_frames(self) -> None:
        """Decode whole frames while there is room for more requests; the rest stays as bytes."""
        if not self._splitter.pending_bytes or self._undecodable or self._lost or self._finished:
            return
        try:
            # many v2 requests at a time, but not while each may be a step of an authentication
            if self._decoder.version == 2 and self._authentication is None:
                self._take_alike_requests()
            if self._is_full():
                return
            for message in self._splitter.frames():
                self._take_message(message)
                if self._is_full():
                    return
        except CorruptionError as error:
            _log.debug("%s: connection closed", error)
            self._undecodable = True
            self.drain()

    def _is_full(self) -> bool:
        """Return whether no more requests are taken now. Memory is not limited while ending."""
        return (
            self._waiting_count >= self._options.max_waiting
            or self._waiting_bytes >= self._options.max_waiting_bytes
            or (self._server.over_memory_limit and not self._ending)
        )

    def _take_alike_requests(self) -> None:
        """Decode v2 frames while there is room; requests that are alike (adds under one master key,
        reads of consecutive entries) become one operation."""
        while self._splitter.pending_bytes > _MIN_BATCH_BYTES and not self._is_full():
            # the fast way: the leading frames are alike, so all are decoded at once
            max_count = self._options.max_waiting - self._waiting_count
            max_bytes = self._options.max_waiting_bytes - self._waiting_bytes
            size, leading = v2.decode_leading_group(self._splitter.peek(), max_count, max_bytes)
            if leading is not None:
                self._splitter.skip(size)
                self._queue_operation(v2_requests.make_operation_of_many(leading), size)
                continue
            # otherwise split off whole frames, and group neighbors that are alike
            frames, offsets, sizes = self._splitter.take_frames(max_count, max_bytes)
            if not offsets.size:  # no frame is whole
                return
            start = 0
            # `requests` is None for frames that are not alike: these are decoded one by one
            for count, requests in v2.group_requests(frames, offsets, sizes):
                rows = slice(start, start + count)
                if requests is not None:
                    size = int(sizes[rows].sum()) + LENGTH_BYTES * count
                    self._queue_operation(v2_requests.make_operation_of_many(requests), size)
                else:
                    for offset, size in zip(offsets[rows].tolist(), sizes[rows].tolist()):
                        self._take_message(frames[offset : offset + size])
                start += count

    def _take_message(self, message: bytes) -> None:
        """Decode the request in one frame and queue its operation, if it gets an answer. After
        START_TLS, keep it until TLS has begun."""
        request = self._decoder.decode(message)
        if self._start_tls is not None:
            self._keep_auth_step(request, len(message) + LENGTH_BYTES)
            return
        operation = self._operation_of(request)
        if operation is not None:
            self._queue_operation(operation, len(message) + LENGTH_BYTES)

    def _queue_operation(self, operation: Operation, frame_bytes: int) -> None:
        """Answer an operation that is ready, or queue it for the storage."""
        operation.received_at, operation.frame_bytes = self._last_progress, frame_bytes
        self._waiting_count += operation.request_count
        self._waiting_bytes += operation.frame_bytes
        if isinstance(operation, ImmediateOperation):
            self._send([operation.answer(operation.status)])
        elif isinstance(operation, StartTlsOperation):
            self._start_tls = operation
        elif operation.is_write:
            self._writes.append(operation)
        else:
            self._reads.append(operation)

    def _operation_of(self, request: Any) -> Operation | None:
        """Return the operation of a request, or None if the request gets no answer."""
        if self._authentication is not None:
            version, tls = self._decoder.version, self._may_start_tls
            operation = self._authentication.make_operation(version, request, tls=tls)
            if self._authentication.is_complete:
                self._server.unauthenticated.discard(self)
                self._authentication = None
            return operation
        if self._decoder.version == 2:
            return v2_requests.make_operation(request)
        return v3_requests.make_operation(request, tls=self._may_start_tls)

    def _advance(self) -> None:
        """Pass requests to the storage, pause or resume reading, begin TLS, or close once all is
        answered: whatever the present state allows. Called after every event that may change it."""
        if not self._paused_buffers:
            self._take_frames()
        if self._lost or self._finished:
            return
        # the storage has one group of writes and one of reads, while the client takes its answers
        if not self._paused_buffers:
            if self._writes and not self._is_writing_group:
                self._is_writing_group = True
                writes = self._take_group(self._writes)
                self._server.submit_writes(writes, self._on_stored, self._on_written)
            if self._reads and not self._is_reading_group and not self._server.over_memory_limit:
                self._is_reading_group = True
                self._server.submit_reads(self._take_group(self._reads), self._on_read)
        self._update_held()
        # the socket is read while there is room for requests, and not between START_TLS and TLS
        must_pause = bool(self._paused_buffers) or self._is_full() or self._start_tls is not None
        if must_pause == self._is_reading and not self._ending:
            self._is_reading = not must_pause
            if must_pause:
                self._transport.pause_reading()
            else:
                self._last_progress = self._server.loop.time()  # a pause is no stall
                self._transport.resume_reading()
                if self._socket_ended:  # after TLS has handed out what it holds
                    self._server.loop.call_soon(self.socket_eof_received)
        if not self._waiting_count and self._ending:
            # bytes that are not decoded while paused may be one more request
            if not (self._paused_buffers and self._splitter.pending_bytes):
                self._close_gracefully()
        # TLS begins once all requests before START_TLS are answered
        elif self._waiting_count == 1 and self._start_tls is not None:
            self._begin_tls_handshake(self._start_tls)

    def _take_group(self, queue: deque[Operation]) -> list[Operation]:
        """Remove operations with at most `max_group` requests together from the front of a queue;
        return them. An operation of many requests may be split."""
        group: list[Operation] = []
        free_requests = self._options.max_group
        while queue and free_requests:
            operation = queue.popleft()
            if operation.request_count > free_requests:
                queue.appendleft(operation.select_range(free_requests, operation.request_count))
                operation = operation.select_range(0, free_requests)
            group.append(operation)
            free_requests -= operation.request_count
        return group

    # -- answers

    def _on_stored(self) -> None:
        """Let the next group of writes go: the last one is stored, if not yet durable."""
        self._is_writing_group = False
        if self._server.long_polls.waiting_reads:
            self._server.long_polls.poll_bookie()
        self._advance()

    def _on_written(self, answers: Sequence[EncodedResponse]) -> None:
        self._send(answers)
        self._advance()

    def _on_read(self, answers: Sequence[ReadAnswer], unread: Sequence[Operation]) -> None:
        """Send answers, park the long polls among them, and put unread operations back."""
        self._is_reading_group = False
        if self._lost:
            return
        self._send([answer for answer in answers if isinstance(answer, EncodedResponse)])
        for answer in answers:
            if isinstance(answer, ReadOperation):
                answer.expired = self._ending
                self._park_long_poll(answer)
        self._reads.extendleft(reversed(unread))
        self._advance()

    def _park_long_poll(self, read: ReadOperation) -> None:
        """Let a long poll wait for its LAC, or read at once if the connection is ending."""
        if self._ending:
            read.expired = True
            self._reads.append(read)
            return
        self._parked_polls.add(read)
        self._server.long_polls.park(read, self._unpark_long_poll)

    def _unpark_long_poll(self, read: ReadOperation) -> None:
        self._parked_polls.discard(read)
        self._reads.append(read)
        self._advance()

    def _send(self, answers: Sequence[EncodedResponse]) -> None:
        """Send answers in one write, if the client is still there; their requests no longer count
        as waiting."""
        if self._lost:
            return
        for operation, _, _ in answers:
            self._waiting_count -= operation.request_count
            self._waiting_bytes -= operation.frame_bytes
        if answers:
            # before they are sent, so that a client that has its answer finds it counted
            self._server.observe(answers)
            self._write_frames(b"".join([answer.frame for answer in answers]))

    def _write_frames(self, frames: bytes) -> None:
        """Write frames to the socket, through TLS if it is used."""
        if self._tls_socket is None:
            self._transport.write(frames)
        else:
            write_to_tls(self._transport, frames)

    # -- TLS

    def _keep_auth_step(self, request: Any, frame_bytes: int) -> None:
        """Keep the first step of an authentication, to be answered in TLS: BookKeeper's client
        sends it in the clear right after START_TLS. It carries no secret, so an attacker who
        injects one gains nothing. Raises `CorruptionError` for any other request."""
        exchange = self._authentication
        is_first_step = exchange is not None and not exchange.has_sent_challenge
        if self._kept_auth_steps or not is_first_step or self._decoder.version == 2:
            raise CorruptionError(None, None, "request after START_TLS")
        step = self._operation_of(request)
        if not isinstance(step, ImmediateOperation) or (step.name, step.status) != _AUTH_ACCEPTED:
            raise CorruptionError(None, None, "request after START_TLS")
        step.received_at, step.frame_bytes = self._last_progress, frame_bytes
        self._kept_auth_steps.append(step)

    def _begin_tls_handshake(self, operation: StartTlsOperation) -> None:
        """Answer START_TLS, the last answer in the clear, and begin the handshake."""
        self._send([operation.answer(Status.EOK)])
        # bytes in the clear are not answered in TLS: somebody else may have sent them
        if self._splitter.pending_bytes or self._ending:
            _log.debug("an unencrypted request after START_TLS: connection closed")
            self.drain()
            self._advance()  # which `drain` does not do if the connection was ending already
            return
        self._tls_handshake_task = self._server.loop.create_task(self._do_tls_handshake())
        self._server.tls_handshakes.add(self._tls_handshake_task)
        self._tls_handshake_task.add_done_callback(self._server.tls_handshakes.discard)

    async def _do_tls_handshake(self) -> None:
        """Switch the transport to TLS, then answer the requests that came with the switch."""
        loop, tls = self._server.loop, self._server.tls
        assert tls is not None
        try:
            transport = await loop.start_tls(self._transport, self, tls, server_side=True)
        except (OSError, asyncio.CancelledError) as error:
            _log.info("TLS handshake failed: %s", error)
            self._transport.abort()
            self.connection_lost(None)  # asyncio may have no protocol left to call
            return
        finally:
            self._tls_handshake_task = None
        if transport is None or self._lost:
            return
        self._tls_socket = TlsSocket(self._transport, self)
        self._transport = transport
        self._may_start_tls = False
        self._start_tls = None
        self._is_reading = True  # the transport of TLS is not paused
        auth_steps, self._kept_auth_steps = self._kept_auth_steps, []
        # count them as waiting first, because `_send` subtracts what it answers
        self._waiting_count += len(auth_steps)
        self._waiting_bytes += sum(operation.frame_bytes for operation in auth_steps)
        self._send([operation.answer(operation.status) for operation in auth_steps])
        early_chunks, self._decrypted_early = self._decrypted_early, []
        for chunk in early_chunks:  # received together with the last message of the handshake
            self.data_received(chunk)
        self._advance()

    # -- memory, and closing

    def _update_held(self) -> None:
        """Recompute `held_bytes`, and add the difference to the counts of the server."""
        waiting_bytes = self._waiting_bytes + self._waiting_count * _REQUEST_OVERHEAD_BYTES
        held_bytes = self._splitter.pending_bytes + waiting_bytes + self._unsent_bytes()
        change, self.held_bytes = held_bytes - self.held_bytes, held_bytes
        self._server.held_bytes += change
        if self._authentication is not None:
            self._server.unauthenticated.count_bytes(self, change)

    def check_progress(self, now: float) -> None:
        """Abort a client that has stalled; take up work that waited for memory or for room in
        buffers. Called at regular intervals."""
        unsent_bytes = self._unsent_bytes()
        if unsent_bytes != self._last_unsent_bytes:
            self._last_unsent_bytes, self._last_progress = unsent_bytes, now
        idle_seconds = now - self._last_progress
        # it is the client's turn: to take answers, or to send the other bytes of a frame
        if unsent_bytes or (self._splitter.pending_bytes and self._is_reading):
            if idle_seconds > self._options.stall_timeout:
                _log.info("a client has stalled for %.1f s: disconnected", idle_seconds)
                self.abort()
        elif self._finished and idle_seconds > _LINGER_SECONDS:  # it does not hang up
            self.abort()
        if not self._is_reading or self._reads:
            self._advance()

    def drain(self) -> None:
        """Take no more requests, answer the waiting ones, then close."""
        if self._ending or self._lost:
            return
        self._ending = True
        if self._tls_handshake_task is not None:
            self._tls_handshake_task.cancel()  # which aborts the connection
            return
        for read in list(self._parked_polls):
            self._server.long_polls.expire(read)
        self._advance()

    def _close_gracefully(self) -> None:
        """Close after the last answer, without a TCP reset that could overtake it. Closing a socket
        with unread bytes resets the connection, so the output is closed first and input is read and
        dropped until the client hangs up or `_LINGER_SECONDS` have passed."""
        self._finished = True
        self._last_progress = self._server.loop.time()
        if self._client_hung_up or not self._transport.can_write_eof():
            self._transport.close()
            return
        try:
            self._transport.write_eof()
        except OSError:  # the client reset the connection while reading was paused
            self._transport.abort()
            return
        if not self._is_reading:
            self._transport.resume_reading()

    def fileno(self) -> int:
        """Return the file descriptor of the client's socket, or -1 once it is closed."""
        return int(self._transport.get_extra_info("socket").fileno())

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()
