"""Columns of owners beside the ids of ledgers, in the tables of commands that have metadata."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

import numpy as np

from bkstore.cli.screen.column_choice import plain_values, screen_columns
from bkstore.cli.terminal.parser import Parser
from bkstore.ids import Int64Array
from bkstore.ledger_metadata import LedgerOwner, LedgerOwners
from bkstore.ledger_metadata.owners import UNKNOWN_OWNER
from bkstore.tables import Schema, Table
from bkstore.tables.commands import OWNER_COLUMNS
from bkstore.tables.table import Values

_NAMES = [column.name for column in OWNER_COLUMNS]


def with_owner_columns(schema: Schema) -> Schema:
    """Return the schema with the columns of owners at its end. On the screen `owner` is behind
    `ledger_id`, or the last one without it, while any owner is known; beside a column that is
    wrapped, it is cut before others are left out.

    >>> from bkstore.tables import VIOLATIONS
    >>> with_owner_columns(VIOLATIONS).screen.columns[:3]
    ('category', 'ledger_id', 'owner')
    """
    screen = screen_columns(schema)
    shown = list(screen.columns)
    shown.insert(shown.index("ledger_id") + 1 if "ledger_id" in shown else len(shown), "owner")
    may_cut = ("owner", *screen.may_cut) if screen.wrap else screen.may_cut
    hide_idle = (*screen.hide_idle, "owner")
    screen = screen._replace(columns=tuple(shown), hide_idle=hide_idle, may_cut=may_cut)
    return schema._replace(columns=(*schema.columns, *OWNER_COLUMNS), screen=screen)


def check_owner_columns(parser: Parser, args: argparse.Namespace) -> None:
    """End with a usage error for a column of owners in --columns without --metadata."""
    for column in args.columns or ():
        if column in _NAMES and args.metadata is None:
            parser.error(f"argument --columns: {column} requires --metadata METADATA")


def add_owners(tables: Iterable[Table], owners: LedgerOwners) -> Iterator[Table]:
    """Yield the tables with the owners of the ledgers in their rows; null for rows without one,
    and for owners that are not known. O(rows log ledgers).

    `tables` have columns `scope_id` and `ledger_id`.
    """
    # The cells of each owner by its number, the index in `owners.owners`; -1 has those for none.
    cells_by_number = [_owner_cells(owner) for owner in (*owners.owners, UNKNOWN_OWNER)]
    for table in tables:
        scope_ids, ledger_ids, has_ledger = _ids(table)
        numbers = np.full(len(table), -1, np.int64)
        numbers[has_ledger] = owners.numbers_of(scope_ids, ledger_ids)
        rows = [cells_by_number[number] for number in numbers.tolist()]
        cells = zip(*rows) if rows else ([] for _ in _NAMES)
        columns = {**table.columns, **dict(zip(_NAMES, map(list, cells)))}
        yield Table(with_owner_columns(table.schema), columns)


def _owner_cells(owner: LedgerOwner) -> tuple[str | int | None, ...]:
    return (owner.subject or owner.application, *owner.columns)


def _ids(table: Table) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return the scopes and ledgers of the rows that have them, and the indexes of these rows."""
    ledgers = _listed(table.columns["ledger_id"])
    scopes = _listed(table.columns["scope_id"])
    rows = np.array([row for row, each in enumerate(ledgers) if each is not None], np.int64)
    ledger_ids = np.array([each for each in ledgers if each is not None], np.int64)
    scope_ids = np.array([each for each in scopes if each is not None], np.int64)
    return scope_ids, ledger_ids, rows


def _listed(values: Values) -> list[int | None]:
    return list(plain_values(values))
