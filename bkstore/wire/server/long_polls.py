"""LongPolls: reads that wait until a ledger's last add confirmed (LAC) passes the one they know.

Fencing or deleting the ledger ends the wait too, because no more entries will come.
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
from bkstore.wire.server.requests.operations import ReadOperation

_POLL_SECONDS = 0.05
_MAX_WAIT_SECONDS = 86400.0

_Callback = Callable[[ReadOperation], None]


class _Progress(NamedTuple):
    """The LAC of a ledger, and whether it is fenced."""

    lac: int
    fenced: bool


class LongPolls:
    """The reads that wait. Used in the loop's thread; a pool thread asks the bookie for LACs.

    After each write of the server and every 50 ms, because others may write to the bookie too, one
    job asks for the LAC and the fencing of each ledger that a read waits for. A read's callback is
    called when the LAC has passed its own, or the ledger is newly fenced or gone.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: Executor, bookie: Bookie) -> None:
        self._loop = loop
        self._pool = pool
        self._bookie = bookie
        self.waiting_reads: dict[ReadOperation, tuple[_Callback, asyncio.TimerHandle]] = {}
        """The callback and timer of each; while it is empty `poll_bookie` is not needed."""
        self._is_polling = self._poll_again = False  # a job asks the bookie; another must follow
        self._tick_timer: asyncio.TimerHandle | None = None

    def park(self, read: ReadOperation, callback: _Callback) -> None:
        """Call `callback` with the read when its LAC has advanced or its timeout has passed."""
        seconds_left = read.received_at + (read.timeout_millis or 0) / 1000 - self._loop.time()
        timer = self._loop.call_later(min(seconds_left, _MAX_WAIT_SECONDS), self.expire, read)
        self.waiting_reads[read] = callback, timer
        if self._tick_timer is None:  # others may write to the bookie too: ask it regularly
            self._tick_timer = self._loop.call_later(_POLL_SECONDS, self._poll_and_reschedule)

    def cancel(self, read: ReadOperation) -> None:
        """Drop a read whose connection is lost, without a callback."""
        _, timer = self.waiting_reads.pop(read, (None, None))
        if timer is not None:
            timer.cancel()

    def expire_all(self) -> None:
        """Expire all waiting reads."""
        for read in list(self.waiting_reads):
            self.expire(read)

    def close(self) -> None:
        """Drop all waiting reads, and stop polling."""
        for read in list(self.waiting_reads):
            self.cancel(read)
        if self._tick_timer is not None:
            self._tick_timer.cancel()

    def _poll_and_reschedule(self) -> None:
        """Ask the bookie about the waiting reads, and again every `_POLL_SECONDS` while any
        waits."""
        self._tick_timer = None
        if self.waiting_reads:
            self.poll_bookie()
            self._tick_timer = self._loop.call_later(_POLL_SECONDS, self._poll_and_reschedule)

    def poll_bookie(self) -> None:
        """Ask the bookie, in a thread of the pool, for the LAC and fence of each ledger that a read
        waits for; `_on_progress` gets the answers. Called after a write and at each tick."""
        if self._is_polling:
            self._poll_again = True  # `_on_progress` calls this again
            return
        self._is_polling, self._poll_again = True, False
        ledgers = {read.ledger_id for read in self.waiting_reads}

        def ask_bookie() -> None:
            progress = {ledger: self._read_progress(ledger) for ledger in ledgers}
            self._loop.call_soon_threadsafe(self._on_progress, progress)

        self._pool.submit(ask_bookie)

    def _read_progress(self, ledger_id: LedgerId) -> _Progress | None:
        """Return the progress of a ledger, or None on an error: repeating the read reports it."""
        try:
            lac = self._bookie.last_add_confirmed(ledger_id)
            return _Progress(lac, self._bookie.is_fenced(ledger_id))
        except (BkstoreError, OSError):
            return None

    def _on_progress(self, progress_of_ledger: dict[LedgerId, _Progress | None]) -> None:
        """Call back the reads whose wait is over, in the loop's thread."""
        self._is_polling = False
        now_millis = int(time.time() * 1000)
        for read in list(self.waiting_reads):
            if read.ledger_id not in progress_of_ledger:  # parked after the bookie was asked
                continue
            progress = progress_of_ledger[read.ledger_id]
            # None is an error, which the repeated read reports
            if progress is None or progress.lac > (read.previous_lac or 0):
                read.lac_update_millis = now_millis
                self._call_back(read)
            elif progress.fenced and not read.was_fenced:
                self.expire(read)
        if self._poll_again and self.waiting_reads:
            self.poll_bookie()

    def expire(self, read: ReadOperation) -> None:
        """Call back a read as if its timeout had passed."""
        read.expired = True
        self._call_back(read)

    def _call_back(self, read: ReadOperation) -> None:
        callback, timer = self.waiting_reads.pop(read)
        timer.cancel()
        callback(read)
