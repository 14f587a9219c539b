"""Core: what all connections of a server share: pools, the sync, memory, the observer."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, Protocol

from bkstore.storage.bookie import Bookie
from bkstore.wire.listening import connections_possible
from bkstore.wire.sasl import SaslUsers
from bkstore.wire.server.authentication import Strangers
from bkstore.wire.server.jobs import GroupSync, JobPool, LoopQueue
from bkstore.wire.server.long_polls import LongPolls
from bkstore.wire.server.observer import Observer, ObserverOfMany
from bkstore.wire.server.options import ServerOptions
from bkstore.wire.server.requests.operations import AddMany, Answer, Operation, Read
from bkstore.wire.server.rules import BookieRules
from bkstore.wire.status import Status

_log = logging.getLogger(__name__)

_Deliver = Callable[[Sequence[Answer]], None]
Done = Callable[[Sequence[Answer | Read], Sequence[Operation]], None]

_SWEEP = 0.25  # seconds
_LOST = 5.0  # seconds in which a connection that is aborted has ended
_BATCH = "BATCH_READ_ENTRY"


class Connected(Protocol):
    """A connection, as the core sees it."""

    held: int

    def descriptor(self) -> int:
        """Return that of the client's socket, -1 once it is closed."""
        ...

    def sweep(self, now: float) -> None:
        """Look whether the peer has stalled, and whether there is room again."""

    def end(self) -> None:
        """Read no more, answer what waits, then close."""

    def abort(self) -> None:
        """Close now."""


class Write(NamedTuple):
    """What a connection wants written, and what to call when it is stored, and when durable."""

    operations: Sequence[Operation]
    stored: Callable[[], None]
    deliver: _Deliver

    def is_of_many_adds(self) -> bool:
        """Return whether it may be done with those of other connections: it does not sync."""
        return set(map(type, self.operations)) == {AddMany}


