"""Connection: many requests in flight on one socket, each matched with its own answer.

Of the threads that wait for answers, one at a time receives for all of them, and the others sleep.
A single thread needs no thread switches, and none is lost when the process forks or ends.

Locks are held by ``with`` only, and never while the thread waits for another lock or for the
bookie; the exception is `_send_lock`, because only one thread at a time sends. The id of the
receiving thread is kept. With these two, `_repair` can end what an interrupted call left.

The key of a request is what its dialect (v2 or v3) finds in both it and its answer, such as the
transaction id.
"""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice
from queue import Empty, SimpleQueue
from threading import RLock, get_ident
from typing import Any, TypeVar

from bkstore.errors import BkstoreError, BookieUnavailable, CorruptionError
from bkstore.wire.client.dialect import Dialect, PendingRequest
from bkstore.wire.client.interrupt_repair import release_owned, repair, repair_on_interrupt
from bkstore.wire.client.socket_stream import MAX_WAIT_SECONDS, SocketStream
from bkstore.wire.frames import LENGTH_BYTES, MAX_FRAME_BYTES, FrameSplitter
from bkstore.wire.status_codes import Status

_T = TypeVar("_T")

_MAX_ANSWER_FRAME = MAX_FRAME_BYTES + 64
"""A batch read's answer with one largest record is 12 bytes longer than the request to add it."""

_MAX_BYTES_IN_FLIGHT = 4 << 20
_RECHECK_SECONDS = 0.05

_MAX_SILENT_TIMEOUTS = 3
"""Timeouts without a byte from the bookie after which an unanswered request ends the connection."""

_MAX_KEYS_TO_DROP = 4096
"""The number of timed-out requests whose answers are still expected."""


