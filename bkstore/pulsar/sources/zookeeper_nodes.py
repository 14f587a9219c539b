"""ZooKeeperNodes: Pulsar's metadata in the ZooKeeper of a running cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from bkstore.cluster.store.zookeeper.connection import ZooKeeperConnection
from bkstore.cluster.store.zookeeper.kazoo_client import KazooException, NoNodeError
from bkstore.cluster.store.zookeeper.store import SESSION_TIMEOUT_SECONDS
from bkstore.errors import CorruptionError
from bkstore.pulsar.sources.nodes import NodeValue

_TIMEOUT_SECONDS = 30.0


class ZooKeeperNodes:
    """Nodes below a root in ZooKeeper, read by many requests at a time; nothing is written.

    Each reading first waits until the server has all earlier changes. Raises `MetadataUnavailable`
    without an answer in time, `UnauthorizedAccess` if an access list forbids a request.
    """

    is_live = True
    is_complete = True
    read_at = None

    def __init__(
        self, servers: Iterable[str], root: str = "", *, timeout: float = _TIMEOUT_SECONDS
    ) -> None:
        self.root = root.rstrip("/")
        self._connection = ZooKeeperConnection(
            servers, timeout=timeout, session_timeout=SESSION_TIMEOUT_SECONDS
        )

    def list_children(self, paths: Iterable[str]) -> Iterator[list[str] | None]:
        """As `PulsarNodes.list_children`."""
        for answer in self._request(paths, "get_children"):
            yield None if answer is None else sorted(answer)

    def read_many(self, paths: Iterable[str]) -> Iterator[NodeValue | CorruptionError | None]:
        """As `PulsarNodes.read_many`."""
        for answer in self._request(paths, "get"):
            if answer is None:
                yield None
            else:
                data, stat = answer
                yield NodeValue(data or b"", stat.version, stat.mtime)

    def _request(self, paths: Iterable[str], method: str) -> Iterator[Any]:
        """Yield the answers for nodes, None for those that are absent."""
        self._connection.request(self.root or "/", "sync")
        for _, answer in self._connection.request_many(map(self.location_of, paths), method):
            if isinstance(answer, NoNodeError):
                yield None
            elif isinstance(answer, KazooException):
                raise answer
            else:
                yield answer

    def location_of(self, path: str) -> str:
        """Return the path in ZooKeeper."""
        return f"{self.root}{path}"

    def close(self) -> None:
        """End the session."""
        self._connection.close()
