"""Two clients of one store and of the same bookies, whose every request is a turn."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from bkstore.cluster import (
    Client,
    Cluster,
    KeyValueStore,
    LedgerHandle,
    MemoryStore,
    ZooKeeperStore,
)
from bkstore.cluster.in_process.bookie import LocalBookie
from bkstore.cluster.store.api import Value
from bkstore.cluster.store.directory_values import DirectoryValues
from bkstore.cluster.store.memory_values import MemoryValues
from bkstore.ids import LedgerId
from bkstore.storage.bookie import Bookie
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import new_uri
from tests.worlds.turns import Turns

__all__ = ["Bookies", "TwoClients", "bookies", "two_clients"]

BOOKIES = 5
_scopes = count(1)


_T = TypeVar("_T")


class _Bookie(LocalBookie):
    turn: Callable[[], None] = staticmethod(lambda: None)

    def call(self, client_name: str, request: Callable[[Bookie], _T]) -> _T:
        self.turn()
        return super().call(client_name, request)


class Bookies(Cluster):
    """Bookies that several runs share, each with ledgers of a scope of its own."""

    def _new_bookie(self, bookie_id: str, path: Path, open_at: Callable[[Path], Bookie]) -> _Bookie:
        return _Bookie(bookie_id, path, open_at, timeout=self._timeout, sleep=self._sleep)

    def take_turns(self, turns: Callable[[], None]) -> None:
        """Let each request begin with a turn."""
        for server in self._servers.values():
            assert isinstance(server, _Bookie)
            server.turn = turns


@contextmanager
def bookies() -> Iterator[Bookies]:
    """Yield bookies in a directory that goes."""
    with (
        tempfile.TemporaryDirectory(prefix="bkstore-races-") as top,
        Bookies.open(top, BOOKIES, "sorted", store=MemoryStore()) as opened,
    ):
        yield opened


class _Values:
    """Values whose every call is a turn."""

    def __init__(self, values: Any, turns: Turns) -> None:
        self._values = values
        self._turns = turns

    def get(self, key: str) -> Value | None:
        self._turns()
        found: Value | None = self._values.get(key)
        return found

    def put(self, key: str, data: bytes, expected: int | None) -> int:
        self._turns()
        return int(self._values.put(key, data, expected))

    def delete(self, key: str, expected: int | None) -> bool:
        self._turns()
        return bool(self._values.delete(key, expected))

    def keys(self, prefix: str) -> list[str]:
        self._turns()
        return list(self._values.keys(prefix))

    def where(self, key: str) -> str:
        return str(self._values.where(key))


class _KazooClient:
    """A kazoo client whose every request is a turn."""

    def __init__(self, client: Any, turns: Turns) -> None:
        self._client = client
        self._turns = turns

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_async"):
            self._turns()
        return getattr(self._client, name)


@dataclass
class TwoClients:
    """What a race has: run its works by `run`; the stores are one's and the other's."""

    turns: Turns
    stores: Sequence[KeyValueStore]
    bookies: Bookies
    scope: int
    _names: tuple[str, str]

    def __post_init__(self) -> None:
        for name in self.bookies.bookies:
            self.stores[0].register_bookie(name)
        plain = [self.bookies.client(name).context for name in self._names]
        self.clients = [
            Client(store, each.bookies, each.placement, each.options)
            for store, each in zip(self.stores, plain)
        ]

    def run(self, *works: Callable[[], Any]) -> list[Any]:
        """Return what the works returned or raised."""
        return self.turns.run(*works)

    def ledger(self, *numbers: int) -> LedgerHandle:
        """Return a new ledger of the first client."""
        return self.clients[0].create_ledger(*(numbers or (3, 3, 2)), scope=self.scope)

    def cut(self, handle: LedgerHandle, client: int, place: int = 0) -> str:
        """Cut a bookie of a ledger's last ensemble off from a client; return its id."""
        bookie = handle.metadata.segments[-1].ensemble[place]
        self.bookies.partition(bookie, self._names[client])
        return bookie

    def content(self, ledger: LedgerId, client: int = 1) -> list[bytes]:
        """Return all entries of a ledger, which is closed for it."""
        handle = self.clients[client].open_ledger(ledger)
        last = handle.metadata.last_entry_id
        return [entry.payload for entry in handle.read(0, last)] if last >= 0 else []


@contextmanager
def two_clients(
    kind: str, place: Path, server: ZooKeeperServer | None, shared: Bookies, seed: int
) -> Iterator[TwoClients]:
    """Yield two clients of a new store of a kind."""
    turns, scope = Turns(seed), next(_scopes)
    with ExitStack() as end:
        if server is not None:
            uri = new_uri(server, kind)
            stores: list[KeyValueStore] = [end.enter_context(ZooKeeperStore.format(uri))]
            stores.append(end.enter_context(ZooKeeperStore(uri)))
            for store in stores:
                connection: Any = store._connection  # type: ignore[attr-defined]
                end.callback(setattr, connection, "client", connection.client)
                connection.client = _KazooClient(connection.client, turns)
        elif kind == "directory":
            top = place / f"store-{scope}"
            stores = [
                KeyValueStore(_Values(DirectoryValues(top, "tree", sync=False), turns))
                for _ in range(2)
            ]
        else:
            values = MemoryValues()
            stores = [KeyValueStore(_Values(values, turns)) for _ in range(2)]
        shared.take_turns(turns)
        names = (f"one-{scope}", f"other-{scope}")
        try:
            yield TwoClients(turns, stores, shared, scope, names)
        finally:
            for bookie in shared.bookies:
                shared.heal(bookie)
