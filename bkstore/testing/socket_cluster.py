"""SocketCluster: a `Cluster` whose bookies are reached over sockets on loopback.

Everything true of a cluster in one process must be true over the wire. So it is the same class,
with servers in front of its bookies and a `WireClient` behind each of its clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from threading import Lock, Thread
from typing import Any, ClassVar, Literal, TypeVar

from bkstore.availability import Availability
from bkstore.cluster.in_process.bookie import ALL_CLIENTS, LocalBookie
from bkstore.cluster.in_process.bookie_client import LocalClient, LocalClients
from bkstore.cluster.in_process.cluster import Cluster
from bkstore.errors import BookieUnavailable, IllegalOperation
from bkstore.formats.entry import RecordBatch
from bkstore.ids import LedgerId
from bkstore.index.api import LedgerLike
from bkstore.index.bulk_listing import LedgerErrors
from bkstore.storage.bookie import Bookie
from bkstore.wire.client import WireClient
from bkstore.wire.client.forwarding_client import ForwardingClient
from bkstore.wire.server import BookieServer

_T = TypeVar("_T")
_OpenAt = Callable[[Path], Bookie]
_Connect = Callable[[tuple[str, int]], WireClient]


class SocketCluster(Cluster):
    """A cluster over sockets, with protocol v3, scopes and batch reads; subclasses may set v2.

    Opened and used like `Cluster`. A bookie that is down keeps its port, and refuses connections.
    Partitions and slow bookies take effect between a client's calls and its socket.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as top, SocketCluster.open(top) as cluster:
    ...     ledger = cluster.create_ledger()
    ...     _ = ledger.append(b"hello")
    ...     cluster.crash(ledger.metadata.segments[0].ensemble[0])
    ...     _ = ledger.append(b"world")
    ...     [entry.payload for entry in ledger.read(0, 1)]
    [b'hello', b'world']
    """

    protocol: ClassVar[Literal["v2", "v3"]] = "v3"
    extended: ClassVar[bool] = True

    def _new_bookie(self, bookie_id: str, path: Path, open_at: _OpenAt) -> LocalBookie:
        def connect(address: tuple[str, int]) -> WireClient:
            return WireClient(address, self.protocol, self.extended, bookie_id=bookie_id)

        settings = {"timeout": self._timeout, "sleep": self._sleep}
        return _SocketBookie(bookie_id, path, open_at, connect, self.extended, **settings)

    def _clients_as(self, caller: str) -> Mapping[str, LocalClient]:
        return LocalClients(self._servers, caller, _SocketClient)

    def close(self, checkpoint: bool = True) -> None:
        """Close all connections, servers and bookies. Idempotent."""
        for server in self._servers.values():
            assert isinstance(server, _SocketBookie)
            server.hang_up()
        super().close(checkpoint)


class _SocketBookie(LocalBookie):
    """A bookie behind a server, with one connection for each client."""

    def __init__(
        self,
        name: str,
        path: Path,
        open_at: _OpenAt,
        connect: _Connect,
        extended: bool,
        **settings: Any,
    ) -> None:
        """Make the bookie that `open_at` opens at `path`, not started yet. `connect` makes a client
        of its address, `extended` is the server's option; `settings` are those of `LocalBookie`."""
        super().__init__(name, path, open_at, **settings)
        self._connect = connect
        self._extended = extended
        self._server: BookieServer | None = None
        self._port = 0
        self._connections: dict[str, WireClient] = {}
        self._connections_lock = Lock()

    def start(self) -> None:
        super().start()
        if self._server is None:
            server = BookieServer(self.bookie, port=self._port, extended=self._extended)
            self._server = server.start()
            self._port = server.address.port

    def _detach(self) -> Bookie | None:
        """End the server, and return the bookie that it served, None if there is none."""
        bookie = super()._detach()
        server, self._server = self._server, None
        if server is not None:
            # `close` waits until the clients have hung up. An idle client does so only when its
            # property `connected` is read.
            closer = Thread(target=server.close)
            closer.start()
            while closer.is_alive():
                for connection in list(self._connections.values()):
                    connection.connected  # noqa: B018
                closer.join(0.005)
        return bookie

    def hang_up(self) -> None:
        with self._connections_lock:
            connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()

    def ask(self, client: str, work: Callable[[WireClient], _T]) -> _T:
        """Call `work` with a client's connection; `BookieUnavailable` if it is partitioned away."""
        try:
            if self.unreachable_from & {client, ALL_CLIENTS}:
                raise BookieUnavailable(f"{self.bookie_id} cannot be reached")
            with self._connections_lock:
                if client not in self._connections:
                    self._connections[client] = self._connect(("127.0.0.1", self._port))
                connection = self._connections[client]
            return work(connection)
        finally:  # a slow bookie's errors are late too
            self._delay_answer()


class _SocketClient(ForwardingClient, LocalClient):
    server: _SocketBookie

    def _call_client(self, ledger: LedgerLike, call: Callable[[WireClient], _T]) -> _T:
        return self.server.ask(self.client_name, call)

    @property
    def batch_reads(self) -> bool:
        server = self.server
        return server.batch_reads and server.ask(self.client_name, lambda wire: wire.batch_reads)

    def read_entries(self, *arguments: Any, **options: Any) -> RecordBatch:
        if not self.server.batch_reads:
            raise IllegalOperation(f"{self.bookie_id} does not support batch reads")
        return super().read_entries(*arguments, **options)

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: LedgerErrors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        def list_all(wire: WireClient) -> list[tuple[LedgerId, Availability]]:
            return list(wire.availability_many(ledgers, errors))

        return iter(self.server.ask(self.client_name, list_all))
