"""Decommissions: bookies that are gone for good, until no ledger needs them any more.

Source: `client/BookKeeperAdmin.decommissionBookie`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from bkstore.errors import BkstoreError, CorruptionError
from bkstore.ids import LedgerId
from bkstore.wire.admin.operations.cluster import ClusterStore

LOG = logging.getLogger("bkstore.wire.admin")

_SECONDS_A_LEDGER = 3.0
_LONGEST_PAUSE = 300.0


class Decommissions:
    """Waits, one bookie after another, until the cluster's ledgers have left a bookie.

    Replication workers move them; here nothing is copied. Then the bookie's cookie goes, if that
    was asked for. What was begun ends with `close`, and is begun again by asking again.
    """

    def __init__(self, pause: float = _SECONDS_A_LEDGER) -> None:
        """Look again after `pause` seconds for each ledger that is left, at most 300."""
        self._pause = pause
        self._ended = Event()
        self._thread = ThreadPoolExecutor(1, "bkstore-admin-decommission")

    def begin(self, store: ClusterStore, bookie: str, delete_cookie: bool) -> None:
        """Begin to wait for a bookie's ledgers, after those that are waited for."""
        self._thread.submit(self._run, store, bookie, delete_cookie)

    def _run(self, store: ClusterStore, bookie: str, delete_cookie: bool) -> None:
        try:
            if self._wait(store, bookie):
                LOG.info("bookie %s is decommissioned: no ledger needs it", bookie)
                if delete_cookie and not store.delete_cookie(bookie):
                    LOG.warning("bookie %s had no cookie", bookie)
        except BkstoreError as error:
            LOG.warning("bookie %s is not decommissioned: %s", bookie, error)
        except Exception:
            LOG.exception("the decommission of bookie %s broke down", bookie)

    def _wait(self, store: ClusterStore, bookie: str) -> bool:
        """Return True once no ledger's metadata and no mark name the bookie, False at the end.

        Metadata that cannot be read raise `CorruptionError`: they may name it.
        """
        left = _named_in_metadata(store, bookie, store.ledgers())
        left |= _named_in_marks(store, bookie)
        while left:
            if self._ended.wait(min(len(left) * self._pause, _LONGEST_PAUSE)):
                return False
            left = _named_in_metadata(store, bookie, left) | _named_in_marks(store, bookie)
        return not self._ended.is_set()

    def close(self) -> None:
        """Wait for no bookie any more."""
        self._ended.set()
        self._thread.shutdown(wait=True, cancel_futures=True)


def _named_in_metadata(
    store: ClusterStore, bookie: str, ledgers: Iterable[LedgerId]
) -> set[LedgerId]:
    """Return those of the ledgers that have the bookie in an ensemble; deleted ones have not."""
    found = set()
    for name, value in store.read_many(ledgers):
        if isinstance(value, CorruptionError):
            raise value
        if any(bookie in segment.ensemble for segment in value.metadata.segments):
            found.add(name)
    return found


def _named_in_marks(store: ClusterStore, bookie: str) -> set[LedgerId]:
    found = set()
    for name, mark in store.marks_of(sorted(store.marked() or ())):
        if isinstance(mark, CorruptionError):
            raise mark
        if bookie in mark.missing_bookies:
            found.add(name)
    return found
