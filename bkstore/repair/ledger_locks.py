"""Locks and marks of ledgers that are repaired, as BookKeeper's replication workers use them.

In ZooKeeper a ledger that is repaired has the lock of a replication worker, so that no worker, and
no other repair, works on it; its underreplicated mark is removed once nothing is missing, unless it
has changed meanwhile. Source: `replication/ReplicationWorker`. Other stores have marks, no locks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, runtime_checkable

from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import CorruptionError, IllegalOperation
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.ids import LedgerId


class RepairLock(NamedTuple):
    """A ledger that is being repaired: the store's lock, if it has any, and the mark as it was."""

    ledger: LedgerId
    lock: Any
    mark: UnderreplicatedMark | None

    @property
    def is_marked(self) -> bool:
        """Whether the ledger was marked when it was locked."""
        return self.mark is not None


@runtime_checkable
class _Underreplication(Protocol):
    """The calls of `Underreplication` that are used."""

    @property
    def enabled(self) -> bool: ...
    def lock(self, ledger: int | LedgerId, *, read_mark: bool = False) -> Any: ...
    def check_held(self, lock: Any) -> None: ...
    def mark_replicated(self, lock: Any) -> bool: ...
    def release(self, lock: Any) -> None: ...
    def holder(self, ledger: int | LedgerId) -> str | None: ...
    def lock_repairs(self) -> bool: ...
    def release_repairs(self) -> None: ...
    def repairs_holder(self) -> str | None: ...


class LedgerLocks:
    """The locks of ledgers in a metadata store. Thread-safe; other ledgers at the same time."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        manager = getattr(store, "underreplication", None)
        self._manager = manager if isinstance(manager, _Underreplication) else None

    def check_enabled(self) -> None:
        """Raise `IllegalOperation` if replication is disabled in this cluster."""
        if self._manager is not None and not self._manager.enabled:
            reason = "replication is disabled in this cluster (bkctl autorecovery, or the shell's"
            raise IllegalOperation(f"{reason} autorecovery command): enable it before a repair")

    @contextmanager
    def only_repair(self) -> Iterator[None]:
        """Keep other repairs out of the cluster during the block; raises `IllegalOperation` if one
        runs. Stores without locks keep none out."""
        if self._manager is None:
            yield
            return
        if not self._manager.lock_repairs():
            holder = self._manager.repairs_holder() or "another host"
            raise IllegalOperation(f"another repair of this cluster runs on {holder}")
        try:
            yield
        finally:
            self._manager.release_repairs()

    def acquire(self, ledger: LedgerId) -> RepairLock | None:
        """Lock a ledger; None if another worker has locked it."""
        lock = None
        if self._manager is not None:
            lock = self._manager.lock(ledger, read_mark=True)
            if lock is None:
                return None
        try:
            mark = self._store.mark_of(ledger)
        except CorruptionError:  # an unreadable mark stays: what it states is unknown
            mark = None
        except BaseException:
            self.release(RepairLock(ledger, lock, None))
            raise
        return RepairLock(ledger, lock, mark)

    def describe_holder(self, ledger: LedgerId) -> str:
        """Return who has locked a ledger, for messages."""
        holder = None if self._manager is None else self._manager.holder(ledger)
        return f"a worker on {holder}" if holder else "another worker"

    def check_held(self, lock: RepairLock) -> None:
        """Raise `IllegalOperation` if a lock was lost with its session."""
        if self._manager is not None:
            self._manager.check_held(lock.lock)

    def finish(self, lock: RepairLock) -> bool:
        """Remove the mark of a ledger that lacks nothing, unless it has changed since the lock;
        return whether there was one. The lock of a store with locks ends."""
        if self._manager is not None:
            return self._manager.mark_replicated(lock.lock)
        if lock.mark is None or self._store.mark_of(lock.ledger) != lock.mark:
            return False
        self._store.clear_mark(lock.ledger)
        return True

    def release(self, lock: RepairLock) -> None:
        """End a lock; one that does not exist any more is no error."""
        if self._manager is not None:
            self._manager.release(lock.lock)