class PipelinedConnection:
    """Requests and answers over one `SocketStream`, with at most `window` requests in flight.

    Two requests with the same key are never in flight together: the second waits for the answer to
    the first. A request without an answer in `timeout` seconds ends with `BookieUnavailable` and
    makes room for another; a late answer to it is dropped. The connection is given up at a timeout
    if the dialect repeats keys, because a late answer could be taken for another's; otherwise once
    the bookie has been silent for three timeouts, as if a router or firewall had dropped it.
    `unsolicited_keys` has keys of answers that may come without a request, once each.

    Once it `has_failed` (lost, given up, an invalid answer, an interrupted call) no more requests
    are taken, and all in flight end with that error, whether or not the bookie has executed them.
    Threads: safe.
    """

    def __init__(
        self,
        stream: SocketStream,
        dialect: Dialect,
        bookie_name: str,
        *,
        timeout: float,
        window: int,
        unsolicited_keys: Iterable[Hashable] = (),
    ) -> None:
        self._stream = stream
        self._dialect = dialect
        self._name = bookie_name
        self._timeout = timeout
        self._window = window
        self._splitter = FrameSplitter(_MAX_ANSWER_FRAME)
        self._in_flight: dict[Hashable, PendingRequest[Any]] = {}
        # keys of answers to drop when they come, oldest first
        self._keys_to_drop: dict[Hashable, None] = dict.fromkeys(unsolicited_keys)
        self._last_receipt = time.monotonic()
        self._failure: BkstoreError | None = None
        self._receive_error = ""
        self._handed_out_bytes = 0  # bytes of answers, for offsets in errors
        self._receiver_thread: int | None = None  # id of the thread that receives
        self._change_queues: list[SimpleQueue[None]] = []  # one for each waiting thread
        self._state_lock = RLock()
        self._send_lock = RLock()

    @property
    def has_failed(self) -> bool:
        """Whether the connection has ended and takes no more requests."""
        return self._failure is not None

    # -- requests

    @repair_on_interrupt
    def call(self, request: PendingRequest[_T]) -> _T:
        """Return the result of one request, or raise its error."""
        self._send_requests((request,))
        self._wait_for_answer(request)
        return self.result(request)

    @repair_on_interrupt
    def send_no_wait(self, request: PendingRequest[_T]) -> None:
        """Send one request without waiting for its answer, which is dropped when it comes."""
        self._send_requests((request,))
        with self._state_lock:
            if not request.is_done:
                self._expect_late_answer(request)

    def call_all(self, requests: Iterable[PendingRequest[_T]]) -> Iterator[PendingRequest[_T]]:
        """Yield requests in order, each `is_done`, with up to `window` of them in flight. If the
        caller stops early, waits for the answers to the requests in flight. Takes requests as they
        are sent: memory is bounded by the window and 4 MiB of frames."""
        source = iter(requests)
        # `waiting` has the requests sent but not yet yielded; `unread_bytes` are the bytes of their
        # frames, which the bookie may not have read.
        waiting: deque[PendingRequest[_T]] = deque()
        unread_bytes, exhausted = 0, False
        try:
            while True:
                # send more once half of the window is free, so that each send has many requests
                free_bytes = _MAX_BYTES_IN_FLIGHT - unread_bytes
                if not exhausted and 2 * len(waiting) <= self._window and free_bytes > 0:
                    batch = _take_requests(source, self._window - len(waiting), free_bytes)
                    unread_bytes += sum(len(request.frame) for request in batch)
                    waiting.extend(batch)
                    exhausted = not batch
                    self._send_requests(batch)
                if not waiting:
                    return
                self._wait_for_answer(waiting[0])
                request = waiting.popleft()
                unread_bytes -= len(request.frame)
                yield request
        except (Exception, GeneratorExit):  # from the source, or the caller stops
            raise
        except BaseException:  # an interrupt
            repair(self)
            waiting.clear()  # `repair` has ended them, or they were never sent
            raise
        finally:
            for request in waiting:
                self._wait_for_answer(request)

    @repair_on_interrupt
    def result(self, request: PendingRequest[_T]) -> _T:
        """Return the result of a request that is done, or raise its error."""
        if request.error is not None:
            raise copy.copy(request.error)  # several threads may raise the same
        assert request.answer is not None  # done, and without an error
        status, content = request.answer
        if status is not Status.EOK:
            status.raise_if_error(f"{self._name}: {request.describe()}")
        try:
            return request.decode_result(content)
        except CorruptionError as error:
            located_error = error.relocate(f"{self._name}: {request.describe()}")
            with self._state_lock:  # no further answer of this bookie is trusted
                self._end_with_failure(
                    BookieUnavailable(f"{self._name}: connection closed: {located_error}")
                )
            raise located_error from None

    # -- sending

    @repair_on_interrupt
    def _send_requests(self, requests: Sequence[PendingRequest[Any]]) -> None:
        """Register and send requests, waiting for room among those in flight; if none becomes free
        in time, the connection is given up, and the requests end with an error."""
        stop = 0
        while stop < len(requests):
            # send as many as fit at once, then wait for room for the next one
            start, stop = stop, self._register_fitting(requests, stop)
            self._send([request.frame for request in requests[start:stop] if not request.is_done])
            if stop < len(requests):
                waiting = requests[stop]
                self._register_or_give_up(waiting)
                # it is done already if the connection has failed meanwhile
                self._send([] if waiting.is_done else [waiting.frame])
                stop += 1

    def _register_fitting(self, requests: Sequence[PendingRequest[Any]], start: int) -> int:
        """Register requests from `start` on while there is room; return the index of the first that
        must wait. If the connection has failed, requests end with its error."""
        with self._state_lock:
            while start < len(requests) and self._try_register(requests[start]):
                start += 1
        return start

    def _try_register(self, request: PendingRequest[Any]) -> bool:
        """Register a request, or end it on a failed connection. Return False if it must wait: for
        room, or for the answer to another request with its key."""
        if self._failure is not None:
            _end_with_error(request, self._failure)
        elif len(self._in_flight) < self._window and request.key not in self._in_flight:
            request.sent_at = time.monotonic()
            self._in_flight[request.key] = request
        else:
            return False
        return True

    def _register_or_give_up(self, request: PendingRequest[Any]) -> None:
        """Wait for room and register a request; give the connection up if none comes in time."""
        if self._wait_until(lambda: self._try_register(request), time.monotonic() + self._timeout):
            return
        with self._state_lock:
            reason = f"no answer to any request in {self._timeout:g} s"
            self._end_with_failure(BookieUnavailable(f"{self._name}: connection closed: {reason}"))
            self._try_register(request)  # which now ends it with that failure

    def _send(self, frames: Sequence[bytes]) -> None:
        """Send frames. Receives meanwhile, as a bookie may not read until its answers are taken."""
        if not frames:
            return
        deadline = time.monotonic() + self._timeout
        with self._send_lock:
            unsent = memoryview(frames[0] if len(frames) == 1 else b"".join(frames))
            try:
                while unsent and self._failure is None:
                    unsent = unsent[self._stream.send(unsent) :]
                    if unsent:
                        self._wait_to_send(deadline)
            except OSError as error:
                with self._state_lock:
                    self._fail_as_lost(error.strerror or str(error))

    def _wait_to_send(self, deadline: float) -> None:
        """Wait until the socket takes bytes, receiving if no other thread does."""
        seconds_left = deadline - time.monotonic()
        with self._state_lock:
            if seconds_left <= 0:
                self._fail_as_lost(f"the bookie did not read the requests in {self._timeout:g} s")
                return
            is_receiver = self._try_become_receiver()
        if is_receiver:
            self._receive_once(seconds_left, or_writable=True)
        else:  # recheck soon, as the thread that receives may stop
            self._stream.wait(min(seconds_left, _RECHECK_SECONDS), send=True)

    # -- receiving

    @repair_on_interrupt
    def _wait_for_answer(self, request: PendingRequest[Any]) -> None:
        """Wait until a request is done, with an answer or an error. If its time is over, end it
        with `BookieUnavailable`, and perhaps the connection with it."""
        deadline = request.sent_at + self._timeout + request.extra_seconds
        if request.is_done or self._wait_until(lambda: request.is_done, deadline):
            return
        with self._state_lock:
            if request.answer or request.error:  # it was answered just now
                return
            reason = f"no answer to {request.describe()} in {deadline - request.sent_at:g} s"
            _end_with_error(request, BookieUnavailable(f"{self._name}: {reason}"))
            # A bookie that has sent nothing for long counts as gone. If a dialect repeats keys, the
            # late answer to this request could be taken for that to a later one with its key.
            max_silent_seconds = _MAX_SILENT_TIMEOUTS * self._timeout
            is_silent = time.monotonic() >= self._last_receipt + max_silent_seconds
            if is_silent or self._dialect.repeats_keys:
                self._end_with_failure(
                    BookieUnavailable(f"{self._name}: connection closed: {reason}")
                )
            else:
                self._expect_late_answer(request)

    def _expect_late_answer(self, request: PendingRequest[Any]) -> None:
        """Take a request out of flight, and keep its key, so that a late answer is dropped."""
        if self._in_flight.pop(request.key, None) is not None:
            self._keys_to_drop[request.key] = None
            if len(self._keys_to_drop) > _MAX_KEYS_TO_DROP:
                oldest_key = next(iter(self._keys_to_drop))
                del self._keys_to_drop[oldest_key]
            self._notify_change()

    def _wait_until(self, ready: Callable[[], bool], deadline: float) -> bool:
        """Receive, or wait while another thread does, until `ready()` is True; return False if that
        is not so by the `deadline`. `ready` is called with the state lock held."""
        while True:
            with self._state_lock:
                if ready():
                    return True
                seconds_left = deadline - time.monotonic()
                if seconds_left <= 0:
                    return False
                is_receiver = self._try_become_receiver()
                change_queue = None if is_receiver else self._subscribe_to_change()
            if change_queue is None:
                self._receive_once(seconds_left)
            else:
                _wait_for_change(change_queue, seconds_left)

    def _try_become_receiver(self) -> bool:
        """Become the receiving thread unless there is one; return whether this thread became it."""
        if self._receiver_thread is not None:
            return False
        self._receiver_thread = get_ident()
        return True

    def _receive_once(self, max_seconds: float, *, or_writable: bool = False) -> None:
        """As the receiving thread, wait for bytes (or room to send), and process those received.

        After an exception it stays the receiving thread, so `_repair` knows that bytes may be lost.
        """
        data: bytes | None = None
        if self._stream.wait(max_seconds, receive=True, send=or_writable):
            data = self._receive()
        with self._state_lock:
            self._process_received(data)

    def _subscribe_to_change(self) -> SimpleQueue[None]:
        """Return a queue that the next `_notify_change` puts an item into."""
        change_queue: SimpleQueue[None] = SimpleQueue()
        self._change_queues.append(change_queue)
        return change_queue

    def _notify_change(self) -> None:
        """Wake every thread that waits for a change. Extra calls do no harm."""
        for change_queue in self._change_queues:
            change_queue.put(None)
        self._change_queues.clear()

    def _receive(self) -> bytes | None:
        """Return received bytes, None if there are none yet, b"" if the connection ended."""
        try:
            return self._stream.receive()
        except OSError as error:
            self._receive_error = error.strerror or str(error)
            return b""

    def _process_received(self, data: bytes | None) -> None:
        """Hand out received answers, then let another thread receive. None: nothing came."""
        if data:
            try:
                self._hand_out_answers(data)
            except CorruptionError as error:
                self._end_with_failure(error)
        elif data is not None:  # b"": the connection has ended
            partial_bytes = self._splitter.pending_bytes
            position = f", {partial_bytes} bytes into an answer" if partial_bytes else ""
            self._fail_as_lost(f"{self._receive_error or 'the bookie closed it'}{position}")
        self._receiver_thread = None
        self._notify_change()

    def _hand_out_answers(self, data: bytes) -> None:
        """Give whole answers to their requests. Raises `CorruptionError` for an answer whose key no
        request in flight has, unless its request has timed out."""
        self._splitter.feed(data)
        self._last_receipt = time.monotonic()
        try:
            for message in self._splitter.frames():
                key, status, content = self._dialect.decode(message)
                request = self._in_flight.get(key)
                if request is not None:
                    request.answer = (status, content)
                    request.is_done = True
                    # last: if an interrupt comes before, `_end_with_failure` still sees the request
                    del self._in_flight[key]
                elif key in self._keys_to_drop:
                    del self._keys_to_drop[key]
                else:
                    raise CorruptionError(None, None, f"an answer without a request: {key}")
                self._handed_out_bytes += LENGTH_BYTES + len(message)
        except CorruptionError as error:
            raise CorruptionError(self._name, self._handed_out_bytes, error.reason) from None

    # -- failure and closing

    def _fail_as_lost(self, reason: str) -> None:
        text = f"the connection is lost ({reason}); pending requests may have been executed"
        self._end_with_failure(BookieUnavailable(f"{self._name}: {text}"))

    def _end_with_failure(self, error: BkstoreError) -> None:
        """End the connection and all requests in flight with `error`, or with the failure that has
        ended the connection before."""
        if self._failure is None:
            self._failure = error
        for request in self._in_flight.values():
            if not request.is_done:
                _end_with_error(request, self._failure)
        self._in_flight.clear()
        self._stream.interrupt()
        self._notify_change()

    def _repair(self) -> None:
        """Release this thread's locks and fail the connection after an interrupted call: part of a
        frame may have been sent, or received bytes may be lost."""
        release_owned(self._send_lock)
        self._stream.release_owned()
        release_owned(self._state_lock)
        with self._state_lock:
            if self._receiver_thread == get_ident():
                self._receiver_thread = None
            self._fail_as_lost("a call was interrupted")

    @repair_on_interrupt
    def is_usable(self) -> bool:
        """Return whether the connection takes requests."""
        with self._state_lock:
            is_waited_for = any(not request.is_done for request in self._in_flight.values())
            is_idle = not is_waited_for and self._receiver_thread is None
            # nobody receives on an idle connection: if it has bytes, or its end, process them here
            if is_idle and self._failure is None and self._stream.wait(0, receive=True):
                self._process_received(self._receive())
            return self._failure is None

    @repair_on_interrupt
    def close(self) -> None:
        """End the connection, and close its descriptor once no thread uses it. Idempotent."""
        with self._state_lock:
            self._end_with_failure(BookieUnavailable(f"{self._name}: the client was closed"))
        # The receiving thread still uses the descriptor; `_end_with_failure` has woken it.
        while True:
            with self._state_lock:
                if self._receiver_thread is None:
                    break
                change_queue = self._subscribe_to_change()
            _wait_for_change(change_queue, MAX_WAIT_SECONDS)
        with self._send_lock:
            self._stream.close()

    def abandon(self) -> None:
        """Close the descriptor in a forked child. Takes no lock: it could be held forever there."""
        self._stream.close()


def _end_with_error(request: PendingRequest[Any], error: BkstoreError) -> None:
    request.error = error
    request.is_done = True


def _wait_for_change(change_queue: SimpleQueue[None], seconds: float) -> None:
    """Wait until the connection's state changes, or for some seconds."""
    try:
        change_queue.get(timeout=min(seconds, MAX_WAIT_SECONDS))
    except Empty:
        return


def _take_requests(
    source: Iterator[PendingRequest[_T]], max_count: int, free_bytes: int
) -> list[PendingRequest[_T]]:
    """Return at most `max_count` next requests, up to the one that uses up `free_bytes`."""
    requests: list[PendingRequest[_T]] = []
    for request in islice(source, max_count):
        requests.append(request)
        free_bytes -= len(request.frame)
        if free_bytes <= 0:
            break
    return requests
