"""Client: a cluster by its service URI, over sockets.

A scope is the upper 64 bits of a 128-bit ledger id; BookKeeper's ledgers are in scope 0.
"""

from __future__ import annotations

import os
import ssl

from bkstore.arguments import instance, optional
from bkstore.cluster.client.client import Client as ClusterClient
from bkstore.cluster.client.options import ClientOptions
from bkstore.cluster.client.workers import Workers
from bkstore.cluster.placement.policies import PlacementPolicy
from bkstore.cluster.store.api import MetadataStore, check_store
from bkstore.cluster.store.opening import open_store
from bkstore.index.api import Closeable
from bkstore.network.registrations import BookieClients
from bkstore.wire.sasl import SaslUser

_check_tls = optional(instance(ssl.SSLContext))
_check_user = optional(instance(SaslUser))


class Client(ClusterClient, Closeable):
    """A client of a cluster: it creates, writes, reads, recovers and deletes ledgers.

    `store` is a service URI (``zk+hierarchical://host:2181/ledgers``), the directory of a store, or
    a `MetadataStore`, which stays open. Bookies are found by their registrations: for ledgers of
    scope 0 any, for other scopes bkstore's own. Requests to several bookies are concurrent, and
    appends pipelined: `LedgerHandle.append_many` has up to `options.window` entries in flight, and
    appends of several threads share requests. An append returns when A bookies of its write set
    have acknowledged it; only `close` waits for later responses.

    `timeout` limits the seconds of connecting to a bookie and of each response; `tls` is the
    context of encrypted connections, `sasl` the user to authenticate as. Up to `threads` threads
    send requests, and as many appends. Connects to bookies when needed. Raises as `open_store`:
    `MetadataUnavailable` if no ZooKeeper responds, `UnsupportedLayout` without a cluster.

    Threads: safe. `close` first sends each bookie the appends queued for it, unless the bookie
    fails, so that an entry also reaches the W - A bookies whose answers appends do not wait for; it
    does not close ledgers.

    >>> import tempfile
    >>> from bkstore import Bookie
    >>> from bkstore.cluster import MemoryStore
    >>> from bkstore.wire.server import BookieServer
    >>> store = MemoryStore()
    >>> with tempfile.TemporaryDirectory() as top, Bookie.open(top) as bookie:
    ...     with BookieServer(bookie) as server, Client(store) as client:
    ...         store.register_bookie(str(server.address))
    ...         ledger = client.create_ledger(1, 1, 1)
    ...         ledger.append_many([b"one", b"two"]).tolist()
    ...         [entry.payload for entry in client.open_ledger(ledger.id).read_batch(0)]
    [0, 1]
    [b'one', b'two']
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | MetadataStore,
        *,
        placement: PlacementPolicy | None = None,
        options: ClientOptions | None = None,
        timeout: float = 5.0,
        tls: ssl.SSLContext | None = None,
        sasl: SaslUser | None = None,
        threads: int = 64,
    ) -> None:
        """Open the store if a location is given; connections to bookies are made when they are
        used."""
        _check_tls("tls", tls)
        _check_user("sasl", sasl)
        self._own_store = isinstance(store, (str, os.PathLike))
        if isinstance(store, (str, os.PathLike)):
            store = open_store(store)
        self.store: MetadataStore = check_store("store", store)
        self.bookies = BookieClients(self.store, timeout=timeout, tls=tls, sasl=sasl)
        self._workers, writable = Workers(threads), self.bookies.writable_bookies
        arguments = (self.store, self.bookies, placement, options)
        super().__init__(*arguments, workers=self._workers, list_writable=writable)

    def close(self) -> None:
        """Send the queued appends, waiting up to `timeout` seconds for a bookie that does not
        respond, then end connections and threads. Reads in flight fail. Idempotent."""
        self._workers.finish()
        self.bookies.close()
        self._workers.close()
        close = getattr(self.store, "close", None)
        if self._own_store and close is not None:
            close()
