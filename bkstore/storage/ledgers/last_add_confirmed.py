"""LacTracker: the last add confirmed (LAC) of each ledger, as far as a storage knows it.

There are two sources: the LAC field of entries, and explicit LACs. Here the highest value seen
counts, before and after a restart. The real storages forget some values: see
`ForgetfulLacTracker`, used with ``compat="bookkeeper"``.
"""

from __future__ import annotations

from collections.abc import Callable

from bkstore.errors import CorruptionError, NoSuchEntry
from bkstore.formats.entry import NO_ENTRY
from bkstore.ids import LedgerId

_ReadLac = Callable[[LedgerId], int | None]


class LacTracker:
    """The LACs of a storage's ledgers, -1 if nothing is confirmed; they never decrease.

    `read_last_entry_lac(ledger)` returns the LAC field of the last stored entry,
    `read_explicit_lac(ledger)` the stored explicit LAC, each None if there is none; both are called
    once for each ledger that this process did not create. Threads: the caller holds the storage's
    lock.
    """

    def __init__(self, read_last_entry_lac: _ReadLac, read_explicit_lac: _ReadLac) -> None:
        self._read_last_entry_lac = read_last_entry_lac
        self._read_explicit_lac = read_explicit_lac
        self._lacs: dict[LedgerId, int] = {}

    def get(self, ledger_id: LedgerId) -> int:
        """Return the ledger's LAC."""
        lac = self._lacs.get(ledger_id)
        if lac is None:
            stored_lacs = (self._read_last_entry_lac(ledger_id), self._read_explicit_lac(ledger_id))
            known_lacs = [stored for stored in stored_lacs if stored is not None]
            lac = self._lacs[ledger_id] = max(known_lacs, default=NO_ENTRY)
        return lac

    def note_created(self, ledger_id: LedgerId) -> None:
        """Note that the ledger is new, so that nothing is stored of it."""
        self._lacs[ledger_id] = NO_ENTRY

    def load_before_add(self, ledger_id: LedgerId) -> None:
        """Load the stored LACs before an add: that of the last entry, and the explicit one. If one
        cannot be read, it counts as -1, so that it neither prevents the add nor hides the other:
        after a crash, the index row of the last entry may point past the end of its log."""
        if ledger_id in self._lacs:
            return
        lac = NO_ENTRY
        for read_lac in (self._read_last_entry_lac, self._read_explicit_lac):
            try:
                stored_lac = read_lac(ledger_id)
            except CorruptionError:
                continue
            if stored_lac is not None:
                lac = max(lac, stored_lac)
        self._lacs[ledger_id] = lac

    def note_added(self, ledger_id: LedgerId, lac: int) -> None:
        """Note the LAC field of an entry that was added."""
        if lac > self._lacs[ledger_id]:
            self._lacs[ledger_id] = lac

    def note_explicit_set(self, ledger_id: LedgerId, lac: int) -> None:
        """Note an explicit LAC."""
        self.load_before_add(ledger_id)
        self._lacs[ledger_id] = max(self._lacs[ledger_id], lac)

    def note_explicit_read(self, ledger_id: LedgerId, lac: int) -> None:
        """Note that a caller read the explicit LAC, which is `lac`; nothing to do here."""

    def forget(self, ledger_id: LedgerId) -> None:
        """Drop a deleted ledger."""
        self._lacs.pop(ledger_id, None)


class ForgetfulLacTracker(LacTracker):
    """The LACs as the real storages keep them: `FileInfo`, or with `is_db` `TransientLedgerInfo`.

    Both return the LAC seen since the start, else the LAC field of the last entry, else raise
    `NoSuchEntry`. Db storage follows the entries of a ledger only after its LAC was first
    requested, and knows the explicit LAC only if it was set or read since the start.
    """

    def __init__(
        self, read_last_entry_lac: _ReadLac, read_explicit_lac: _ReadLac, is_db: bool
    ) -> None:
        super().__init__(read_last_entry_lac, read_explicit_lac)
        self._is_db = is_db

    def get(self, ledger_id: LedgerId) -> int:
        """Return the LAC seen, else the last entry's, else raise `NoSuchEntry`, as BookKeeper
        does."""
        lac = self._lacs.get(ledger_id)
        if lac is None:
            lac = self._read_last_entry_lac(ledger_id)
            if lac is None:
                raise NoSuchEntry(f"ledger {ledger_id} has no entry")
            self._lacs[ledger_id] = lac
        return lac

    def note_created(self, ledger_id: LedgerId) -> None:
        """Do nothing: no LAC is known of a new ledger."""

    def load_before_add(self, ledger_id: LedgerId) -> None:
        """Do nothing: stored LACs are read on request only."""

    def note_added(self, ledger_id: LedgerId, lac: int) -> None:
        """Note the entry's LAC field; in db storage only if the LAC was requested before."""
        if not self._is_db or ledger_id in self._lacs:
            self._lacs[ledger_id] = max(self._lacs.get(ledger_id, lac), lac)

    def note_explicit_set(self, ledger_id: LedgerId, lac: int) -> None:
        """Note an explicit LAC, without loading the stored one."""
        self._lacs[ledger_id] = max(self._lacs.get(ledger_id, lac), lac)

    def note_explicit_read(self, ledger_id: LedgerId, lac: int) -> None:
        """Note the explicit LAC, as db storage does when it loads it."""
        if self._is_db:
            self.note_explicit_set(ledger_id, lac)
