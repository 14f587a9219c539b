"""SocketCluster: a `Cluster` whose bookies are reached over sockets on loopback.

Everything that holds of a cluster in one process has to hold over the wire: so it is the same
class, with servers in front of its bookies and a `WireClient` behind each of its clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from threading import Lock, Thread
from typing import Any, ClassVar, Literal, TypeVar

from bkstore.availability import Availability
from bkstore.cluster.in_process.bookie import EVERYONE, LocalBookie
from bkstore.cluster.in_process.bookie_client import LocalClient, LocalClients
from bkstore.cluster.in_process.cluster import Cluster
from bkstore.errors import BookieUnavailable, IllegalOperation
from bkstore.formats.entry import RecordBatch
from bkstore.ids import LedgerId
from bkstore.index.api import LedgerLike
from bkstore.index.many_ledgers import Errors
from bkstore.storage.bookie import Bookie
from bkstore.wire.client import WireClient
from bkstore.wire.client.forwarding_client import ForwardingClient
from bkstore.wire.server import BookieServer

_T = TypeVar("_T")


class SocketCluster(Cluster):
    """A cluster over sockets, by plain v3 with scopes and batch reads; v2 in a subclass.

    Opened and used as `Cluster`. A bookie keeps its port while it is down, and refuses
    connections then. Partitions and slow bookies are between a client's calls and its socket.

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

    def _new_bookie(self, name: str, path: Path, open_at: Callable[[Path], Bookie]) -> LocalBookie:
        def connect(address: tuple[str, int]) -> WireClient:
            return WireClient(address, self.protocol, self.extended, bookie_id=name)

        return _SocketBookie(
            name,
            path,
            open_at,
            connect,
            extended=self.extended,
            timeout=self._timeout,
            sleep=self._sleep,
        )

    def _clients_as(self, name: str) -> Mapping[str, LocalClient]:
        return LocalClients(self._servers, name, _SocketClient)

    def close(self, checkpoint: bool = True) -> None:
        """End all connections and servers and close all bookies. Idempotent."""
        for server in self._servers.values():
            assert isinstance(server, _SocketBookie)
            server.hang_up()
        super().close(checkpoint)


class _SocketBookie(LocalBookie):
    """A bookie behind a server, and the connections of each client to it."""

    def __init__(
        self,
        name: str,
        path: Path,
        open_at: Callable[[Path], Bookie],
        connect: Callable[[tuple[str, int]], WireClient],
        *,
        extended: bool,
        **settings: Any,
    ) -> None:
        super().__init__(name, path, open_at, **settings)
        self._connect = connect
        self._extended = extended
        self._server: BookieServer | None = None
        self._port = 0
        self._wires: dict[str, WireClient] = {}
        self._making = Lock()

    def start(self) -> None:
        super().start()
        if self._server is None:
            server = BookieServer(self.bookie, port=self._port, extended=self._extended)
            self._server = server.start()
            self._port = server.address.port

    def _detach(self) -> Bookie | None:
        bookie = super()._detach()
        server, self._server = self._server, None
        if server is not None:
            closing = Thread(target=server.close)
            closing.start()
            while closing.is_alive():  # it waits for idle clients to see that it hung up
                for wire in list(self._wires.values()):
                    wire.connected  # noqa: B018
                closing.join(0.005)
        return bookie

    def hang_up(self) -> None:
        """Close the connections of all clients; a later call opens another."""
        with self._making:
            wires, self._wires = self._wires, {}
        for wire in wires.values():
            wire.close()

    def ask(self, client: str, work: Callable[[WireClient], _T]) -> _T:
        """Return what `work` gets over the socket of a client; see `LocalBookie.call`."""
        try:
            if self.cut & {client, EVERYONE}:
                raise BookieUnavailable(f"{self.bookie_id} cannot be reached")
            with self._making:
                if client not in self._wires:
                    self._wires[client] = self._connect(("127.0.0.1", self._port))
                wire = self._wires[client]
            return work(wire)
        finally:
            self._delay_answer()


class _SocketClient(ForwardingClient, LocalClient):
    """One client's view of a `_SocketBookie`."""

    server: _SocketBookie

    def _ask(self, ledger: LedgerLike, call: Callable[[WireClient], _T]) -> _T:
        return self.server.ask(self.client, call)

    @property
    def batch_reads(self) -> bool:
        return self.server.batch_reads and self.server.ask(
            self.client, lambda wire: wire.batch_reads
        )

    def read_entries(self, *arguments: Any, **options: Any) -> RecordBatch:
        if not self.server.batch_reads:
            raise IllegalOperation(f"{self.bookie_id} does not know batch reads")
        return super().read_entries(*arguments, **options)

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: Errors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        return iter(
            self.server.ask(self.client, lambda wire: list(wire.availability_many(ledgers, errors)))
        )
