"""RegisteredBookies: the bookies of a cluster by id, where their registrations say they are.

A registration that cannot be read concerns that bookie only: it is as one that is down, and gets
no new ledgers. (Real clients wait there for ever.) Source: `discover/ZKRegistrationClient`,
`client/DefaultBookieAddressResolver`.
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
from bkstore.index.api import Closing
from bkstore.network.advertised import knows_scopes
from bkstore.network.scoped_client import ScopedClient

_log = logging.getLogger(__name__)

_THREADS = 16
_PAUSE = 0.2
_PATIENCE = 1.0
"""Seconds to wait for news of a bookie whose address was known."""


@runtime_checkable
class _TellsAddresses(Protocol):
    """A store that has what bookies registered."""

    def service_info(self, bookie: str) -> ServiceInfo | None: ...


class RegisteredBookies(Mapping[str, ScopedClient], Closing):
    """A `ScopedClient` for each bookie that is registered, made when it is first asked for.

    A bookie is where the endpoint ``bookie-rpc`` of its registration says; one that registered
    nothing, as old ones and those of stores without addresses, is where its id ``host:port`` says.
    Others are no bookies here (`KeyError`). Whoever cannot reach one says so by `doubt`: then its
    registration is read again at the next call; where it said nothing new, not within the next
    fifth of a second. Without an answer in a second the known address stays until there is one.
    `options` are those of `WireClient`.

    Threads: safe. Fork: as `WireClient`.
    """

    __hash__ = object.__hash__  # for `forks`: each is one by itself

    def __init__(self, store: MetadataStore, **options: Any) -> None:
        self._store = store
        self._options = options
        self._clients: dict[str, ScopedClient] = {}
        self._doubted: set[str] = set()
        self._looked: dict[str, float] = {}
        self._looks: dict[str, Future[ScopedClient | None]] = {}
        self._closed = False
        self._workers = Workers(_THREADS)
        self._lock = Lock()
        forks.register(self)

    def _forked(self) -> None:
        self._looks.clear()  # the threads that look are the parent's
        self._lock = Lock()

    # -- as a mapping

    def __getitem__(self, bookie: str) -> ScopedClient:
        with self._lock:
            self._check_open()
            known = self._clients.get(bookie)
            recent = time.monotonic() < self._looked.get(bookie, 0.0) + _PAUSE
            if known is not None and (recent or bookie not in self._doubted):
                return known
        found = self._told(bookie) if known is None else self._news(bookie, known)
        if found is None:
            raise KeyError(bookie)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names(self._store.registered_bookies() or frozenset())))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def doubt(self, name: str) -> None:
        """Read this bookie's registration again before it is asked again."""
        with self._lock:
            self._doubted.add(name)

    def moved(self, names: Iterable[str]) -> bool:
        """Look at once where doubted ones of these are; return whether one is elsewhere now."""
        with self._lock:
            before = {name: self._clients.get(name) for name in names if name in self._doubted}
        return any(self.get(name) is not client for name, client in before.items())

    def writable(self, scope: int = 0) -> frozenset[str]:
        """Return the bookies that may take a ledger of a scope: writable, with an address, and,
        for scopes other than 0, with a registration that says that they know them."""
        found = self._names(self._store.writable_bookies() or frozenset())
        return frozenset(each for each, client in found.items() if client.extended or not scope)

    def _names(self, names: frozenset[str]) -> dict[str, ScopedClient]:
        wanted = sorted(names)
        found = self._workers.each(self.get, wanted)
        return {name: client for name, client in zip(wanted, found) if client is not None}

    def close(self) -> None:
        """Close every client that was made. Idempotent; a bookie that is asked for later is
        `IllegalOperation`."""
        self._workers.close()
        with self._lock:
            self._closed = True
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    def _check_open(self) -> None:
        if self._closed:
            raise forks.closed("this client")

    # -- registrations

    def _news(self, bookie: str, known: ScopedClient) -> ScopedClient:
        """Return the client of a bookie that could not be reached, at its address of now."""
        with self._lock:
            look = self._looks.get(bookie)
            if look is None:
                look = self._looks[bookie] = self._workers.start(self._look, bookie)
        try:
            found = look.result(_PATIENCE)
        except (TimeoutError, BkstoreError) as error:
            _log.info("bookie %s: no news of its address: %s", bookie, error)
            found = None
        with self._lock:
            self._check_open()
            self._doubted.discard(bookie)
            now = found or self._clients.get(bookie, known)
            if now is known:
                self._looked[bookie] = time.monotonic()
            return now

    def _look(self, bookie: str) -> ScopedClient | None:
        """Read a registration: what it says holds from now on, whoever waits for it still."""
        try:
            return self._told(bookie)
        finally:
            with self._lock:
                self._looks.pop(bookie, None)

    def _told(self, bookie: str) -> ScopedClient | None:
        info = self._info(bookie)
        return None if info is None else self._client(bookie, info)

    def _info(self, bookie: str) -> ServiceInfo | None:
        """Return what a bookie registered, None if nothing that can be read."""
        if not isinstance(self._store, _TellsAddresses):
            return decode_service_info(b"", bookie)
        try:
            return self._store.service_info(bookie)
        except CorruptionError as error:
            _log.warning("bookie %s is passed over: %s", bookie, error)
            return None

    def _client(self, bookie: str, info: ServiceInfo) -> ScopedClient | None:
        """Return the client for a registration: the one there is, if it says what it said."""
        address, extended = info.address, knows_scopes(info)
        if address is None:
            return None
        with self._lock:
            self._check_open()
            known = self._clients.get(bookie)
            if known is not None and (known.address, known.extended) == (address, extended):
                return known
            try:
                made = ScopedClient(bookie, address, extended=extended, **self._options)
            except InvalidArgument as error:
                _log.warning("bookie %s is passed over: %s", bookie, error)
                return None
            self._clients[bookie] = made
        if known is not None:
            known.close()
        return made
