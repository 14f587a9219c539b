"""AuditedBookies: the bookies of a running cluster as an audit reads them, without any write.

Some bookies may be given as directories instead. A bookie that answers reads but no list requests,
as BookKeeper's with db storage do, is distinguished from one that does not respond at all. A scope
is the upper 64 bits of a 128-bit ledger id; BookKeeper's ledgers are in scope 0.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from threading import Lock
from typing import Any

from bkstore.arguments import number
from bkstore.availability import Availability
from bkstore.cluster.audit.options import AvailabilitySource
from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import (
    BkstoreError,
    BookieUnavailable,
    CorruptionError,
    IllegalOperation,
    ListingUnsupported,
    SystemRefused,
)
from bkstore.ids import LedgerId
from bkstore.index.api import Closeable, LedgerLike
from bkstore.index.bulk_listing import LedgerErrors, normalize_ledger_ids
from bkstore.network.registrations import BookieClients

MAX_CONCURRENT_REQUESTS = 128
"""Maximum number of concurrent requests to a bookie."""

BACKOFF_FACTOR = 10
"""A bookie that does not respond is not asked for this multiple of the time it took to fail."""

_MIN_BACKOFF_SECONDS = 0.1
"""A bookie that fails faster than this may be asked again at once."""

_Lists = dict[LedgerId, Availability]  # a list: which entries of a ledger a bookie has
_check_timeout = number(above=True)


class AuditedBookies(Mapping[str, AvailabilitySource], Closeable):
    """A mapping from bookie ids to sources of entries: `directories`, else the bookie itself.

    A bookie, read-only ones included, is reached at its address in `store`; without a readable
    registration it is not in the mapping (`KeyError`). `options` are `timeout`, `tls` and `sasl` of
    `WireClient`. Connects at the first request. `close` does not close the directories.

    >>> from bkstore.cluster import MemoryStore
    >>> with AuditedBookies(MemoryStore()) as bookies:
    ...     list(bookies), "127.0.0.1:3181" in bookies
    ([], False)
    """

    def __init__(
        self,
        store: MetadataStore,
        directories: Mapping[str, AvailabilitySource] | None = None,
        *,
        timeout: float = 5.0,
        **options: Any,
    ) -> None:
        """Take the directories; clients are made with these `options` when they are used."""
        self._store = store
        self._directories = dict(directories or {})
        timeout = _check_timeout("timeout", timeout)
        # More than are sent at the same time, so that the window never delays a request.
        options |= {"timeout": timeout, "window": 2 * MAX_CONCURRENT_REQUESTS}
        self._clients = BookieClients(store, **options)
        self._audited: dict[str, AuditedBookie] = {}

    def __getitem__(self, bookie: str) -> AvailabilitySource:
        """Return a bookie's directory if there is one, else its client if it is registered."""
        directory = self._directories.get(bookie)
        if directory is not None:
            return directory
        audited_bookie = self._audited.get(bookie)
        if audited_bookie is None:
            registered_ids = self._store.registered_bookies() or ()
            if bookie not in registered_ids or bookie not in self._clients:
                raise KeyError(bookie)
            audited_bookie = AuditedBookie(bookie, self._clients)
            self._audited[bookie] = audited_bookie
        return audited_bookie

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._directories.keys() | set(self._clients)))

    def __len__(self) -> int:
        return len(self._directories.keys() | set(self._clients))

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._clients.close()


