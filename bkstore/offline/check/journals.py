"""Compare journals with the index, which must have everything before the last mark.

A bookie moves its last mark once its storage has all records before it. So each entry, master
key, fence and explicit LAC before the mark is in the index, unless the ledger was deleted since.
A replay adds what is after the mark. Format: `docs/formats/journal.md`.
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
from bkstore.storage.journal import last_mark
from bkstore.storage.journal.scan import scan_journal

_MAX_PENDING_ENTRIES = 1 << 16


@dataclass
class _EntrySet:
    """Entry ids of a ledger, merged into an `Availability` batch by batch."""

    whole: Availability = field(default_factory=Availability)
    waiting: list[int] = field(default_factory=list)

    def add(self, entry: int) -> None:
        self.waiting.append(entry)
        if len(self.waiting) >= _MAX_PENDING_ENTRIES:
            self.all()

    def all(self) -> Availability:
        """Return all entries that were added, those that wait included."""
        if self.waiting:
            ids = np.array(sorted(set(self.waiting)), np.int64)
            self.whole |= Availability.from_entries(ids)
            self.waiting = []
        return self.whole


@dataclass
class _JournaledLedger:
    """A ledger's facts in the journals, before the last mark and behind it."""

    master_key: bytes | None = None
    fenced: bool = False
    lacs: list[bytes] = field(default_factory=list)
    """The last explicit LAC before the mark, and all behind it."""
    flushed: _EntrySet = field(default_factory=_EntrySet)
    unflushed: _EntrySet = field(default_factory=_EntrySet)


class JournalFacts:
    """The facts in a bookie's journals, by ledger. Memory: sequence groups for each ledger."""

    def __init__(self) -> None:
        self.ledgers: dict[LedgerId, _JournaledLedger] = {}
        self._with_flushed_lac: set[LedgerId] = set()

    def add(self, record: JournalRecord, is_flushed: bool) -> None:
        """Add a record: `is_flushed` if it lies before the last mark, so that the index must have
        it. The index need not have a record after the mark, but may: of these, only entries and
        explicit LACs are compared with it."""
        ledger_facts = self.ledgers.setdefault(record.ledger, _JournaledLedger())
        if record.kind == "add":
            (ledger_facts.flushed if is_flushed else ledger_facts.unflushed).add(record.entry_id)
        elif record.kind == "explicit_lac":
            if is_flushed:  # replaces the ones before it
                ledger_facts.lacs = [record.body]
                self._with_flushed_lac.add(record.ledger)
            else:
                ledger_facts.lacs.append(record.body)
        elif is_flushed and record.kind == "fence":
            ledger_facts.fenced = True
        elif is_flushed and record.kind == "master_key":
            ledger_facts.master_key = record.body

    def expected_lacs(self, ledger: LedgerId) -> list[bytes]:
        """Return the explicit LACs that the index may have, or none if it need not have one."""
        return self.ledgers[ledger].lacs if ledger in self._with_flushed_lac else []

    def replayed_ranges(self) -> Mapping[LedgerId, Int64Array]:
        """Return the ranges of entries that a replay adds, int64[n, 2] by ledger."""
        unflushed = {ledger_id: facts.unflushed.all() for ledger_id, facts in self.ledgers.items()}
        return {ledger_id: entries.ranges() for ledger_id, entries in unflushed.items() if entries}


def read_journals(
    folders: BookieFolders, facts: JournalFacts, coverage: Coverage
) -> Iterator[CheckFinding]:
    """Read all journals into `facts`; yield findings on them and on last marks. 1 us a record."""
    for dir_index, current in enumerate(folders.journal):
        journal_index = dir_index if len(folders.journal) > 1 else None  # see `_check_marks`
        try:
            files = last_mark.list_journal_files(current)
        except BkstoreError as error:
            yield CheckFinding.from_error("journal", error)
            continue
        marks: list[LogMark] = []
        yield from _check_marks(folders.ledger, journal_index, dict(files), marks)
        mark = max(marks, default=last_mark.NO_MARK)  # where a bookie's replay begins
        for journal_id, path in files:
            yield from _read_journal_file(path, journal_id, mark, facts, coverage)


