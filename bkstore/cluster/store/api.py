"""The protocols of metadata stores, and of the versioned values that they are built on.

`key_value_store.KeyValueStore` implements `MetadataStore`, which clusters, clients and the auditor
use, on any `KeyValues`: five calls over versioned values, as etcd and ZooKeeper have them. A scope
is the upper 64 bits of a 128-bit ledger id; BookKeeper's ledgers are in scope 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from bkstore.arguments import interface
from bkstore.errors import CorruptionError
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata

check_store = interface("MetadataStore", "read", "ledgers")
"""``check_store("store", store)`` raises unless the argument is a `MetadataStore`."""

Watcher = Callable[[LedgerId], None]
"""Called with the ledger whose metadata or mark has changed."""

_T = TypeVar("_T")

ValuesOrErrors = Iterator[tuple[LedgerId, _T | CorruptionError]]
"""Ledgers, each with a value of the store, or the error of a value that cannot be read."""


class Versioned(NamedTuple):
    """Metadata and its version in the store. Compare both to find out whether a ledger has changed:
    if it is deleted and created again, its version starts from 0 again."""

    metadata: LedgerMetadata
    version: int


@runtime_checkable
class MetadataStore(Protocol):
    """Ledger metadata over (scope, ledger), bookies and underreplicated marks. Thread-safe.

    Ledgers are ints (scope 0) or `LedgerId`. All calls may raise `CorruptionError` for values that
    cannot be read, changes `ReadOnlyError`.
    """

    def create(self, metadata: LedgerMetadata) -> int:
        """Add a ledger and return its version, 0; raises `LedgerExists` if it exists."""

    def read(self, ledger: int | LedgerId) -> Versioned:
        """Return metadata and version; raises `NoSuchLedger` if the ledger is not there."""

    def read_many(self, ledgers: Iterable[int | LedgerId]) -> ValuesOrErrors[Versioned]:
        """Yield (ledger, metadata and version, or an error) of those that are there, in order."""

    def write(self, metadata: LedgerMetadata, version: int) -> int:
        """Replace the metadata and return the new version; raises `NoSuchLedger`, or `BadVersion`
        if the stored version is not `version`."""

    def delete(self, ledger: int | LedgerId, version: int | None = None) -> None:
        """Remove a ledger at a version (None = any); raises as `write`."""

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the ledgers of a scope (None = all) in unsigned order. O(n log n)."""

    def next_id(self, scope: int = 0) -> LedgerId:
        """Return the next unused id of the scope's counter; never returns an id twice."""

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` after each change made through this object; returns a call to end it."""

    def registered_bookies(self) -> frozenset[str] | None:
        """Return the registered bookies; None = the store has no such information."""

    def writable_bookies(self) -> frozenset[str] | None:
        """Return the registered bookies that are not read only; None = no such information."""

    def unavailable_bookies(self) -> frozenset[str] | None:
        """Return the bookies known to be unavailable; None = no such information."""

    def underreplicated(self) -> Mapping[LedgerId, UnderreplicatedMark] | None:
        """Return all underreplicated marks; None = no such information."""

    def marked(self) -> frozenset[LedgerId] | None:
        """Return the ledgers that have a mark, without reading it; None as `underreplicated`."""

    def marks_of(self, ledgers: Iterable[int | LedgerId]) -> ValuesOrErrors[UnderreplicatedMark]:
        """Yield (ledger, mark) of those that have one, in order, or an error for a damaged mark."""

    def mark_of(self, ledger: int | LedgerId) -> UnderreplicatedMark | None:
        """Return the mark of one ledger; None if it has none, or the store has no marks."""

    def register_bookie(self, bookie: str) -> None:
        """Register a bookie."""

    def unregister_bookie(self, bookie: str) -> None:
        """Unregister a bookie, if it is registered."""

    def set_unavailable(self, bookie: str, unavailable: bool = True) -> None:
        """Record that a bookie is known to be unavailable, or no longer."""

    def mark_underreplicated(self, ledger: int | LedgerId, mark: UnderreplicatedMark) -> None:
        """Set a ledger's mark, replacing an older one."""

    def clear_mark(self, ledger: int | LedgerId) -> None:
        """Remove a ledger's mark, if it has one."""

    def checked_at(self) -> float | None:
        """Return when the last replicas check ended (unix seconds), None if none has."""

    def set_checked_at(self, seconds: float) -> None:
        """Store when a replicas check ended, in milliseconds as BookKeeper does."""


class Value(NamedTuple):
    """A value, its version, and its location: the file and the offset of `data` in it. `ctime` is
    when it was created, in milliseconds; -1 if the store does not record it."""

    data: bytes
    version: int
    file: str | None = None
    data_offset: int = 0
    ctime: int = -1


@runtime_checkable
class KeyValues(Protocol):
    """Versioned values under keys, which are ASCII paths beginning with a slash. Versions start
    from 0 and grow by one with each `put`. Thread-safe."""

    def get(self, key: str) -> Value | None:
        """Return the value of a key, None if there is none."""

    def put(self, key: str, data: bytes, expected: int | None) -> int:
        """Write a value and return its version; `expected` None = the key must be absent. Atomic:
        raises `BadVersion`, and writes nothing, if the stored version differs."""

    def delete(self, key: str, expected: int | None) -> bool:
        """Remove a key (`expected` None = any version); return whether it was there. Raises
        `BadVersion`, and removes nothing, if the stored version differs."""

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with `prefix`, sorted."""

    def location_of(self, key: str) -> str:
        """Return the key's location for messages: its file, if any, or the key."""
