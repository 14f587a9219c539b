"""SharedState: what connections of a server share: pools, group sync, memory limit, observer."""

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
from bkstore.wire.listening import cap_connections
from bkstore.wire.sasl import SaslUsers
from bkstore.wire.server.authentication import UnauthenticatedConnection, UnauthenticatedConnections
from bkstore.wire.server.group_sync import GroupSync
from bkstore.wire.server.long_polls import LongPolls
from bkstore.wire.server.observer import BulkObserver, Observer
from bkstore.wire.server.options import ServerOptions
from bkstore.wire.server.requests.operations import (
    AddManyOperation,
    EncodedResponse,
    Operation,
    ReadAnswer,
)
from bkstore.wire.server.rules import BookieRules
from bkstore.wire.server.thread_pools import JobPool, LoopQueue
from bkstore.wire.status_codes import Status

_log = logging.getLogger(__name__)

_Deliver = Callable[[Sequence[EncodedResponse]], None]
ReadCallback = Callable[[Sequence[ReadAnswer], Sequence[Operation]], None]

_SWEEP_SECONDS = 0.25
_ABORT_SECONDS = 5.0  # for aborted connections to end
_BATCH_READ = "BATCH_READ_ENTRY"


class ManagedConnection(UnauthenticatedConnection, Protocol):
    """A connection, as the shared state sees it."""

    def fileno(self) -> int:
        """Return the file descriptor of the client's socket, or -1 once it is closed."""
        ...

    def check_progress(self, now: float) -> None:
        """Abort a stalled client, and retry what lack of room held up."""

    def drain(self) -> None:
        """Take no more requests, answer the waiting ones, then close."""


class WriteJob(NamedTuple):
    """Operations to write, and the callbacks for when they are stored and when they are durable."""

    operations: Sequence[Operation]
    on_stored: Callable[[], None]
    deliver: _Deliver

    def is_joinable(self) -> bool:
        """Return whether all are `AddManyOperation`, which join those of other connections."""
        return set(map(type, self.operations)) == {AddManyOperation}


