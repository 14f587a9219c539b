"""Journals against the index: what lies before the last mark must be in it.

A bookie moves its last mark when its storage has all before it. So an entry, a master key, a
fence or an explicit LAC before the mark is in the index, unless the ledger was deleted since;
what lies behind the mark a replay would bring. Format: `docs/formats/journal.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bkstore.availability import Availability
from bkstore.errors import BkstoreError, SystemRefused
from bkstore.formats.journal import JournalRecord, LogMark
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import EntryIndex, LedgerState
from bkstore.offline.check.coverage import Coverage
from bkstore.offline.check.entry_runs import EntryRuns
from bkstore.offline.check.findings import CheckFinding
from bkstore.storage.directories.layout import BookieFolders
from bkstore.storage.journal.last_mark import (
    NO_MARK,
    journal_files,
    last_mark_name,
    mark_of_file,
)
from bkstore.storage.journal.scan import scan_journal

_GATHERED = 1 << 16


@dataclass
class _Entries:
    """Entry ids of a ledger, gathered and then condensed."""

    whole: Availability = field(default_factory=Availability)
    waiting: list[int] = field(default_factory=list)

    def add(self, entry: int) -> None:
        self.waiting.append(entry)
        if len(self.waiting) >= _GATHERED:
            self.all()

    def all(self) -> Availability:
        if self.waiting:
            ids = np.array(sorted(set(self.waiting)), np.int64)
            self.whole |= Availability.from_entries(ids)
            self.waiting = []
        return self.whole


@dataclass
class _Told:
    """What the journals say of a ledger, before the last mark and behind it."""

    key: bytes | None = None
    fenced: bool = False
    lacs: list[bytes] = field(default_factory=list)
    """The last explicit LAC before the mark, and all behind it."""
    before: _Entries = field(default_factory=_Entries)
    behind: _Entries = field(default_factory=_Entries)


class JournalFacts:
    """What a bookie's journals say of its ledgers. Memory: sequence groups a ledger."""

    def __init__(self) -> None:
        self.ledgers: dict[LedgerId, _Told] = {}
        self._marked: set[LedgerId] = set()

    def add(self, record: JournalRecord, before: bool) -> None:
        """Take a record that lies before the last mark, or behind it."""
        told = self.ledgers.setdefault(record.ledger, _Told())
        if record.kind == "add":
            (told.before if before else told.behind).add(record.entry_id)
        elif record.kind == "explicit_lac":
            told.lacs = [record.body] if before else [*told.lacs, record.body]
            if before:
                self._marked.add(record.ledger)
        elif before and record.kind == "fence":
            told.fenced = True
        elif before and record.kind == "master_key":
            told.key = record.body

    def lacs(self, ledger: LedgerId) -> list[bytes]:
        """Return the explicit LACs that the index may have; empty where it need not have one."""
        return self.ledgers[ledger].lacs if ledger in self._marked else []

    def replayed(self) -> Mapping[LedgerId, Int64Array]:
        """Return the ranges of entries that a replay brings, int64[n, 2] by ledger."""
        found = {name: told.behind.all() for name, told in self.ledgers.items()}
        return {name: each.ranges() for name, each in found.items() if len(each)}


def read_journals(
    folders: BookieFolders, facts: JournalFacts, coverage: Coverage
) -> Iterator[CheckFinding]:
    """Read all journals into `facts`; yield what is wrong with them and their last marks.

    About 1 us a record.
    """
    for number, current in enumerate(folders.journal):
        index = number if len(folders.journal) > 1 else None
        try:
            files = journal_files(current)
        except BkstoreError as error:
            yield CheckFinding.of_error("journal", error)
            continue
        marks: list[LogMark] = []
        yield from _marks(folders.ledger, index, dict(files), marks)
        mark = max(marks, default=NO_MARK)
        for journal_id, path in files:
            yield from _read(path, journal_id, mark, facts, coverage)


def _marks(
    currents: list[Path], index: int | None, files: dict[int, Path], marks: list[LogMark]
) -> Iterator[CheckFinding]:
    """Add the marks of a journal; yield what is wrong with them."""
    for current in currents:
        path = current / last_mark_name(index)
        try:
            mark = mark_of_file(path)
        except BkstoreError as error:
            yield CheckFinding.of_error("last-mark", error)
            continue
        if mark is None:
            if path.exists():
                detail = "shorter than a mark: the directory counts as without one"
                yield CheckFinding("last-mark", "oddity", detail, str(path))
            continue
        marks.append(mark)
        journal = files.get(mark.journal_id)
        if mark == NO_MARK or not files:
            continue
        if journal is None:
            detail = f"points to journal {mark.journal_id:x}.txn, which is not here"
            yield CheckFinding("last-mark", "damage", detail, str(path))
        elif journal.is_file() and mark.position > journal.stat().st_size:
            detail = f"points to {mark.position}, behind the end of {journal}"
            yield CheckFinding("last-mark", "damage", detail, str(path))
    if len(set(marks)) > 1:
        low, high = min(marks), max(marks)
        detail = f"marks differ between the directories: from {tuple(low)} to {tuple(high)}"
        yield CheckFinding("last-mark", "oddity", detail, last_mark_name(index))


def _read(
    path: Path, journal_id: int, mark: LogMark, facts: JournalFacts, coverage: Coverage
) -> Iterator[CheckFinding]:
    try:
        scan = scan_journal(path, skip_torn=True)
        for offset, record in scan.records():
            coverage.journal_records += 1
            facts.add(record, LogMark(journal_id, offset) < mark)
    except BkstoreError as error:
        yield CheckFinding.of_error("journal", error)
        return
    yield from (CheckFinding.of("journal", each) for each in scan.findings)


def check_against_journals(index: EntryIndex, facts: JournalFacts) -> Iterator[CheckFinding]:
    """Yield what the journals have before the last mark and the index does not.

    Ledgers that the index does not know are left out: they were deleted, or never flushed.
    """
    lost = EntryRuns()
    for ledger in sorted({*index.ledgers()} & {*facts.ledgers}):
        told = facts.ledgers[ledger]
        try:
            state = index.state(ledger)
            missing = told.before.all() - index.availability(ledger)
        except SystemRefused:
            raise
        except BkstoreError:  # the pass over the index tells of it
            continue
        yield from _state(ledger, state, told, facts.lacs(ledger))
        if len(missing):
            ids = missing.entries()
            scope, number = ledger.signed
            zero = np.zeros(ids.size, np.int64)
            lost.add(zero + scope, zero + number, ids, zero)
    why = "in a journal before the last mark, and not in the index"
    yield from lost.findings("journal-entry", "damage", why, None)


def _state(
    ledger: LedgerId, state: LedgerState, told: _Told, lacs: list[bytes]
) -> Iterator[CheckFinding]:
    if told.key and state.master_key.strip(b"\0") and told.key != state.master_key:
        detail = f"the master key of ledger {ledger} is not the one in the journal"
        yield CheckFinding("state", "damage", detail, ledger=ledger)
    if told.fenced and not state.fenced:
        detail = f"ledger {ledger} was fenced before the last mark, and is not in the index"
        yield CheckFinding("state", "damage", detail, ledger=ledger)
    if lacs and state.explicit_lac not in lacs:
        detail = f"the explicit LAC of ledger {ledger} is none that the journal has"
        yield CheckFinding("state", "oddity", detail, ledger=ledger)
