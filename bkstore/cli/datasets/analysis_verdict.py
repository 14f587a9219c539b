"""The verdict on the results of analyses: summary lines, and the exit code of a command."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from bkstore.cli.datasets.analyze_summary import SummaryLine, summarize
from bkstore.cli.terminal.exit_codes import exit_code
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.counts import join_words
from bkstore.offline.analyses import ANALYSES, Engine, Inputs
from bkstore.offline.analyses.engine_steps import rows_of_ledgers
from bkstore.offline.analyses.kernels.ledger_facts import LedgerFacts

if TYPE_CHECKING:
    import pyarrow as pa

_METADATA_LOSS_ANALYSES = frozenset({"violations", "homeless", "ledger_health"})
_HOLE_ANALYSES = frozenset({"holes"})
_MAX_LISTED = 5  # bookies


class Verdict(NamedTuple):
    """The summary line of each analysis, whether anything was found, and why nothing was checked,
    "" if something was."""

    lines: list[SummaryLine]
    has_findings: bool
    unchecked_reason: str

    @property
    def has_checked_any(self) -> bool:
        """Whether any entry was checked."""
        return not self.unchecked_reason

    def report(self) -> int:
        """Return the exit code; print to stderr if nothing was checked."""
        if self.unchecked_reason:
            print_stderr(f"nothing was checked: {self.unchecked_reason}")
        return exit_code(findings=self.has_findings, checked=self.has_checked_any)


def print_unread_bookies(inputs: Inputs) -> None:
    """Print the bookies that the dump could not read to stderr."""
    for bookie, reason in inputs.dump.unread_bookies.items():
        print_stderr(f"{bookie} counts as not dumped: {reason}")


def judge_results(tables: Mapping[str, pa.Table], inputs: Inputs, engine: Engine) -> Verdict:
    """Return the verdict on `tables`, by the names of their analyses, which `engine` made.

    A finding is a loss or a risk in a table, damage in the dump, or a bookie that was not read. If
    ledgers are chosen, only what may concern them counts (`is_dump_complete`).
    """
    lines = [summarize(name, table, inputs) for name, table in tables.items()]
    has_findings = any(line.finding for line in lines)
    has_findings = has_findings or not is_dump_complete(inputs)
    has_checked_any = has_findings or has_checked_entries(tables, inputs, engine)
    return Verdict(lines, has_findings, "" if has_checked_any else _unchecked_reason(inputs))


def _unchecked_reason(inputs: Inputs) -> str:
    """Return why no entry was checked: perhaps the metadata are those of other bookies."""
    dumped = {*inputs.dump.bookies}
    ensembles: set[str] = set()
    # `facts_json` has of each ledger what analyses need of its metadata.
    if inputs.metadata is not None:
        for text in inputs.metadata.table.column("facts_json").to_pylist():
            for _, ensemble in LedgerFacts.from_json(text).segments:
                ensembles.update(ensemble)
    if not ensembles or ensembles & dumped:
        return "there are no entries that could be missing"
    return (
        f"the ensembles of the metadata are of {_list_some(ensembles)}, the dump is of "
        f"{_list_some(dumped)}; NAME=DIR gives the bookie of a directory its id"
    )


def _list_some(bookies: Collection[str]) -> str:
    """Return the first bookies, and the number of the others."""
    first, others = sorted(bookies)[:_MAX_LISTED], max(0, len(bookies) - _MAX_LISTED)
    return join_words([*first, *([f"{others} more"] if others else [])])


def is_dump_complete(inputs: Inputs) -> bool:
    """Return whether every bookie was read, and without damage. If ledgers are chosen, only the
    bookies of their ensembles count, and damage that names one of them, or no ledger at all."""
    dump, chosen = inputs.dump, inputs.chosen_metadata
    if not inputs.options.owners or chosen is None:
        return not dump.unread_bookies and not dump.damage_count
    import pyarrow as pa
    import pyarrow.compute as pc

    # The bookies of the chosen ledgers' ensembles: the JSON of a ledger has their ids as texts.
    facts = chosen.table.column("facts_json")
    bookies = [
        bookie
        for bookie in (*dump.bookies, *dump.unread_bookies)
        if pc.any(pc.match_substring(facts, json.dumps(bookie))).as_py()
    ]
    if not dump.unread_bookies.keys().isdisjoint(bookies):
        return False
    findings = dump.read("findings")
    damage = findings.filter(pc.equal(findings.column("severity"), "damage"))
    # Damage that names no ledger counts if it is of these bookies, other damage by its ledger.
    is_general = pc.is_null(damage.column("ledger_id"))
    of_bookies = damage.filter(is_general).column("bookie")
    if pc.any(pc.is_in(of_bookies, value_set=pa.array(bookies, pa.string()))).as_py():
        return False
    return not rows_of_ledgers(damage.filter(pc.invert(is_general)), chosen.table).num_rows


def has_checked_entries(tables: Mapping[str, pa.Table], inputs: Inputs, engine: Engine) -> bool:
    """Return whether an analysis that looks for losses had an entry to check.

    True if none of them was asked for. With metadata the rule is the audit's: at least one ledger
    was judged, and if any judged one has entries, some were expected at a bookie that was read.
    `tables` must have all rows of `ledger_health`, or else this runs that analysis."""
    if inputs.metadata is None:
        has_groups = any(file.rows for file in inputs.dump.files["groups"])
        return has_groups or not _HOLE_ANALYSES & tables.keys()
    if not _METADATA_LOSS_ANALYSES & tables.keys():
        return True
    health = tables.get("ledger_health")
    if health is None:
        health = engine.run(ANALYSES["ledger_health"], inputs)
    columns = (health.column(name).to_pylist() for name in ("replicas_due", "last_entry_id"))
    judged = [
        (expected, last_entry) for expected, last_entry in zip(*columns) if expected is not None
    ]
    has_entries = any(last_entry >= 0 for _, last_entry in judged)
    return any(expected for expected, _ in judged) or bool(judged and not has_entries)
