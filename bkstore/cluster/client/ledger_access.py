"""LedgerAccess: one open ledger of a client: its metadata, its keys, its bookies.

Shared by reading, writing and recovery. A scope is the upper 64 bits of a 128-bit ledger id;
BookKeeper's ledgers are in scope 0. Source: `client/LedgerHandle`, `client/MetadataUpdateLoop`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TypeVar

from bkstore import forks
from bkstore.cluster.client.bookie_answers import (
    AddressRefresher,
    BookieAnswer,
    call_bookie,
    combine_errors,
)
from bkstore.cluster.client.bookie_client import BookieClient
from bkstore.cluster.client.options import ClientOptions
from bkstore.cluster.client.workers import Workers
from bkstore.cluster.placement.policies import DefaultPlacement, PlacementPolicy
from bkstore.cluster.store.api import MetadataStore, Versioned
from bkstore.errors import BadVersion, BkstoreError, CorruptionError, InvalidArgument
from bkstore.formats.entry import Coder, Entry, decode_explicit_lac, encode_explicit_lac, master_key
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.schedule import write_set

_A = TypeVar("_A")
_T = TypeVar("_T")


@dataclass(frozen=True)
class ClientContext:
    """Shared by all ledgers of one client: metadata store, bookies by id, policy, settings.

    With `workers` several bookies are asked at the same time. `list_writable`, if given, returns
    the bookies that may take ledgers of a scope, in place of the store's registrations.
    """

    store: MetadataStore
    bookies: Mapping[str, BookieClient]
    placement: PlacementPolicy = field(default_factory=DefaultPlacement)
    options: ClientOptions = field(default_factory=ClientOptions)
    workers: Workers | None = None
    list_writable: Callable[[int], frozenset[str]] | None = None

    def writable_bookies(self, scope: int = 0) -> frozenset[str]:
        """Return the bookies that take new ledgers: all of `bookies` if the store has no list."""
        if self.list_writable is not None:
            return self.list_writable(scope)
        writable = self.store.writable_bookies()
        return frozenset(self.bookies) if writable is None else writable


class LedgerAccess:
    """A ledger that a client has open. Thread-safe; never goes back to older metadata.

    `coder` encodes and verifies entries (by `digest_type` if the metadata have none) with `key`.
    """

    def __init__(
        self,
        context: ClientContext,
        versioned: Versioned,
        password: bytes,
        digest_type: str | None = None,
    ) -> None:
        """Take the metadata as read; `digest_type` is for those that do not state it."""
        metadata = versioned.metadata
        self.context = context
        self.ledger: LedgerId = metadata.ledger
        digest = metadata.digest_type or digest_type
        if digest is None:
            raise InvalidArgument(f"ledger {metadata.ledger}: the digest type is unknown; pass it")
        self.coder = Coder(digest, password)
        self.key = master_key(password)
        self._password = password
        self._versioned = versioned
        self._lock = Lock()
        forks.register(self)

    def _forked(self) -> None:
        self._lock = Lock()

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as this client last saw it."""
        return self._versioned.metadata

    def _keep_newer(self, fresh: Versioned) -> Versioned:
        # A version that another thread read must not bring back a replaced ensemble.
        with self._lock:
            if fresh.version > self._versioned.version:
                self._versioned = fresh
            return self._versioned

    def refresh(self) -> LedgerMetadata:
        """Read the metadata again and return it; raises `NoSuchLedger` if it was deleted."""
        return self._keep_newer(self.context.store.read(self.ledger)).metadata

    def update(self, change: Callable[[LedgerMetadata], LedgerMetadata | None]) -> LedgerMetadata:
        """Change the metadata by compare-and-set; return what is in the store after that. `change`
        is called with the newest metadata, and again after each lost race; it returns the new
        metadata, None if there is nothing to change, or raises."""
        versioned = self._versioned
        while True:
            new_metadata = change(versioned.metadata)
            if new_metadata is None:
                return versioned.metadata
            try:
                version = self.context.store.write(new_metadata, versioned.version)
            except BadVersion:
                versioned = self._keep_newer(self.context.store.read(self.ledger))
                continue
            return self._keep_newer(Versioned(new_metadata, version)).metadata

    # -- bookies

    def call_bookie(self, bookie: str, request: Callable[[BookieClient], _T]) -> BookieAnswer[_T]:
        """Call `request` with one bookie's client; return its result or error."""
        return call_bookie(self.context.bookies, bookie, request)

    def call_bookies(
        self, requests: Iterable[tuple[str, Callable[[BookieClient], _T]]]
    ) -> Iterator[BookieAnswer[_T]]:
        """Yield the answers of several bookies in order. With workers all are asked at once,
        otherwise one after another as the answers are consumed."""
        return self.map(lambda question: self.call_bookie(*question), requests)

    def map(self, function: Callable[[_A], _T], items: Iterable[_A]) -> Iterator[_T]:
        """Yield the result of `function` for each item, in order. With workers all calls start at
        once, otherwise one after another as the results are consumed."""
        if self.context.workers is None:
            return map(function, items)
        return self.context.workers.map(function, items)

    def write_set_of(self, entry_id: int, ensemble: Sequence[str]) -> list[str]:
        """Return the write set of an entry: the bookies of the ensemble that store it, in order."""
        quorum = self.metadata.write_quorum_size
        return [ensemble[index] for index in write_set(entry_id, len(ensemble), quorum)]

    def read_from(self, bookie: str, entry_id: int, *, fence: bool = False) -> BookieAnswer[Entry]:
        """Read an entry from one bookie and verify it."""
        key = self.key if fence else None

        def read(client: BookieClient) -> Entry:
            record = client.read_entry(self.ledger, entry_id, fence=fence, master_key=key)
            return self.verify_record(record, entry_id)

        return self.call_bookie(bookie, read)

    def verify_record(self, record: bytes | memoryview, entry_id: int | None = None) -> Entry:
        """Return the entry in a record; raises `CorruptionError` if digest or ids do not match."""
        return self.coder.decode(record, self.ledger, entry_id)

    def encode_lac(self, lac: int) -> bytes:
        """Return the body of an explicit LAC."""
        return encode_explicit_lac(self.ledger, lac, self.coder.digest.number, self._password)

    def decode_lac(self, body: bytes) -> int:
        """Return the LAC in an explicit LAC's body; raises `CorruptionError` if it is damaged."""
        ledger, lac = decode_explicit_lac(body, self.coder.digest.number, self._password)
        if ledger != self.ledger:
            raise CorruptionError(None, 0, f"explicit LAC of ledger {ledger}, not {self.ledger}")
        return lac

    def call_with_replicas(self, entry_id: int, function: Callable[[list[str]], _T]) -> _T:
        """Call `function` with the bookies that store an entry and return its result. If it fails,
        read the metadata again, and call it once more if other bookies store the entry now (the
        writer or a re-replication has changed the ensemble) or a bookie has a new address."""
        replicas = self.write_set_of(entry_id, self.metadata.ensemble_at(entry_id))
        try:
            return function(replicas)
        except BkstoreError:
            new_replicas = self.write_set_of(entry_id, self.refresh().ensemble_at(entry_id))
            bookies = self.context.bookies
            if new_replicas == replicas and not (
                isinstance(bookies, AddressRefresher) and bookies.refresh_addresses(new_replicas)
            ):
                raise
        return function(new_replicas)

    def read(self, entry_id: int, *, fence: bool = False) -> Entry:
        """Return a verified entry from the first replica that has it, in write set order. Raises
        the error that `bookie_answers.combine_errors` returns."""

        def read_from_first(replicas: list[str]) -> Entry:
            """Return the entry of the first replica with it; raises with all answers otherwise."""
            answers = []
            for bookie in replicas:
                answer = self.read_from(bookie, entry_id, fence=fence)
                if answer.value is not None:
                    return answer.value
                answers.append(answer)
            raise combine_errors(f"entry {entry_id} of ledger {self.ledger}", answers)

        return self.call_with_replicas(entry_id, read_from_first)

    def read_length(self, entry_id: int, known_entries: Sequence[Entry] = ()) -> int:
        """Return the payload bytes up to and including an entry; 0 for entry -1. Taken from
        `known_entries` if the entry itself or the next one is among them, else read."""
        if entry_id < 0:
            return 0
        for entry in known_entries:
            if entry.entry_id == entry_id:
                return entry.length
            if entry.entry_id == entry_id + 1:
                return entry.length - len(entry.payload)
        return self.read(entry_id).length
