"""PipelinedWriter: a writer with many entries in flight at once.

Entries are sent in stretches, by a lane for each bookie of the ensemble: in order, concurrently
with the other lanes. A stretch is confirmed when each of its entries has A acknowledgements and all
stretches before it are confirmed; until its other bookies have answered, it counts against the
window. Source: `client/LedgerHandle`, `client/PendingAddOp`.
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
from bkstore.cluster.client.open_ledger import LedgerAccess
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

_MAX_STRETCH_ENTRIES = 128
_MAX_STRETCH_BYTES = 256 << 10
_WINDOW_BYTES = 16 << 20


class PipelinedWriter(LedgerWriter):
    """A `LedgerWriter` whose appends overlap, with about `ClientOptions.window` in flight.

    A waiting thread replaces failed bookies, from the first unconfirmed entry on; new ones get
    every unconfirmed entry. Entries of `append_later` are batched while others are in flight, and
    sent when responses arrive or at the next call that waits. An append without sync is sent alone,
    and so are those after it until `force`. Threads: an append returns when it is confirmed.
    """

    def __init__(self, access: LedgerAccess, workers: Workers) -> None:
        super().__init__(access)
        self._workers = workers
        self._answered = Condition(self._lock)
        self._unconfirmed: deque[AppendBatch] = deque()
        self._awaiting_answers: list[AppendBatch] = []
        self._lanes: dict[int, SendQueue] = {}
        self._refused: dict[str, int] = {}
        """Bookies that failed; each may be chosen again once the entry given here is confirmed."""
        self._answers: dict[str, BookieAnswer[None]] = {}
        self._lane_error: BaseException | None = None
        self._batch: list[bytes] = []
        self._batch_bytes = 0

    # -- adding

    def append(self, data: bytes, sync: bool = True) -> int:
        """Add an entry and return its id; see `LedgerHandle.append`."""
        with self._lock:
            self._check_open()
            if not sync or self._unsynced:
                self._drain()
                return super().append(data, sync)
            stretch = self._send_stretch([data])
            self._wait_until(lambda: self.last_confirmed >= stretch.last)
            return stretch.first

    def append_later(self, data: bytes) -> PendingAppend:
        """Add an entry without waiting for it; see `LedgerHandle.append_later`. Blocks while the
        window is full. After an append without sync it adds the entry at once."""
        payload = self._payload(data)
        with self._lock:
            self._check_open()
            if self._unsynced:
                return PendingAppend(super().append(payload), None)
            self._wait_until(self._window_has_room)
            self._batch.append(payload)
            self._batch_bytes += len(payload)
            entry = self.last_pushed + len(self._batch)
            is_full = (
                len(self._batch) >= _MAX_STRETCH_ENTRIES or self._batch_bytes >= _MAX_STRETCH_BYTES
            )
            # If a bookie has failed, send now: that replaces it.
            if is_full or not self._unconfirmed or not self._all_lanes_healthy():
                self._send_batch()
            return PendingAppend(entry, self)

    def _send_batch(self) -> None:
        """Send the batched entries, if any, as one stretch."""
        if self._batch:
            payloads, self._batch, self._batch_bytes = self._batch, [], 0
            self._send_stretch(payloads)

    def wait_for(self, entry_id: int, seconds: float | None) -> None:
        """Wait until an entry is confirmed; raises the writer's error, or `TimeoutError`."""
        with self._lock:
            if self._left:
                self._check_open()
            if self.failure is None:
                self._send_batch()
            if not self._wait_until(lambda: self._is_decided(entry_id), seconds):
                raise TimeoutError(f"entry {entry_id} is still in progress after {seconds} s")
            if self.last_confirmed < entry_id:
                raise self._lost_entry_error(entry_id)

    def _is_decided(self, entry_id: int) -> bool:
        return self.last_confirmed >= entry_id or self.failure is not None

    def _lost_entry_error(self, entry_id: int) -> BkstoreError:
        error_types = (NotEnoughBookies, LedgerFenced, UnauthorizedAccess)
        error_type = (
            type(self.failure) if isinstance(self.failure, error_types) else IllegalOperation
        )
        subject = f"entry {entry_id} of ledger {self.access.ledger}"
        return error_type(f"{subject}: this writer failed with {self.failure!r}")

    def flush(self) -> int:
        """Wait until all appends are confirmed; see `LedgerHandle.flush`."""
        with self._lock:
            self._check_open()
            self._drain()
            return self.last_confirmed

    def append_many(self, payloads: Iterable[bytes]) -> Int64Array:
        """Add entries and return their ids; see `LedgerHandle.append_many`."""
        ids: list[int] = []
        source = iter(payloads)
        last = -1
        with self._lock:
            self._check_open()
        while stretch_payloads := _next_payloads(source):  # without the lock: the source may block
            with self._lock:
                self._check_open()
                if self._unsynced:
                    ids += super().append_many(stretch_payloads).tolist()
                    continue
                stretch = self._send_stretch(stretch_payloads)
                last = stretch.last
                ids += range(stretch.first, last + 1)
                self._wait_until(self._window_has_room)
        with self._lock:
            self._wait_until(lambda: self.last_confirmed >= last)
        return np.array(ids, np.int64)

    def _send_stretch(self, payloads: Sequence[bytes]) -> AppendBatch:
        """Queue a new stretch for its bookies, after the batched entries; return it."""
        if self._workers.is_finished:  # the lanes still send their queues, but accept no more
            raise forks.closed_error("this client")
        self._send_batch()
        batch = self._records(self.last_pushed + 1, payloads).framed()
        with self._breaking():
            metadata = self._mine(self.access.metadata)
            self._replace_failed_bookies()
            for data in payloads:
                self._push(len(data))
            quorum_sizes = (metadata.ensemble_size, metadata.write_quorum_size)
            stretch = AppendBatch(batch, self._pushed_length, *quorum_sizes)
            self._unconfirmed.append(stretch)
            for index in stretch.bookie_indexes:
                self._queue(index, [stretch])
        return stretch

    def _queue(self, index: int, batches: Iterable[AppendBatch]) -> None:
        """Queue stretches for the bookie at an ensemble index; start its lane if it is idle."""
        lane = self._lanes.get(index)
        if lane is None:
            lane = SendQueue(index, self.access.metadata.segments[-1].ensemble[index])
            self._lanes[index] = lane
        for stretch in batches:
            stretch.waiting.add(index)
            lane.batches.append(stretch)
        if lane.batches and not lane.is_running and lane.failure is None:
            lane.is_running = True
            self._workers.submit(self._run_lane, lane)

    def _window_has_room(self) -> bool:
        in_flight = (*self._unconfirmed, *self._awaiting_answers)
        entry_count = sum(stretch.count for stretch in in_flight) + len(self._batch)
        byte_count = sum(stretch.size_bytes for stretch in in_flight) + self._batch_bytes
        return entry_count <= self.access.context.options.window and byte_count <= _WINDOW_BYTES

    # -- a lane, in a thread of the workers

    def _run_lane(self, send_queue: SendQueue) -> None:
        """Send the queue of one bookie until it is empty or the bookie fails."""
        try:
            while True:
                with self._lock:
                    taken = send_queue.pop_next() if send_queue.failure is None else []
                    send_queue.is_running = bool(taken)
                if not taken:
                    return
                answer = self.access.call_bookie(
                    send_queue.bookie,
                    make_sender(self.access, self._records_for(send_queue.index, taken)),
                )
                with self._lock:
                    self._process_answer(send_queue, taken, answer)
        except BaseException as error:  # noqa: BLE001  raised in the threads that wait
            with self._lock:
                self._lane_error = error
                self._answered.notify_all()

    def _records_for(self, index: int, batches: Sequence[AppendBatch]) -> RecordBatch:
        metadata = self.access.metadata
        batch = RecordBatch.concatenate([stretch.batch for stretch in batches])
        return select_records(batch, index, metadata.ensemble_size, metadata.write_quorum_size)

    def _process_answer(
        self, send_queue: SendQueue, sent: Sequence[AppendBatch], answer: BookieAnswer[None]
    ) -> None:
        """Record a bookie's answer, confirm entries, and send the batched ones."""
        self._answers[send_queue.bookie] = answer
        if answer.error is not None:
            send_queue.failure = answer
            send_queue.batches.clear()
        else:
            for stretch in sent:
                stretch.acks.add(send_queue.index)
                stretch.waiting.discard(send_queue.index)
        self._confirm_acknowledged()
        if (
            self._batch
            and not send_queue.batches
            and self._all_lanes_healthy()
            and not self._workers.is_finished
        ):
            self._send_batch()
        self._answered.notify_all()

    def _all_lanes_healthy(self) -> bool:
        """Return whether no lane has failed and the writer is intact. Failed bookies are replaced
        in callers' threads only (`_replace_failed_bookies`)."""
        return self.failure is None and all(lane.failure is None for lane in self._lanes.values())

    def _confirm_acknowledged(self) -> None:
        """Confirm, in order, the stretches with A acknowledgements, unless the writer is broken."""
        ack_quorum = self.access.metadata.ack_quorum_size
        while (
            self.failure is None
            and self._unconfirmed
            and self._unconfirmed[0].has_quorum(self._unconfirmed[0].acks, ack_quorum)
        ):
            stretch = self._unconfirmed.popleft()
            self.last_confirmed, self.length = stretch.last, stretch.ledger_length
            self._awaiting_answers.append(stretch)
        self._awaiting_answers = [stretch for stretch in self._awaiting_answers if stretch.waiting]

    # -- waiting, in the caller's thread

    def _wait_until(self, is_ready: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until `ready` returns true, replacing failed bookies; return False on timeout."""
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._breaking():
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
        """Send the batched entries and wait until every entry is confirmed."""
        self._send_batch()
        self._wait_until(lambda: not self._unconfirmed)

    def _replace_failed_bookies(self) -> None:
        """Replace the bookies of failed lanes. Raises the error of a crashed lane, a bookie's fatal
        one, or `NotEnoughBookies` if the first unconfirmed entry cannot get A acknowledgements."""
        if self._lane_error is not None:
            raise self._lane_error
        # Drop the failed lanes: none of their stretches gets an answer any more.
        failed = sorted(index for index, lane in self._lanes.items() if lane.failure is not None)
        for lane in [self._lanes.pop(index) for index in failed]:
            assert lane.failure is not None
            raise_if_fatal(lane.failure)
            self._refused[lane.bookie] = self.last_pushed + 1
            for stretch in (*self._unconfirmed, *self._awaiting_answers):
                stretch.waiting.discard(lane.index)
        if failed:
            if not (
                self.access.context.options.delay_ensemble_change and self._quorums_reachable()
            ):
                self._replace_possible(failed)
            self._confirm_acknowledged()
        self._check_quorum()

    def _quorums_reachable(self) -> bool:
        ack_quorum = self.access.metadata.ack_quorum_size
        return all(
            stretch.has_quorum(stretch.acks | stretch.waiting, ack_quorum)
            for stretch in self._unconfirmed
        )

    def _replace_possible(self, failed: Sequence[int]) -> None:
        """Replace as many failed bookies as possible; queue unconfirmed entries for new ones."""
        failed_bookies = {
            bookie for bookie, entry in self._refused.items() if self.last_confirmed < entry
        }
        for count in range(len(failed), 0, -1):
            if self._replace(failed[:count], failed_bookies) is None:
                continue
            for index in failed[:count]:
                for stretch in self._unconfirmed:
                    stretch.acks.discard(index)
                self._queue(
                    index,
                    [
                        unconfirmed
                        for unconfirmed in self._unconfirmed
                        if index in unconfirmed.bookie_indexes
                    ],
                )
            return

    def _check_quorum(self) -> None:
        """Raise `NotEnoughBookies` if the first unconfirmed stretch has no answers to wait for."""
        ack_quorum = self.access.metadata.ack_quorum_size
        if not self._unconfirmed or self._unconfirmed[0].waiting:
            return
        first = self._unconfirmed[0]
        if first.has_quorum(first.acks, ack_quorum):
            return
        entry, acks = next(
            (first.first + index, len(write_set_indexes & first.acks))
            for index, write_set_indexes in enumerate(first.write_sets)
            if len(write_set_indexes & first.acks) < ack_quorum
        )
        raise NotEnoughBookies(
            f"entry {entry} of ledger {self.access.ledger}: {acks} of {ack_quorum} bookies "
            f"have acknowledged it: {describe_answers(list(self._answers.values()))}"
        )

    @contextmanager
    def _breaking(self) -> Iterator[None]:
        """As inherited; if the block raises, also discards everything that is queued."""
        try:
            with super()._breaking():
                yield
        except BaseException:
            for lane in self._lanes.values():
                lane.batches.clear()
            self._batch, self._batch_bytes = [], 0
            self._answered.notify_all()
            raise

    def _forked(self) -> None:
        super()._forked()
        self._batch, self._batch_bytes = [], 0
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
    payloads: list[bytes] = []
    byte_count = 0
    for data in islice(source, _MAX_STRETCH_ENTRIES):
        payloads.append(data)
        byte_count += len(data)
        if byte_count >= _MAX_STRETCH_BYTES:
            break
    return payloads
