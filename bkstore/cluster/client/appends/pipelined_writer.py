"""PipelinedWriter: a writer with many entries in flight at once.

Entries are sent in batches, by a queue for each bookie of the ensemble: in order, concurrently
with the other queues. A batch is confirmed when each of its entries has A acknowledgements (the ack
quorum) and all batches before it are confirmed; until its other bookies have answered, it counts
against the window. E and W are ensemble size and write quorum. Source: `client/LedgerHandle`,
`client/PendingAddOp`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from threading import Condition

import numpy as np

from bkstore import forks
from bkstore.cluster.client.appends.pending_append import PendingAppend
from bkstore.cluster.client.appends.quorum_add import make_sender, raise_if_fatal, select_records
from bkstore.cluster.client.appends.send_queues import AppendBatch, SendQueue
from bkstore.cluster.client.appends.writer import LedgerWriter
from bkstore.cluster.client.bookie_answers import BookieAnswer, describe_answers
from bkstore.cluster.client.ledger_access import LedgerAccess
from bkstore.cluster.client.workers import Workers
from bkstore.errors import (
    BkstoreError,
    IllegalOperation,
    LedgerFenced,
    NotEnoughBookies,
    UnauthorizedAccess,
)
from bkstore.formats.entry import RecordBatch
from bkstore.ids import Int64Array

_MAX_BATCH_ENTRIES = 128
_MAX_BATCH_BYTES = 256 << 10
_WINDOW_BYTES = 16 << 20


class PipelinedWriter(LedgerWriter):
    """A `LedgerWriter` whose appends overlap, with about `ClientOptions.window` in flight.

    A waiting thread replaces failed bookies, from the first unconfirmed entry on; new ones get
    every unconfirmed entry. Entries of `append_later` are held back while others are in flight, and
    sent in a batch when responses arrive or at the next call that waits. An append without sync is
    sent alone, and so are those after it until `force`. Threads: an append returns when it is
    confirmed.
    """

    def __init__(self, access: LedgerAccess, workers: Workers) -> None:
        super().__init__(access)
        self._workers = workers
        self._answered = Condition(self._lock)
        self._unconfirmed: deque[AppendBatch] = deque()
        self._confirmed_in_flight: list[AppendBatch] = []
        """Batches with A acknowledgements that other bookies have not answered yet."""
        self._queues: dict[int, SendQueue] = {}  # by ensemble index
        self._excluded_until: dict[str, int] = {}
        """Bookies that failed; each may be chosen again once the entry given here is confirmed."""
        self._answers: dict[str, BookieAnswer[None]] = {}  # the last one of each bookie
        self._queue_error: BaseException | None = None
        self._held_back: list[bytes] = []  # payloads of `append_later` that are not sent yet
        self._held_back_bytes = 0

    # -- adding

    def append(self, data: bytes, sync: bool = True) -> int:
        """Add an entry, wait until it is confirmed, and return its id. Without `sync` its bookies
        have it in memory only, and it is not confirmed, until `force`."""
        with self._lock:
            self._check_open()
            if not sync or self._has_unsynced:  # until `force`, entries are sent one by one
                self._drain()
                return super().append(data, sync)
            batch = self._send([data])
            self._wait_until(lambda: self.last_confirmed >= batch.last)
            return batch.first

    def append_later(self, data: bytes) -> PendingAppend:
        """Add an entry without waiting for it; see `LedgerHandle.append_later`. Blocks while the
        window is full. After an append without sync the entry is appended at return."""
        payload = self._check_payload(data)
        with self._lock:
            self._check_open()
            if self._has_unsynced:
                return PendingAppend(super().append(payload), writer=None)
            self._wait_until(self._window_has_room)
            self._held_back.append(payload)
            self._held_back_bytes += len(payload)
            entry = self.last_pushed + len(self._held_back)
            has_many_bytes = self._held_back_bytes >= _MAX_BATCH_BYTES
            is_full = has_many_bytes or len(self._held_back) >= _MAX_BATCH_ENTRIES
            # If a bookie has failed, send now: that replaces it.
            if is_full or not self._unconfirmed or not self._all_queues_healthy():
                self._send_held_back()
            return PendingAppend(entry, self)

    def _send_held_back(self) -> None:
        """Send the entries that `append_later` held back, if any, as one batch."""
        if self._held_back:
            payloads, self._held_back, self._held_back_bytes = self._held_back, [], 0
            self._send(payloads)

    def wait_for(self, entry_id: int, seconds: float | None) -> None:
        """Wait until an entry is confirmed; raises the writer's error, or `TimeoutError`."""
        with self._lock:
            if self._is_forked:  # raises: the threads that confirm entries are the parent's
                self._check_open()
            if self.failure is None:
                self._send_held_back()
            if not self._wait_until(lambda: self._is_confirmed_or_lost(entry_id), seconds):
                raise TimeoutError(f"entry {entry_id} is still in progress after {seconds} s")
            if self.last_confirmed < entry_id:
                raise self._lost_entry_error(entry_id)

    def _is_confirmed_or_lost(self, entry_id: int) -> bool:
        return self.last_confirmed >= entry_id or self.failure is not None

    def _lost_entry_error(self, entry_id: int) -> BkstoreError:
        """Return the error of an entry that was in flight when the writer failed."""
        # errors that callers distinguish keep their type
        failure, kept_types = self.failure, (NotEnoughBookies, LedgerFenced, UnauthorizedAccess)
        error_type = type(failure) if isinstance(failure, kept_types) else IllegalOperation
        subject = f"entry {entry_id} of ledger {self.access.ledger}"
        return error_type(f"{subject}: this writer failed with {failure!r}")

    def flush(self) -> int:
        """Wait until all appends are confirmed; see `LedgerHandle.flush`."""
        with self._lock:
            self._check_open()
            self._drain()
            return self.last_confirmed

    def append_many(self, payloads: Iterable[bytes]) -> Int64Array:
        """Add entries, and return their ids, int64[n], once all are confirmed."""
        ids: list[int] = []
        source = iter(payloads)
        last = -1
        with self._lock:
            self._check_open()
        while group := _next_payloads(source):  # without the lock: the source may block
            with self._lock:
                self._check_open()
                if self._has_unsynced:
                    ids += super().append_many(group).tolist()
                    continue
                batch = self._send(group)
                last = batch.last
                ids += range(batch.first, last + 1)
                self._wait_until(self._window_has_room)
        with self._lock:
            self._wait_until(lambda: self.last_confirmed >= last)
        return np.array(ids, np.int64)

    def _send(self, payloads: Sequence[bytes]) -> AppendBatch:
        """Queue a new batch for its bookies, after the entries that `append_later` has held back;
        return the batch."""
        if self._workers.is_finished:  # what is queued is still sent, but no more is accepted
            raise forks.closed_error("this client")
        self._send_held_back()
        records = self._encode_records(self.last_pushed + 1, payloads).framed()
        with self._failing_on_error():
            metadata = self._require_unfenced(self.access.metadata)
            # May change the ensemble, but not E and W, which are all that a batch needs.
            self._replace_failed_bookies()
            for data in payloads:
                self._count_pushed(len(data))
            batch = AppendBatch(records, self._pushed_length, metadata)
            self._unconfirmed.append(batch)
            for index in batch.bookie_indexes:
                self._enqueue(index, [batch])
        return batch

    def _enqueue(self, index: int, batches: Iterable[AppendBatch]) -> None:
        """Queue batches for the bookie at an ensemble index; run its queue if it is idle."""
        queue = self._queues.get(index)
        if queue is None:
            queue = SendQueue(index, self.access.metadata.segments[-1].ensemble[index])
            self._queues[index] = queue
        for batch in batches:
            batch.waiting.add(index)
            queue.batches.append(batch)
        if queue.batches and not queue.is_running and queue.failure is None:
            queue.is_running = True
            self._workers.submit(self._run_queue, queue)

    def _window_has_room(self) -> bool:
        """Return whether another batch may be sent: entries and bytes in flight are within the
        window."""
        in_flight = (*self._unconfirmed, *self._confirmed_in_flight)
        entry_count = sum(batch.count for batch in in_flight) + len(self._held_back)
        byte_count = sum(batch.size_bytes for batch in in_flight) + self._held_back_bytes
        return entry_count <= self.access.context.options.window and byte_count <= _WINDOW_BYTES

    # -- a queue, in a thread of the workers

    def _run_queue(self, queue: SendQueue) -> None:
        """Send the queue of one bookie until it is empty or the bookie fails."""
        try:
            while True:
                with self._lock:
                    batches = queue.pop_next() if queue.failure is None else []
                    queue.is_running = bool(batches)
                if not batches:
                    return
                send = make_sender(self.access, self._records_for(queue.index, batches))
                answer = self.access.call_bookie(queue.bookie, send)
                with self._lock:
                    self._process_answer(queue, batches, answer)
        except BaseException as error:  # noqa: BLE001  raised in the threads that wait
            with self._lock:
                self._queue_error = error
                self._answered.notify_all()

    def _records_for(self, index: int, batches: Sequence[AppendBatch]) -> RecordBatch:
        metadata = self.access.metadata
        records = RecordBatch.concatenate([batch.records for batch in batches])
        return select_records(records, index, metadata.ensemble_size, metadata.write_quorum_size)

    def _process_answer(
        self, queue: SendQueue, sent: Sequence[AppendBatch], answer: BookieAnswer[None]
    ) -> None:
        """Record a bookie's answer to the batches sent, and confirm entries that have A acks now.
        If its queue is empty, send the entries that `append_later` has held back."""
        self._answers[queue.bookie] = answer
        if answer.error is not None:
            queue.failure = answer  # a waiting thread then calls `_replace_failed_bookies`
            queue.batches.clear()
        else:
            for batch in sent:
                batch.acks.add(queue.index)
                batch.waiting.discard(queue.index)
        self._confirm_acknowledged()
        is_idle = not queue.batches and self._all_queues_healthy()
        if self._held_back and is_idle and not self._workers.is_finished:
            self._send_held_back()
        self._answered.notify_all()

    def _all_queues_healthy(self) -> bool:
        """Return whether no queue has failed and the writer is intact. Failed bookies are replaced
        in callers' threads only (`_replace_failed_bookies`)."""
        failures = (queue.failure for queue in self._queues.values())
        return self.failure is None and all(failure is None for failure in failures)

    def _confirm_acknowledged(self) -> None:
        """Confirm, in order, the batches with A acknowledgements, unless the writer has failed."""
        ack_quorum = self.access.metadata.ack_quorum_size
        while self.failure is None and self._unconfirmed:
            batch = self._unconfirmed[0]
            if not batch.has_quorum(batch.acks, ack_quorum):
                break
            self._unconfirmed.popleft()
            self.last_confirmed, self.length = batch.last, batch.ledger_length
            self._confirmed_in_flight.append(batch)
        self._confirmed_in_flight = [batch for batch in self._confirmed_in_flight if batch.waiting]

    # -- waiting, in the caller's thread

    def _wait_until(self, is_ready: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until `is_ready` returns true, replacing failed bookies; return False on timeout."""
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._failing_on_error():
            while not is_ready():
                if self.failure is not None:  # another thread's append ended the writer
                    self._check_open()
                self._replace_failed_bookies()
                if is_ready():
                    break
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    return False
                self._answered.wait(remaining)
        return True

    def _drain(self) -> None:
        """Send the entries held back and wait until every entry is confirmed."""
        self._send_held_back()
        self._wait_until(lambda: not self._unconfirmed)

    def _replace_failed_bookies(self) -> None:
        """Replace the bookies of failed queues. Raises the error of a crashed queue, a bookie's
        fatal one, or `NotEnoughBookies` if the first unconfirmed entry cannot get A acks."""
        if self._queue_error is not None:
            raise self._queue_error
        # Drop the failed queues: none of their batches gets an answer any more.
        failed = sorted(index for index, queue in self._queues.items() if queue.failure is not None)
        for queue in [self._queues.pop(index) for index in failed]:
            assert queue.failure is not None
            raise_if_fatal(queue.failure)
            self._excluded_until[queue.bookie] = self.last_pushed + 1  # the next entry to be sent
            for batch in (*self._unconfirmed, *self._confirmed_in_flight):
                batch.waiting.discard(queue.index)
        if failed:
            may_delay = self.access.context.options.delay_ensemble_change
            if not (may_delay and self._quorums_reachable()):
                self._replace_as_many_as_possible(failed)
            self._confirm_acknowledged()
        self._raise_if_quorum_lost()

    def _quorums_reachable(self) -> bool:
        """Return whether every unconfirmed batch can still get an ack quorum."""
        ack_quorum = self.access.metadata.ack_quorum_size
        return all(
            batch.has_quorum(batch.acks | batch.waiting, ack_quorum) for batch in self._unconfirmed
        )

    def _replace_as_many_as_possible(self, failed: Sequence[int]) -> None:
        """Replace as many failed bookies as possible; queue unconfirmed entries for new ones."""
        lac = self.last_confirmed
        excluded = {bookie for bookie, until in self._excluded_until.items() if lac < until}
        # There may be fewer spare bookies than failed ones: try all, then one less each time.
        for count in range(len(failed), 0, -1):
            if self._replace_failed(failed[:count], excluded) is None:
                continue
            # The new bookies have none of the unconfirmed entries: forget the acks of the old ones.
            for index in failed[:count]:
                for batch in self._unconfirmed:
                    batch.acks.discard(index)
                batches = [batch for batch in self._unconfirmed if index in batch.bookie_indexes]
                self._enqueue(index, batches)
            return

    def _raise_if_quorum_lost(self) -> None:
        """Raise `NotEnoughBookies` if the first unconfirmed batch lacks acknowledgements and has no
        answers to wait for: no later answer can confirm it."""
        ack_quorum = self.access.metadata.ack_quorum_size
        if not self._unconfirmed or self._unconfirmed[0].waiting:
            return
        first = self._unconfirmed[0]
        if first.has_quorum(first.acks, ack_quorum):
            return
        ack_counts = [len(replicas & first.acks) for replicas in first.write_sets]
        # Name the first entry that lacks some; the ack counts repeat after E entries.
        entry, acks = next(
            (first.first + index, acks)
            for index, acks in enumerate(ack_counts)
            if acks < ack_quorum
        )
        raise NotEnoughBookies(
            f"entry {entry} of ledger {self.access.ledger}: {acks} of {ack_quorum} bookies "
            f"have acknowledged it: {describe_answers(list(self._answers.values()))}"
        )

    @contextmanager
    def _failing_on_error(self) -> Iterator[None]:
        """As inherited; if the block raises, also discards everything that is queued."""
        try:
            with super()._failing_on_error():
                yield
        except BaseException:
            for queue in self._queues.values():
                queue.batches.clear()
            self._held_back, self._held_back_bytes = [], 0
            self._answered.notify_all()
            raise

    def _forked(self) -> None:
        super()._forked()
        self._held_back, self._held_back_bytes = [], 0
        self._answered = Condition(self._lock)

    # -- calls that wait for all appends

    def force(self) -> int:
        """Make entries durable that were added without sync; return the LAC, which covers them."""
        with self._lock:
            self._check_open()
            self._drain()
            return super().force()

    def write_explicit_lac(self) -> int:
        """Send the LAC to the bookies and return it; see `LedgerHandle.write_explicit_lac`."""
        with self._lock:
            self._check_open()
            self._drain()
            return super().write_explicit_lac()

    def close(self) -> None:
        """Set last entry and length in the metadata; see `LedgerHandle.close`."""
        with self._lock:
            if not self.closed and self.failure is None:
                self._drain()
            super().close()


def _next_payloads(source: Iterator[bytes]) -> list[bytes]:
    """Return the payloads of the next batch, none at the end of the source."""
    payloads: list[bytes] = []
    byte_count = 0
    for data in islice(source, _MAX_BATCH_ENTRIES):
        payloads.append(data)
        byte_count += len(data)
        if byte_count >= _MAX_BATCH_BYTES:
            break
    return payloads
