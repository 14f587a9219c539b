"""The verdict on the results of analyses: summary lines, and the exit code of a command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from bkstore.cli.datasets.analyze_summary import SummaryLine, summarize
from bkstore.cli.terminal.exit_codes import exit_code
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.offline.analyses import ANALYSES, Engine, Inputs

if TYPE_CHECKING:
    import pyarrow as pa

_METADATA_LOSS_ANALYSES = frozenset({"violations", "homeless", "ledger_health"})
_HOLE_ANALYSES = frozenset({"holes"})


class Verdict(NamedTuple):
    """The summary line of each analysis, and whether anything was found, and anything checked."""

    lines: list[SummaryLine]
    has_findings: bool
    has_checked_any: bool

    def report(self) -> int:
        """Return the exit code; print to stderr if nothing was checked."""
        if not self.has_checked_any:
            print_stderr("nothing was checked: there are no entries that could be missing")
        return exit_code(findings=self.has_findings, checked=self.has_checked_any)


def print_unread_bookies(inputs: Inputs) -> None:
    """Print the bookies that the dump could not read to stderr."""
    for bookie, reason in inputs.dump.unread_bookies.items():
        print_stderr(f"{bookie} counts as not dumped: {reason}")


def judge_results(tables: Mapping[str, pa.Table], inputs: Inputs, engine: Engine) -> Verdict:
    """Return the verdict on `tables`, by the names of their analyses, which `engine` made.

    A finding is a loss or a risk in a table, damage in the dump, or a bookie that was not read.
    """
    lines = [summarize(name, table, inputs) for name, table in tables.items()]
    has_findings = any(line.finding for line in lines)
    has_findings = has_findings or bool(inputs.dump.unread_bookies or inputs.dump.damage_count)
    has_checked_any = has_findings or has_checked_entries(tables, inputs, engine)
    return Verdict(lines, has_findings, has_checked_any)


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
