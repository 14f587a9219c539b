"""PipelinedWriter: many entries on their way to their bookies at once.

Entries go out in stretches. Each bookie of the ensemble has a lane: it sends what waits for it, in
order, while the other lanes and the next stretches go on. A stretch is confirmed when each of its
entries has A acknowledgements and all before it are confirmed; answers that come later still
count against the window. Source: `client/LedgerHandle`, `client/PendingAddOp`.
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
from bkstore.cluster.client.appends.lanes import Lane, Stretch
from bkstore.cluster.client.appends.later import PendingAppend
from bkstore.cluster.client.appends.quorum_add import part_of, raise_if_final, sender
from bkstore.cluster.client.appends.writer import LedgerWriter
from bkstore.cluster.client.bookie_answers import Answer, told
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

_STRETCH = 128
_STRETCH_BYTES = 256 << 10
_WINDOW_BYTES = 16 << 20


class PipelinedWriter(LedgerWriter):
    """A `LedgerWriter` whose appends overlap, with about `ClientOptions.window` under way.

    Failed bookies are replaced by whoever waits, from the first unconfirmed entry on, and the new
    ones get all that is not confirmed. Appends that nobody waits for gather while others are under
    way, and go out together: when answers come, or at the next call that waits. An append without
    sync goes alone, as do those behind it until `force`. Threads: appends of several overlap; each
    returns when its entries are confirmed.
    """

    def __init__(self, access: LedgerAccess, workers: Workers) -> None:
        super().__init__(access)
        self._workers = workers
        self._answered = Condition(self._lock)
        self._pending: deque[Stretch] = deque()
        self._late: list[Stretch] = []
        self._lanes: dict[int, Lane] = {}
        self._refused: dict[str, int] = {}
        """Bookies that failed, each with the entry whose confirmation gives it another chance."""
        self._answers: dict[str, Answer[None]] = {}
        self._crash: BaseException | None = None
        self._gathered: list[bytes] = []
        self._gathered_size = 0

    # -- adding

    def append(self, data: bytes, sync: bool = True) -> int:
        """Add an entry and return its id; see `LedgerHandle.append`."""
        with self._lock:
            self._check_open()
            if not sync or self._unsynced:
                self._drain()
                return super().append(data, sync)
            stretch = self._sent([data])
            self._settle(lambda: self.confirmed >= stretch.last)
            return stretch.first

    def append_later(self, data: bytes) -> PendingAppend:
        """Add an entry and do not wait for it; see `LedgerHandle.append_later`."""
        payload = self._payload(data)
        with self._lock:
            self._check_open()
            if self._unsynced:
                return PendingAppend(super().append(payload), None)
            self._settle(self._has_room)
            self._gathered.append(payload)
            self._gathered_size += len(payload)
            entry = self.pushed + len(self._gathered)
            many = len(self._gathered) >= _STRETCH or self._gathered_size >= _STRETCH_BYTES
            if many or not self._pending or not self._all_well():
                self._send_gathered()
            return PendingAppend(entry, self)

    def _send_gathered(self) -> None:
        if self._gathered:
            gathered, self._gathered, self._gathered_size = self._gathered, [], 0
            self._sent(gathered)

    def wait_for(self, entry: int, seconds: float | None) -> None:
        """Return when an entry is confirmed; raises what ended the writer, or `TimeoutError`."""
        with self._lock:
            if self._left:
                self._check_open()
            if self.broken is None:
                self._send_gathered()
            if not self._settle(lambda: self._decided(entry), seconds):
                raise TimeoutError(f"entry {entry} is under way after {seconds} s")
            if self.confirmed < entry:
                raise self._lost(entry)

    def _decided(self, entry: int) -> bool:
        return self.confirmed >= entry or self.broken is not None

    def _lost(self, entry: int) -> BkstoreError:
        """Return the error for an entry that was under way when the writer ended."""
        kinds = (NotEnoughBookies, LedgerFenced, UnauthorizedAccess)
        kind = type(self.broken) if isinstance(self.broken, kinds) else IllegalOperation
        where = f"entry {entry} of ledger {self.access.ledger}"
        return kind(f"{where}: this writer ended with {self.broken!r}")

    def flush(self) -> int:
        """Wait for all that was appended; see `LedgerHandle.flush`."""
        with self._lock:
            self._check_open()
            self._drain()
            return self.confirmed

    def append_many(self, payloads: Iterable[bytes]) -> Int64Array:
        """Add entries and return their ids; see `LedgerHandle.append_many`."""
        ids: list[int] = []
        source = iter(payloads)
        last = -1
        with self._lock:
            self._check_open()
        while some := _some(source):  # without the lock: the source may take its time
            with self._lock:
                self._check_open()
                if self._unsynced:
                    ids += super().append_many(some).tolist()
                    continue
                stretch = self._sent(some)
                last = stretch.last
                ids += range(stretch.first, last + 1)
                self._settle(self._has_room)
        with self._lock:
            self._settle(lambda: self.confirmed >= last)
        return np.array(ids, np.int64)

    def _sent(self, payloads: Sequence[bytes]) -> Stretch:
        """Give a new stretch to the lanes of its bookies, behind what is gathered."""
        if self._workers.finished:  # what the lanes have goes on, and nothing joins it
            raise forks.closed("this client")
        self._send_gathered()
        batch = self._records(self.pushed + 1, payloads).framed()
        with self._breaking():
            metadata = self._mine(self.access.metadata)
            self._repair()
            for data in payloads:
                self._push(len(data))
            numbers = (metadata.ensemble_size, metadata.write_quorum_size)
            stretch = Stretch(batch, self._pushed_length, *numbers)
            self._pending.append(stretch)
            for index in stretch.indexes:
                self._queue(index, [stretch])
        return stretch

    def _queue(self, index: int, stretches: Iterable[Stretch]) -> None:
        lane = self._lanes.get(index)
        if lane is None:
            lane = Lane(index, self.access.metadata.segments[-1].ensemble[index])
            self._lanes[index] = lane
        for stretch in stretches:
            stretch.waiting.add(index)
            lane.queue.append(stretch)
        if lane.queue and not lane.running and lane.failed is None:
            lane.running = True
            self._workers.start(self._run, lane)

    def _has_room(self) -> bool:
        held = (*self._pending, *self._late)
        entries = sum(each.count for each in held) + len(self._gathered)
        size = sum(each.size for each in held) + self._gathered_size
        return entries <= self.access.context.options.window and size <= _WINDOW_BYTES

    # -- a lane, in a thread of the workers

    def _run(self, lane: Lane) -> None:
        """Send what waits for one bookie until nothing does, or until it fails."""
        try:
            while True:
                with self._lock:
                    taken = lane.take() if lane.failed is None else []
                    lane.running = bool(taken)
                if not taken:
                    return
                answer = self.access.ask(
                    lane.bookie, sender(self.access, self._part(lane.index, taken))
                )
                with self._lock:
                    self._take(lane, taken, answer)
        except BaseException as error:  # noqa: BLE001  whoever waits raises it
            with self._lock:
                self._crash = error
                self._answered.notify_all()

    def _part(self, index: int, stretches: Sequence[Stretch]) -> RecordBatch:
        metadata = self.access.metadata
        batch = RecordBatch.joined([stretch.batch for stretch in stretches])
        return part_of(batch, index, metadata.ensemble_size, metadata.write_quorum_size)

    def _take(self, lane: Lane, taken: Sequence[Stretch], answer: Answer[None]) -> None:
        self._answers[lane.bookie] = answer
        if answer.error is not None:
            lane.failed = answer
            lane.queue.clear()
        else:
            for stretch in taken:
                stretch.acks.add(lane.index)
                stretch.waiting.discard(lane.index)
        self._advance()
        if self._gathered and not lane.queue and self._all_well() and not self._workers.finished:
            self._send_gathered()
        self._answered.notify_all()

    def _all_well(self) -> bool:
        """Return whether no bookie is to be replaced, which is for a caller's thread to do."""
        return self.broken is None and all(lane.failed is None for lane in self._lanes.values())

    def _advance(self) -> None:
        """Confirm, in order, what has its acknowledgements. A broken writer confirms no more."""
        quorum = self.access.metadata.ack_quorum_size
        while (
            self.broken is None
            and self._pending
            and self._pending[0].has(self._pending[0].acks, quorum)
        ):
            stretch = self._pending.popleft()
            self.confirmed, self.length = stretch.last, stretch.length
            self._late.append(stretch)
        self._late = [stretch for stretch in self._late if stretch.waiting]

    # -- waiting, in the caller's thread

    def _settle(self, ready: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait for answers, and see to failed bookies, until it is so, or so many seconds."""
        end = None if seconds is None else time.monotonic() + seconds
        with self._breaking():
            while not ready():
                if self.broken is not None:  # another thread's append ended the writer
                    self._check_open()
                self._repair()
                if ready():
                    break
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._answered.wait(left)
        return True

    def _drain(self) -> None:
        self._send_gathered()
        self._settle(lambda: not self._pending)

    def _repair(self) -> None:
        """Replace the bookies whose lanes have failed; raise where that does not help."""
        if self._crash is not None:
            raise self._crash
        failed = sorted(index for index, lane in self._lanes.items() if lane.failed is not None)
        for lane in [self._lanes.pop(index) for index in failed]:
            assert lane.failed is not None
            raise_if_final(lane.failed)
            self._refused[lane.bookie] = self.pushed + 1
            for stretch in (*self._pending, *self._late):
                stretch.waiting.discard(lane.index)
        if failed:
            if not (self.access.context.options.delay_ensemble_change and self._within_reach()):
                self._replace_some(failed)
            self._advance()
        self._check_quorum()

    def _within_reach(self) -> bool:
        """Return whether all that is not confirmed may get A acknowledgements as it is."""
        quorum = self.access.metadata.ack_quorum_size
        return all(each.has(each.acks | each.waiting, quorum) for each in self._pending)

    def _replace_some(self, failed: Sequence[int]) -> None:
        """Replace as many as there are other bookies, and send those what is not confirmed."""
        refused = {name for name, entry in self._refused.items() if self.confirmed < entry}
        for count in range(len(failed), 0, -1):
            if self._replace(failed[:count], refused) is None:
                continue
            for index in failed[:count]:
                for stretch in self._pending:
                    stretch.acks.discard(index)
                self._queue(index, [each for each in self._pending if index in each.indexes])
            return

    def _check_quorum(self) -> None:
        """Raise `NotEnoughBookies` once nothing can confirm the first unconfirmed stretch."""
        quorum = self.access.metadata.ack_quorum_size
        if not self._pending or self._pending[0].waiting:
            return
        first = self._pending[0]
        if first.has(first.acks, quorum):
            return
        entry, acks = next(
            (first.first + at, len(each & first.acks))
            for at, each in enumerate(first.write_sets)
            if len(each & first.acks) < quorum
        )
        raise NotEnoughBookies(
            f"entry {entry} of ledger {self.access.ledger}: {acks} of {quorum} bookies took it: "
            f"{told(list(self._answers.values()))}"
        )

    @contextmanager
    def _breaking(self) -> Iterator[None]:
        """Take no more appends after one that did not end well; send nothing more."""
        try:
            with super()._breaking():
                yield
        except BaseException:
            for lane in self._lanes.values():
                lane.queue.clear()
            self._gathered, self._gathered_size = [], 0
            self._answered.notify_all()
            raise

    def _forked(self) -> None:
        super()._forked()
        self._gathered, self._gathered_size = [], 0
        self._answered = Condition(self._lock)

    # -- all of it

    def force(self) -> int:
        """Make durable what was added without sync; return the LAC, which covers it then."""
        with self._lock:
            self._check_open()
            self._drain()
            return super().force()

    def write_explicit_lac(self) -> int:
        """Tell the bookies the LAC; return it. See `LedgerHandle.write_explicit_lac`."""
        with self._lock:
            self._check_open()
            self._drain()
            return super().write_explicit_lac()

    def close(self) -> None:
        """Set last entry and length in the metadata; see `LedgerHandle.close`."""
        with self._lock:
            if not self.closed and self.broken is None:
                self._drain()
            super().close()


def _some(source: Iterator[bytes]) -> list[bytes]:
    """Return the next payloads: a stretch of them, fewer where they are large."""
    found: list[bytes] = []
    size = 0
    for data in islice(source, _STRETCH):
        found.append(data)
        size += len(data)
        if size >= _STRETCH_BYTES:
            break
    return found
