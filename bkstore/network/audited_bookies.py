"""AuditedBookies: the bookies of a running cluster, as an audit asks them: nothing is written.

Each is asked over the wire for its lists of entries, many requests under way; some may be given
as directories instead. A bookie that answers reads, and no list, is told from one that is silent:
real bookies with db storage are so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from threading import Lock
from typing import Any

from bkstore.arguments import number
from bkstore.availability import Availability
from bkstore.cluster.audit.options import EntriesOfLedger
from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import (
    BkstoreError,
    BookieUnavailable,
    CorruptionError,
    IllegalOperation,
    NoListOfEntries,
    SystemRefused,
)
from bkstore.ids import LedgerId
from bkstore.index.api import Closing, LedgerLike
from bkstore.index.many_ledgers import Errors, asked_for
from bkstore.network.registrations import RegisteredBookies

AT_A_TIME = 128
"""Requests under way at a bookie."""

PATIENCE = 10
"""A bookie from which nothing comes is left alone for so many times what it took to find out."""

_SOON = 0.1
"""Seconds; one that fails as soon as that is simply asked again."""

_check_timeout = number(above=True)
_ADVICE = ": a real bookie with db storage lists none; its directory would tell (%s=DIR)"


class AuditedBookies(Mapping[str, EntriesOfLedger], Closing):
    """Whoever answers for each bookie of a cluster: `directories`, else the bookie itself.

    A bookie is at the address that it registered in `store`, read-only ones too; one that is not
    registered, or whose registration cannot be read, is no bookie here (`KeyError`). `options` are
    `timeout`, `tls` and `sasl` of `WireClient`. Connects when a bookie is asked. Directories stay
    open.

    >>> from bkstore.cluster import MemoryStore
    >>> with AuditedBookies(MemoryStore()) as bookies:
    ...     list(bookies), "127.0.0.1:3181" in bookies
    ([], False)
    """

    def __init__(
        self,
        store: MetadataStore,
        directories: Mapping[str, EntriesOfLedger] | None = None,
        *,
        timeout: float = 5.0,
        **options: Any,
    ) -> None:
        """Take the cluster, and options of `WireClient`."""
        self._store = store
        self._directories = dict(directories or {})
        options |= {"timeout": _check_timeout("timeout", timeout), "window": 2 * AT_A_TIME}
        self._registered = RegisteredBookies(store, **options)
        self._asked: dict[str, AuditedBookie] = {}

    def __getitem__(self, bookie: str) -> EntriesOfLedger:
        given = self._directories.get(bookie)
        if given is not None:
            return given
        known = self._asked.get(bookie)
        if known is None:
            if bookie not in self._names() or bookie not in self._registered:
                raise KeyError(bookie)
            known = AuditedBookie(bookie, self._registered)
            self._asked[bookie] = known
        return known

    def _names(self) -> frozenset[str]:
        return self._store.registered_bookies() or frozenset()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._directories.keys() | set(self._registered)))

    def __len__(self) -> int:
        return len(self._directories.keys() | set(self._registered))

    def close(self) -> None:
        """End the connections. Idempotent."""
        self._registered.close()


class AuditedBookie:
    """One bookie over the wire. It is asked for lists of entries, and nothing is added or fenced.

    A bookie from which no list comes is asked for entry 0 of a ledger, then for a list once more.
    If it answers the one and not the other, it lists no entries: `NoListOfEntries` for every
    ledger from then on, unless it has listed some before. Else, if that took long, it is not asked
    again for ten times as long. Errors name the bookie. Threads: safe, one asks at a time.
    """

    def __init__(self, name: str, registered: RegisteredBookies) -> None:
        """Take its id, and where to find it."""
        self._name = name
        self._registered = registered
        self._lists = False
        self._refusal: BkstoreError | None = None
        self._until = 0.0
        self._lock = Lock()

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries are here; `NoSuchLedger` for an unknown ledger."""
        name = LedgerId.of(ledger)
        return dict(self.availability_many([name]))[name]

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: Errors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        """As `EntrySource.availability_many`; `IllegalOperation` without `ledgers`.

        Up to `AT_A_TIME` requests are under way; all answers are kept until the last is there.
        """
        if ledgers is None:
            raise IllegalOperation(f"bookie {self._name}: the protocol has no list of ledgers")
        names = asked_for(ledgers)
        found: dict[LedgerId, Availability] = {}
        failed: Errors = {}
        with self._lock:
            for at in range(0, len(names), AT_A_TIME):
                self._part(names[at : at + AT_A_TIME], found, failed)
        if errors is None and failed:
            raise next(iter(failed.values()))
        if errors is not None:
            errors.update(failed)
        return ((name, found[name]) for name in names if name in found)

    def _part(
        self, names: list[LedgerId], found: dict[LedgerId, Availability], failed: Errors
    ) -> None:
        """Ask for some ledgers; again for those that others may have cost their answer.

        A connection that is lost, or given up for an answer that cannot be, takes what is under
        way with it. Where nothing came, each half is asked for by itself, down to the one ledger
        that is the cause.
        """
        begun = time.monotonic()
        if self._refusal is not None and begun < self._until:
            failed.update(dict.fromkeys(names, self._refusal))
            return
        failed.update(self._ask(names, found))
        again = [name for name in names if _may_be_others_fault(failed.get(name))]
        if len(again) == len(names):
            if all(isinstance(failed[name], BookieUnavailable) for name in names):
                refusal = self._refused(again.pop(), begun, found, failed)
                if refusal is not None:
                    failed.update(dict.fromkeys(names, refusal))
                    return
            if len(names) == 1:
                return
        half = (len(again) + 1) // 2 if len(again) > len(names) - 2 else len(again)
        for part in (again[:half], again[half:]):
            for name in part:
                del failed[name]
            if part:
                self._part(part, found, failed)

    def _ask(self, names: list[LedgerId], found: dict[LedgerId, Availability]) -> Errors:
        """Ask for some ledgers once; put what is told into `found`, return why not of the rest."""
        client = self._registered.get(self._name)
        if client is None:
            gone = BookieUnavailable(f"bookie {self._name}: it is not registered any more")
            return dict.fromkeys(names, gone)
        asked = [name for name in names if client.extended or not name.scope]
        told: Errors = {}
        there = len(found)
        try:
            if asked:
                found.update(client.availability_many(asked, told))
        except (IllegalOperation, SystemRefused):  # it is closed, or says nothing of the bookie
            raise
        except BkstoreError as error:
            told |= {name: error for name in asked if name not in found and name not in told}
        self._lists |= len(found) > there
        if any(isinstance(error, BookieUnavailable) for error in told.values()):
            self._registered.doubt(self._name)
        errors: Errors = {name: self._named(error) for name, error in told.items()}
        unsaid = NoListOfEntries(f"it does not say that it knows scopes{_ADVICE % self._name}")
        errors |= {name: unsaid for name in names if name.scope and not client.extended}
        return errors

    def _named(self, error: BkstoreError) -> BkstoreError:
        who = f"bookie {self._name}"
        if isinstance(error, CorruptionError):
            if error.file is None:
                return CorruptionError(None, error.offset, f"{who} at {error.reason}")
            return error.within(f"{who} at {error.file}")
        if isinstance(error, IllegalOperation):
            return NoListOfEntries(f"{error}{_ADVICE % self._name}")
        return type(error)(f"{who} at {error}")

    def _refused(
        self,
        ledger: LedgerId,
        begun: float,
        found: dict[LedgerId, Availability],
        failed: Errors,
    ) -> BkstoreError | None:
        """Return why a bookie from which no list came is not asked on; None if it is after all,
        and then what it says of this ledger is noted."""
        try:
            self._probe(ledger)
        except BookieUnavailable as error:
            return self._refuse(self._named(error), begun)
        del failed[ledger]
        failed.update(self._ask([ledger], found))
        silent = failed.get(ledger)
        if not isinstance(silent, BookieUnavailable):
            return None
        if self._lists:
            return self._refuse(silent, begun)
        never = f"it answers reads, and no request for a list of entries{_ADVICE % self._name}"
        self._refusal, self._until = NoListOfEntries(never), math.inf
        return self._refusal

    def _probe(self, ledger: LedgerId) -> None:
        """Read an entry: any answer, an error too, shows that somebody is there."""
        client = self._registered.get(self._name)
        if client is None:
            raise BookieUnavailable("nowhere: it is not registered any more")
        try:
            client.read_entry(ledger, 0)
        except (BookieUnavailable, SystemRefused):
            raise
        except BkstoreError:
            return

    def _refuse(self, reason: BkstoreError, begun: float) -> BkstoreError:
        now = time.monotonic()
        if now - begun > _SOON:
            self._refusal, self._until = reason, now + PATIENCE * (now - begun)
        return reason


def _may_be_others_fault(error: BkstoreError | None) -> bool:
    """Return whether a request failed with its connection, not by an answer of its own."""
    garbled = isinstance(error, CorruptionError) and error.file is not None  # else it is EIO
    return garbled or isinstance(error, BookieUnavailable)
