"""The rows of `bkstore usage --by topic`, namespace, tenant and component: one for each owner."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

import numpy as np

from bkstore.cli.owners.ledger_choice import LedgerChoice
from bkstore.cli.screen.column_choice import plain_values
from bkstore.ledger_metadata import LedgerOwners
from bkstore.offline.usage import OwnerNumbers, OwnerUsage, UsageByOwner
from bkstore.offline.usage.owner_usage import BookieShares
from bkstore.tables import USAGE_BY_OWNER, Table

OWNER_KINDS = ("topic", "namespace", "tenant", "component")


def owner_numbers(args: argparse.Namespace, choice: LedgerChoice | None) -> OwnerNumbers | None:
    """Return the owners by which --by sums up, None if it does not."""
    if choice is None or args.by not in OWNER_KINDS:
        return None
    return OwnerNumbers(choice.owners, args.by, choice.chosen)


def owner_table(numbers: OwnerNumbers, shares: Iterable[BookieShares], *, has_total: bool) -> Table:
    """Return the usage of each owner, summed over the `shares` that owners have of each bookie; the
    total of several owners follows with `has_total`."""
    sums = UsageByOwner(numbers)
    for each in shares:
        sums.add(each)
    rows = sums.rows()
    if has_total and len(rows) > 1:
        rows.append(sums.total())
    return Table.from_rows(USAGE_BY_OWNER, map(_row, rows))


def _row(usage: OwnerUsage) -> tuple[str | int | None, ...]:
    """Return the row of an owner in `USAGE_BY_OWNER`."""
    counts = (usage.ledgers, usage.entries, usage.replicas, usage.bookies)
    sizes = (usage.bytes, usage.live_bytes, usage.bytes - usage.live_bytes)
    pinned = (usage.logs, usage.pinned_logs, usage.pinned_bytes)
    return (
        *(usage.owner, usage.application, *counts, *sizes, *pinned),
        *(usage.freed_bytes, usage.removable_bytes),
    )


def keep_chosen(tables: Iterable[Table], chosen: LedgerOwners) -> Iterator[Table]:
    """Yield the rows of chosen ledgers, of tables with a ledger in each row."""
    for table in tables:
        ids = (
            np.array(list(plain_values(table.columns[column])), np.int64)
            for column in ("scope_id", "ledger_id")
        )
        is_chosen = (chosen.numbers_of(*ids) >= 0).tolist()
        rows = [row for row, is_kept in zip(table.rows(), is_chosen) if is_kept]
        yield Table.from_rows(table.schema, rows)
