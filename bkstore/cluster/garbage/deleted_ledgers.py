"""Find the deleted ledgers of a bookie: those that the metadata store lacks in two checks.

The rule of `ScanAndCompareGarbageCollector` with `verifyMetadataOnGC`: the store's ledgers are
listed after the bookie's, so that a ledger created meanwhile does not count as deleted. Then each
ledger that is not listed is read (BookKeeper only if so configured), and counts as deleted if the
store lacks it. None does if the store fails, has lost its session, or is another cluster's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import IllegalOperation, MetadataUnavailable
from bkstore.ids import LedgerId
from bkstore.storage.ledgers.garbage_pass import MarkSuspects

_BATCH_LEDGERS = 256
"""Ledgers that are read, and deleted, together."""


class DeletedLedgerFinder:
    """Finds the deleted ledgers among those of a bookie, for a pass of garbage collection.

    `instance_id` is from the bookie's cookie: a store with another one is not used. `pause` sleeps
    for some seconds, to read at most `rate` ledgers a second, and returns whether to stop.
    """

    def __init__(
        self,
        store: MetadataStore,
        *,
        instance_id: str | None = None,
        rate: float,
        pause: Callable[[float], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._instance_id = instance_id
        self._rate = rate
        self._pause = pause
        self._clock = clock

    def __call__(self, ledgers: list[LedgerId], suspect: MarkSuspects) -> Iterator[list[LedgerId]]:
        """Yield batches of those of a bookie's ledgers that are deleted. Calls `suspect` with each
        batch of candidates before it is read: the storage keeps those that get an add from then on,
        because they were created again. Raises the store's errors, `MetadataUnavailable` for a lost
        session, `IllegalOperation` for another cluster's store."""
        # First check: the store's list, taken within one session.
        self._check_cluster()
        session = self._store_session()
        store_ledgers = set(self._store.ledgers())
        self._check_session(session)
        candidates = [ledger for ledger in ledgers if ledger not in store_ledgers]
        # Second check: read each ledger that is not in the list.
        for start in range(0, len(candidates), _BATCH_LEDGERS):
            started = self._clock()
            batch = candidates[start : start + _BATCH_LEDGERS]
            suspect(batch)
            # ledgers that the store has, even if their metadata are damaged
            existing = {ledger for ledger, _ in self._store.read_many(batch)}
            self._check_session(session)
            deleted = [ledger for ledger in batch if ledger not in existing]
            if deleted:
                yield deleted
            pause_seconds = started + len(batch) / self._rate - self._clock()
            is_last = start + len(batch) >= len(candidates)
            if not is_last and self._pause(max(pause_seconds, 0.0)):  # true: the pass is stopped
                return

    def _check_cluster(self) -> None:
        """Raise if the metadata are of another cluster than the bookie, or of the same after it was
        formatted, which changes the instance id: all ledgers would look deleted."""
        read_instance_id = getattr(self._store, "instance_id", None)
        if read_instance_id is None or self._instance_id is None:
            return
        instance_id = read_instance_id()
        if instance_id != self._instance_id:
            raise IllegalOperation(
                f"the metadata store is of cluster {instance_id}, the bookie of {self._instance_id}"
            )

    def _store_session(self) -> object:
        """Return the store's session; a store without sessions stands for itself."""
        session = getattr(self._store, "session", self._store)
        if session is None:
            raise MetadataUnavailable("the session with the metadata store is interrupted")
        return session

    def _check_session(self, session: object) -> None:
        """Raise if the session is not the one in which the store's ledgers were listed: a new one
        may be with another server, whose data may be older."""
        if self._store_session() != session:
            raise MetadataUnavailable("the session with the metadata store has expired")
