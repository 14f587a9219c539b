"""GroupCommit: of many threads that wait for a sync, one syncs for all.

Source: `bookie/Journal` (`ForceWriteThread`, group commit), which has a thread for it. Here one of
the waiting threads does it, so a journal needs no thread, and a single caller no hand-over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bkstore.formats.journal import LogMark
from bkstore.storage.journal.last_mark import NO_MARK

_WAIT_DIVISOR = 4  # a leader waits a quarter of the last commit's time
_MAX_WAIT_SECONDS = 0.002  # BookKeeper: `journalMaxGroupWaitMSec`


class _Follower:
    """A thread that waits until its position is durable, or until it leads: it acquires `gate`,
    which is locked until another thread releases it."""

    __slots__ = ("gate", "leads", "position")

    def __init__(self, position: LogMark | None) -> None:
        self.position = position
        self.leads = False
        self.gate = threading.Lock()
        self.gate.acquire()


class GroupCommit:
    """Lets one thread at a time commit; others wait until their position is durable or they lead.

    `durable` is the position before which everything is durable; the leader sets it. When the
    leader is done, all threads with positions up to it are released together, each by its own
    lock, so that they do not contend for one. If others are left, the first of them leads next.

    Released threads are likely to return soon, so the next leader waits for them: a quarter of
    the time that the last commit took, at most 2 ms, from its end on. Otherwise two halves of the
    threads would take turns. A single thread never waits.

    >>> commit = GroupCommit()
    >>> with commit.leading(LogMark(1, 40)) as leads:
    ...     commit.durable = LogMark(1, 512)  # by an fsync
    >>> with commit.leading(LogMark(1, 80)) as leads_too:
    ...     leads, leads_too
    (True, False)
    """

    def __init__(self, durable: LogMark = NO_MARK) -> None:
        self.durable = durable
        self._lock = threading.Lock()  # guards the fields below; held briefly
        self._has_leader = False
        self._waiting: list[_Follower] = []
        # By `time.monotonic`: when the running commit began, and how long a leader may wait.
        self._commit_start = self._wait_deadline = 0.0
        # A leader waits for this many followers, but not beyond `_wait_deadline`.
        self._expected_followers = 0
        # While a leader waits for them: a lock that the last one to come releases.
        self._followers_gathered: threading.Lock | None = None

    @contextmanager
    def leading(self, position: LogMark | None = None) -> Iterator[bool]:
        """Wait until the caller leads (yield True) or `position` is durable (yield False); without
        `position`, always lead. The lead ends with the ``with`` block, even if that raises."""
        is_leader = False
        try:
            is_leader = self._wait_for_lead(position)
            if is_leader:
                self._await_followers()
            yield is_leader
        finally:
            if is_leader:
                self._end_lead()

    def _wait_for_lead(self, position: LogMark | None) -> bool:
        """Wait until the caller leads (return True) or `position` is durable (return False)."""
        with self._lock:
            if _covers(self.durable, position):
                return False
            if not self._has_leader:
                self._has_leader = True
                return True
            follower = _Follower(position)
            self._waiting.append(follower)
            # The leader may be waiting for followers (`_await_followers`): is this the last one?
            all_gathered = self._followers_gathered
            if all_gathered is not None and len(self._waiting) >= self._expected_followers:
                self._followers_gathered = None
                all_gathered.release()
        try:
            follower.gate.acquire()
            return follower.leads
        except BaseException:  # such as Ctrl-C: others must not wait for this thread to lead
            self._stop_waiting(follower)
            raise

    def _await_followers(self) -> None:
        """Wait until as many threads wait as the last commit released, but only briefly: one sync
        then covers all. Then start measuring the time of this commit."""
        all_gathered = None
        with self._lock:
            wait_seconds = self._wait_deadline - time.monotonic()
            if wait_seconds > 0 and len(self._waiting) < self._expected_followers:
                all_gathered = self._followers_gathered = threading.Lock()
                all_gathered.acquire()  # the last follower to come releases it
        if all_gathered is not None:
            all_gathered.acquire(timeout=wait_seconds)
        self._followers_gathered = None
        self._commit_start = time.monotonic()

    def _end_lead(self) -> None:
        """Release the threads whose positions are durable; let the first of the others lead."""
        now = time.monotonic()
        with self._lock:
            # The threads released now may commit again at once: the next leader waits for as many.
            commit_seconds = now - self._commit_start
            self._wait_deadline = now + min(commit_seconds / _WAIT_DIVISOR, _MAX_WAIT_SECONDS)
            self._expected_followers = len(self._waiting)
            covered, remaining = list[_Follower](), list[_Follower]()
            for follower in self._waiting:
                is_covered = _covers(self.durable, follower.position)
                (covered if is_covered else remaining).append(follower)
            self._has_leader = bool(remaining)
            self._waiting = remaining[1:]
            for follower in remaining[:1]:
                follower.leads = True
        for follower in (*covered, *remaining[:1]):
            follower.gate.release()

    def _stop_waiting(self, follower: _Follower) -> None:
        """Withdraw an interrupted follower; if it was made leader meanwhile, end its lead."""
        with self._lock:
            if follower in self._waiting:
                self._waiting.remove(follower)
                return
        if follower.leads:
            self._end_lead()


def _covers(durable: LogMark, position: LogMark | None) -> bool:
    """Return whether the position is durable; a caller without one always leads."""
    return position is not None and position <= durable
