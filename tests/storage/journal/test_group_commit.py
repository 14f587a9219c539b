"""Group commit: threads that wait for an fsync share it, and none goes on without one."""

from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from bkstore.errors import BkstoreError, IllegalOperation, InvalidArgument, SyncFailed
from bkstore.formats.entry import RecordBatch
from bkstore.formats.journal import LogMark
from bkstore.storage.journal import JournalWriter, group_commit
from bkstore.storage.journal.group_commit import GroupCommit
from tests.storage.journal.journal_disk import Disk, record_of

WAIT = 60  # seconds until a test that hangs fails; nothing waits for time to pass
FOLLOWERS = 12


class GatedDisk(Disk):
    """A disk whose next fsyncs wait to be let through; `begun` tells that one is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)
        self.gated = False

    def fsync(self, fd: int) -> None:
        """Wait at the gate, then keep what the file had before as durable."""
        if self.gated:
            self.begun.release()
            data = self.open_files[fd].read_bytes()
            assert self.gates.acquire(timeout=WAIT)
            super().fsync(fd)
            self._synced[self.open_files[fd]] = data
        else:
            super().fsync(fd)

    def holds(self, place: LogMark, record: bytes) -> bool:
        """Return whether the record that ends at `place` is durable."""
        data = self.durable.get(f"{place.journal_id:x}.txn", b"")
        return data[place.position - len(record) : place.position] == record


class Crowd:
    """A leader whose fsync is held at the gate, and followers that appended and wait."""

    def __init__(self, writer: JournalWriter, disk: GatedDisk, pool: ThreadPoolExecutor) -> None:
        self.disk, self.writer, self.pool = disk, writer, pool
        self.returned: list[int] = []
        disk.gated = True
        self.leader = self.add(100)
        assert disk.begun.acquire(timeout=WAIT)
        self.followers = [self.add(number) for number in range(FOLLOWERS)]
        while len(self.writer._commit._waiting) < FOLLOWERS:
            threading.Event().wait(0.001)  # until all of them wait, however long that takes

    def add(self, number: int) -> Future[bool]:
        """Append a record and sync it, in a thread; was it durable when `sync` returned?"""
        return self.pool.submit(self._add, number)

    def _add(self, number: int) -> bool:
        record = record_of(number, 100)
        batch = RecordBatch.of([record_of(number), record], [0, 1])
        place = self.writer.append_batch(batch) if number % 2 else self.writer.append(record)
        self.writer.sync(place)
        durable = self.disk.holds(place, record)
        self.returned.append(number)
        return durable


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    """Yield followers that wait for the fsync after the one that is under way."""
    disk = GatedDisk()
    with ThreadPoolExecutor(FOLLOWERS + 1) as pool:
        writer = JournalWriter(tmp_path, files=disk, preallocate=0, first_id=1)
        try:
            yield Crowd(writer, disk, pool)
        finally:
            disk.gated = False
            disk.gates.release(100)
            writer.close()


def test_one_fsync_releases_all_who_wait(crowd: Crowd) -> None:
    """All who appended before an fsync began return by it, with their records durable."""
    before = crowd.disk.calls.count("fsync")
    crowd.disk.gates.release()

    assert crowd.leader.result(WAIT)
    assert crowd.disk.begun.acquire(timeout=WAIT)  # one of the followers leads
    assert [100] == crowd.returned
    crowd.disk.gates.release()
    assert [True] * FOLLOWERS == [found.result(WAIT) for found in crowd.followers]
    assert 2 == crowd.disk.calls.count("fsync") - before


def test_a_failed_fsync_reaches_all_who_wait(crowd: Crowd) -> None:
    """Nobody is told that a record is durable whose fsync failed, and nobody waits for ever."""
    crowd.disk.gates.release()

    assert crowd.leader.result(WAIT)
    assert crowd.disk.begun.acquire(timeout=WAIT)
    fsyncs = crowd.disk.calls.count("fsync")
    crowd.disk.failing = len(crowd.disk.calls)
    crowd.disk.gates.release()
    errors = [found.exception(WAIT) for found in crowd.followers]
    (failed,) = [error for error in errors if isinstance(error, SyncFailed)]
    others = [error for error in errors if error is not failed]

    assert errno.ENOSPC == failed.errno
    assert [IllegalOperation] * (FOLLOWERS - 1) == [type(error) for error in others]
    assert {failed} == {error.__cause__ for error in others if error is not None}
    assert [100] == crowd.returned
    assert fsyncs + 1 == crowd.disk.calls.count("fsync")


def test_a_close_lets_all_go_who_wait(crowd: Crowd) -> None:
    """A close has its turn behind those who wait, and what they appended is durable."""
    closing = threading.Thread(target=crowd.writer.close)
    closing.start()
    crowd.disk.gates.release(3)
    closing.join(WAIT)

    assert [True] * (FOLLOWERS + 1) == [
        found.result(WAIT) for found in (crowd.leader, *crowd.followers)
    ]
    with pytest.raises(IllegalOperation, match="closed"):
        crowd.writer.append(record_of(1))


def test_places_that_no_fsync_reaches(crowd: Crowd) -> None:
    """Who waits for a place that nothing was appended up to is told so, and holds nobody up."""
    ahead = crowd.writer.position._replace(position=1 << 40)
    lost = crowd.pool.submit(crowd.writer.sync, ahead)
    crowd.disk.gated = False
    crowd.disk.gates.release()

    assert isinstance(lost.exception(WAIT), InvalidArgument)
    assert all(found.result(WAIT) for found in crowd.followers)


def _rounds(writer: JournalWriter, threads: int, rounds: int) -> None:
    """Let each of many threads append and sync one record after the other."""

    ready = threading.Barrier(threads)

    def work(thread: int) -> None:
        ready.wait(WAIT)
        for number in range(rounds):
            writer.sync(writer.append(record_of(thread * rounds + number, 100)))

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, thread) for thread in range(threads)]:
            done.result(WAIT)


def test_a_leader_waits_for_those_who_were_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """With patience the next turn begins when as many wait as the last commit released."""
    monkeypatch.setattr(group_commit, "_WAIT_DIVISOR", 1e-9)
    monkeypatch.setattr(group_commit, "_MAX_WAIT_SECONDS", 10.0)
    commit, last = GroupCommit(), LogMark(1, 1 << 20)

    def wait(place: LogMark) -> int | None:
        with commit.leading(place) as leads:
            if leads:
                waiting = len(commit._waiting)
                commit.durable = last
            return waiting if leads else None

    def until(count: int) -> None:
        for _ in range(10_000):
            if len(commit._waiting) >= count:
                return
            threading.Event().wait(0.001)
        pytest.fail(f"nobody waits for a leader that others may join: {commit._waiting}")

    with ThreadPoolExecutor(8) as pool:
        with commit.leading():
            first = [pool.submit(wait, LogMark(1, 512)) for _ in range(3)]
            until(3)
            commit.durable = LogMark(1, 512)
        assert [None] * 3 == [found.result(WAIT) for found in first]
        again = []
        for _ in range(4):
            again.append(pool.submit(wait, last))
            until(len(again) - 1 if len(again) < 4 else 0)
        turns = [found.result(WAIT) for found in again]

    assert [3] == [waiting for waiting in turns if waiting is not None]


def test_patience_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that do not come back hold nobody up; one that is alone is never patient."""
    monkeypatch.setattr(group_commit, "_WAIT_DIVISOR", 1e-9)
    monkeypatch.setattr(group_commit, "_MAX_WAIT_SECONDS", 0.01)
    with JournalWriter(tmp_path, files=Disk(), preallocate=0) as writer:
        _rounds(writer, 6, 3)

        assert writer.append(record_of(1)) <= writer.sync()
        monkeypatch.setattr(group_commit, "_MAX_WAIT_SECONDS", 2.0 * WAIT)
        writer.sync(writer.append(record_of(2)))  # whose company is gone, and expected no more
        for number in range(20):
            assert writer.append(record_of(number)) <= writer.sync()


