"""LastAddConfirmed: the last add confirmed (LAC) of each ledger, as far as a storage knows it.

Two sources say it: the LAC field of entries, and explicit LACs. The rule here is the highest of
all that was seen, before and after a restart. The real storages forget some of it:
`ForgetfulLastAddConfirmed`, behind ``compat="bookkeeper"``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bkstore.errors import CorruptionError, NoSuchEntry
from bkstore.formats.entry import NO_ENTRY
from bkstore.ids import LedgerId


class StoredLac(NamedTuple):
    """What is stored: the LAC field of the last entry, the explicit LAC; None where none is."""

    of_last_entry: int | None
    explicit: int | None


class LastAddConfirmed:
    """The LACs of a storage's ledgers, -1 where nothing is confirmed; never goes back.

    `stored(ledger)` says what is on disk. It is asked once for each ledger that was not made
    by this process. Threads: the storage's lock.
    """

    def __init__(self, stored: Callable[[LedgerId], StoredLac]) -> None:
        self._stored = stored
        self._lacs: dict[LedgerId, int] = {}

    def get(self, name: LedgerId) -> int:
        """Return the ledger's LAC."""
        lac = self._lacs.get(name)
        if lac is None:
            found = [value for value in self._stored(name) if value is not None]
            lac = self._lacs[name] = max(found, default=NO_ENTRY)
        return lac

    def created(self, name: LedgerId) -> None:
        """Note that the ledger is new: nothing is stored."""
        self._lacs[name] = NO_ENTRY

    def before_add(self, name: LedgerId) -> None:
        """Look at what is stored, before an entry is added to it.

        What cannot be read confirms nothing: damage in one record keeps no other one out.
        """
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
        """Note that somebody asked for the explicit LAC, which is `lac`."""

    def forget(self, name: LedgerId) -> None:
        """Drop a deleted ledger."""
        self._lacs.pop(name, None)


class ForgetfulLastAddConfirmed(LastAddConfirmed):
    """What the real storages answer: `FileInfo`, and with `db` `TransientLedgerInfo`.

    Both know what they saw since the start, else the LAC field of the last entry, else raise
    `NoSuchEntry`. Db storage begins to look at entries when it was asked once, and knows the
    explicit LAC when it was set or read since the start.
    """

    def __init__(self, stored: Callable[[LedgerId], StoredLac], db: bool) -> None:
        super().__init__(stored)
        self._db = db

    def get(self, name: LedgerId) -> int:
        """Return the ledger's LAC; `NoSuchEntry` where none is known and there is no entry."""
        lac = self._lacs.get(name)
        if lac is None:
            lac = self._stored(name).of_last_entry
            if lac is None:
                raise NoSuchEntry(f"ledger {name} has no entry")
            self._lacs[name] = lac
        return lac

    def created(self, name: LedgerId) -> None:
        """Pass over it: nothing is known of a new ledger."""

    def before_add(self, name: LedgerId) -> None:
        """Pass over it."""

    def added(self, name: LedgerId, lac: int) -> None:
        """Note the entry's LAC field; in db storage only if the ledger's LAC was asked for."""
        if not self._db or name in self._lacs:
            self._lacs[name] = max(self._lacs.get(name, lac), lac)

    def set_explicitly(self, name: LedgerId, lac: int) -> None:
        """Note an explicit LAC, whatever the entries say."""
        self._lacs[name] = max(self._lacs.get(name, lac), lac)

    def read_explicitly(self, name: LedgerId, lac: int) -> None:
        """Note the explicit LAC, as db storage does when it loads it."""
        if self._db:
            self.set_explicitly(name, lac)
