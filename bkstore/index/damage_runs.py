"""Damage reported in runs: one finding for consecutive damage, such as all entries past the end of
a truncated log. A reader that goes on past damage reports it to `DamageRuns`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bkstore.availability import Availability
from bkstore.availability.entry_text import format_entries_of
from bkstore.counts import format_count
from bkstore.ids import Int64Array
from bkstore.index.api import Finding

MAX_RUNS = 64
"""Findings for runs of one reason in one file and ledger; the last one takes all later damage."""

_MAX_GROUPS = 32
"""Sequence groups (rows of ranges at equal distances) that are kept of a run's entries; the finding
of a run with more has only its lowest and highest entry."""

_NUMBER = re.compile(r"[0-9a-f]*[0-9][0-9a-f]*")

_RunKey = tuple[str, str | None, object, str]


def add_unreported(findings: list[Finding], new_findings: Iterable[Finding]) -> None:
    """Append those of `new_findings` that `findings` lacks, as two readers may report the same
    damage. Two findings are the same if severity, file, offset and detail are equal; the kept one
    gets the other's ledger if it has none."""
    position_of = {_identity_of(finding): position for position, finding in enumerate(findings)}
    for finding in new_findings:
        position = position_of.setdefault(_identity_of(finding), len(findings))
        if position == len(findings):
            findings.append(finding)
        elif findings[position].ledger is None:
            findings[position] = replace(findings[position], ledger=finding.ledger)


def _identity_of(finding: Finding) -> tuple[str, str | None, int | None, str]:
    return finding.severity, finding.file, finding.offset, finding.detail


@dataclass(slots=True)
class _Run:
    """A run of damage: the index of its finding in the list, and what it covers so far."""

    finding_index: int
    first: Finding
    run_number: int  # among the runs of its kind, from 1
    round: int  # that of the last damage: how often `end_runs` was called before
    noun: str
    count: int = 0
    last_offset: int | None = None
    same_detail: bool = True
    entry_set: Availability | None = None  # None: not entries, or too many groups to keep

    def add_entries(self, entries: Int64Array | None) -> None:
        """Count damaged entries, or with None one other damaged object. The set of the entries is
        kept while it has few sequence groups; once it has too many, only the entries are counted.
        """
        if entries is None:
            self.count += 1
            return
        is_first = self.count == 0
        self.count += entries.size
        if not (is_first or self.entry_set is not None):  # the set had too many groups before
            return
        self.entry_set = (self.entry_set or Availability()) | Availability.from_entries(entries)
        if len(self.entry_set.columns.first) > _MAX_GROUPS:
            self.entry_set = None

    def finding(self) -> Finding:
        """Return one finding for all damage of the run so far. Its detail has what is damaged (the
        entries, or their number and range, or the number of other objects), and why."""
        first, subject = self.first, ""
        if self.entry_set is not None:
            subject = format_entries_of(first.ledger, self.entry_set)
        elif first.first_entry is not None:
            entry_count = format_count(self.count, "entry", "entries", grouped=True)
            of_ledger = "" if first.ledger is None else f" of ledger {first.ledger}"
            subject = f"{entry_count}{of_ledger} within {first.first_entry}-{first.last_entry}"
        elif self.count > 1:  # objects other than entries
            subject = f"{self.count} {self.noun}"
        if self.last_offset is not None and self.last_offset != first.offset:
            subject += f", up to offset {self.last_offset}"
        detail = f"{subject}: {first.detail}" if subject else first.detail
        if not self.same_detail:
            detail += " (the first; the others are alike)"
        return replace(first, detail=detail)


class DamageRuns:
    """Appends damage to `findings`, in runs of equal severity, file, ledger and reason.

    Reasons are equal if they differ in numbers only. A run lasts until `end_runs` is called, after
    something was read; its finding is updated in place. After `max_runs` runs of one kind, the last
    one takes all later damage and counts its entries. Memory: runs of each file, ledger and reason.

    >>> import numpy as np
    >>> findings: list[Finding] = []
    >>> runs = DamageRuns(findings)
    >>> for entry in range(5080, 5085):
    ...     runs.add(Finding("damage", "no such entry log", "a.log"), np.array([entry]))
    >>> print(*findings)
    a.log: entries 5080-5084: no such entry log
    """

    def __init__(
        self, findings: list[Finding], max_runs: int = MAX_RUNS, noun: str = "records"
    ) -> None:
        """Append findings to a list, one for each run of like damage. After `max_runs` runs of a
        kind, one finding has all further damage of that kind. `noun` is the plural of the objects
        that are damaged if these are not entries."""
        self._findings = findings
        self._max_runs = max_runs
        self._noun = noun
        self._latest_runs: dict[_RunKey, _Run] = {}
        self._round = 0  # how often `end_runs` was called

    def end_runs(self) -> None:
        """End the current runs, as something was read; later damage begins new ones."""
        self._round += 1

    def add(
        self, damage: Finding, entries: Int64Array | None = None, last_offset: int | None = None
    ) -> None:
        """Add damage to the latest run of its kind, or begin a run. `damage.detail` is the reason.
        `entries` are the damaged entry ids, ascending, or None if another object is damaged.
        ``damage.offset`` is the offset of the first of them, `last_offset` that of the last."""
        # The details of one kind differ in numbers only. A run of entries is of one ledger, one of
        # other objects may span ledgers.
        ledger_id = None if entries is None else damage.ledger
        key = (damage.severity, damage.file, ledger_id, _NUMBER.sub("#", damage.detail))
        run = self._latest_runs.get(key)
        # Begin a run if `end_runs` has ended the latest one, unless there are too many.
        if run is None or (run.round != self._round and run.run_number < self._max_runs):
            run_number = 1 if run is None else run.run_number + 1
            run = self._latest_runs[key] = self._begin_run(damage, run_number)
        run.round = self._round
        run.add_entries(entries)
        run.same_detail &= run.first.detail == damage.detail
        run.last_offset = damage.offset if last_offset is None else last_offset
        if run.first.ledger != damage.ledger:  # the finding is of no single ledger
            run.first = replace(run.first, ledger=None)
        if entries is not None:
            first = int(entries[0]) if run.first.first_entry is None else run.first.first_entry
            last = int(entries[-1])
            run.first = replace(run.first, first_entry=first, last_entry=last, entries=run.count)
        self._findings[run.finding_index] = run.finding()

    def _begin_run(self, damage: Finding, run_number: int) -> _Run:
        self._findings.append(damage)
        return _Run(len(self._findings) - 1, damage, run_number, self._round, self._noun)
