"""The ZooKeeper of an ensemble: a process of its own, or one that runs already."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from bkstore.cluster.store.zookeeper.service_uri import parse_service_uri
from bkstore.errors import IllegalOperation


def make_environment(service_uri: str, bookies: Iterable[tuple[str, int]]) -> dict[str, str]:
    """Return environment variables for processes that use a cluster; `bookies` are addresses.

    The first three are those of BookKeeper's container image, whose `scripts/common.sh` and
    `apply-config-from-env.py` set ``metadataServiceUri``, ``zkServers`` and ``zkLedgersRootPath``
    of `bk_server.conf` by them. Raises `InvalidArgument` for a URI that is not ZooKeeper's.

    >>> for item in make_environment("zk+flat://a:2181;b/bk", [("127.0.0.1", 3181)]).items():
    ...     print(*item)
    BK_metadataServiceUri zk+flat://a:2181;b/bk
    BK_zkServers a:2181,b:2181
    BK_zkLedgersRootPath /bk
    BKSTORE_BOOKIES 127.0.0.1:3181
    """
    uri = parse_service_uri(service_uri)
    return {
        "BK_metadataServiceUri": service_uri,
        "BK_zkServers": ",".join(uri.servers),
        "BK_zkLedgersRootPath": uri.root,
        "BKSTORE_BOOKIES": ",".join(f"{host}:{port}" for host, port in bookies),
    }


class EnsembleZooKeeper(Protocol):
    """What an ensemble needs of its ZooKeeper; `ZooKeeperServer` is one."""

    port: int
    jars_origin: str

    @property
    def pid(self) -> int | None:
        """The id of its process; None if it is not running."""

    def uri(self, root: str = "/ledgers", manager: str = "hierarchical") -> str:
        """Return the service URI of a cluster below `root`."""

    def start(self, timeout: float = 60.0) -> object:
        """Start it, and return when it serves."""

    def stop(self) -> None:
        """End it by SIGTERM."""

    def kill(self) -> None:
        """End it by SIGKILL."""


class RunningZooKeeper:
    """A ZooKeeper that runs already, by its service URI: it is neither started nor stopped.

    >>> RunningZooKeeper("zk+flat://localhost:2181/trial").manager
    'flat'
    """

    port = 0
    pid = None

    def __init__(self, service_uri: str) -> None:
        self._service_uri = service_uri
        self.manager = parse_service_uri(service_uri).manager or "hierarchical"
        self.jars_origin = f"runs at {service_uri}"

    def uri(self, root: str = "/ledgers", manager: str = "hierarchical") -> str:
        """Return the service URI, whatever the arguments."""
        return self._service_uri

    def start(self, timeout: float = 60.0) -> None:
        """Do nothing: whether it serves is seen by the first request."""

    def stop(self) -> None:
        """Leave it running."""

    def kill(self) -> None:
        """Raise `IllegalOperation`: it is not the ensemble's."""
        raise IllegalOperation(f"the ZooKeeper at {self._service_uri} is not this ensemble's")
