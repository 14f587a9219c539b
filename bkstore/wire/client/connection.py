"""Connection: many requests under way on one socket, each given its own answer.

There is no thread behind it. Whoever waits for an answer reads for all: one thread at a time
receives and hands out what comes, the others sleep until theirs is there. So a single thread
pays for no change of threads, and nothing is left behind when a process forks or ends.

A lock is held by ``with`` alone and never while its thread waits for another one or for the
bookie (but for `_sending`, one thread at a time sends). Who has the turn to receive is known by
the thread's id. So what an interrupt leaves behind can be told, and is: `_repair` ends it.
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
from bkstore.wire.client.interrupts import release_owned, repair, repaired
from bkstore.wire.client.requests import Dialect, Request
from bkstore.wire.client.stream import LONGEST, Stream
from bkstore.wire.frames import MAX_FRAME, PREFIX, FrameSplitter
from bkstore.wire.status import Status

_T = TypeVar("_T")

_ANSWER_LIMIT = MAX_FRAME + 64
"""A batch with one largest record is 12 bytes longer than the request that added it."""

_BYTES_UNDER_WAY = 4 << 20
_LOOK_AGAIN = 0.05

_SILENCE = 3
"""Time-outs without a byte from the bookie after which one more ends the connection."""

_MOST_LATE = 4096
"""Requests that got no answer in time, of which one may still come."""


class Connection:
    """Requests and answers over one `Stream`, at most `window` requests under way.

    No two requests with one key are under way at a time: the second waits for the answer of the
    first. A request without an answer in `timeout` seconds is `BookieUnavailable`, and makes room
    for another; its answer is passed over if it comes. Where the dialect cannot tell a late answer
    from another's, the connection is given up with it; else when the bookie has been silent for
    three times as long: somebody in between may have forgotten the connection. `unasked` are keys
    of answers that may come to nothing, once each.

    Once it `failed` (lost, given up, an answer that cannot be, a call that was interrupted) every
    request under way ends with that error and no other is taken: what became of them is not
    known. Threads: safe.
    """

    def __init__(
        self,
        stream: Stream,
        dialect: Dialect,
        name: str,
        *,
        timeout: float,
        window: int,
        unasked: Iterable[Hashable] = (),
    ) -> None:
        self._stream = stream
        self._dialect = dialect
        self._name = name
        self._timeout = timeout
        self._window = window
        self._splitter = FrameSplitter(_ANSWER_LIMIT)
        self._under_way: dict[Hashable, Request[Any]] = {}
        self._late: dict[Hashable, None] = dict.fromkeys(unasked)
        self._heard = time.monotonic()
        self._failure: BkstoreError | None = None
        self._broken = ""
        self._taken = 0  # bytes of answers that were handed out
        self._reader: int | None = None  # the thread that receives
        self._sleepers: list[SimpleQueue[None]] = []  # those that wait until something changes
        self._state = RLock()
        self._sending = RLock()

    @property
    def failed(self) -> bool:
        """Whether it takes no more requests."""
        return self._failure is not None

    # -- asking

    @repaired
    def ask(self, request: Request[_T]) -> _T:
        """Return the result of one request, or raise its error."""
        self._start((request,))
        self._wait(request)
        return self.result(request)

    @repaired
    def tell(self, request: Request[_T]) -> None:
        """Send one request whose answer nobody waits for: it is passed over when it comes."""
        self._start((request,))
        with self._state:
            if not request.done:
                self._forget(request)

    def ask_all(self, requests: Iterable[Request[_T]]) -> Iterator[Request[_T]]:
        """Yield requests in their order, each `done`; up to `window` of them under way.

        Where the caller stops early, the answers of those under way are waited for: then the
        caller knows that nothing of it goes on. Requests are made as they are sent: memory is
        bounded by the window and 4 MiB of frames.
        """
        source = iter(requests)
        waiting: deque[Request[_T]] = deque()
        held, ended = 0, False
        try:
            while True:
                if not ended and 2 * len(waiting) <= self._window and held < _BYTES_UNDER_WAY:
                    more = _some(source, self._window - len(waiting), _BYTES_UNDER_WAY - held)
                    held += sum(len(request.frame) for request in more)
                    waiting.extend(more)
                    ended = not more
                    self._start(more)
                if not waiting:
                    return
                self._wait(waiting[0])
                request = waiting.popleft()
                held -= len(request.frame)
                yield request
        except (Exception, GeneratorExit):  # of the source, or the caller has enough
            raise
        except BaseException:
            repair(self)
            waiting.clear()  # they have ended, or were never sent
            raise
        finally:
            for request in waiting:
                self._wait(request)

    @repaired
    def result(self, request: Request[_T]) -> _T:
        """Return the result of a request that is done, or raise its error."""
        if request.error is not None:
            raise copy.copy(request.error)  # several threads may raise the same
        assert request.answer is not None  # it is done, and not by an error
        status, content = request.answer
        if status is not Status.EOK:
            status.check(f"{self._name}: {request.what()}")
        try:
            return request.read(content)
        except CorruptionError as error:
            told = error.within(f"{self._name}: {request.what()}")
            with self._state:  # one that lies is not believed any more
                self._fail(BookieUnavailable(f"{self._name}: given up: {told}"))
            raise told from None

    # -- sending

    @repaired
    def _start(self, requests: Sequence[Request[Any]]) -> None:
        """Send requests as soon as each may be under way; one that may not ends with an error."""
        at = 0
        while at < len(requests):
            first, at = at, self._admitted(requests, at)
            self._send([each.frame for each in requests[first:at] if not each.done])
            if at < len(requests):
                self._admit(requests[at])
                self._send([each.frame for each in requests[at : at + 1] if not each.done])
                at += 1

    def _admitted(self, requests: Sequence[Request[Any]], at: int) -> int:
        """Note requests from `at` on as under way as long as there is room, or their end where the
        connection failed; return the first that must wait."""
        with self._state:
            while at < len(requests) and self._noted(requests[at]):
                at += 1
        return at

    def _noted(self, request: Request[Any]) -> bool:
        if self._failure is not None:
            _end(request, self._failure)
        elif len(self._under_way) < self._window and request.key not in self._under_way:
            request.sent = time.monotonic()
            self._under_way[request.key] = request
        else:
            return False
        return True

    def _admit(self, request: Request[Any]) -> None:
        """Wait until a request may be under way; the connection is given up if it never may."""
        if self._until(lambda: self._noted(request), time.monotonic() + self._timeout):
            return
        with self._state:
            reason = f"no answer to anything under way in {self._timeout:g} s"
            self._fail(BookieUnavailable(f"{self._name}: given up: {reason}"))
            self._noted(request)

    def _send(self, frames: Sequence[bytes]) -> None:
        """Send frames; receive meanwhile, so that a bookie that waits for us goes on."""
        if not frames:
            return
        end = time.monotonic() + self._timeout
        with self._sending:
            left = memoryview(frames[0] if len(frames) == 1 else b"".join(frames))
            try:
                while left and self._failure is None:
                    left = left[self._stream.send(left) :]
                    if left:
                        self._wait_to_send(end)
            except OSError as error:
                with self._state:
                    self._lost(error.strerror or str(error))

    def _wait_to_send(self, end: float) -> None:
        seconds = end - time.monotonic()
        with self._state:
            if seconds <= 0:
                self._lost(f"the bookie did not take what was sent in {self._timeout:g} s")
                return
            lead = self._take_turn()
        if lead:
            self._lead(True, seconds)
        else:  # another receives; should it stop to, we look again
            self._stream.wait(False, True, min(seconds, _LOOK_AGAIN))

    # -- receiving

    @repaired
    def _wait(self, request: Request[Any]) -> None:
        """Wait until a request is done, by its answer or by an error."""
        end = request.sent + self._timeout + request.patience
        if request.done or self._until(lambda: request.done, end):
            return
        with self._state:
            if request.answer or request.error:  # it came just now
                return
            late = f"no answer to {request.what()} in {end - request.sent:g} s"
            _end(request, BookieUnavailable(f"{self._name}: {late}"))
            silent = time.monotonic() >= self._heard + _SILENCE * self._timeout
            if silent or self._dialect.repeats_keys:  # it might come as that to a later request
                self._fail(BookieUnavailable(f"{self._name}: given up: {late}"))
            else:
                self._forget(request)

    def _forget(self, request: Request[Any]) -> None:
        """Give the place of a request to another, and know its answer when it comes."""
        if self._under_way.pop(request.key, None) is not None:
            self._late[request.key] = None
            if len(self._late) > _MOST_LATE:
                del self._late[next(iter(self._late))]
            self._tell_change()

    def _until(self, ready: Callable[[], bool], end: float) -> bool:
        """Receive, or let another thread do so, until `ready`, which is called with the lock;
        return False if it is not by `end`."""
        while True:
            with self._state:
                if ready():
                    return True
                seconds = end - time.monotonic()
                if seconds <= 0:
                    return False
                lead = self._take_turn()
                change = None if lead else self._next_change()
            if change is None:
                self._lead(False, seconds)
            else:
                _sleep(change, seconds)

    def _take_turn(self) -> bool:
        """Become the thread that receives, unless another one is; return whether it is this."""
        if self._reader is not None:
            return False
        self._reader = get_ident()
        return True

    def _lead(self, send: bool, seconds: float) -> None:
        """Receive once, having the turn to: wait until there are bytes, or there is room to send.

        An exception leaves the turn with this thread. By that `_repair` knows that bytes may be
        lost.
        """
        data: bytes | None = None
        if self._stream.wait(True, send, seconds):
            data = self._receive()
        with self._state:
            self._handed_out(data)

    def _next_change(self) -> SimpleQueue[None]:
        """Return what `_tell_change` puts something into."""
        change: SimpleQueue[None] = SimpleQueue()
        self._sleepers.append(change)
        return change

    def _tell_change(self) -> None:
        """Wake every thread that waits for a change. Twice does no harm."""
        for sleeper in self._sleepers:
            sleeper.put(None)
        self._sleepers.clear()

    def _receive(self) -> bytes | None:
        try:
            return self._stream.receive()
        except OSError as error:
            self._broken = error.strerror or str(error)
            return b""

    def _handed_out(self, data: bytes | None) -> None:
        """Give answers to their requests and the turn to receive to another thread."""
        if data:
            try:
                self._hand_out(data)
            except CorruptionError as error:
                self._fail(error)
        elif data is not None:
            held = self._splitter.pending
            inside = f", {held} bytes into an answer" if held else ""
            self._lost(f"{self._broken or 'the bookie ended it'}{inside}")
        self._reader = None
        self._tell_change()

    def _hand_out(self, data: bytes) -> None:
        self._splitter.feed(data)
        self._heard = time.monotonic()
        try:
            for message in self._splitter.frames():
                key, status, content = self._dialect.decode(message)
                request = self._under_way.get(key)
                if request is not None:
                    request.answer = (status, content)
                    request.done = True
                    del self._under_way[key]  # not before: `_fail` ends what is here
                elif key in self._late:
                    del self._late[key]
                else:
                    raise CorruptionError(None, None, f"an answer to nothing under way: {key}")
                self._taken += PREFIX + len(message)
        except CorruptionError as error:
            raise CorruptionError(self._name, self._taken, error.reason) from None

    # -- the end

    def _lost(self, reason: str) -> None:
        text = f"the connection is lost ({reason}); what was under way may have been done"
        self._fail(BookieUnavailable(f"{self._name}: {text}"))

    def _fail(self, error: BkstoreError) -> None:
        """End every request under way with an error, and the connection; the first one counts."""
        if self._failure is None:
            self._failure = error
        for request in self._under_way.values():
            if not request.done:
                _end(request, self._failure)
        self._under_way.clear()
        self._stream.interrupt()
        self._tell_change()

    def _repair(self) -> None:
        """End the connection behind an interrupted call of this thread.

        Half a frame may have been sent, or bytes been received that nobody was given.
        """
        release_owned(self._sending)
        self._stream.release_owned()
        release_owned(self._state)
        with self._state:
            if self._reader == get_ident():
                self._reader = None
            self._lost("a call was interrupted")

    @repaired
    def usable(self) -> bool:
        """Return whether it may be asked on: a bookie that ended an idle connection shows."""
        with self._state:
            waited_for = any(not request.done for request in self._under_way.values())
            idle = not waited_for and self._reader is None
            if idle and self._failure is None and self._stream.wait(True, False, 0):
                self._handed_out(self._receive())
            return self._failure is None

    @repaired
    def close(self) -> None:
        """End it and let go of the descriptor, when no thread is in it any more. Idempotent."""
        with self._state:
            self._fail(BookieUnavailable(f"{self._name}: the client was closed"))
        while True:  # the one that receives wakes by what `_fail` did
            with self._state:
                if self._reader is None:
                    break
                change = self._next_change()
            _sleep(change, LONGEST)
        with self._sending:
            self._stream.close()

    def abandon(self) -> None:
        """Let go of the descriptor in a forked child, where the locks may be anybody's."""
        self._stream.close()


def _end(request: Request[Any], error: BkstoreError) -> None:
    request.error = error
    request.done = True


def _sleep(change: SimpleQueue[None], seconds: float) -> None:
    try:
        change.get(timeout=min(seconds, LONGEST))
    except Empty:
        return


def _some(source: Iterator[Request[_T]], count: int, size: int) -> list[Request[_T]]:
    """Return the next requests: so many, or fewer that have so many bytes; at least one."""
    found: list[Request[_T]] = []
    for request in islice(source, count):
        found.append(request)
        size -= len(request.frame)
        if size <= 0:
            break
    return found
