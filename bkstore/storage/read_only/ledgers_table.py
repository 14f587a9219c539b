"""Tables of the ledgers and findings of one bookie directory."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from bkstore.errors import BkstoreError
from bkstore.ids import LedgerId
from bkstore.index.api import Finding, LedgerState
from bkstore.index.bulk_listing import iterate_results
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.tables import FINDINGS, LEDGERS, Table

ROWS_PER_TABLE = 4096


def ledger_tables(
    bookie: BookieDir,
    findings: list[Finding],
    scope: int | None = None,
    chosen: Collection[LedgerId] | None = None,
) -> Iterator[Table]:
    """Yield the `ledgers` table of a bookie in parts, in unsigned order of ids: of one `scope` (the
    upper half of the ids) and of the `chosen` ledgers only, unless these are None. Reads every
    ledger's index once. Damage becomes a finding and nulls in the row; ledgers that it hides are
    left out."""
    listing = bookie.index.list_readable_ledgers(scope)
    findings += listing.findings
    ledger_ids = listing.ledgers
    if chosen is not None:
        ledger_ids = [ledger_id for ledger_id in ledger_ids if ledger_id in chosen]
    rows: list[tuple[Any, ...]] = []
    has_yielded = False
    for ledger, availability in iterate_results(bookie.index, ledger_ids):
        summary = None
        if isinstance(availability, BkstoreError):
            findings.append(Finding.of(availability, ledger))
        else:
            summary = (len(availability), availability.first_entry, availability.last_entry)
        rows.append(ledger_row(bookie, ledger, summary, findings))
        if len(rows) == ROWS_PER_TABLE:
            yield Table.from_rows(LEDGERS, rows)
            rows, has_yielded = [], True
    if rows or not has_yielded:  # an empty bookie has an empty table
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
        state, oddities = bookie.index.checked_state(ledger)
        findings += oddities
    except BkstoreError as error:
        finding = Finding.of(error, ledger)
        if findings[-1:] != [finding]:  # a bad header stops entries and state alike
            findings.append(finding)
    state_columns = (None,) * 4
    if state is not None:
        limbo = state.limbo if bookie.index.supports_limbo else None
        state_columns = (state.fenced, limbo, state.explicit_lac, state.master_key)  # type: ignore[assignment]
    ids = (*ledger.signed, ledger.qualified_name)
    return (bookie.bookie_id, *ids, entries, first, last, *state_columns, bookie.layout)


def finding_table(findings: list[Finding]) -> Table:
    """Return findings as a table."""
    return Table.from_rows(FINDINGS, map(_finding_row, findings))


def _finding_row(finding: Finding) -> tuple[Any, ...]:
    ids = (None, None) if finding.ledger is None else finding.ledger.signed
    run = (finding.first_entry, finding.last_entry, finding.entries)
    return (finding.severity, finding.detail, finding.file, finding.offset, *ids, *run)
