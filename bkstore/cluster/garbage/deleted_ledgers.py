"""Which ledgers of a bookie count as deleted: those that the metadata store twice does not have.

The rule of `ScanAndCompareGarbageCollector` with `verifyMetadataOnGC`: the store lists its
ledgers after those of the bookie were listed, so that one made meanwhile is not judged; each
ledger that is not in the list is then asked for by itself, and counts as deleted where the store
says that it is not there. Upstream asks only if that is set; here it is always done. Nothing is
judged by a store that did not answer in full: one that failed, that has lost its session
meanwhile, or that is another cluster's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import IllegalOperation, MetadataUnavailable
from bkstore.ids import LedgerId
from bkstore.storage.ledgers.garbage_pass import Suspect

_AT_A_TIME = 256
"""Ledgers that are asked for, and deleted, together."""


class DeletedLedgers:
    """Finds the deleted ledgers among those of a bookie, for a pass of garbage collection.

    `instance_id` is that of the bookie's cookie: a store that tells another one is not asked.
    `pause` is called with seconds after each part, so that at most `rate` ledgers a second are
    asked for; it returns whether to end.
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

    def __call__(self, here: list[LedgerId], suspect: Suspect) -> Iterator[list[LedgerId]]:
        """Yield ledgers of `here` that count as deleted, some at a time, suspects all of them.

        Raises what the store raises, `MetadataUnavailable` where its session was lost meanwhile,
        `IllegalOperation` where it is another cluster's: then no further ledger is judged.
        """
        self._check_cluster()
        session = self._session()
        there = set(self._store.ledgers())
        self._check_session(session)
        absent = [ledger for ledger in here if ledger not in there]
        for start in range(0, len(absent), _AT_A_TIME):
            begin = self._clock()
            part = absent[start : start + _AT_A_TIME]
            suspect(part)
            found = {ledger for ledger, _ in self._store.read_many(part)}  # damaged ones too
            self._check_session(session)
            deleted = [ledger for ledger in part if ledger not in found]
            if deleted:
                yield deleted
            left = begin + len(part) / self._rate - self._clock()
            if start + len(part) < len(absent) and self._pause(max(left, 0.0)):
                return

    def _check_cluster(self) -> None:
        """Compare the instance id: a cluster that was emptied has another one, or none."""
        ask: Callable[[], str | None] | None = getattr(self._store, "instance_id", None)
        if ask is None or self._instance_id is None:
            return
        found = ask()
        if found != self._instance_id:
            raise IllegalOperation(
                f"the metadata store is of cluster {found}, the bookie of {self._instance_id}"
            )

    def _session(self) -> object:
        """Return what tells one session from another; stores that need none have always one."""
        session = getattr(self._store, "session", self._store)
        if session is None:
            raise MetadataUnavailable("the session with the metadata store is interrupted")
        return session

    def _check_session(self, before: object) -> None:
        """Refuse what was answered in two sessions: their servers may not know the same."""
        if self._session() != before:
            raise MetadataUnavailable("the session with the metadata store expired meanwhile")