class AuditedBookie:
    """One bookie over the wire, which is sent requests for lists of entries, no adds or fences.

    If no list arrives, entry 0 of a ledger is read as a probe, then a list requested again. A
    bookie that answers only the read does not support lists: every further ledger fails with
    `ListingUnsupported`, unless it has sent a list before. One that takes long to fail at both is
    not asked again for `BACKOFF_FACTOR` times as long. Errors name the bookie. Threads: safe, one
    at a time.
    """

    def __init__(self, bookie_id: str, clients: BookieClients) -> None:
        self._bookie_id = bookie_id
        self._clients = clients
        advice = "a real bookie with db storage cannot list entries; pass its directory"
        self._directory_advice = f": {advice} ({bookie_id}=DIR)"
        self._has_listed = False  # whether it has sent any list
        self._known_error: BkstoreError | None = None
        """The error for every ledger, without a request, until `_skipped_until` (monotonic)."""
        self._skipped_until = 0.0
        self._lock = Lock()

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return the entries that the bookie has; raises `NoSuchLedger` for an unknown ledger."""
        ledger_id = LedgerId.of(ledger)
        return dict(self.availability_many([ledger_id]))[ledger_id]

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: LedgerErrors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        """Yield each ledger with the bookie's entries, by up to `MAX_CONCURRENT_REQUESTS`
        concurrent requests. With `errors`, which gets them by ledger, failed ledgers are left out;
        else the first error is raised. Raises `IllegalOperation` without `ledgers`. All lists are
        requested before the first is yielded."""
        if ledgers is None:
            raise IllegalOperation(f"bookie {self._bookie_id}: the protocol cannot list ledgers")
        ledger_ids = normalize_ledger_ids(ledgers)
        lists: _Lists = {}
        failed: LedgerErrors = {}
        with self._lock:
            for start in range(0, len(ledger_ids), MAX_CONCURRENT_REQUESTS):
                part = ledger_ids[start : start + MAX_CONCURRENT_REQUESTS]
                self._fetch_lists(part, lists, failed)
        if errors is None and failed:
            raise next(iter(failed.values()))
        if errors is not None:
            errors.update(failed)
        return ((ledger_id, lists[ledger_id]) for ledger_id in ledger_ids if ledger_id in lists)

    def _fetch_lists(self, ledger_ids: list[LedgerId], lists: _Lists, failed: LedgerErrors) -> None:
        """Request the lists of entries of some ledgers into `lists`, errors into `failed`. Retry
        those that failed because of another request: a lost or closed connection fails all requests
        under way. If every request failed, retry each half separately, down to the single cause."""
        # A bookie that did not respond before is not asked until its time is over.
        started = time.monotonic()
        if self._known_error is not None and started < self._skipped_until:
            failed.update(dict.fromkeys(ledger_ids, self._known_error))
            return
        failed.update(self._request_once(ledger_ids, lists))
        to_retry = [each for each in ledger_ids if _may_be_from_connection(failed.get(each))]
        # Nothing arrived at all: probe whether the bookie responds.
        if len(to_retry) == len(ledger_ids):
            if all(isinstance(failed[ledger_id], BookieUnavailable) for ledger_id in ledger_ids):
                final_error = self._probe_and_retry(to_retry.pop(), started, lists, failed)
                if final_error is not None:
                    failed.update(dict.fromkeys(ledger_ids, final_error))
                    return
            if len(ledger_ids) == 1:
                return
        # Retry: in halves if all failed, not counting the one that was probed; else all at once.
        all_failed = len(to_retry) >= len(ledger_ids) - 1
        first_count = (len(to_retry) + 1) // 2 if all_failed else len(to_retry)
        for retry_ids in (to_retry[:first_count], to_retry[first_count:]):
            for ledger_id in retry_ids:
                del failed[ledger_id]
            if retry_ids:
                self._fetch_lists(retry_ids, lists, failed)

    def _request_once(self, ledger_ids: list[LedgerId], lists: _Lists) -> LedgerErrors:
        """Request some lists once; add them to `lists`, return the errors of the others."""
        client = self._clients.get(self._bookie_id)
        if client is None:
            reason = f"bookie {self._bookie_id}: it is no longer registered"
            return dict.fromkeys(ledger_ids, BookieUnavailable(reason))
        # A bookie that is not bkstore's has no protocol for other scopes than 0.
        supported = [ledger for ledger in ledger_ids if client.extended or not ledger.scope]
        request_errors: LedgerErrors = {}
        lists_before = len(lists)
        try:
            if supported:
                lists.update(client.availability_many(supported, request_errors))
        except (IllegalOperation, SystemRefused):  # closed, or an error of this machine
            raise
        except BkstoreError as error:
            answered = lists.keys() | request_errors.keys()
            request_errors |= {ledger: error for ledger in supported if ledger not in answered}
        self._has_listed |= len(lists) > lists_before
        if any(isinstance(error, BookieUnavailable) for error in request_errors.values()):
            self._clients.mark_unreachable(self._bookie_id)
        errors = {ledger: self._add_bookie_id(error) for ledger, error in request_errors.items()}
        reason = f"it does not announce support for scopes{self._directory_advice}"
        unsupported = set(ledger_ids).difference(supported)
        return errors | dict.fromkeys(unsupported, ListingUnsupported(reason))

    def _add_bookie_id(self, error: BkstoreError) -> BkstoreError:
        """Return the client's error, whose text begins with the address, with the bookie's id
        before it. `IllegalOperation`, by which a bookie refuses to list entries, becomes
        `ListingUnsupported`, with advice."""
        bookie_text = f"bookie {self._bookie_id}"
        if isinstance(error, CorruptionError):
            if error.file is None:
                return CorruptionError(None, error.offset, f"{bookie_text} at {error.reason}")
            return error.relocate(f"{bookie_text} at {error.file}")
        if isinstance(error, IllegalOperation):
            return ListingUnsupported(f"{error}{self._directory_advice}")
        return type(error)(f"{bookie_text} at {error}")

    def _probe_and_retry(
        self, ledger: LedgerId, started: float, lists: _Lists, failed: LedgerErrors
    ) -> BkstoreError | None:
        """Probe a bookie that sent no list, and if it responds, request the list of `ledger` again.
        Return the error for all its ledgers if it is to be asked no more; otherwise None, after
        the result for `ledger` was added to `lists` or `failed`."""
        try:
            self._probe_bookie(ledger)
        except BookieUnavailable as error:
            return self._back_off(self._add_bookie_id(error), started)
        del failed[ledger]
        failed.update(self._request_once([ledger], lists))
        list_error = failed.get(ledger)
        if not isinstance(list_error, BookieUnavailable):
            return None
        if self._has_listed:  # it supports lists, so this is a failure that may pass
            return self._back_off(list_error, started)
        reason = f"it answers reads, but no request for a list of entries{self._directory_advice}"
        self._known_error, self._skipped_until = ListingUnsupported(reason), math.inf
        return self._known_error

    def _probe_bookie(self, ledger: LedgerId) -> None:
        """Read an entry; raises `BookieUnavailable` if there is no response, not even an error."""
        client = self._clients.get(self._bookie_id)
        if client is None:
            raise BookieUnavailable("it is no longer registered")
        try:
            client.read_entry(ledger, 0)
        except (BookieUnavailable, SystemRefused):
            raise
        except BkstoreError:
            return

    def _back_off(self, reason: BkstoreError, started: float) -> BkstoreError:
        """Return `reason`; if the failure took long, stop asking the bookie for a while."""
        now = time.monotonic()
        if now - started > _MIN_BACKOFF_SECONDS:
            self._known_error = reason
            self._skipped_until = now + BACKOFF_FACTOR * (now - started)
        return reason


def _may_be_from_connection(error: BkstoreError | None) -> bool:
    # A CorruptionError without a file is a response: the bookie's EIO.
    is_invalid_response = isinstance(error, CorruptionError) and error.file is not None
    return is_invalid_response or isinstance(error, BookieUnavailable)
