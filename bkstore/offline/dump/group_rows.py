"""Sequence groups of each ledger, computed from the batches of an index scan. A sequence group is a
row of the table `groups`: equally long runs of entry ids at equal distances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bkstore.availability import from_entries, grouping, sequence_groups
from bkstore.availability.sequence_groups import Groups
from bkstore.ids import LedgerId
from bkstore.index.api import IndexBatch
from bkstore.tables import GROUPS, ConstantColumn, Table

LedgerSummary = tuple[int, int | None, int | None]
"""Entries of a ledger: count, first, last."""

_MAX_PENDING_LEDGERS = 1 << 12


class GroupCollector:
    """Collects the sequence groups of each ledger from batches that may split it anywhere."""

    def __init__(
        self,
        bookie_id: str,
        write: Callable[[Table], None],
        summaries: dict[LedgerId, LedgerSummary],
    ) -> None:
        """Make a collector for the ledgers of one bookie. `write` is called with each table of
        `groups`, of some thousand ledgers; `summaries` gets an item for each ledger with rows."""
        self.last_ledger: LedgerId | None = None
        """The ledger of the last row."""
        self._bookie_id = bookie_id
        self._write_table = write
        self._summaries = summaries
        self._last_ledger_groups: list[Groups] = []
        self._unwritten: list[tuple[LedgerId, Groups]] = []

    def add(self, rows: IndexBatch) -> None:
        """Add the next rows of a scan; write the groups of finished ledgers if they are many."""
        for ledger, entries, _ in rows.by_ledger():
            if ledger != self.last_ledger:
                self._finish_ledger()
                self.last_ledger = ledger
            self._last_ledger_groups.append(from_entries.from_ids(entries))
        if len(self._unwritten) > _MAX_PENDING_LEDGERS:
            self._write_finished()

    def finish(self) -> None:
        """Write the last ledgers, at the end of the scan."""
        self._finish_ledger()
        self._write_finished()

    def _finish_ledger(self) -> None:
        """Join the groups of the last ledger, and keep its summary: count, first and last entry."""
        if self.last_ledger is not None and self._last_ledger_groups:
            groups = grouping.canonicalize_parts(self._last_ledger_groups)
            first, last = int(groups.first[0]), int(groups.ends[-1]) - 1
            self._summaries[self.last_ledger] = (sequence_groups.count_entries(groups), first, last)
            self._unwritten.append((self.last_ledger, groups))
        self._last_ledger_groups = []

    def _write_finished(self) -> None:
        """Write the groups of all finished ledgers as one table."""
        if not self._unwritten:
            return
        group_counts = [groups.first.size for _, groups in self._unwritten]
        ids = np.array([ledger.signed for ledger, _ in self._unwritten], np.int64)
        columns: tuple[Any, ...] = (
            ConstantColumn(self._bookie_id, sum(group_counts)),
            np.repeat(ids[:, 0], group_counts),
            np.repeat(ids[:, 1], group_counts),
            # The four columns of groups: first, last, size, period.
            *(np.concatenate(parts) for parts in zip(*(groups for _, groups in self._unwritten))),
        )
        self._write_table(Table(GROUPS, dict(zip(GROUPS.names, columns))))
        self._unwritten = []