def _check_marks(
    ledger_dirs: list[Path],
    journal_index: int | None,
    journal_files: dict[int, Path],
    marks: list[LogMark],
) -> Iterator[CheckFinding]:
    """Add the marks of a journal, one for each ledger directory, to `marks`; yield findings.
    `journal_index` is None if the bookie has one journal, whose mark has a name without number."""
    for ledger_dir in ledger_dirs:
        path = ledger_dir / last_mark.last_mark_name(journal_index)
        try:
            mark = last_mark.read_mark(path)
        except BkstoreError as error:
            yield CheckFinding.from_error("last-mark", error)
            continue
        if mark is None:
            if path.exists():
                detail = "too short for a mark: the directory counts as having none"
                yield CheckFinding("last-mark", "oddity", detail, str(path))
            continue
        marks.append(mark)
        journal = journal_files.get(mark.journal_id)
        if mark == last_mark.NO_MARK or not journal_files:  # it names no file, or all are missing
            continue
        if journal is None:
            detail = f"points to journal {mark.journal_id:x}.txn, which is not here"
            yield CheckFinding("last-mark", "damage", detail, str(path))
        elif journal.is_file() and mark.position > journal.stat().st_size:
            detail = f"points to {mark.position}, past the end of {journal}"
            yield CheckFinding("last-mark", "damage", detail, str(path))
    if len(set(marks)) > 1:
        lowest, highest = min(marks), max(marks)
        detail = f"marks differ between the directories: from {tuple(lowest)} to {tuple(highest)}"
        yield CheckFinding("last-mark", "oddity", detail, last_mark.last_mark_name(journal_index))


def _read_journal_file(
    path: Path, journal_id: int, mark: LogMark, facts: JournalFacts, coverage: Coverage
) -> Iterator[CheckFinding]:
    """Add a journal's records to `facts`; yield the findings of reading it."""
    try:
        scan = scan_journal(path, skip_torn=True)
        for offset, record in scan.records():
            coverage.journal_records += 1
            facts.add(record, LogMark(journal_id, offset) < mark)
    except BkstoreError as error:
        yield CheckFinding.from_error("journal", error)
        return
    yield from CheckFinding.from_findings("journal", scan.findings)


def check_against_journals(index: EntryIndex, facts: JournalFacts) -> Iterator[CheckFinding]:
    """Yield findings on entries and states that the journals have before the last mark, so that
    they should be in the index, and that known ledgers lack there."""
    lost = EntryRuns()
    for ledger in sorted({*index.list_readable_ledgers().ledgers} & {*facts.ledgers}):
        ledger_facts = facts.ledgers[ledger]
        try:
            state = index.state(ledger)
            missing = ledger_facts.flushed.all() - index.availability(ledger)
        except SystemRefused:
            raise
        except BkstoreError:  # the pass over the index reports it
            continue
        yield from _compare_state(ledger, state, ledger_facts, facts.expected_lacs(ledger))
        if len(missing):
            ids = missing.entries()
            scopes, signed_ledgers = (np.full(ids.size, number) for number in ledger.signed)
            lost.add(scopes, signed_ledgers, ids, np.zeros(ids.size, np.int64))  # no offsets
    detail = "in a journal before the last mark, but not in the index"
    yield from lost.findings("journal-entry", "damage", detail, None)


def _compare_state(
    ledger: LedgerId, state: LedgerState, ledger_facts: _JournaledLedger, lacs: list[bytes]
) -> Iterator[CheckFinding]:
    """Yield findings where a ledger's state lacks what the journals have before the last mark."""
    key, has_key = ledger_facts.master_key, bool(state.master_key.strip(b"\0"))
    if key and has_key and key != state.master_key:
        detail = f"the master key of ledger {ledger} is not the one in the journal"
        yield CheckFinding("state", "damage", detail, ledger=ledger)
    if ledger_facts.fenced and not state.fenced:
        detail = f"ledger {ledger} was fenced before the last mark, but not in the index"
        yield CheckFinding("state", "damage", detail, ledger=ledger)
    if lacs and state.explicit_lac not in lacs:
        detail = f"the explicit LAC of ledger {ledger} is not one of those in the journal"
        yield CheckFinding("state", "oddity", detail, ledger=ledger)
