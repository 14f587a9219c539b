"""Damage told in runs: one finding for what follows each other, not one an entry.

A log that lost its end takes thousands of entries with it, and they all say the same. Who reads
on past damage tells `DamageRuns` of each piece that could not be read, and of what could.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bkstore.counts import counted
from bkstore.ids import Int64Array
from bkstore.index.api import Finding

MOST_RUNS = 64
"""Runs of one kind in one file and ledger that are told apart; the last one takes the rest."""

_NUMBER = re.compile(r"[0-9a-f]*[0-9][0-9a-f]*")

_Key = tuple[str, str | None, object, str]


def add_unreported(findings: list[Finding], more: Iterable[Finding]) -> None:
    """Append the findings of `more` that `findings` does not have yet.

    Two are the same if severity, file, offset and detail are; the one that stays names the ledger
    if either does. For several readers that meet the same damage, each for itself.
    """
    places = {_identity(found): at for at, found in enumerate(findings)}
    for found in more:
        at = places.setdefault(_identity(found), len(findings))
        if at == len(findings):
            findings.append(found)
        elif findings[at].ledger is None:
            findings[at] = replace(findings[at], ledger=found.ledger)


def _identity(found: Finding) -> tuple[str, str | None, int | None, str]:
    return found.severity, found.file, found.offset, found.detail


@dataclass(slots=True)
class _Run:
    """A run: where its finding is in the list, and what it has gathered."""

    at: int
    first: Finding
    runs: int
    round: int
    noun: str
    count: int = 0
    last_offset: int | None = None
    alike: bool = True

    def finding(self) -> Finding:
        found = self.first
        if self.count == 1:
            what = "" if found.first_entry is None else f"entry {found.first_entry}"
        elif found.first_entry is None or found.last_entry is None:
            what = f"{self.count} {self.noun}"
        elif found.last_entry - found.first_entry + 1 == self.count:
            what = f"entries {found.first_entry}-{found.last_entry}"
        else:
            some = counted(self.count, "entry", "entries")
            what = f"{some} within {found.first_entry}-{found.last_entry}"
        if found.first_entry is not None and found.ledger is not None:
            what += f" of ledger {found.ledger}"
        if self.last_offset is not None and self.last_offset != found.offset:
            what += f", up to offset {self.last_offset}"
        detail = f"{what}: {found.detail}" if what else found.detail
        if not self.alike:
            detail += " (the first; the others are alike)"
        return replace(found, detail=detail)


class DamageRuns:
    """Appends to `findings` what was damaged, in runs of equal severity, file, ledger and reason.

    Reasons are equal if they differ in numbers only. A run lasts until `end` tells that
    something was read in between; its finding grows in its place in the list. Of more than
    `most` runs of one kind the last takes all that follow, and says how many entries it has.

    Memory: a run for each file, ledger and reason.

    >>> import numpy as np
    >>> findings: list[Finding] = []
    >>> runs = DamageRuns(findings)
    >>> for entry in range(5080, 5085):
    ...     runs.add(Finding("damage", "no such entry log", "a.log"), np.array([entry]))
    >>> print(*findings)
    a.log: entries 5080-5084: no such entry log
    """

    def __init__(
        self, findings: list[Finding], most: int = MOST_RUNS, noun: str = "records"
    ) -> None:
        self._findings = findings
        self._most = most
        self._noun = noun
        self._runs: dict[_Key, _Run] = {}
        self._round = 0

    def end(self) -> None:
        """Note that something was read: damage from here on is another run."""
        self._round += 1

    def add(
        self,
        damage: Finding,
        entries: Int64Array | None = None,
        last_offset: int | None = None,
    ) -> None:
        """Take one piece of damage, whose detail is the reason.

        `entries` are the ids concerned, ascending; None stands for one thing that is no entry
        (`noun` says what such things are called). `last_offset` is where the last of them lies,
        the first being at ``damage.offset``.
        """
        # Records without entries run on from ledger to ledger.
        owner = None if entries is None else damage.ledger
        key = (damage.severity, damage.file, owner, _NUMBER.sub("#", damage.detail))
        run = self._runs.get(key)
        if run is None or (run.round != self._round and run.runs < self._most):
            run = self._runs[key] = self._begun(damage, 1 if run is None else run.runs + 1)
        run.round = self._round
        run.count += 1 if entries is None else entries.size
        run.alike &= run.first.detail == damage.detail
        run.last_offset = damage.offset if last_offset is None else last_offset
        if run.first.ledger != damage.ledger:
            run.first = replace(run.first, ledger=None)
        if entries is not None:
            first = run.first.first_entry
            run.first = replace(
                run.first,
                first_entry=int(entries[0]) if first is None else first,
                last_entry=int(entries[-1]),
                entries=run.count,
            )
        self._findings[run.at] = run.finding()

    def _begun(self, damage: Finding, runs: int) -> _Run:
        self._findings.append(damage)
        return _Run(len(self._findings) - 1, damage, runs, self._round, self._noun)
