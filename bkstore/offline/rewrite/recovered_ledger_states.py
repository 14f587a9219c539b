"""Find the ledgers that a bookie knows, and their states, in its old index and its journals.

A damaged index is read as far as possible: with RocksDB, `ledgers` alone if `locations` cannot be
opened. Journals have master keys, fences and explicit LACs of ledgers; all journal files are read,
those before the last mark too. An index without any ledger is treated as lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from bkstore.counts import format_count
from bkstore.errors import BkstoreError, CorruptionError, DirectoryInUse
from bkstore.formats import ledgerdata
from bkstore.formats.journal import LogMark
from bkstore.ids import LedgerId
from bkstore.index.api import Finding, LedgerState, UnknownLedgers
from bkstore.index.damage_runs import DamageRuns, add_unreported
from bkstore.index.rocks.keys import ledgers_of_keys
from bkstore.index.rocks.rows import describe_unknown_ledgers, read_ledger_rows
from bkstore.index.rocks.table_database import open_ledgers
from bkstore.index.rocks.tables.damage import UnknownRange
from bkstore.storage.journal.last_mark import NO_MARK, list_journal_files, read_last_mark
from bkstore.storage.journal.scan import scan_journal
from bkstore.storage.read_only.bookie_dir import BookieDir


@dataclass(slots=True)
class JournalState:
    """A ledger's state in the journals; `pending` if its master key is in a record after the last
    mark, so that the index may not have the ledger yet, and a replay adds it."""

    master_key: bytes | None = None
    fenced: bool = False
    explicit_lac: bytes | None = None
    pending: bool = False


@dataclass
class SourceLedgers:
    """The ledgers of a source, as found in its old index and its journals (`journaled`).

    `indexed` has the states in the old index, `unreadable` the ledgers in it whose state cannot be
    read. `has_listing` is False if the index cannot list its ledgers. If it can, damage may still
    hide which ledgers of some ranges of ids, `unknown`, it has: all of these count as known.
    `has_all_journals` is False if a last mark is damaged, or names a journal that is not there:
    then every ledger in journals counts as pending.
    """

    indexed: dict[LedgerId, LedgerState] = field(default_factory=dict)
    unreadable: set[LedgerId] = field(default_factory=set)
    has_listing: bool = False
    unknown: list[UnknownLedgers] = field(default_factory=list)
    journaled: dict[LedgerId, JournalState] = field(default_factory=dict)
    has_all_journals: bool = True

    def __contains__(self, ledger_id: LedgerId) -> bool:
        """Return whether a bookie started on the source knows the ledger, after the replay."""
        if ledger_id in self.indexed or ledger_id in self.unreadable or self.is_hidden(ledger_id):
            return True
        return ledger_id in self.journaled and self.journaled[ledger_id].pending

    def is_hidden(self, ledger_id: LedgerId) -> bool:
        """Return whether damage hides if the index has the ledger, or its state."""
        return any(unknown.includes(ledger_id) for unknown in self.unknown)

    def state(self, ledger_id: LedgerId) -> LedgerState:
        """Return the state in the index, else in the journals, fenced if a fence may be lost.

        If a fence were lost, a writer that was fenced off could go on writing. A fence too many
        only ends a writer's ledger, which a client then closes by recovery. BookKeeper's
        `rebuild-db-ledgers-index` fences for the same reason.
        """
        if ledger_id in self.indexed:
            return self.indexed[ledger_id]
        state = self.journaled.get(ledger_id, JournalState())
        # The journals have all records of a ledger that is not in the index yet, so its fence, too.
        is_in_index = ledger_id in self.unreadable or self.is_hidden(ledger_id)
        is_complete = self.has_listing and self.has_all_journals and state.pending
        is_complete = is_complete and not is_in_index
        key, fenced = state.master_key or b"", state.fenced or not is_complete
        return LedgerState(key, fenced, limbo=False, explicit_lac=state.explicit_lac)

    def states(self, ledger_ids: Iterable[LedgerId]) -> dict[LedgerId, LedgerState]:
        """Return the states of the given ledgers and of those in the index, in order of id."""
        all_ids = {*ledger_ids, *self.indexed, *self.unreadable}
        return {ledger_id: self.state(ledger_id) for ledger_id in sorted(all_ids)}


def read_source_ledgers(bookie: BookieDir, findings: list[Finding]) -> SourceLedgers:
    """Read the ledgers of the old index and of all journals; add findings for unreadable ones.

    Raises `DirectoryInUse`. Cost: about 1 us a journal record. Memory: some 300 bytes a ledger.
    """
    known = SourceLedgers()
    _read_journals(bookie, known, findings)
    try:
        listing = bookie.index.list_readable_ledgers()
    except DirectoryInUse:
        raise
    except BkstoreError as error:
        add_unreported(findings, [Finding.of(error)])
        known.has_listing = _read_databases(bookie, known, findings)
    else:
        known.has_listing, known.unknown = True, listing.unknown
        add_unreported(findings, listing.findings)
        damage_runs = DamageRuns(findings, noun="ledgers")
        for ledger_id in listing.ledgers:
            try:
                known.indexed[ledger_id] = bookie.index.state(ledger_id)
                damage_runs.end_runs()
            except CorruptionError as error:
                finding = Finding.of(error, ledger_id)
                if listing.may_include(ledger_id):  # the listing's findings may have this damage
                    add_unreported(findings, [finding])
                else:
                    damage_runs.add(finding)
                known.unreadable.add(ledger_id)
    if not known.indexed and not known.unreadable:
        known.has_listing = False  # an index without any ledger is treated as lost
    return known


# -- the `ledgers` databases where the index as a whole cannot be opened


def _read_databases(bookie: BookieDir, known: SourceLedgers, findings: list[Finding]) -> bool:
    """Add the states in the `ledgers` databases to `known`; return whether all could be read."""
    if bookie.layout != "rocksdb":
        return False
    index_dirs, all_read = bookie.folders.index, True
    for dir_index, current in enumerate(index_dirs):
        # Ledgers with a scope are in a database of their own, which need not exist.
        for path, has_scope in ((current / "ledgers", False), (current / "ledgers-128", True)):
            if has_scope and not path.exists():
                continue
            hidden: list[UnknownLedgers] = []
            try:
                for ledger_id, state in _read_ledger_states(
                    path, has_scope, known, findings, hidden
                ):
                    # A bookie looks for a ledger in its own directory alone.
                    if ledger_id.ledger % len(index_dirs) == dir_index:
                        known.indexed[ledger_id] = state
                known.unknown += [
                    each._replace(dir_index=dir_index, directories=len(index_dirs))
                    for each in hidden
                ]
            except DirectoryInUse:
                raise
            except BkstoreError as error:
                add_unreported(findings, [Finding.of(error)])
                all_read = False
    if all_read and known.indexed:
        detail = f"states of {format_count(len(known.indexed), 'ledger')} are from `ledgers` alone"
        findings.append(Finding("oddity", detail, str(index_dirs[0])))
    return all_read


def _read_ledger_states(
    path: Path,
    has_scope: bool,
    known: SourceLedgers,
    findings: list[Finding],
    hidden: list[UnknownLedgers],
) -> Iterator[tuple[LedgerId, LedgerState]]:
    """Yield a database's ledgers and states; a ledger with an unreadable state is only listed.
    Where damage hides rows, append their ledgers to `hidden`, and add a finding. Rows whose keys
    are not a ledger's become findings."""
    damage, odd_rows = list[UnknownRange](), list[CorruptionError]()
    with closing(open_ledgers(path)) as database:
        for ledger_id, key, value in read_ledger_rows(database, has_scope, damage, odd_rows):
            try:
                row = ledgerdata.decode(value)
            except CorruptionError as error:
                corruption = CorruptionError(path, None, f"row {key.hex()}: {error.reason}")
                findings.append(Finding.of(corruption, ledger_id))
                known.unreadable.add(ledger_id)
                continue
            explicit_lac = row.explicit_lac or None
            yield ledger_id, LedgerState(row.master_key, row.fenced, bool(row.limbo), explicit_lac)
    for unknown in damage:
        if bounds := ledgers_of_keys(unknown.start, unknown.stop, has_scope):
            hidden.append(UnknownLedgers(*bounds))
            add_unreported(findings, [describe_unknown_ledgers(unknown, has_scope)])
    add_unreported(findings, map(Finding.of, odd_rows))


