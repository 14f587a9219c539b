"""Tables about the ledgers of one bookie directory, damage carried as findings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bkstore.errors import BkstoreError
from bkstore.ids import LedgerId
from bkstore.index.api import Finding, LedgerState
from bkstore.index.many_ledgers import answers
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import FINDINGS, LEDGERS, Table

ROWS_PER_TABLE = 4096


def ledger_tables(
    bookie: BookieDir, findings: list[Finding], scope: int | None = None
) -> Iterator[Table]:
    """Yield the `ledgers` table of a bookie in pieces, in unsigned order of ids.

    Reads every ledger's index once. Damage becomes a finding and nulls in the row.
    """
    rows: list[tuple[Any, ...]] = []
    written = False
    for ledger, here in answers(bookie.index, bookie.index.ledgers(scope)):
        summary = None
        if isinstance(here, BkstoreError):
            findings.append(Finding.of(here, ledger))
        else:
            summary = (len(here), here.first_entry, here.last_entry)
        rows.append(ledger_row(bookie, ledger, summary, findings))
        if len(rows) == ROWS_PER_TABLE:
            yield Table.from_rows(LEDGERS, rows)
            rows, written = [], True
    if rows or not written:
        yield Table.from_rows(LEDGERS, rows)


def ledger_row(
    bookie: BookieDir,
    ledger: LedgerId,
    summary: tuple[int, int | None, int | None] | None,
    findings: list[Finding],
) -> tuple[Any, ...]:
    """Return one row of `ledgers`; `summary` is (entries, first, last), None if unknown."""
    entries, first, last = summary or (None, None, None)
    state: LedgerState | None = None
    try:
        state, odd = bookie.index.checked_state(ledger)
        findings += odd
    except BkstoreError as error:
        found = Finding.of(error, ledger)
        if findings[-1:] != [found]:  # a bad header stops entries and state alike
            findings.append(found)
    shown = (None,) * 4
    if state is not None:
        limbo = state.limbo if bookie.index.supports_limbo else None
        shown = (state.fenced, limbo, state.explicit_lac, state.master_key)  # type: ignore[assignment]
    ids = (*ledger.signed, ledger.qualified_name)
    return (bookie.bookie_id, *ids, entries, first, last, *shown, bookie.layout)


def finding_table(findings: list[Finding]) -> Table:
    """Return findings as a table."""
    return Table.from_rows(FINDINGS, map(_finding_row, findings))


def _finding_row(found: Finding) -> tuple[Any, ...]:
    ids = (None, None) if found.ledger is None else found.ledger.signed
    run = (found.first_entry, found.last_entry, found.entries)
    return (found.severity, found.detail, found.file, found.offset, *ids, *run)
