"""LacTracker: the last add confirmed (LAC) of each ledger, as far as a storage knows it.

There are two sources: the LAC field of entries, and explicit LACs. Here the highest value seen
counts, before and after a restart. The real storages forget some values: see
`ForgetfulLacTracker`, used with ``compat="bookkeeper"``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bkstore.errors import CorruptionError, NoSuchEntry
from bkstore.formats.entry import NO_ENTRY
from bkstore.ids import LedgerId


class StoredLac(NamedTuple):
    """The LAC field of the last stored entry, and the stored explicit LAC, or None."""

    of_last_entry: int | None
    explicit: int | None


class LacTracker:
    """The LACs of a storage's ledgers, -1 if nothing is confirmed; they never decrease.
    `stored(ledger)` reads those on disk; called once for each ledger that this process did not
    create. Threads: the caller holds the storage's lock."""

    def __init__(self, read_stored: Callable[[LedgerId], StoredLac]) -> None:
        self._read_stored_lac = read_stored
        self._lacs: dict[LedgerId, int] = {}

    def get(self, ledger_id: LedgerId) -> int:
        """Return the ledger's LAC."""
        lac = self._lacs.get(ledger_id)
        if lac is None:
            stored_lacs = [value for value in self._read_stored_lac(ledger_id) if value is not None]
            lac = self._lacs[ledger_id] = max(stored_lacs, default=NO_ENTRY)
        return lac

    def note_created(self, ledger_id: LedgerId) -> None:
        """Note that the ledger is new, so that nothing is stored of it."""
        self._lacs[ledger_id] = NO_ENTRY

    def load_before_add(self, ledger_id: LedgerId) -> None:
        """Load the stored LAC before an add; -1 if it is damaged, which must not prevent adds."""
        if ledger_id not in self._lacs:
            try:
                self.get(ledger_id)
            except CorruptionError:
                self._lacs[ledger_id] = NO_ENTRY

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

    def __init__(self, read_stored: Callable[[LedgerId], StoredLac], is_db: bool) -> None:
        super().__init__(read_stored)
        self._is_db = is_db

    def get(self, ledger_id: LedgerId) -> int:
        """Return the LAC seen, else the last entry's, else raise `NoSuchEntry`, as upstream."""
        lac = self._lacs.get(ledger_id)
        if lac is None:
            lac = self._read_stored_lac(ledger_id).of_last_entry
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
