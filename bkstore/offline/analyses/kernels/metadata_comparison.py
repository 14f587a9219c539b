"""Ledger metadata against stored entries: `violations`, `ledger_health`, `surplus`, `homeless`.

The rules are the auditor's, applied to rows of many ledgers and bookies. If a bookie is not in the
dump, or could not read a ledger, the entries expected there are not judged and never count as
missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bkstore.ids import Int64Array, LedgerId
from bkstore.offline.analyses.kernels.batch_blocks import cut_blocks
from bkstore.offline.analyses.kernels.groups_by_owner import GroupsByOwner, fold_many
from bkstore.offline.analyses.kernels.index_columns import dictionary_codes, int64, read_groups
from bkstore.offline.analyses.kernels.ledger_facts import LedgerFacts
from bkstore.offline.analyses.kernels.ledger_verdicts import LedgerVerdict, judge_ledgers
from bkstore.offline.analyses.kernels.verdict_rows import OUTPUTS, Output
from bkstore.offline.reading.ledger_ranges import LEDGER_COLUMNS, run_starts
from bkstore.tables import Schema, Table

if TYPE_CHECKING:
    import pyarrow as pa

METADATA_ROW, UNREAD_ROW, GROUPS_ROW = 0, 1, 2
"""The `role` of a row: a ledger's metadata, a bookie that could not read the ledger, or a group."""


class Judge:
    """The kernel: rows of table `output` about each ledger. Input columns: scope_id, ledger_id,
    role, bookie, the four of a group, facts_json; sorted by ledger, role, bookie and first
    sequence. `bookies` are those that the dump has read. Ledgers without a metadata row are
    skipped. Cost: Python steps as in an audit, and O(groups) array work."""

    def __init__(self, output: Output, bookies: Iterable[str]) -> None:
        self.output = output
        self.bookies = frozenset(bookies)

    @property
    def schema(self) -> Schema:
        """The schema of the output."""
        return OUTPUTS[self.output][0]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of the output's table."""
        import pyarrow as pa

        for block in cut_blocks(batches, LEDGER_COLUMNS):
            # Number the ledgers of the block; separate its group rows from those of other roles.
            role = int64(block, "role")
            owner = _number_ledgers(block)
            fact_rows = block.filter(pa.array(role != GROUPS_ROW))
            verdicts = start_verdicts(fact_rows, owner[role != GROUPS_ROW])
            yield from self.judge(verdicts, _groups_by_bookie(block, role, owner))

    def judge(
        self, verdicts: Mapping[int, LedgerVerdict], groups_by_bookie: Mapping[str, GroupsByOwner]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the output rows about `verdicts`, from each bookie's canonical groups."""
        schema, rows_of = OUTPUTS[self.output]
        needs_worst = self.output in ("violations", "ledger_health")
        judge_ledgers(verdicts, groups_by_bookie, self.bookies, find_worst=needs_worst)
        rows = [row for _, verdict in sorted(verdicts.items()) for row in rows_of(verdict)]
        if rows:
            yield from Table.from_rows(schema, rows).to_arrow().to_batches()


def _number_ledgers(block: pa.RecordBatch) -> Int64Array:
    """Return the number of each row's ledger: ledgers are numbered in the order of the block."""
    starts = run_starts(*(int64(block, name) for name in LEDGER_COLUMNS))
    rows_of_each_ledger = np.diff(np.append(starts, block.num_rows))
    return np.repeat(np.arange(starts.size), rows_of_each_ledger)


def start_verdicts(fact_rows: pa.RecordBatch, owner: Int64Array) -> dict[int, LedgerVerdict]:
    """Return the ledgers that have metadata, by number, with the bookies that could not read them.

    `fact_rows` has the input rows of `Judge` without groups, `owner` the ledger number of each row.
    """
    verdicts: dict[int, LedgerVerdict] = {}
    names = (*LEDGER_COLUMNS, "role", "bookie", "facts_json")
    columns = (fact_rows.column(name).to_pylist() for name in names)
    for number, scope_id, signed_ledger, role, bookie, json_text in zip(owner.tolist(), *columns):
        if role == METADATA_ROW:
            ledger_id = LedgerId.from_signed(scope_id, signed_ledger)
            verdicts[number] = LedgerVerdict(ledger_id, LedgerFacts.from_json(json_text))
        elif number in verdicts:
            verdicts[number].unread_bookies.add(bookie)
    return verdicts


def _groups_by_bookie(
    block: pa.RecordBatch, role: Int64Array, owner: Int64Array
) -> dict[str, GroupsByOwner]:
    """Return the canonical groups of each bookie, from the group rows of a block. `owner` is the
    ledger number of each row of the block, and that of the groups, too."""
    bookie_codes, bookies = dictionary_codes(block, "bookie")
    # Sort the group rows by bookie; the sort is stable, so each bookie's ledgers stay in order.
    group_rows = np.flatnonzero(role == GROUPS_ROW)
    order = group_rows[np.argsort(bookie_codes[group_rows], kind="stable")]
    rows = GroupsByOwner(owner[order], read_groups(block, order))
    sorted_codes = bookie_codes[order]
    bounds = np.append(run_starts(sorted_codes), order.size).tolist()
    return {
        bookies[sorted_codes[start]]: fold_many(rows.cut(start, end))
        for start, end in pairwise(bounds)
    }
