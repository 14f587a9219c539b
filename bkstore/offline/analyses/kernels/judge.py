"""Ledger metadata against what bookies hold: `violations`, `ledger_health`, `surplus`, `homeless`.

The rules are the auditor's; only the way in differs: rows of many ledgers and bookies instead of
questions. A bookie that is not in the dump, or a ledger of it that could not be read, says
nothing: what is due there is not judged, and never missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bkstore.ids import Int64Array, LedgerId
from bkstore.offline.analyses.kernels.index_columns import codes, groups_of, int64
from bkstore.offline.analyses.kernels.judged_ledgers import Subject, judge_ledgers
from bkstore.offline.analyses.kernels.ledger_said import LedgerSaid
from bkstore.offline.analyses.kernels.ledgers_side_by_side import Owned, fold_many
from bkstore.offline.analyses.kernels.verdict_rows import OUTPUTS, Output
from bkstore.offline.analyses.kernels.whole_ledger_blocks import whole_blocks
from bkstore.offline.reading.ledger_ranges import run_starts
from bkstore.tables import Schema, Table

if TYPE_CHECKING:
    import pyarrow as pa

METADATA_ROW, UNREAD_ROW, GROUPS_ROW = 0, 1, 2
"""The `role` of a row: a ledger's metadata, a bookie that could not read it, a group."""

_KEYS = ("scope_id", "ledger_id")


class Judge:
    """The kernel: what `output` says of the ledgers that come, metadata row first.

    Columns: scope_id, ledger_id, role, bookie, the four of a group, said; sorted by ledger,
    role, bookie and first sequence. `bookies` are those that were read. Ledgers without a
    metadata row are passed over. Costs: python steps for each ledger, segment and bookie, as
    in an audit; O(groups) array work.
    """

    def __init__(self, output: Output, bookies: Iterable[str]) -> None:
        self.output = output
        self.bookies = frozenset(bookies)

    @property
    def schema(self) -> Schema:
        """The table that comes out."""
        return OUTPUTS[self.output][0]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of the output's table."""
        for block in whole_blocks(batches, _KEYS):
            role = int64(block, "role")
            owner = _owners(block)
            said = block.filter(_mask(role != GROUPS_ROW))
            subjects = subjects_of(said, owner[role != GROUPS_ROW])
            yield from self.judged(subjects, _held_rows(block, role, owner))

    def judged(
        self, subjects: Mapping[int, Subject], held: Mapping[str, Owned]
    ) -> Iterator[pa.RecordBatch]:
        """Yield what is told of ledgers by number, of which bookies hold canonical groups."""
        schema, rows_of = OUTPUTS[self.output]
        tells_worst = self.output in ("violations", "ledger_health")
        judge_ledgers(subjects, held, self.bookies, worst=tells_worst)
        rows = [row for _, subject in sorted(subjects.items()) for row in rows_of(subject)]
        if rows:
            yield from Table.from_rows(schema, rows).to_arrow().to_batches()


def _mask(rows: np.typing.NDArray[np.bool_]) -> pa.Array:
    import pyarrow as pa

    return pa.array(rows)


def _owners(block: pa.RecordBatch) -> Int64Array:
    """Return the number of each row's ledger in the block."""
    starts = run_starts(*(int64(block, name) for name in _KEYS))
    return np.repeat(np.arange(starts.size), np.diff(np.append(starts, block.num_rows)))


def subjects_of(said: pa.RecordBatch, owner: Int64Array) -> dict[int, Subject]:
    """Return the ledgers of which there are metadata, by number, with who could not read them.

    Rows are `Judge`'s without groups, `owner` the number of each one's ledger.
    """
    found: dict[int, Subject] = {}
    columns = (said.column(name).to_pylist() for name in (*_KEYS, "role", "bookie", "said"))
    for at, scope, ledger, role, bookie, text in zip(owner.tolist(), *columns):
        if role == METADATA_ROW:
            name = LedgerId.from_signed(scope, ledger)
            found[at] = Subject(name, LedgerSaid.from_json(text))
        elif at in found:
            found[at].unread.add(bookie)
    return found


def _held_rows(block: pa.RecordBatch, role: Int64Array, owner: Int64Array) -> dict[str, Owned]:
    """Return the groups of each bookie, by number of the ledger."""
    number, names = codes(block, "bookie")
    rows = np.flatnonzero(role == GROUPS_ROW)
    order = rows[np.argsort(number[rows], kind="stable")]
    of_bookie = number[order]
    starts = run_starts(of_bookie)
    bounds = np.append(starts, order.size).tolist()
    groups = groups_of(block, order)
    found = {}
    for at, (lo, hi) in enumerate(pairwise(bounds)):
        mine = Owned(owner[order[lo:hi]], groups.take(np.arange(lo, hi)))
        found[names[of_bookie[starts[at]]]] = fold_many(mine)
    return found
