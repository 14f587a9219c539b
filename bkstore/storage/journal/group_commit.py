"""GroupCommit: of many threads that wait for a place to be durable, one makes it so for all.

Source: `bookie/Journal` (`ForceWriteThread`, group commit), which has a thread of its own for
it. Here one of those who wait does it, so a journal needs no thread, and one caller no hand-over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bkstore.formats.journal import LogMark
from bkstore.storage.journal.last_mark import NO_MARK

_SHARE = 4  # of the last commit's time, how much is waited for company
_LONGEST = 0.002  # seconds at most: upstream's `journalMaxGroupWaitMSec`


class _Follower:
    """A thread that waits: for its place to be durable, or for its turn."""

    __slots__ = ("gate", "leads", "place")

    def __init__(self, place: LogMark | None) -> None:
        self.place = place
        self.leads = False
        self.gate = threading.Lock()
        self.gate.acquire()


class GroupCommit:
    """Lets one thread at a time commit; the others wait until theirs is durable, or their turn.

    `durable` is the place before which everything is durable; the leader moves it. When the
    leader is done, all whose places lie before it are released together, each by a lock of its
    own, so they need none in common to go on. If others are left, the first of them leads next.

    Those who were released are likely to be back soon, so the next leader waits for them a moment:
    a quarter of the time that the last commit took, 2 ms at most, from its end on. Without that
    two halves of the threads would take turns. A single thread never waits.

    >>> commit = GroupCommit()
    >>> with commit.leading(LogMark(1, 40)) as leads:
    ...     commit.durable = LogMark(1, 512)  # by an fsync
    >>> with commit.leading(LogMark(1, 80)) as leads_too:
    ...     leads, leads_too
    (True, False)
    """

    def __init__(self, durable: LogMark = NO_MARK) -> None:
        self.durable = durable
        self._lock = threading.Lock()  # the two below; held for moments only
        self._busy = False
        self._followers: list[_Follower] = []
        self._began = self._patient_until = 0.0
        self._expected = 0  # followers that may come until then
        self._company: threading.Lock | None = None  # where a leader waits for them

    @contextmanager
    def leading(self, place: LogMark | None = None) -> Iterator[bool]:
        """Wait for the caller's turn, or until `place` is durable: False then, no turn.

        A turn ends with the block, whatever is raised in it. Without `place` it is waited for
        in any case.
        """
        leads = False
        try:
            leads = self._enter(place)
            if leads:
                self._gather()
            yield leads
        finally:
            if leads:
                self._leave()

    def _enter(self, place: LogMark | None) -> bool:
        with self._lock:
            if _covers(self.durable, place):
                return False
            if not self._busy:
                self._busy = True
                return True
            follower = _Follower(place)
            self._followers.append(follower)
            company = self._company
            if company is not None and len(self._followers) >= self._expected:
                self._company = None
                company.release()
        try:
            follower.gate.acquire()
            return follower.leads
        except BaseException:  # Ctrl-C: nobody is to wait for a leader that is gone
            self._withdraw(follower)
            raise

    def _gather(self) -> None:
        """Wait a moment for those whom the last commit released."""
        company = None
        with self._lock:
            patience = self._patient_until - time.monotonic()
            if patience > 0 and len(self._followers) < self._expected:
                company = self._company = threading.Lock()
                company.acquire()
        if company is not None:
            company.acquire(timeout=patience)
        self._company = None
        self._began = time.monotonic()

    def _leave(self) -> None:
        """Release those who have what they wait for; let the first of the others lead."""
        now = time.monotonic()
        with self._lock:
            self._patient_until = now + min((now - self._began) / _SHARE, _LONGEST)
            self._expected = len(self._followers)
            covered = [found for found in self._followers if _covers(self.durable, found.place)]
            rest = [found for found in self._followers if not _covers(self.durable, found.place)]
            self._busy = bool(rest)
            self._followers = rest[1:]
            for follower in rest[:1]:
                follower.leads = True
        for follower in (*covered, *rest[:1]):
            follower.gate.release()

    def _withdraw(self, follower: _Follower) -> None:
        with self._lock:
            if follower in self._followers:
                self._followers.remove(follower)
                return
        if follower.leads:
            self._leave()


def _covers(durable: LogMark, place: LogMark | None) -> bool:
    return place is not None and place <= durable
