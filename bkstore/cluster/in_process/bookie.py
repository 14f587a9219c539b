"""LocalBookie: a real bookie in this process, with faults between it and its clients.

The bookie is a `bkstore.Bookie` in a directory of its own. It can be down, cut off, slow
or too old for batch reads, and its files can be damaged. How a client sees it is in
`bookie_client`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition
from typing import TypeVar

from bkstore.arguments import call, number
from bkstore.cluster.in_process.damage_at_rest import (
    Entries,
    Part,
    corrupt_record,
    drop_index_rows,
    entry_ids,
)
from bkstore.errors import BookieUnavailable, IllegalOperation
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import LedgerLike
from bkstore.storage.bookie import Bookie

EVERYONE = "*"
"""As the name of a client: all of them."""

_T = TypeVar("_T")


class LocalBookie:
    """One bookie of a cluster: its directory, whether it runs, what is wrong with it.

    `open_at(path)` opens the bookie there. A client waits `timeout` seconds for an answer;
    `sleep` is what waiting is done with. Threads: all calls are safe beside each other; stopping
    lets the calls under way end first.
    """

    def __init__(
        self,
        bookie_id: str,
        path: Path,
        open_at: Callable[[Path], Bookie],
        *,
        timeout: float,
        sleep: Callable[[float], None],
    ) -> None:
        self.bookie_id = bookie_id
        self.path = path
        self.delay = 0.0
        """Seconds that each answer takes."""
        self.batch_reads = True
        """Whether it knows batch reads; a server before 4.18 does not."""
        self.cut: set[str] = set()
        """Clients that do not reach it; `EVERYONE` cuts it off from all."""
        self._open_at = open_at
        self._timeout = number(above=True)("timeout", timeout)
        self._sleep = call("sleep", sleep)
        self._bookie: Bookie | None = None
        self._calls = 0
        self._idle = Condition()

    # -- running or not

    @property
    def running(self) -> bool:
        """Whether the bookie runs, reachable or not."""
        return self._bookie is not None

    @property
    def bookie(self) -> Bookie:
        """The bookie behind; `BookieUnavailable` if it is down."""
        if self._bookie is None:
            raise BookieUnavailable(f"{self.bookie_id} is down")
        return self._bookie

    def start(self) -> None:
        """Open the bookie, replaying its journal; nothing happens if it runs."""
        if self._bookie is None:
            self._bookie = self._open_at(self.path)

    def _detach(self) -> Bookie | None:
        """Take the bookie away from clients; return it when the calls under way have ended."""
        with self._idle:
            bookie, self._bookie = self._bookie, None
            self._idle.wait_for(lambda: self._calls == 0)
        return bookie

    def stop(self, checkpoint: bool = True) -> None:
        """Close the bookie; nothing happens if it does not run."""
        bookie = self._detach()
        if bookie is not None:
            bookie.close(checkpoint=checkpoint)

    def crash(self) -> None:
        """Let the bookie end as a killed process does: what is on disk now is what stays.

        `IllegalOperation` if it does not run.
        """
        bookie = self._detach()
        if bookie is None:
            raise IllegalOperation(f"{self.bookie_id} does not run")
        place = Path(os.path.realpath(self.path))
        scratch = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
        copy, gone = scratch / "left", scratch / "gone"
        try:
            try:
                shutil.copytree(place, copy, symlinks=True)
            finally:
                bookie.close(checkpoint=False)
            os.rename(place, gone)
            os.rename(copy, place)
        finally:
            if not place.exists():
                os.rename(gone, place)
            shutil.rmtree(scratch)

    @contextmanager
    def at_rest(self) -> Iterator[list[Path]]:
        """Yield the index directories of the closed bookie, journal replayed; reopen after."""
        ran = self.running
        self.start()
        indexes = list(self.bookie.place.index)
        self.stop()
        try:
            yield indexes
        finally:
            if ran:
                self.start()

    # -- damage

    def lose(self, ledger: LedgerLike, entries: Entries) -> Int64Array:
        """Take entries out of the index, durably; return those that were here, int64[n]."""
        wanted = entry_ids(entries)
        with self.at_rest() as indexes:
            return drop_index_rows(indexes, LedgerId.of(ledger), wanted)

    def lose_ledger(self, ledger: LedgerLike) -> bool:
        """Forget a ledger, durably; return whether it was known."""
        with self._opened() as bookie:
            known = bookie.ledger_exists(ledger)
            bookie.delete_ledger(ledger)
            bookie.checkpoint()
        return known

    def corrupt(self, ledger: LedgerLike, entry: int, part: Part = "payload") -> tuple[Path, int]:
        """Change a byte of a stored record; return (entry log, offset). See `corrupt_record`."""
        with self._opened() as bookie:
            return corrupt_record(bookie, LedgerId.of(ledger), entry, part)

    @contextmanager
    def _opened(self) -> Iterator[Bookie]:
        """Yield the bookie, opened for as long as that takes if it is down."""
        ran = self.running
        self.start()
        try:
            yield self.bookie
        finally:
            if not ran:
                self.stop()

    # -- calls

    def call(self, client: str, work: Callable[[Bookie], _T]) -> _T:
        """Return what `work` gets from the bookie, as `client` asks for it.

        `BookieUnavailable` where no answer comes in time. What was asked for may have been done
        all the same: an add that is answered too late is stored.
        """
        try:
            with self._using(client) as bookie:
                return work(bookie)
        finally:  # an error that comes too late is no answer either
            self._wait()

    @contextmanager
    def _using(self, client: str) -> Iterator[Bookie]:
        with self._idle:
            if self.cut & {client, EVERYONE}:
                raise BookieUnavailable(f"{self.bookie_id} cannot be reached")
            bookie = self.bookie
            self._calls += 1
        try:
            yield bookie
        finally:
            with self._idle:
                self._calls -= 1
                self._idle.notify_all()

    def _wait(self) -> None:
        delay = self.delay
        if delay > 0:
            self._sleep(min(delay, self._timeout))
        if delay >= self._timeout:
            raise BookieUnavailable(f"{self.bookie_id} gave no answer in {self._timeout:g} s")
