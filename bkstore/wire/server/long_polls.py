"""LongPolls: reads that wait until a ledger's last add confirmed (LAC) is above theirs.

A fence and a deletion end the wait too: nothing more is to come.
Source: `LongPollReadEntryProcessorV3`, `TransientLedgerInfo` and `FileInfo` with their watchers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple

from bkstore.errors import BkstoreError
from bkstore.ids import LedgerId
from bkstore.storage.bookie import Bookie
from bkstore.wire.server.requests.operations import Read

_TICK = 0.05  # seconds
_LONGEST = 86400.0

_Again = Callable[[Read], None]


class _Progress(NamedTuple):
    """How far a ledger is."""

    lac: int
    fenced: bool


class LongPolls:
    """The reads that wait. It belongs to the loop's thread; LACs are asked for in a pool.

    The bookie is asked for the LAC of each ledger that is waited for, and whether it is fenced,
    after each write of the server, and every 50 ms, as others may write to the bookie too: one
    asking at a time. A read is called again when the LAC is above its own, when the ledger has
    been fenced since it began to wait, and when the ledger is gone.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pool: Executor,
        bookie: Bookie,
    ) -> None:
        self._loop = loop
        self._pool = pool
        self._bookie = bookie
        self.waiting: dict[Read, tuple[_Again, asyncio.TimerHandle]] = {}
        """Empty: there is nothing to `wake`."""
        self._asking = self._ask_again = False
        self._ticker: asyncio.TimerHandle | None = None

    def park(self, read: Read, again: _Again) -> None:
        """Call `again` with the read when its LAC has come or its time is over."""
        left = read.started + (read.time_out or 0) / 1000 - self._loop.time()
        timer = self._loop.call_later(min(left, _LONGEST), self.expire, read)
        self.waiting[read] = again, timer
        if self._ticker is None:
            self._ticker = self._loop.call_later(_TICK, self._tick)

    def forget(self, read: Read) -> None:
        """Drop a read whose connection is gone."""
        _, timer = self.waiting.pop(read, (None, None))
        if timer is not None:
            timer.cancel()

    def expire_all(self) -> None:
        """Call again with all of them, as if their time was over."""
        for read in list(self.waiting):
            self.expire(read)

    def close(self) -> None:
        """Drop them all."""
        for read in list(self.waiting):
            self.forget(read)
        if self._ticker is not None:
            self._ticker.cancel()

    def _tick(self) -> None:
        self._ticker = None
        if self.waiting:
            self.wake()
            self._ticker = self._loop.call_later(_TICK, self._tick)

    def wake(self) -> None:
        """Ask for LACs that have moved and new fences: something was written."""
        if self._asking:
            self._ask_again = True
            return
        self._asking, self._ask_again = True, False
        ledgers = {read.ledger for read in self.waiting}

        def job() -> None:
            found = {ledger: self._progress(ledger) for ledger in ledgers}
            self._loop.call_soon_threadsafe(self._asked, found)

        self._pool.submit(job)

    def _progress(self, ledger: LedgerId) -> _Progress | None:
        """Return how far a ledger is; None where reading again will tell what is wrong."""
        try:
            lac = self._bookie.last_add_confirmed(ledger)
            return _Progress(lac, self._bookie.is_fenced(ledger))
        except (BkstoreError, OSError):
            return None

    def _asked(self, found: dict[LedgerId, _Progress | None]) -> None:
        self._asking = False
        now = int(time.time() * 1000)
        for read in list(self.waiting):
            if read.ledger not in found:
                continue
            progress = found[read.ledger]
            if progress is None or progress.lac > (read.previous_lac or 0):
                read.updated = now
                self._again(read)
            elif progress.fenced and not read.was_fenced:
                self.expire(read)
        if self._ask_again and self.waiting:
            self.wake()

    def expire(self, read: Read) -> None:
        """Call again with a read as if its time was over."""
        read.expired = True
        self._again(read)

    def _again(self, read: Read) -> None:
        again, timer = self.waiting.pop(read)
        timer.cancel()
        again(read)
