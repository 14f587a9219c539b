"""Sequence groups of each ledger, gathered from the batches of a scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bkstore.availability import from_entries, grouping, sequence_groups
from bkstore.availability.sequence_groups import Groups
from bkstore.ids import LedgerId
from bkstore.index.api import IndexBatch
from bkstore.tables import GROUPS, Repeated, Table

Summary = tuple[int, int | None, int | None]
"""Entries of a ledger: how many, the first, the last."""

_WAITING = 1 << 12


class Condenser:
    """Gathers the sequence groups of each ledger from batches that may cut it anywhere.

    `write` takes tables of `groups`; `summaries` gets a row for each ledger that had rows.
    """

    def __init__(
        self,
        bookie_id: str,
        write: Callable[[Table], None],
        summaries: dict[LedgerId, Summary],
    ) -> None:
        self.ledger: LedgerId | None = None
        """The ledger of the last row."""
        self._bookie_id = bookie_id
        self._write_table = write
        self._summaries = summaries
        self._parts: list[Groups] = []
        self._waiting: list[tuple[LedgerId, Groups]] = []

    def add(self, rows: IndexBatch) -> None:
        """Take the next rows of a scan."""
        for ledger, entries, _ in rows.by_ledger():
            if ledger != self.ledger:
                self._close_ledger()
                self.ledger = ledger
            self._parts.append(from_entries.from_ids(entries))
        if len(self._waiting) > _WAITING:
            self._write()

    def finish(self) -> None:
        """Write what is left; the scan is over."""
        self._close_ledger()
        self._write()

    def _close_ledger(self) -> None:
        if self.ledger is not None and self._parts:
            groups = grouping.join(self._parts)
            first, last = int(groups.first[0]), int(groups.ends[-1]) - 1
            self._summaries[self.ledger] = (sequence_groups.count(groups), first, last)
            self._waiting.append((self.ledger, groups))
        self._parts = []

    def _write(self) -> None:
        if not self._waiting:
            return
        sizes = [groups.first.size for _, groups in self._waiting]
        ids = np.array([ledger.signed for ledger, _ in self._waiting], np.int64)
        columns: tuple[Any, ...] = (
            Repeated(self._bookie_id, sum(sizes)),
            np.repeat(ids[:, 0], sizes),
            np.repeat(ids[:, 1], sizes),
            *(np.concatenate(parts) for parts in zip(*(groups for _, groups in self._waiting))),
        )
        self._write_table(Table(GROUPS, dict(zip(GROUPS.names, columns))))
        self._waiting = []
