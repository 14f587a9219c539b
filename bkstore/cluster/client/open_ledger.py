"""LedgerAccess: one ledger as a client has it open: its metadata, its keys, its bookies.

What reading, writing and recovery of a ledger have in common: asking bookies, and changing
metadata by compare-and-set. Source: `client/LedgerHandle`, `client/MetadataUpdateLoop`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Literal, TypeVar

from bkstore import forks
from bkstore.arguments import check_compat, check_fields, truth, whole
from bkstore.cluster.client.bookie_answers import Answer, Doubting, ask, verdict
from bkstore.cluster.client.bookie_client import BookieClient
from bkstore.cluster.client.workers import Workers
from bkstore.cluster.placement.policies import DefaultPlacement, PlacementPolicy
from bkstore.cluster.store.api import MetadataStore, Versioned
from bkstore.errors import BadVersion, BkstoreError, CorruptionError, InvalidArgument
from bkstore.formats.entry import (
    Coder,
    Entry,
    decode_explicit_lac,
    encode_explicit_lac,
    master_key,
)
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.schedule import write_set
from bkstore.storage.batch_limits import DEFAULT_MAX_SIZE

_A = TypeVar("_A")
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """Settings of a client, with upstream's defaults (`ClientConfiguration`).

    `batch_reads` is `batchReadEnabled`; `max_frame` is `nettyMaxFrameSizeBytes`: no record and
    no batch is larger. With `delay_ensemble_change` a bookie that fails is replaced only where
    fewer than A others took the entry (`delayEnsembleChange`). A writer over a network has about
    `window` entries under way at most. ``compat="bookkeeper"`` brings the oddities that
    `docs/parity.md` lists.
    """

    batch_reads: bool = True
    max_frame: int = DEFAULT_MAX_SIZE
    delay_ensemble_change: bool = False
    window: int = 1024
    compat: Literal["bookkeeper"] | None = None

    def __post_init__(self) -> None:
        check_fields(self, _CHECKS)


_CHECKS = {
    "batch_reads": truth,
    "max_frame": whole(1, 2**31 - 1),
    "delay_ensemble_change": truth,
    "window": whole(1, 1 << 20),
    "compat": check_compat,
}


@dataclass(frozen=True)
class ClientContext:
    """What all ledgers of one client share: metadata store, bookies by id, policy, settings.

    With `workers` several bookies are asked at the same time, without them one after another.
    `writable` tells which bookies may take ledgers of a scope, where the store tells less.
    """

    store: MetadataStore
    bookies: Mapping[str, BookieClient]
    placement: PlacementPolicy = field(default_factory=DefaultPlacement)
    options: ClientOptions = ClientOptions()
    workers: Workers | None = None
    writable: Callable[[int], frozenset[str]] | None = None

    def writable_bookies(self, scope: int = 0) -> frozenset[str]:
        """Return who takes new ledgers; all that are known where the store does not tell."""
        if self.writable is not None:
            return self.writable(scope)
        writable = self.store.writable_bookies()
        return frozenset(self.bookies) if writable is None else writable


class LedgerAccess:
    """A ledger that a client has open.

    `coder` makes and verifies its entries, `key` is its master key. Threads: safe; metadata
    only ever gets newer.
    """

    def __init__(
        self,
        context: ClientContext,
        versioned: Versioned,
        password: bytes,
        digest_type: str | None = None,
    ) -> None:
        """Take metadata, and the digest type where the metadata tell none."""
        metadata = versioned.metadata
        self.context = context
        self.ledger: LedgerId = metadata.ledger
        digest = metadata.digest_type or digest_type
        if digest is None:
            raise InvalidArgument(f"no digest type is known of ledger {metadata.ledger}")
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

    def _saw(self, fresh: Versioned) -> Versioned:
        # An older one that another thread read must not bring back an ensemble that was replaced.
        with self._lock:
            if fresh.version > self._versioned.version:
                self._versioned = fresh
            return self._versioned

    def refresh(self) -> LedgerMetadata:
        """Read the metadata again and return it; `NoSuchLedger` if the ledger was deleted."""
        return self._saw(self.context.store.read(self.ledger)).metadata

    def update(self, change: Callable[[LedgerMetadata], LedgerMetadata | None]) -> LedgerMetadata:
        """Change the metadata by compare-and-set; return what is in the store then.

        `change` gets the newest metadata, again each time another was faster. It returns the
        new one, None if there is nothing to change, or raises.
        """
        versioned = self._versioned
        while True:
            new = change(versioned.metadata)
            if new is None:
                return versioned.metadata
            try:
                version = self.context.store.write(new, versioned.version)
            except BadVersion:
                versioned = self._saw(self.context.store.read(self.ledger))
                continue
            return self._saw(Versioned(new, version)).metadata

    # -- bookies

    def ask(self, bookie: str, work: Callable[[BookieClient], _T]) -> Answer[_T]:
        """Return one bookie's answer."""
        return ask(self.context.bookies, bookie, work)

    def ask_each(
        self, questions: Iterable[tuple[str, Callable[[BookieClient], _T]]]
    ) -> Iterator[Answer[_T]]:
        """Yield the answers of several bookies in order: one asked after another as they are
        taken, or all at once where the client has workers."""
        return self.each(lambda question: self.ask(*question), questions)

    def each(self, work: Callable[[_A], _T], items: Iterable[_A]) -> Iterator[_T]:
        """Yield what `work` returns of each item, in order: one after another as they are taken,
        or all begun at once where the client has workers."""
        if self.context.workers is None:
            return map(work, items)
        return self.context.workers.each(work, items)

    def replicas(self, entry: int, ensemble: Sequence[str]) -> list[str]:
        """Return the bookies of an ensemble that have to have an entry, in order."""
        quorum = self.metadata.write_quorum_size
        return [ensemble[index] for index in write_set(entry, len(ensemble), quorum)]

    def read_from(self, bookie: str, entry: int, *, fence: bool = False) -> Answer[Entry]:
        """Return a verified entry from one bookie."""
        key = self.key if fence else None

        def read(client: BookieClient) -> Entry:
            record = client.read_entry(self.ledger, entry, fence=fence, master_key=key)
            return self.verified(record, entry)

        return self.ask(bookie, read)

    def verified(self, record: bytes | memoryview, entry: int | None = None) -> Entry:
        """Return the entry in a record; `CorruptionError` unless digest and ids fit."""
        return self.coder.decode(record, self.ledger, entry)

    def explicit_lac_body(self, lac: int) -> bytes:
        """Return the body of an explicit LAC."""
        return encode_explicit_lac(self.ledger, lac, self.coder.digest.number, self._password)

    def lac_in(self, body: bytes) -> int:
        """Return the LAC that a body says; `CorruptionError` unless digest and ledger fit."""
        ledger, lac = decode_explicit_lac(body, self.coder.digest.number, self._password)
        if ledger != self.ledger:
            raise CorruptionError(None, 0, f"explicit LAC of ledger {ledger}, not {self.ledger}")
        return lac

    def with_replicas(self, entry: int, work: Callable[[list[str]], _T]) -> _T:
        """Return what `work` makes of the replicas of an entry.

        Where it fails the metadata is read again: the writer, or a re-replication, may have
        changed the ensemble since; or one of them may have come back at another address. Then
        `work` has a second try.
        """
        replicas = self.replicas(entry, self.metadata.ensemble_at(entry))
        try:
            return work(replicas)
        except BkstoreError:
            now = self.replicas(entry, self.refresh().ensemble_at(entry))
            bookies = self.context.bookies
            if now == replicas and not (isinstance(bookies, Doubting) and bookies.moved(now)):
                raise
        return work(now)

    def read(self, entry: int, *, fence: bool = False) -> Entry:
        """Return a verified entry from the first replica that has it, in write set order.

        Raises what `bkstore.cluster.client.bookie_answers.verdict` makes of the answers.
        """

        def first(replicas: list[str]) -> Entry:
            answers = []
            for bookie in replicas:
                answer = self.read_from(bookie, entry, fence=fence)
                if answer.value is not None:
                    return answer.value
                answers.append(answer)
            raise verdict(f"entry {entry} of ledger {self.ledger}", answers)

        return self.with_replicas(entry, first)

    def length_at(self, entry: int, seen: Sequence[Entry] = ()) -> int:
        """Return the payload bytes up to and including an entry; 0 for entry -1.

        From `seen` entries if they tell: the entry itself, or the one behind it.
        """
        if entry < 0:
            return 0
        for found in seen:
            if found.entry_id == entry:
                return found.length
            if found.entry_id == entry + 1:
                return found.length - len(found.payload)
        return self.read(entry).length


def check_record_size(size: int, limit: int) -> None:
    """Raise `InvalidArgument` for a record that no frame takes."""
    if size > limit:
        raise InvalidArgument(f"record of {size} bytes, a frame takes {limit}")
