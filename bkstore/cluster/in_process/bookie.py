"""LocalBookie: a real bookie in this process, with faults injected between it and its clients.

It can be down, partitioned, slow or too old for batch reads, and its files can be damaged.
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

from bkstore.arguments import function, number
from bkstore.cluster.in_process.damage_at_rest import (
    EntriesLike,
    RecordPart,
    corrupt_record,
    delete_index_rows,
    to_entry_ids,
)
from bkstore.errors import BookieUnavailable, IllegalOperation
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import LedgerLike
from bkstore.index.rocks.files.running_copies import copy_running_tree
from bkstore.storage.bookie import Bookie

ALL_CLIENTS = "*"
"""A client name that stands for all clients."""

_T = TypeVar("_T")


class LocalBookie:
    """One bookie of a cluster: its directory, whether it runs, and its injected faults.

    `open_at(path)` opens it. A client waits `timeout` seconds for an answer, by `sleep`. Threads:
    all calls may be concurrent; stopping waits for running calls to end.
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
        self.delay_seconds = 0.0
        """Seconds by which each answer is delayed."""
        self.batch_reads = True
        """Whether it supports batch reads; a server before 4.18 does not."""
        self.unreachable_from: set[str] = set()
        """Clients that cannot reach it; `ALL_CLIENTS` stands for all."""
        self._open_at = open_at
        self._timeout = number(0, above=True)("timeout", timeout)
        self._sleep = function("sleep", sleep)
        self._bookie: Bookie | None = None
        self._call_count = 0
        self._idle = Condition()  # guards `_bookie` and the number of running calls

    # -- running or not

    @property
    def is_running(self) -> bool:
        """Whether the bookie runs, reachable or not."""
        return self._bookie is not None

    @property
    def bookie(self) -> Bookie:
        """The running bookie; raises `BookieUnavailable` if it is down."""
        if self._bookie is None:
            raise BookieUnavailable(f"{self.bookie_id} is down")
        return self._bookie

    def start(self) -> None:
        """Open the bookie and replay its journal; does nothing if it runs."""
        if self._bookie is None:
            self._bookie = self._open_at(self.path)

    def _detach(self) -> Bookie | None:
        """Refuse further calls, wait until running ones have ended, and return the bookie."""
        with self._idle:
            bookie, self._bookie = self._bookie, None
            self._idle.wait_for(lambda: self._call_count == 0)
        return bookie

    def stop(self, checkpoint: bool = True) -> None:
        """Close the bookie; does nothing if it does not run."""
        bookie = self._detach()
        if bookie is not None:
            bookie.close(checkpoint=checkpoint)

    def crash(self) -> None:
        """End the bookie as if killed: its files stay as they are; `IllegalOperation` if down."""
        bookie = self._detach()
        if bookie is None:
            raise IllegalOperation(f"{self.bookie_id} does not run")
        bookie_dir = Path(os.path.realpath(self.path))
        scratch = Path(tempfile.mkdtemp(prefix=f".{bookie_dir.name}-", dir=bookie_dir.parent))
        # Copy the files before the close, which writes to them, and put the copy in their place.
        copy, replaced = scratch / "left", scratch / "gone"
        try:
            try:
                copy_running_tree(bookie_dir, copy)
            finally:
                bookie.close(checkpoint=False)
            os.rename(bookie_dir, replaced)
            os.rename(copy, bookie_dir)
        finally:
            if not bookie_dir.exists():  # the second rename failed: undo the first
                os.rename(replaced, bookie_dir)
            shutil.rmtree(scratch)

    @contextmanager
    def at_rest(self) -> Iterator[list[Path]]:
        """Close the bookie, with its journal replayed, and yield its index directories; afterwards
        reopen it if it was running."""
        was_running = self.is_running
        self.start()
        indexes = list(self.bookie.directories.index)
        self.stop()
        try:
            yield indexes
        finally:
            if was_running:
                self.start()

    # -- damage

    def lose(self, ledger: LedgerLike, entries: EntriesLike) -> Int64Array:
        """Delete entries from the index, durably; return those that it had, int64[n]."""
        wanted_entries = to_entry_ids(entries)
        with self.at_rest() as indexes:
            return delete_index_rows(indexes, LedgerId.of(ledger), wanted_entries)

    def lose_ledger(self, ledger: LedgerLike) -> bool:
        """Delete a ledger, durably; return whether the bookie had it."""
        with self._while_open() as bookie:
            existed = bookie.ledger_exists(ledger)
            bookie.delete_ledger(ledger)
            bookie.checkpoint()
        return existed

    def corrupt(
        self, ledger: LedgerLike, entry: int, part: RecordPart = "payload"
    ) -> tuple[Path, int]:
        """Change a byte of a stored record; return (entry log, offset). See `corrupt_record`."""
        with self._while_open() as bookie:
            return corrupt_record(bookie, LedgerId.of(ledger), entry, part)

    @contextmanager
    def _while_open(self) -> Iterator[Bookie]:
        """Yield the bookie; if it is down, it is open during the block only."""
        was_running = self.is_running
        self.start()
        try:
            yield self.bookie
        finally:
            if not was_running:
                self.stop()

    # -- calls

    def call(self, client_name: str, request: Callable[[Bookie], _T]) -> _T:
        """Call `request` with the bookie on behalf of `client_name`, and return its result. Raises
        `BookieUnavailable` if that takes too long; an entry that is added too late is stored."""
        try:
            with self._client_call(client_name) as bookie:
                return request(bookie)
        finally:  # an error may also come too late
            self._delay_answer()

    @contextmanager
    def _client_call(self, client_name: str) -> Iterator[Bookie]:
        """Yield the bookie, which is not stopped during the block."""
        with self._idle:
            if self.unreachable_from & {client_name, ALL_CLIENTS}:
                raise BookieUnavailable(f"{self.bookie_id} cannot be reached")
            bookie = self.bookie
            self._call_count += 1
        try:
            yield bookie
        finally:
            with self._idle:
                self._call_count -= 1
                self._idle.notify_all()

    def _delay_answer(self) -> None:
        """Wait for the planned delay; raises `BookieUnavailable` if it exceeds the timeout."""
        delay = self.delay_seconds
        if delay > 0:
            self._sleep(min(delay, self._timeout))
        if delay >= self._timeout:
            raise BookieUnavailable(f"{self.bookie_id} gave no answer in {self._timeout:g} s")
