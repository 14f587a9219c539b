"""LastAddConfirmed: the last add confirmed (LAC) of each ledger, as far as a storage knows it.

There are two sources: the LAC field of entries, and explicit LACs. Here the highest value seen
counts, before and after a restart. The real storages forget some values: see
`ForgetfulLastAddConfirmed`, used with ``compat="bookkeeper"``.
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


class LastAddConfirmed:
    """The LACs of a storage's ledgers, -1 if nothing is confirmed; they never decrease.
    `stored(ledger)` reads those on disk; called once for each ledger that this process did not
    create. Threads: the caller holds the storage's lock."""

    def __init__(self, stored: Callable[[LedgerId], StoredLac]) -> None:
        self._read_stored_lac = stored
        self._lacs: dict[LedgerId, int] = {}

    def get(self, name: LedgerId) -> int:
        """Return the ledger's LAC."""
        lac = self._lacs.get(name)
        if lac is None:
            stored_lacs = [value for value in self._read_stored_lac(name) if value is not None]
            lac = self._lacs[name] = max(stored_lacs, default=NO_ENTRY)
        return lac

    def created(self, name: LedgerId) -> None:
        """Note that the ledger is new, so that nothing is stored of it."""
        self._lacs[name] = NO_ENTRY

    def before_add(self, name: LedgerId) -> None:
        """Load the stored LAC before an add; -1 if it is damaged, which must not prevent adds."""
        if name not in self._lacs:
            try:
                self.get(name)
            except CorruptionError:
                self._lacs[name] = NO_ENTRY

    def added(self, name: LedgerId, lac: int) -> None:
        """Note the LAC field of an entry that was added."""
        if lac > self._lacs[name]:
            self._lacs[name] = lac

    def set_explicitly(self, name: LedgerId, lac: int) -> None:
        """Note an explicit LAC."""
        self.before_add(name)
        self._lacs[name] = max(self._lacs[name], lac)

    def read_explicitly(self, name: LedgerId, lac: int) -> None:
        """Note that a caller read the explicit LAC, which is `lac`; nothing to do here."""

    def forget(self, name: LedgerId) -> None:
        """Drop a deleted ledger."""
        self._lacs.pop(name, None)


class ForgetfulLastAddConfirmed(LastAddConfirmed):
    """The LACs as the real storages keep them: `FileInfo`, or with `db` `TransientLedgerInfo`.

    Both return the LAC seen since the start, else the LAC field of the last entry, else raise
    `NoSuchEntry`. Db storage follows the entries of a ledger only after its LAC was first
    requested, and knows the explicit LAC only if it was set or read since the start.
    """

    def __init__(self, stored: Callable[[LedgerId], StoredLac], db: bool) -> None:
        super().__init__(stored)
        self._is_db = db

    def get(self, name: LedgerId) -> int:
        """Return the ledger's LAC; `NoSuchEntry` if none is known and the ledger has no entry."""
        lac = self._lacs.get(name)
        if lac is None:
            lac = self._read_stored_lac(name).of_last_entry
            if lac is None:
                raise NoSuchEntry(f"ledger {name} has no entry")
            self._lacs[name] = lac
        return lac

    def created(self, name: LedgerId) -> None:
        """Do nothing: no LAC is known of a new ledger."""

    def before_add(self, name: LedgerId) -> None:
        """Do nothing: stored LACs are read on request only."""

    def added(self, name: LedgerId, lac: int) -> None:
        """Note the entry's LAC field; in db storage only if the LAC was requested before."""
        if not self._is_db or name in self._lacs:
            self._lacs[name] = max(self._lacs.get(name, lac), lac)

    def set_explicitly(self, name: LedgerId, lac: int) -> None:
        """Note an explicit LAC, without loading the stored one."""
        self._lacs[name] = max(self._lacs.get(name, lac), lac)

    def read_explicitly(self, name: LedgerId, lac: int) -> None:
        """Note the explicit LAC, as db storage does when it loads it."""
        if self._is_db:
            self.set_explicitly(name, lac)
