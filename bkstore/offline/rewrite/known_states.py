"""Which ledgers a bookie knows, and their states: from its old index and from its journals.

A damaged index is read as far as it goes: with RocksDB, `ledgers` alone where `locations` cannot
be opened. Journals know master keys, fences and explicit LACs of the ledgers in them; all files
are read, also those before the last mark. An index without any ledger is taken for a lost one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from bkstore.counts import counted
from bkstore.errors import BkstoreError, CorruptionError, DirectoryInUse
from bkstore.formats import ledgerdata
from bkstore.formats.journal import LogMark
from bkstore.ids import LedgerId
from bkstore.index.api import Finding, LedgerState
from bkstore.index.damage_runs import DamageRuns, add_unreported
from bkstore.index.rocks.database import Database
from bkstore.index.rocks.rows import ledger_rows
from bkstore.storage.journal.last_mark import journal_files, read_last_mark
from bkstore.storage.journal.scan import scan_journal
from bkstore.storage.read_only.bookie_dir import BookieDir


@dataclass(slots=True)
class JournalState:
    """What journals say of a ledger; `pending` if a replay from the last mark makes it known."""

    master_key: bytes | None = None
    fenced: bool = False
    explicit_lac: bytes | None = None
    pending: bool = False


@dataclass
class KnownLedgers:
    """What is known of the ledgers of a source.

    `indexed` are the states that the old index has, `listed` the ledgers that it names and whose
    state could not be read. `told` is False where it could not say which ledgers there are.
    """

    indexed: dict[LedgerId, LedgerState] = field(default_factory=dict)
    listed: set[LedgerId] = field(default_factory=set)
    told: bool = False
    journaled: dict[LedgerId, JournalState] = field(default_factory=dict)

    def __contains__(self, name: LedgerId) -> bool:
        """Whether a bookie that starts on the source knows the ledger, once it has replayed."""
        if name in self.indexed or name in self.listed:
            return True
        return name in self.journaled and self.journaled[name].pending

    def state(self, name: LedgerId) -> LedgerState:
        """Return the index's state; else the journals', fenced where a fence may have been lost.

        A fence that is lost would let a writer go on that was shut out; one that was not there
        costs a writer its ledger, which a client closes by recovery. `rebuild-db-ledgers-index`
        of BookKeeper fences for the same reason.
        """
        if name in self.indexed:
            return self.indexed[name]
        said = self.journaled.get(name, JournalState())
        new = self.told and said.pending and name not in self.listed
        return LedgerState(said.master_key or b"", said.fenced or not new, False, said.explicit_lac)

    def states(self, found: Iterable[LedgerId]) -> dict[LedgerId, LedgerState]:
        """Return the states of the ledgers found and of those that the index knows, in order."""
        return {name: self.state(name) for name in sorted({*found, *self.indexed, *self.listed})}


def known_ledgers(bookie: BookieDir, findings: list[Finding]) -> KnownLedgers:
    """Read the ledgers of the old index and of all journals; what cannot be read is a finding.

    About 1 us a journal record; memory: some 300 bytes a ledger.
    """
    known = KnownLedgers(journaled=_journaled(bookie, findings))
    try:
        names = bookie.index.ledgers()
    except DirectoryInUse:
        raise
    except BkstoreError as error:
        add_unreported(findings, [Finding.of(error)])
        known.told = _rows_alone(bookie, known, findings)
    else:
        known.told = True
        runs = DamageRuns(findings, noun="ledgers")
        for name in names:
            try:
                known.indexed[name] = bookie.index.state(name)
                runs.end()
            except CorruptionError as error:
                runs.add(Finding.of(error, name))
                known.listed.add(name)
    known.told = known.told and bool(known.indexed or known.listed)
    return known


# -- the `ledgers` databases where the index as a whole cannot be opened


def _rows_alone(bookie: BookieDir, known: KnownLedgers, findings: list[Finding]) -> bool:
    """Read the `ledgers` databases by themselves; return whether all of them could be."""
    if bookie.layout != "rocksdb":
        return False
    folders, whole = bookie.folders.index, True
    for number, current in enumerate(folders):
        for path, wide in ((current / "ledgers", False), (current / "ledgers-128", True)):
            if wide and not path.exists():
                continue
            try:
                for name, state in _ledger_states(path, wide, known, findings):
                    if name.ledger % len(folders) == number:
                        known.indexed[name] = state
            except DirectoryInUse:
                raise
            except BkstoreError as error:
                add_unreported(findings, [Finding.of(error)])
                whole = False
    if whole and known.indexed:
        detail = f"states of {counted(len(known.indexed), 'ledger')} are from `ledgers` alone"
        findings.append(Finding("oddity", detail, str(folders[0])))
    return whole


def _ledger_states(
    path: Path, wide: bool, known: KnownLedgers, findings: list[Finding]
) -> Iterator[tuple[LedgerId, LedgerState]]:
    with closing(Database(path)) as database:
        for name, key, value in ledger_rows(database, wide):
            try:
                row = ledgerdata.decode(value)
            except CorruptionError as error:
                damage = CorruptionError(path, None, f"row {key.hex()}: {error.reason}")
                findings.append(Finding.of(damage, name))
                known.listed.add(name)
                continue
            lac = row.explicit_lac or None
            yield name, LedgerState(row.master_key, row.fenced, bool(row.limbo), lac)


# -- journals


def _journaled(bookie: BookieDir, findings: list[Finding]) -> dict[LedgerId, JournalState]:
    """Return what the journals say, by ledger, the last of each."""
    told: dict[LedgerId, JournalState] = {}
    journals = bookie.folders.journal
    for number, current in enumerate(journals):
        try:
            index = number if len(journals) > 1 else None
            mark = read_last_mark(bookie.folders.ledger, index)
            found = journal_files(current)
        except BkstoreError as error:
            add_unreported(findings, [Finding.of(error)])
            continue
        for journal_id, path in found:
            try:
                _read(path, journal_id, mark, told, findings)
            except BkstoreError as error:
                add_unreported(findings, [Finding.of(error)])
    return told


def _read(
    path: Path,
    journal_id: int,
    mark: LogMark,
    told: dict[LedgerId, JournalState],
    findings: list[Finding],
) -> None:
    scan = scan_journal(path, skip_invalid=True, skip_torn=True)
    for offset, record in scan.records():
        if record.kind not in ("master_key", "fence", "explicit_lac"):
            continue
        state = told.setdefault(record.ledger, JournalState())
        if record.kind == "master_key":
            state.master_key = bytes(record.body)
            state.pending |= LogMark(journal_id, offset) >= mark
        elif record.kind == "fence":
            state.fenced = True
        else:
            state.explicit_lac = bytes(record.body)
    add_unreported(findings, scan.findings)
