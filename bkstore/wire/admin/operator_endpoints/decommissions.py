"""Decommissions: wait until no ledger needs a removed bookie, then delete its cookie.

Source: `client/BookKeeperAdmin.decommissionBookie`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from bkstore.errors import BkstoreError, CorruptionError
from bkstore.ids import LedgerId
from bkstore.wire.admin.operator_endpoints.cluster_store import ClusterStore

LOG = logging.getLogger("bkstore.wire.admin")

_SECONDS_PER_LEDGER = 3.0
_MAX_PAUSE_SECONDS = 300.0


class Decommissions:
    """Waits, one bookie after another, until no ledger of the cluster needs a bookie. Replication
    workers move the ledgers; nothing is copied here. Then the bookie's cookie is deleted, if
    requested. `close` abandons unfinished decommissions; begin them again if needed."""

    def __init__(self, pause_seconds: float = _SECONDS_PER_LEDGER) -> None:
        """Check again after `pause_seconds` seconds for each remaining ledger, at most 300."""
        self._pause_seconds = pause_seconds
        self._closed_event = Event()
        self._executor = ThreadPoolExecutor(1, "bkstore-admin-decommission")

    def begin(self, store: ClusterStore, bookie_id: str, delete_cookie: bool) -> None:
        """Queue the decommission of a bookie, after those already queued."""
        self._executor.submit(self._run_decommission, store, bookie_id, delete_cookie)

    def _run_decommission(self, store: ClusterStore, bookie_id: str, delete_cookie: bool) -> None:
        """Wait until no ledger needs the bookie, then delete its cookie, if requested; log it."""
        try:
            if self._wait_until_unused(store, bookie_id):
                LOG.info("bookie %s is decommissioned: no ledger needs it", bookie_id)
                if delete_cookie and not store.delete_cookie(bookie_id):
                    LOG.warning("bookie %s had no cookie", bookie_id)
        except BkstoreError as error:
            LOG.warning("bookie %s is not decommissioned: %s", bookie_id, error)
        except Exception:
            LOG.exception("the decommission of bookie %s failed unexpectedly", bookie_id)

    def _wait_until_unused(self, store: ClusterStore, bookie_id: str) -> bool:
        """Wait until neither the metadata nor an underreplicated mark of any ledger names the
        bookie; return True then, False once closed. Raises `CorruptionError` for unreadable
        metadata, because it may name the bookie."""
        # All ledgers are read once, then only those that named the bookie, because no new ledger
        # gets it: it is not registered. Marks are always read again.
        ledgers = _in_metadata(store, bookie_id, store.ledgers())
        ledgers |= _in_marks(store, bookie_id)
        while ledgers:
            if self._closed_event.wait(min(len(ledgers) * self._pause_seconds, _MAX_PAUSE_SECONDS)):
                return False
            ledgers = _in_metadata(store, bookie_id, ledgers) | _in_marks(store, bookie_id)
        return not self._closed_event.is_set()

    def close(self) -> None:
        """Stop waiting, and end the thread."""
        self._closed_event.set()
        self._executor.shutdown(wait=True, cancel_futures=True)


def _in_metadata(store: ClusterStore, bookie_id: str, ledgers: Iterable[LedgerId]) -> set[LedgerId]:
    """Return those of the ledgers with the bookie in an ensemble; deleted ledgers are left out."""
    ledgers_of_bookie = set()
    for ledger_id, value in store.read_many(ledgers):
        if isinstance(value, CorruptionError):
            raise value
        if any(bookie_id in segment.ensemble for segment in value.metadata.segments):
            ledgers_of_bookie.add(ledger_id)
    return ledgers_of_bookie


def _in_marks(store: ClusterStore, bookie_id: str) -> set[LedgerId]:
    """Return the ledgers whose mark names the bookie as missing."""
    ledgers_of_bookie = set()
    for ledger_id, mark in store.marks_of(sorted(store.marked() or ())):
        if isinstance(mark, CorruptionError):
            raise mark
        if bookie_id in mark.missing_bookies:
            ledgers_of_bookie.add(ledger_id)
    return ledgers_of_bookie
