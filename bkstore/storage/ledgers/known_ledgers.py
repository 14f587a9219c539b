"""KnownLedgers: the ledgers of a storage, their entry ids and states, flushed or not.

BookKeeper's counterparts are the parts of `LedgerStorage` that touch no record: `LedgerCache`,
`LedgerMetadataIndex` and the entry lists, which BookKeeper's db storage does not have. A ledger in
limbo may have lost entries: whether an absent one existed is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hmac import compare_digest

from bkstore import forks
from bkstore.arguments import bytes_like
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
from bkstore.formats.idxfile import HEADER_FIELD_BYTES, HEADER_SIZE
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import EntrySource, LedgerLike, LedgerState
from bkstore.index.bulk_listing import LedgerErrors, list_from_parts
from bkstore.storage.ledgers.last_add_confirmed import ForgetfulLacTracker, LacTracker
from bkstore.storage.ledgers.write_paths.api import WritePath
from bkstore.storage.options import StorageKind, StorageOptions


class KnownLedgers(EntrySource):
    """The ledgers of one bookie, with their entry ids and states: the base of `LedgerAdds` and
    `LedgerStorage`. Threads: all calls may run concurrently."""

    def __init__(
        self, storage: StorageKind, write_paths: Sequence[WritePath], options: StorageOptions
    ) -> None:
        self.storage, self.options = storage, options
        self.write_paths = list(write_paths)
        readers = (self._read_last_entry_lac, self._read_explicit_lac)
        self._lac_tracker = LacTracker(*readers)
        if options.compat is not None:  # BookKeeper's storages forget LACs that this one keeps
            self._lac_tracker = ForgetfulLacTracker(*readers, is_db=storage == "db")
        self._max_entry_id = options.max_entry_id(storage)
        self._closed = False

    def _path_of(self, ledger_id: LedgerId) -> WritePath:
        """Return the write path of a ledger: the directory `L mod n` of db storage."""
        self._check_open()
        return self.write_paths[ledger_id.ledger % len(self.write_paths)]

    def _check_open(self) -> None:
        if self._closed:
            raise forks.closed_error("this ledger storage")

    def _require_known(self, ledger: LedgerLike) -> tuple[LedgerId, WritePath, LedgerState]:
        """Return (ledger id, write path, state); raise `NoSuchLedger` if it is unknown."""
        ledger_id = LedgerId.of(ledger)
        path = self._path_of(ledger_id)
        with path.lock:
            return ledger_id, path, path.states.get(ledger_id)

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the known ledgers in unsigned order, unflushed ones too: of one `scope` (the upper
        half of an id), or all if it is None."""
        self._check_open()
        ledger_ids: list[LedgerId] = []
        for path in self.write_paths:
            with path.lock:
                ledger_ids += path.states.ledgers(scope)
        return sorted(ledger_ids)

    def ledger_exists(self, ledger: LedgerLike) -> bool:
        """Return whether the ledger is known."""
        ledger_id = LedgerId.of(ledger)
        return self._path_of(ledger_id).has_ledger(ledger_id)

    def source(self, ledger: LedgerLike) -> EntrySource:
        """Return the source of the ledger's entry ids: unflushed entries over the index."""
        return self._path_of(LedgerId.of(ledger)).source

    def entries(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> Int64Array:
        """Return the ledger's entry ids, int64[n], unflushed ones too; none for an unknown ledger.
        Opens no entry log. (In BookKeeper: `getListOfEntriesOfLedger`, missing in db storage.)"""
        return self.source(ledger).entries(ledger, first, last)

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return the ledger's entries, condensed, unflushed ones too. Opens no entry log."""
        return self.source(ledger).availability(ledger)

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: LedgerErrors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        """Return (ledger, `availability`) of many ledgers (None: all), unflushed entries too. With
        `errors`, the error of a ledger is stored there instead of raised."""
        self._check_open()
        sources = [path.source for path in self.write_paths]

        def source_index(ledger_id: LedgerId) -> int:
            return ledger_id.ledger % len(sources)

        ledger_ids = self._ledgers_to_list(ledgers)
        return list_from_parts(sources, source_index, ledger_ids, errors)

    def last_entry(self, ledger: LedgerLike) -> int | None:
        """Return the highest entry id, None if there is none; raise `DataUnknown` if the ledger is
        in limbo, as it may have lost entries."""
        ledger_id = LedgerId.of(ledger)
        path = self._path_of(ledger_id)
        if not path.has_ledger(ledger_id):
            raise _no_such_ledger(ledger_id)
        with path.lock:
            state = path.states.find(ledger_id)
        if state is not None and state.limbo:
            raise _limbo_error(ledger_id, "its last entry")
        return path.last_entry(ledger_id)

    # -- state

    def set_master_key(self, ledger: LedgerLike, key: bytes) -> None:
        """Create a ledger, or check the key of a known one; `UnauthorizedAccess` if they differ. An
        empty or all-zero stored key is replaced, as in `LedgerMetadataIndex`. Raises
        `InvalidArgument` if the key does not fit the header of an index file."""
        ledger_id, key = LedgerId.of(ledger), bytes_like("master key", key)
        path = self._path_of(ledger_id)
        self._check_header_fits(len(key), lac_size=0)
        with path.lock:
            path.check_writable()
            if path.states.set_master_key(ledger_id, key):
                self._lac_tracker.note_created(ledger_id)

    def open_ledger(self, ledger: LedgerLike, key: bytes) -> None:
        """Create a ledger with a key, or check that a known ledger has this key. Stricter than
        `set_master_key`: an all-zero key does not open a ledger with another key."""
        self.set_master_key(ledger, key)
        self.check_master_key(ledger, key)

    def master_key(self, ledger: LedgerLike) -> bytes:
        """Return the ledger's master key; `NoSuchLedger` if it is unknown."""
        return self._require_known(ledger)[2].master_key

    def check_master_key(self, ledger: LedgerLike, key: bytes | None) -> None:
        """Raise `UnauthorizedAccess` unless `key` is the ledger's master key."""
        ledger_id, _, state = self._require_known(ledger)
        if key is None or not compare_digest(state.master_key, bytes_like("master key", key)):
            raise UnauthorizedAccess(f"ledger {ledger_id} has another master key")

    def state(self, ledger: LedgerLike) -> LedgerState:
        """Return master key, fenced, limbo and explicit LAC; `NoSuchLedger` if unknown."""
        return self._require_known(ledger)[2]

    def fence(self, ledger: LedgerLike) -> bool:
        """Fence the ledger: only recovery may add from now on. Return whether this changed it."""
        return self._change_state(ledger, fenced=True)

    def is_fenced(self, ledger: LedgerLike) -> bool:
        """Return whether the ledger is fenced; raise `DataUnknown` if in limbo and not fenced."""
        ledger_id, _, state = self._require_known(ledger)
        if state.limbo and not state.fenced:
            raise _limbo_error(ledger_id, "whether it is fenced")
        return state.fenced

    def set_limbo(self, ledger: LedgerLike) -> bool:
        """Put the ledger into limbo: absent entries become unknown. Return whether this changed it.
        Raises `UnsupportedLayout` unless this is db storage."""
        if self.storage != "db":
            raise UnsupportedLayout(f"{self.storage} storage has no limbo state")
        return self._change_state(ledger, limbo=True)

    def clear_limbo(self, ledger: LedgerLike) -> bool:
        """Take the ledger out of limbo; return whether it was in limbo."""
        return self._change_state(ledger, limbo=False)

    def _change_state(self, ledger: LedgerLike, **fields: bool) -> bool:
        """Change fields of the ledger's state; return whether the state differs now."""
        ledger_id, path, _ = self._require_known(ledger)
        with path.lock:
            path.check_writable()
            old_state = path.states.get(ledger_id)
            new_state = old_state._replace(**fields)  # type: ignore[arg-type]
            if new_state != old_state:
                path.states.set(ledger_id, new_state)
            return new_state != old_state

    def set_explicit_lac(self, ledger: LedgerLike, body: bytes) -> None:
        """Store the body of an explicit LAC (ledger, LAC, digest) as the writer sent it.

        A lower LAC replaces a higher one, but `last_add_confirmed` never decreases. Index files of
        header version 0 (an option) have no field for it: it is lost when the storage is closed.
        """
        body = bytes_like("explicit LAC", body)
        ledger_id, path, _ = self._require_known(ledger)
        try:
            body_ledger_id, lac = decode_explicit_lac(body)
        except CorruptionError as error:
            raise InvalidArgument(f"not an explicit LAC: {error.reason}") from error
        if body_ledger_id != ledger_id:
            raise InvalidArgument(f"explicit LAC of ledger {body_ledger_id}, not {ledger_id}")
        with path.lock:
            path.check_writable()
            state = path.states.get(ledger_id)
            self._check_header_fits(len(state.master_key), len(body))
            self._lac_tracker.note_explicit_set(ledger_id, lac)
            path.states.set(ledger_id, state._replace(explicit_lac=body))

    def _check_header_fits(self, key_size: int, lac_size: int) -> None:
        """Raise `InvalidArgument` if key and explicit LAC do not fit an index file's header."""
        if self.storage != "db" and HEADER_FIELD_BYTES + key_size + lac_size > HEADER_SIZE:
            raise InvalidArgument(
                f"master key of {key_size} and explicit LAC of {lac_size} bytes do not fit the "
                f"{HEADER_SIZE}-byte header of an index file"
            )

    def explicit_lac(self, ledger: LedgerLike) -> bytes | None:
        """Return the body of the explicit LAC, or None; raise `DataUnknown` if the ledger is in
        limbo, as its state may be lost."""
        ledger_id, path, state = self._require_known(ledger)
        if state.limbo:
            raise _limbo_error(ledger_id, "its explicit LAC")
        if state.explicit_lac is not None:
            _, lac = decode_explicit_lac(state.explicit_lac)
            with path.lock:
                self._lac_tracker.note_explicit_read(ledger_id, lac)
        return state.explicit_lac

    def last_add_confirmed(self, ledger: LedgerLike) -> int:
        """Return the highest LAC of an added entry or explicit LAC, -1 if none is known. After a
        reopen only the last entry's and the explicit one are. Raises `DataUnknown` if the ledger is
        in limbo, as it may have lost entries."""
        ledger_id, path, state = self._require_known(ledger)
        if state.limbo:
            raise _limbo_error(ledger_id, "its last add confirmed")
        with path.lock:
            return self._lac_tracker.get(ledger_id)

    def _read_last_entry_lac(self, ledger_id: LedgerId) -> int | None:
        """Return the LAC field of the ledger's last entry, None if it has no entry."""
        path = self._path_of(ledger_id)
        last_entry = path.last_entry(ledger_id)
        record = None if last_entry is None else path.read(ledger_id, last_entry)
        return None if record is None else record_header(record).lac

    def _read_explicit_lac(self, ledger_id: LedgerId) -> int | None:
        """Return the ledger's stored explicit LAC, None if there is none."""
        body = self._path_of(ledger_id).states.get(ledger_id).explicit_lac
        return None if body is None else decode_explicit_lac(body)[1]

    def _missing_error(self, ledger_id: LedgerId, path: WritePath, entry_id: int) -> Exception:
        """Return the error for an absent entry: `NoSuchLedger`; `DataUnknown` if the ledger is in
        limbo, as it may have lost the entry; else `NoSuchEntry`."""
        with path.lock:
            state = path.states.find(ledger_id)
        if state is None:
            return _no_such_ledger(ledger_id)
        if state.limbo:
            return _limbo_error(ledger_id, f"entry {entry_id}")
        return NoSuchEntry(f"entry {entry_id} of ledger {ledger_id} is not here")


def _no_such_ledger(ledger_id: LedgerId) -> NoSuchLedger:
    return NoSuchLedger(f"ledger {ledger_id} is not on this bookie")


def _limbo_error(ledger_id: LedgerId, unknown_fact: str) -> DataUnknown:
    return DataUnknown(f"ledger {ledger_id} is in limbo: {unknown_fact} is unknown")