class Core:
    """The shared part of a server. It belongs to the loop's thread, but for its pools' jobs."""

    def __init__(
        self,
        bookie: Bookie,
        options: ServerOptions,
        observer: Observer | None,
        extended: bool,
        tls: ssl.SSLContext | None,
        users: SaslUsers | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.options = options
        self.extended = extended
        self.tls = tls
        self.users = users
        """Who may connect; None: everybody."""
        self.strangers = Strangers(self.loop, options)
        self.rules = BookieRules(bookie)
        self.connections: set[Connected] = set()
        self.max_connections = connections_possible(options.max_connections)
        if self.max_connections < options.max_connections:
            _log.warning(
                "at most %d clients are taken, not %d: the process may not open more files "
                "(ulimit -n)",
                self.max_connections,
                options.max_connections,
            )
        self.tasks: set[asyncio.Task[None]] = set()
        """Handshakes under way."""
        self.held = 0
        """Bytes of requests and answers that connections hold."""
        self._found = 0  # bytes of answers on their way from the pool to the loop
        self._counting = threading.Lock()
        self._observer = observer
        self._results = LoopQueue(self.loop)
        self._reads = JobPool(options.read_threads, "bkstore-read", self._read)
        self._writes = JobPool(
            options.write_threads, "bkstore-write", self._write, Write.is_of_many_adds
        )
        self._asking = ThreadPoolExecutor(1, "bkstore-long-polls")
        self._sync = GroupSync(self.rules.sync)
        self.polls = LongPolls(self.loop, self._asking, bookie)
        self._sweeper = self.loop.call_later(_SWEEP, self._sweep)
        self._was_over = False
        self.stopping = False

    # -- jobs

    def read(self, operations: Sequence[Operation], done: Done) -> None:
        """Call `done` in the loop with answers to the first of the operations, maybe to none.

        Reads that have to wait stand among the answers; what is left comes behind.
        """
        self._reads.submit((operations, done))

    def _read(self, jobs: list[tuple[Sequence[Operation], Done]]) -> None:
        for operations, done in jobs:
            answers: Sequence[Answer | Read] = []
            left = operations
            if not self.over:
                try:
                    answers, left = self.rules.read(operations)
                except Exception:  # noqa: BLE001 - logged, and answered
                    answers, left = _failed(operations), []
            size = sum(len(answer.frame) for answer in answers if isinstance(answer, Answer))
            self._count(size)
            self._results.put(self._deliver, done, answers, left, size)

    def _deliver(
        self, done: Done, answers: Sequence[Answer | Read], left: Sequence[Operation], size: int
    ) -> None:
        done(answers, left)
        self._count(-size)

    def _count(self, size: int) -> None:
        """Count answers on their way to the loop, which may be slower than the pool."""
        with self._counting:
            self._found += size

    def write(
        self, operations: Sequence[Operation], stored: Callable[[], None], deliver: _Deliver
    ) -> None:
        """Call `stored` in the loop when the next may be written, `deliver` when it is durable."""
        self._writes.submit(Write(operations, stored, deliver))

    def _write(self, jobs: list[Write]) -> None:
        """Do what several connections ask at the same time; many adds of all are one batch."""
        operations = [operation for job in jobs for operation in job.operations]
        waits = False
        try:
            answers, waits = self.rules.write(operations)
        except Exception:  # noqa: BLE001 - logged, and answered
            answers = _failed(operations)
        divided = list(zip(jobs, _divided(answers, jobs) if len(jobs) > 1 else [answers]))
        if waits:
            put = self._results.put
            self._sync.put_many([(of_job, partial(put, job.deliver)) for job, of_job in divided])
        for job, of_job in divided:
            self._results.put(job.stored)
            if not waits:
                self._results.put(job.deliver, of_job)

    # -- memory

    @property
    def over(self) -> bool:
        """Whether more is held than the options allow: nothing more is taken in then."""
        return self.held + self._found > self.options.memory

    def _sweep(self) -> None:
        now = self.loop.time()
        for connection in list(self.connections):
            connection.sweep(now)
        self.strangers.sweep(now)
        if self.over and self._was_over:
            largest = max(self.connections, key=lambda connection: connection.held)
            _log.warning("%d bytes held: the connection with most is closed", self.held)
            largest.abort()
        self._was_over = self.over
        self._sweeper = self.loop.call_later(_SWEEP, self._sweep)

    # -- the observer

    def observe(self, answers: Sequence[Answer]) -> None:
        """Tell the observer of answers that go out."""
        if self._observer is None:
            return
        now = self.loop.time()
        for operation, status, frame in answers:
            size = len(frame) if operation.name == _BATCH else None
            told = operation.name, operation.protocol, now - operation.started, status
            try:
                if operation.count == 1:
                    self._observer.observe(*told, size)
                else:
                    self._observe_many(operation.count, *told)
            except Exception:  # noqa: BLE001 - an observer changes no answer
                _log.exception("the observer failed")

    def _observe_many(
        self, count: int, operation: str, protocol: int, seconds: float, status: Status
    ) -> None:
        if isinstance(self._observer, ObserverOfMany):
            self._observer.observe_many(count, operation, protocol, seconds, status)
        elif self._observer is not None:
            for _ in range(count):
                self._observer.observe(operation, protocol, seconds, status)

    # -- the end

    async def stop(self, seconds: float) -> None:
        """End all connections: what waits is answered, for so many seconds at most."""
        self.stopping = True
        deadline = self.loop.time() + seconds
        for connection in list(self.connections):
            connection.end()
        self.polls.expire_all()
        while self.connections and self.loop.time() < deadline:
            await asyncio.sleep(0.005)
        for task in self.tasks:
            task.cancel()
        deadline = self.loop.time() + _LOST
        while self.connections and self.loop.time() < deadline:
            for connection in list(self.connections):
                connection.abort()
            await asyncio.sleep(0)  # in which they are told that they are lost
        if self.connections:
            _log.error("%d connections did not end", len(self.connections))
        self._sweeper.cancel()
        self.polls.close()
        for ending in (
            self._reads.shutdown,
            self._asking.shutdown,
            self._writes.shutdown,
            self._sync.close,
        ):
            await asyncio.to_thread(ending)


def _divided(answers: Sequence[Answer], jobs: Sequence[Write]) -> Iterator[list[Answer]]:
    """Yield the answers of each of the jobs; together they are those of all, in order."""
    stop = 0
    for job in jobs:
        start, missing = stop, sum(operation.count for operation in job.operations)
        while missing:
            missing -= answers[stop].operation.count
            stop += 1
        yield list(answers[start:stop])


def _failed(operations: Sequence[Operation]) -> list[Answer]:
    _log.exception("%d requests failed", len(operations))
    return [operation.refuse(Status.EIO) for operation in operations]
