"""What a metadata store offers, and what it needs below it: two protocols.

`MetadataStore` is what clusters, clients and the auditor work with. `KeyValues` is all that
`key_value_store.KeyValueStore` needs to be one: five calls over versioned values, as etcd
and ZooKeeper have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from bkstore.arguments import interface
from bkstore.errors import CorruptionError
from bkstore.formats.metadata.serialized import Mark
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata

check_store = interface("MetadataStore", "read", "ledgers")
"""``check_store("store", store)``: for whatever takes a `MetadataStore`."""

Watcher = Callable[[LedgerId], None]
"""Called with the ledger whose metadata or mark was changed."""


class Versioned(NamedTuple):
    """Metadata and its version in the store.

    Compare both parts to tell whether a ledger has changed: the version of a ledger that was
    deleted and created again starts from 0 again.
    """

    metadata: LedgerMetadata
    version: int


@runtime_checkable
class MetadataStore(Protocol):
    """Ledger metadata over (scope, ledger), bookies and underreplicated marks.

    Ledgers are ints (scope 0) or `LedgerId`. Safe between threads. Calls raise
    `CorruptionError` for values that cannot be read, `ReadOnlyError` for changes where there
    can be none, and otherwise what each says.
    """

    def create(self, metadata: LedgerMetadata) -> int:
        """Add a ledger and return its version, 0; `LedgerExists` if it is there."""
        ...

    def read(self, ledger: int | LedgerId) -> Versioned:
        """Return metadata and version; `NoSuchLedger` if it is not there."""
        ...

    def read_many(
        self, ledgers: Iterable[int | LedgerId]
    ) -> Iterator[tuple[LedgerId, Versioned | CorruptionError]]:
        """Yield (ledger, metadata and version) in order; damage is there as its error.

        Ledgers that are not there are left out.
        """
        ...

    def write(self, metadata: LedgerMetadata, version: int) -> int:
        """Replace the metadata and return the new version.

        `BadVersion` if its version is not `version`, `NoSuchLedger` if it is not there.
        """
        ...

    def delete(self, ledger: int | LedgerId, version: int | None = None) -> None:
        """Remove a ledger; `BadVersion` and `NoSuchLedger` as `write`; None = any version."""
        ...

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the ledgers of a scope (None = all) in unsigned order. O(n log n)."""
        ...

    def next_id(self, scope: int = 0) -> LedgerId:
        """Return the next id of the scope's counter that no ledger has; each is given once."""
        ...

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Have `watcher` called after each change made through this object; call to end it."""
        ...

    def registered_bookies(self) -> frozenset[str] | None:
        """Return the bookies that are registered; None = the store does not tell."""
        ...

    def writable_bookies(self) -> frozenset[str] | None:
        """Return the registered bookies that are not read only; None = the store does not tell."""
        ...

    def unavailable_bookies(self) -> frozenset[str] | None:
        """Return the bookies known to be unavailable; None = the store does not tell."""
        ...

    def underreplicated(self) -> Mapping[LedgerId, Mark] | None:
        """Return all underreplicated marks; None = the store does not tell."""
        ...

    def marked(self) -> frozenset[LedgerId] | None:
        """Return the ledgers that have a mark, none of which is read; None as `underreplicated`."""
        ...

    def marks_of(
        self, ledgers: Iterable[int | LedgerId]
    ) -> Iterator[tuple[LedgerId, Mark | CorruptionError]]:
        """Yield (ledger, mark) of those that have one, in order; damage is there as its error."""
        ...

    def mark_of(self, ledger: int | LedgerId) -> Mark | None:
        """Return the mark of one ledger; None if it has none, or the store does not tell."""
        ...

    def register_bookie(self, bookie: str) -> None:
        """Add a bookie to the registered ones."""
        ...

    def unregister_bookie(self, bookie: str) -> None:
        """Take a bookie from the registered ones, if it is there."""
        ...

    def set_unavailable(self, bookie: str, unavailable: bool = True) -> None:
        """Say that a bookie is known to be unavailable, or no longer."""
        ...

    def mark_underreplicated(self, ledger: int | LedgerId, mark: Mark) -> None:
        """Set a ledger's mark, over an older one."""
        ...

    def clear_mark(self, ledger: int | LedgerId) -> None:
        """Remove a ledger's mark, if it has one."""
        ...

    def checked_at(self) -> float | None:
        """Return when the last replicas check ended (unix seconds), None if none has."""
        ...

    def set_checked_at(self, seconds: float) -> None:
        """Keep when a replicas check ended, in milliseconds as upstream does."""
        ...


class Value(NamedTuple):
    """A value, its version, and where it lies: the file and the offset of `data` in it.

    `ctime` is when the value was first made, in milliseconds; -1 where the store does not keep it.
    """

    data: bytes
    version: int
    file: str | None = None
    base: int = 0
    ctime: int = -1


@runtime_checkable
class KeyValues(Protocol):
    """Versioned values under keys, which are ASCII paths beginning with a slash.

    Versions start from 0 and grow by one with each `put`. Safe between threads.
    """

    def get(self, key: str) -> Value | None:
        """Return a value, None if the key is not there."""
        ...

    def put(self, key: str, data: bytes, expected: int | None) -> int:
        """Write a value and return its version; `expected` None = the key must be absent.

        `BadVersion`, and nothing written, if the version there is another. Atomic.
        """
        ...

    def delete(self, key: str, expected: int | None) -> bool:
        """Remove a key (`expected` None = any version); return whether it was there.

        `BadVersion`, and nothing removed, if its version is another.
        """
        ...

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with `prefix`, sorted."""
        ...

    def where(self, key: str) -> str:
        """Return what to call the key's place in messages: its file, else the key."""
        ...