class SharedState:
    """The shared part of a server. Only the jobs of its pools run outside the loop's thread."""

    def __init__(
        self,
        bookie: Bookie,
        options: ServerOptions,
        observer: Observer | None,
        extended: bool,
        tls: ssl.SSLContext | None,
        users: SaslUsers | None = None,
    ) -> None:
        """Start pools and timers; called in the event loop's thread."""
        self.loop = asyncio.get_running_loop()
        self.options = options
        self.extended = extended
        self.tls = tls
        self.users = users
        """The users that may connect; None lets everybody in."""
        self.unauthenticated = UnauthenticatedConnections(self.loop, options)
        self.rules = BookieRules(bookie)
        self.connections: set[ManagedConnection] = set()
        self.max_connections = cap_connections(options.max_connections)
        if (cap := self.max_connections) < (wanted := options.max_connections):
            advice = "raise the limit of open files (ulimit -n)"
            _log.warning("at most %d clients can connect, not %d: %s", cap, wanted, advice)
        self.tls_handshakes: set[asyncio.Task[None]] = set()
        """The TLS handshakes in progress."""
        self.held_bytes = 0
        """Bytes of requests and answers that all connections hold."""
        self._undelivered_bytes = 0  # of answers on their way from the pool to the loop
        self._undelivered_lock = threading.Lock()
        self._observer = observer
        self._loop_calls = LoopQueue(self.loop)
        self._read_pool = JobPool(options.read_threads, "bkstore-read", self._run_reads)
        threads, is_joinable = options.write_threads, WriteJob.is_joinable
        self._write_pool = JobPool(threads, "bkstore-write", self._run_writes, is_joinable)
        self._poll_executor = ThreadPoolExecutor(1, "bkstore-long-polls")
        self._group_sync = GroupSync(self.rules.sync)
        self.long_polls = LongPolls(self.loop, self._poll_executor, bookie)
        self._sweep_timer = self.loop.call_later(_SWEEP_SECONDS, self._check_connections)
        self._was_over_memory = False
        self.is_stopping = False

    # -- jobs

    def submit_reads(self, operations: Sequence[Operation], callback: ReadCallback) -> None:
        """Read in a pool, then call `callback` in the loop with the answers to the first of the
        operations (none while memory is short), and the unread ones. A long poll that has to wait
        is its own answer."""
        self._read_pool.submit((operations, callback))

    def _run_reads(self, jobs: list[tuple[Sequence[Operation], ReadCallback]]) -> None:
        """Answer operations from the bookie, in a thread of the pool; none if memory is short."""
        for operations, callback in jobs:
            answers: Sequence[ReadAnswer] = []
            unread = operations
            if not self.over_memory_limit:
                try:
                    answers, unread = self.rules.read(operations)
                except Exception:  # noqa: BLE001 - logged, and answered
                    answers, unread = _refuse_failed(operations), []
            # count the answers until the loop has called back: then their connection counts them
            size = sum(len(done.frame) for done in answers if isinstance(done, EncodedResponse))
            self._add_undelivered(size)
            self._loop_calls.put(callback, answers, unread)
            self._loop_calls.put(self._add_undelivered, -size)

    def _add_undelivered(self, byte_count: int) -> None:
        """Add to the bytes on their way to the loop, which may be slower than the pool."""
        with self._undelivered_lock:
            self._undelivered_bytes += byte_count

    def submit_writes(
        self, operations: Sequence[Operation], on_stored: Callable[[], None], deliver: _Deliver
    ) -> None:
        """Write in a pool; call `on_stored` in the loop when stored, `deliver` when durable."""
        self._write_pool.submit(WriteJob(operations, on_stored, deliver))

    def _run_writes(self, jobs: list[WriteJob]) -> None:
        """Write the operations of several connections together, in a thread of the pool."""
        operations = [operation for job in jobs for operation in job.operations]
        needs_sync = False
        try:
            answers, needs_sync = self.rules.write(operations)
        except Exception:  # noqa: BLE001 - logged, and answered
            answers = _refuse_failed(operations)
        # if one of the answers needs the sync, all of them wait for it
        answers_by_job = _answers_by_job(answers, jobs) if len(jobs) > 1 else [answers]
        answered_jobs = list(zip(jobs, answers_by_job))
        call_in_loop = self._loop_calls.put
        if needs_sync:
            unsynced = [(done, partial(call_in_loop, job.deliver)) for job, done in answered_jobs]
            self._group_sync.put_many(unsynced)
        for job, done in answered_jobs:
            call_in_loop(job.on_stored)
            if not needs_sync:
                call_in_loop(job.deliver, done)

    # -- memory

    @property
    def over_memory_limit(self) -> bool:
        """Whether more memory is held than the options allow; then no more requests are taken."""
        return self.held_bytes + self._undelivered_bytes > self.options.memory

    def _check_connections(self) -> None:
        """Let all connections check their progress. If memory is over the limit as it was at the
        last check, abort the connection that holds most. Called every `_SWEEP_SECONDS`."""
        now = self.loop.time()
        for connection in list(self.connections):
            connection.check_progress(now)
        self.unauthenticated.abort_expired(now)
        if self.over_memory_limit and self._was_over_memory:
            largest = max(self.connections, key=lambda connection: connection.held_bytes)
            _log.warning("%d bytes held: the connection with the most was closed", self.held_bytes)
            largest.abort()
        self._was_over_memory = self.over_memory_limit
        self._sweep_timer = self.loop.call_later(_SWEEP_SECONDS, self._check_connections)

    # -- the observer

    def observe(self, answers: Sequence[EncodedResponse]) -> None:
        """Report answers to the observer, just before they are sent."""
        if self._observer is None:
            return
        now = self.loop.time()
        for operation, status, frame in answers:
            response_bytes = len(frame) if operation.name == _BATCH_READ else None
            outcome = operation.name, operation.protocol, now - operation.received_at, status
            count = operation.request_count
            try:
                if count > 1 and isinstance(self._observer, BulkObserver):
                    self._observer.observe_many(count, *outcome)
                    continue
                for _ in range(count):
                    self._observer.observe(*outcome, response_bytes)
            except Exception:  # noqa: BLE001 - an observer changes no answer
                _log.exception("the observer failed")

    # -- stopping

    async def stop(self, seconds: float) -> None:
        """End all connections, then the pools. Waiting requests are answered for at most this many
        seconds; then connections are aborted."""
        self.is_stopping = True
        deadline = self.loop.time() + seconds
        for connection in list(self.connections):
            connection.drain()
        self.long_polls.expire_all()
        while self.connections and self.loop.time() < deadline:
            await asyncio.sleep(0.005)
        for task in self.tls_handshakes:
            task.cancel()
        deadline = self.loop.time() + _ABORT_SECONDS
        while self.connections and self.loop.time() < deadline:
            for connection in list(self.connections):
                connection.abort()
            await asyncio.sleep(0)  # lets the loop call `connection_lost`
        if self.connections:
            _log.error("%d connections did not end", len(self.connections))
        self._sweep_timer.cancel()
        self.long_polls.close()
        for pool in (self._read_pool, self._poll_executor, self._write_pool):
            await asyncio.to_thread(pool.shutdown)
        await asyncio.to_thread(self._group_sync.close)


def _answers_by_job(
    answers: Sequence[EncodedResponse], jobs: Sequence[WriteJob]
) -> Iterator[list[EncodedResponse]]:
    """Yield the answers of each job. `answers` has those of all jobs, in order; one answer may be
    to many requests, but never to those of two jobs."""
    stop = 0
    for job in jobs:
        start, unanswered = stop, sum(operation.request_count for operation in job.operations)
        while unanswered:
            unanswered -= answers[stop].operation.request_count
            stop += 1
        yield list(answers[start:stop])


def _refuse_failed(operations: Sequence[Operation]) -> list[EncodedResponse]:
    """Log the exception being handled; return an EIO answer to each operation."""
    _log.exception("%d requests failed", len(operations))
    return [operation.refuse(Status.EIO) for operation in operations]
