"""What `bkstore check` prints beside its rows: the coverage of one bookie, or of several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.counts import format_count
from bkstore.offline.check import Coverage

_SEVERITY_NOUNS = {
    "damage": ("finding of damage", "findings of damage"),
    "oddity": ("oddity", "oddities"),
    "note": ("note", "notes"),
}
_MAX_NAMED_BOOKIES = 3


class CheckOutcome(NamedTuple):
    """The coverage of one bookie's check, and the number of its findings of each severity."""

    coverage: Coverage
    severity_counts: Counter[str]

    @property
    def has_problems(self) -> bool:
        """Whether there is damage or an oddity."""
        return bool(self.severity_counts["damage"] or self.severity_counts["oddity"])


def print_coverage(outcome: CheckOutcome) -> None:
    """Print the coverage of the only bookie, and the number of findings."""
    for line in outcome.coverage.describe():
        print_stderr(line)
    _print_verdict([outcome])


def print_fleet_coverage(outcomes: Sequence[tuple[Path, CheckOutcome]], bookie_count: int) -> None:
    """Print a line for each of several bookies, one for all, and what was not checked; of
    `bookie_count` bookies the `outcomes` are those that could be read."""
    for directory, outcome in outcomes:
        line = f"{directory}: {outcome.coverage.describe_briefly()}"
        counts = _describe_counts(outcome.severity_counts)
        if counts or not outcome.coverage.is_empty:
            line += f"; {counts or 'no problems'}"
        print_stderr(line)
    total = Coverage.sum(outcome.coverage for _, outcome in outcomes)
    bookies = format_count(bookie_count, "bookie")
    if len(outcomes) < bookie_count:
        bookies = f"{len(outcomes)} of {bookies}"
    print_stderr(f"{bookies}: {total.describe_briefly()}")
    _print_unchecked_parts(outcomes)
    _print_verdict([outcome for _, outcome in outcomes])


def _print_unchecked_parts(outcomes: Sequence[tuple[Path, CheckOutcome]]) -> None:
    """Print each part that was not checked once, with the bookies if it does not concern all."""
    directories_by_part: dict[str, list[str]] = {}
    checked = [(path, outcome) for path, outcome in outcomes if not outcome.coverage.is_empty]
    for directory, outcome in checked:
        for part in outcome.coverage.not_checked:
            directories_by_part.setdefault(part, []).append(str(directory))
    for part, directories in directories_by_part.items():
        concerned = f" ({', '.join(directories)})"
        if len(directories) == len(outcomes):
            concerned = ""  # all bookies
        elif len(directories) > _MAX_NAMED_BOOKIES:
            concerned = f" ({len(directories)} of {format_count(len(outcomes), 'bookie')})"
        print_stderr(f"not checked: {part}{concerned}")


def _print_verdict(outcomes: Sequence[CheckOutcome]) -> None:
    counts = _describe_counts(sum((each.severity_counts for each in outcomes), Counter()))
    if any(each.has_problems or not each.coverage.is_empty for each in outcomes):
        print_stderr(f"found: {counts}" if counts else "no problems in what was checked")


def _describe_counts(severity_counts: Counter[str]) -> str:
    return ", ".join(
        format_count(severity_counts[severity], *nouns)
        for severity, nouns in _SEVERITY_NOUNS.items()
        if severity_counts[severity]
    )