class _Interrupt(BaseException):
    """What a signal's handler raises."""


def _signal_when_waiting(commit: GroupCommit) -> None:
    """Interrupt the main thread once it waits for its turn."""
    while not commit._waiting:
        threading.Event().wait(0.001)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)


@pytest.mark.parametrize("turn", [False, True], ids=["while it waits", "as its turn comes"])
def test_a_follower_that_is_interrupted(turn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while waiting leaves no place in the queue: the next ones get their turn."""
    commit = GroupCommit()
    entered, end = threading.Event(), threading.Event()

    def lead() -> None:
        with commit.leading():
            entered.set()
            assert end.wait(WAIT)

    def interrupt(*_: object) -> None:
        if turn:
            end.set()
            leader.join(WAIT)
        raise _Interrupt

    leader = threading.Thread(target=lead)
    leader.start()
    entered.wait(WAIT)
    before = signal.signal(signal.SIGUSR1, interrupt)
    threading.Thread(target=_signal_when_waiting, args=(commit,)).start()
    try:
        with pytest.raises(_Interrupt), commit.leading():
            pytest.fail("it had its turn")
    finally:
        signal.signal(signal.SIGUSR1, before)
        end.set()
    with commit.leading() as leads:
        assert leads
    leader.join(WAIT)


def test_a_turn_ends_with_an_error(tmp_path: Path) -> None:
    """What a leader raises is its own; the next one leads."""
    commit = GroupCommit()
    with pytest.raises(BkstoreError), commit.leading():
        raise BkstoreError("an fsync, say")
    with commit.leading() as leads:
        assert leads