# -- journals


def _read_journals(bookie: BookieDir, known: SourceLedgers, findings: list[Finding]) -> None:
    """Add the ledgers' last states in the journals; add findings for unreadable journals."""
    journal_dirs = bookie.folders.journal
    for dir_index, current in enumerate(journal_dirs):
        try:
            journal_paths = list_journal_files(current)
        except BkstoreError as error:
            add_unreported(findings, [Finding.of(error)])
            continue
        # The name of a mark's file has the number of its journal only if there are several.
        journal_index = dir_index if len(journal_dirs) > 1 else None
        mark = _read_mark(bookie, journal_index, findings)
        if mark is None or (mark != NO_MARK and mark.journal_id not in dict(journal_paths)):
            # No bookie starts on this, as the mark is of another time than these files.
            mark, known.has_all_journals = NO_MARK, False
        for journal_id, path in journal_paths:
            try:
                _read_journal_file(path, journal_id, mark, known.journaled, findings)
            except BkstoreError as error:
                add_unreported(findings, [Finding.of(error)])


def _read_mark(
    bookie: BookieDir, journal_index: int | None, findings: list[Finding]
) -> LogMark | None:
    """Return the last mark of a journal; None, and a finding, if it cannot be read."""
    try:
        return read_last_mark(bookie.folders.ledger, journal_index)
    except BkstoreError as error:
        add_unreported(findings, [Finding.of(error)])
        return None


def _read_journal_file(
    path: Path,
    journal_id: int,
    mark: LogMark,
    journal_states: dict[LedgerId, JournalState],
    findings: list[Finding],
) -> None:
    """Update the states by the file's records of master keys, fences and explicit LACs. A state is
    `pending` if a record of its master key is not before the last mark, `mark`."""
    scan = scan_journal(path, skip_invalid=True, skip_torn=True)
    for offset, record in scan.records():
        if record.kind not in ("master_key", "fence", "explicit_lac"):
            continue
        state = journal_states.setdefault(record.ledger, JournalState())
        if record.kind == "master_key":
            state.master_key = bytes(record.body)
            state.pending |= LogMark(journal_id, offset) >= mark
        elif record.kind == "fence":
            state.fenced = True
        else:
            state.explicit_lac = bytes(record.body)
    add_unreported(findings, scan.findings)
