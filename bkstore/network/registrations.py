"""BookieClients: clients of a cluster's bookies by id, at their registered addresses.

A bookie with an unreadable registration is down and gets no new ledgers; real clients wait for it
for ever. A scope is the upper 64 bits of a 128-bit ledger id; BookKeeper's ledgers are in scope 0.
Source: `discover/ZKRegistrationClient`, `client/DefaultBookieAddressResolver`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from threading import Lock
from typing import Any, Protocol, runtime_checkable

from bkstore import forks
from bkstore.cluster.client.workers import Workers
from bkstore.cluster.store.api import MetadataStore
from bkstore.errors import BkstoreError, CorruptionError, InvalidArgument
from bkstore.formats.metadata.service_info import ServiceInfo, decode_service_info
from bkstore.index.api import Closeable
from bkstore.network.advertised_endpoint import supports_scopes
from bkstore.network.scoped_client import ScopedClient

_log = logging.getLogger(__name__)

_MAX_THREADS = 16
_LOOKUP_INTERVAL = 0.2  # seconds until an unchanged registration is read again
_MAX_LOOKUP_WAIT = 1.0
"""Seconds to wait for the new address of a bookie, before its known one is used again."""


@runtime_checkable
class _HasServiceInfo(Protocol):
    """A store with the registrations of bookies."""

    def service_info(self, bookie: str) -> ServiceInfo | None: ...


class BookieClients(Mapping[str, ScopedClient], Closeable):
    """A `ScopedClient` for each registered bookie, created when it is first requested.

    A bookie's address is the endpoint ``bookie-rpc`` of its registration; if that is empty, as for
    old bookies and stores without addresses, its id ``host:port``. Bookies without address are not
    in the mapping (`KeyError`). Call `mark_unreachable` for a bookie that cannot be reached: its
    registration is read again at the next access, but if unchanged, not within the next fifth of a
    second. The known address is used until the store responds, after waiting a second. `options`
    are those of `WireClient`. Threads: safe. Fork: as `WireClient`.
    """

    __hash__ = object.__hash__  # identity, not the mapping's equality, for `forks`

    def __init__(self, store: MetadataStore, **options: Any) -> None:
        self._store = store
        self._options = options
        self._clients: dict[str, ScopedClient] = {}
        self._unreachable: set[str] = set()
        """Bookies whose registration is read again at the next access."""
        self._refreshed_at: dict[str, float] = {}
        """When `_refresh_client` last kept the known client: no look-up begins within the next
        `_LOOKUP_INTERVAL`."""
        self._lookups: dict[str, Future[ScopedClient | None]] = {}
        """The look-up that is under way for a bookie; `_run_lookup` removes it at its end."""
        self._closed = False
        self._workers = Workers(_MAX_THREADS)
        self._lock = Lock()
        forks.register(self)

    def _forked(self) -> None:
        self._lookups.clear()  # their threads run in the parent only
        self._lock = Lock()

    def __getitem__(self, bookie: str) -> ScopedClient:
        """Return the bookie's client. If the bookie is unreachable, it may have moved: its
        registration is read again, but at most once in `_LOOKUP_INTERVAL` seconds."""
        with self._lock:
            self._check_open()
            known = self._clients.get(bookie)
            next_lookup_at = self._refreshed_at.get(bookie, 0.0) + _LOOKUP_INTERVAL
            may_look_up = bookie in self._unreachable and time.monotonic() >= next_lookup_at
            if known is not None and not may_look_up:
                return known
        client = self._read_client(bookie) if known is None else self._refresh_client(bookie, known)
        if client is None:
            raise KeyError(bookie)
        return client

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._clients_of(self._store.registered_bookies() or frozenset())))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def mark_unreachable(self, bookie_id: str) -> None:
        """Have this bookie's registration read again at the next access."""
        with self._lock:
            self._unreachable.add(bookie_id)

    def refresh_addresses(self, bookie_ids: Iterable[str]) -> bool:
        """Read the registrations of those that are unreachable; return whether a client changed."""
        with self._lock:
            unreachable = [bookie_id for bookie_id in bookie_ids if bookie_id in self._unreachable]
            old_clients = {bookie_id: self._clients.get(bookie_id) for bookie_id in unreachable}
        return any(self.get(bookie_id) is not old for bookie_id, old in old_clients.items())

    def writable_bookies(self, scope: int = 0) -> frozenset[str]:
        """Return the writable bookies with an address; for scopes other than 0, `extended` ones."""
        clients = self._clients_of(self._store.writable_bookies() or frozenset())
        return frozenset(key for key, client in clients.items() if client.extended or not scope)

    def _clients_of(self, bookies: frozenset[str]) -> dict[str, ScopedClient]:
        sorted_ids = sorted(bookies)
        clients = self._workers.map(self.get, sorted_ids)
        return {key: client for key, client in zip(sorted_ids, clients) if client is not None}

    def close(self) -> None:
        """Close all clients. Idempotent; later accesses raise `IllegalOperation`."""
        self._workers.close()
        with self._lock:
            self._closed = True
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    def _check_open(self) -> None:
        if self._closed:
            raise forks.closed_error("this client")

    def _refresh_client(self, bookie: str, known: ScopedClient) -> ScopedClient:
        """Return the client for an unreachable bookie's new address, or `known` if the address is
        unchanged or does not arrive in time. One look-up at a time runs for a bookie: concurrent
        callers wait for the same."""
        with self._lock:
            lookup = self._lookups.get(bookie)
            if lookup is None:
                lookup = self._lookups[bookie] = self._workers.submit(self._run_lookup, bookie)
        try:
            new_client = lookup.result(_MAX_LOOKUP_WAIT)
        except (TimeoutError, BkstoreError) as error:
            _log.info("bookie %s: cannot refresh its address: %s", bookie, error)
            new_client = None
        with self._lock:
            self._check_open()
            # The requested look-up was tried, even if it failed. If the client returned here cannot
            # reach the bookie either, its caller marks the bookie unreachable again.
            self._unreachable.discard(bookie)
            # A look-up that ended after the wait may have stored a new client.
            client = new_client or self._clients.get(bookie, known)
            if client is known:
                self._refreshed_at[bookie] = time.monotonic()
            return client

    def _run_lookup(self, bookie: str) -> ScopedClient | None:
        """As `_read_client`, in a thread: it ends even if `_refresh_client` no longer waits."""
        try:
            return self._read_client(bookie)
        finally:
            with self._lock:
                self._lookups.pop(bookie, None)

    def _read_client(self, bookie: str) -> ScopedClient | None:
        """Return the client for a bookie's registration, None if that has no usable address."""
        info = self._read_registration(bookie)
        return None if info is None else self._client_for(bookie, info)

    def _read_registration(self, bookie: str) -> ServiceInfo | None:
        """Return a bookie's registration, None if there is none or it is unreadable."""
        if not isinstance(self._store, _HasServiceInfo):  # then the id is the address
            return decode_service_info(b"", bookie)
        try:
            return self._store.service_info(bookie)
        except CorruptionError as error:
            _log.warning("bookie %s is skipped: %s", bookie, error)
            return None

    def _client_for(self, bookie: str, info: ServiceInfo) -> ScopedClient | None:
        """Return the client for a registration: the existing one, if the address is unchanged."""
        address, extended = info.address, supports_scopes(info)
        if address is None:
            return None
        with self._lock:
            self._check_open()
            known = self._clients.get(bookie)
            if known is not None and (known.address, known.extended) == (address, extended):
                return known
            try:
                new_client = ScopedClient(bookie, address, extended=extended, **self._options)
            except InvalidArgument as error:
                _log.warning("bookie %s is skipped: %s", bookie, error)
                return None
            self._clients[bookie] = new_client
        if known is not None:
            known.close()
        return new_client
