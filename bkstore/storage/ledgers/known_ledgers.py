"""KnownLedgers: what a storage knows of its ledgers, entries and states, flushed or not.

Upstream's counterparts are the halves of `LedgerStorage` that touch no record: `LedgerCache`,
`LedgerMetadataIndex` and the lists of entries, which db storage never had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from hmac import compare_digest

from bkstore import forks
from bkstore.arguments import data
from bkstore.availability import Availability
from bkstore.errors import (
    CorruptionError,
    DataUnknown,
    InvalidArgument,
    NoSuchEntry,
    NoSuchLedger,
    UnauthorizedAccess,
    UnsupportedLayout,
)
from bkstore.formats.entry import decode_explicit_lac, record_header
from bkstore.formats.idxfile import HEADER_FIELDS, HEADER_SIZE
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import EntrySource, LedgerLike, LedgerState
from bkstore.index.many_ledgers import Errors, over_parts
from bkstore.storage.ledgers.last_add_confirmed import (
    ForgetfulLastAddConfirmed,
    LastAddConfirmed,
    StoredLac,
)
from bkstore.storage.ledgers.write_paths.api import WritePath
from bkstore.storage.options import Storage, StorageOptions


class KnownLedgers(EntrySource):
    """The ledgers of one bookie: which are here, with which entries, in which state.

    The base of `Adds`, which takes records, and of `LedgerStorage`. Threads: all calls
    are safe beside each other.
    """

    def __init__(
        self, storage: Storage, paths: Sequence[WritePath], options: StorageOptions
    ) -> None:
        self.storage = storage
        self.options = options
        self.paths = list(paths)
        self._confirmed = LastAddConfirmed(self._stored_lac)
        if options.compat is not None:
            self._confirmed = ForgetfulLastAddConfirmed(self._stored_lac, storage == "db")
        self._last_id = options.last_entry_id(storage)
        self._closed = False

    def _path(self, name: LedgerId) -> WritePath:
        """Return the write path of a ledger: the directory `L mod n` of db storage."""
        self._check_open()
        return self.paths[name.ledger % len(self.paths)]

    def _check_open(self) -> None:
        if self._closed:
            raise forks.closed("this ledger storage")

    def _known(self, ledger: LedgerLike) -> tuple[LedgerId, WritePath, LedgerState]:
        name = LedgerId.of(ledger)
        path = self._path(name)
        with path.lock:
            return name, path, path.states.get(name)

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the known ledgers in unsigned order, unflushed ones too."""
        self._check_open()
        found: list[LedgerId] = []
        for path in self.paths:
            with path.lock:
                found += path.states.ledgers(scope)
        return sorted(found)

    def ledger_exists(self, ledger: LedgerLike) -> bool:
        """Return whether the ledger is known."""
        name = LedgerId.of(ledger)
        return self._path(name).knows(name)

    def source(self, ledger: LedgerLike) -> EntrySource:
        """Return what knows the ledger's entries: unflushed ones over the index."""
        return self._path(LedgerId.of(ledger)).source

    def entries(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> Int64Array:
        """Return the entry ids here, int64[n], unflushed ones too. Opens no entry log.

        Empty for an unknown ledger. (`getListOfEntriesOfLedger`, which db storage never had.)
        """
        return self.source(ledger).entries(ledger, first, last)

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries are here, condensed, unflushed ones too. Opens no entry log."""
        return self.source(ledger).availability(ledger)

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: Errors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        """Return (ledger, `availability`) of many ledgers, unflushed entries too."""
        self._check_open()
        sources = [path.source for path in self.paths]
        names = self._names_asked(ledgers)
        return over_parts(sources, lambda name: name.ledger % len(sources), names, errors)

    def last_entry(self, ledger: LedgerLike) -> int | None:
        """Return the highest entry id here, None if there is none; `DataUnknown` in limbo."""
        name = LedgerId.of(ledger)
        path = self._path(name)
        if not path.knows(name):
            raise _no_ledger(name)
        with path.lock:
            state = path.states.find(name)
        if state is not None and state.limbo:
            raise _unknown(name, "its last entry")
        return path.last_entry(name)

    # -- state

    def set_master_key(self, ledger: LedgerLike, key: bytes) -> None:
        """Make a ledger known, or check its key; `UnauthorizedAccess` if that is another.

        An empty or all-zero stored key is replaced, as in `LedgerMetadataIndex`. A key that no
        index file's header takes is `InvalidArgument`.
        """
        name, key = LedgerId.of(ledger), data("master key", key)
        path = self._path(name)
        self._check_room(len(key), 0)
        with path.lock:
            path.check_writable()
            if path.states.set_master_key(name, key):
                self._confirmed.created(name)

    def open_ledger(self, ledger: LedgerLike, key: bytes) -> None:
        """Make a ledger known under a key, or check that it is its key.

        Stricter than `set_master_key`: a key of zeros opens no ledger that has another.
        """
        self.set_master_key(ledger, key)
        self.check_master_key(ledger, key)

    def master_key(self, ledger: LedgerLike) -> bytes:
        """Return the ledger's master key; `NoSuchLedger` if it is unknown."""
        return self._known(ledger)[2].master_key

    def check_master_key(self, ledger: LedgerLike, key: bytes | None) -> None:
        """Raise `UnauthorizedAccess` unless `key` is the ledger's."""
        name, _, state = self._known(ledger)
        if key is None or not compare_digest(state.master_key, data("master key", key)):
            raise UnauthorizedAccess(f"ledger {name} has another master key")

    def state(self, ledger: LedgerLike) -> LedgerState:
        """Return master key, fenced, limbo and explicit LAC; `NoSuchLedger` if unknown."""
        return self._known(ledger)[2]

    def fence(self, ledger: LedgerLike) -> bool:
        """Fence the ledger: only recovery adds from now on. Return whether that is new."""
        return self._change(ledger, lambda state: state._replace(fenced=True))

    def is_fenced(self, ledger: LedgerLike) -> bool:
        """Return whether the ledger is fenced; `DataUnknown` in limbo, unless it is."""
        name, _, state = self._known(ledger)
        if state.limbo and not state.fenced:
            raise _unknown(name, "whether it is fenced")
        return state.fenced

    def set_limbo(self, ledger: LedgerLike) -> bool:
        """Put the ledger into limbo: what is not here is unknown. Return whether that is new.

        Db storage only; `UnsupportedLayout` else.
        """
        if self.storage != "db":
            raise UnsupportedLayout(f"{self.storage} storage has no limbo state")
        return self._change(ledger, lambda state: state._replace(limbo=True))

    def clear_limbo(self, ledger: LedgerLike) -> bool:
        """End the limbo; return whether there was one."""
        return self._change(ledger, lambda state: state._replace(limbo=False))

    def _change(self, ledger: LedgerLike, change: Callable[[LedgerState], LedgerState]) -> bool:
        name, path, _ = self._known(ledger)
        with path.lock:
            path.check_writable()
            old = path.states.get(name)
            new = change(old)
            if new != old:
                path.states.set(name, new)
            return new != old

    def set_explicit_lac(self, ledger: LedgerLike, body: bytes) -> None:
        """Keep the body of an explicit LAC (ledger, LAC, digest) as the writer sent it.

        A lower one replaces a higher one; the last add confirmed never goes back. Header version
        0 of index files, an option, has no field for it: it is kept in memory then, until the
        storage is closed.
        """
        body = data("explicit LAC", body)
        name, path, _ = self._known(ledger)
        try:
            said, lac = decode_explicit_lac(body)
        except CorruptionError as error:
            raise InvalidArgument(f"no explicit LAC: {error.reason}") from error
        if said != name:
            raise InvalidArgument(f"explicit LAC of ledger {said}, not {name}")
        with path.lock:
            path.check_writable()
            state = path.states.get(name)
            self._check_room(len(state.master_key), len(body))
            self._confirmed.set_explicitly(name, lac)
            path.states.set(name, state._replace(explicit_lac=body))

    def _check_room(self, key: int, lac: int) -> None:
        """Refuse what no index file's header could take at the next flush."""
        if self.storage != "db" and HEADER_FIELDS + key + lac > HEADER_SIZE:
            raise InvalidArgument(
                f"master key of {key} and explicit LAC of {lac} bytes do not fit the "
                f"{HEADER_SIZE}-byte header of an index file"
            )

    def explicit_lac(self, ledger: LedgerLike) -> bytes | None:
        """Return the body of the explicit LAC, None if there is none; `DataUnknown` in limbo."""
        name, path, state = self._known(ledger)
        if state.limbo:
            raise _unknown(name, "its explicit LAC")
        if state.explicit_lac is not None:
            with path.lock:
                self._confirmed.read_explicitly(name, decode_explicit_lac(state.explicit_lac)[1])
        return state.explicit_lac

    def last_add_confirmed(self, ledger: LedgerLike) -> int:
        """Return the highest entry known to be confirmed, -1 if none is.

        The highest LAC that an entry added here carried, or that was set explicitly; after a
        reopen that of the last entry and of the explicit LAC. `DataUnknown` in limbo.
        """
        name, path, state = self._known(ledger)
        if state.limbo:
            raise _unknown(name, "its last add confirmed")
        with path.lock:
            return self._confirmed.get(name)

    def _stored_lac(self, name: LedgerId) -> StoredLac:
        path = self._path(name)
        body = path.states.get(name).explicit_lac
        last = path.last_entry(name)
        record = None if last is None else path.read(name, last)
        return StoredLac(
            None if record is None else record_header(record).lac,
            None if body is None else decode_explicit_lac(body)[1],
        )

    def _missing(self, name: LedgerId, path: WritePath, entry: int) -> Exception:
        with path.lock:
            state = path.states.find(name)
        if state is None:
            return _no_ledger(name)
        if state.limbo:
            return _unknown(name, f"entry {entry}")
        return NoSuchEntry(f"entry {entry} of ledger {name} is not here")


def _no_ledger(name: LedgerId) -> NoSuchLedger:
    return NoSuchLedger(f"ledger {name} is not known here")


def _unknown(name: LedgerId, what: str) -> DataUnknown:
    return DataUnknown(f"ledger {name} is in limbo: {what} is not known here")
