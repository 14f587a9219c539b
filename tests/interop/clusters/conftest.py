"""New clusters in the ZooKeeper of this run, and clients of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from tests.interop.bookies import Cluster
from tests.interop.clusters.processes import BookieProcesses, bookie_processes
from tests.interop.clusters.whole_client import WholeClient

MakeCluster = Callable[..., Cluster]
MakeProcesses = Callable[[], BookieProcesses]
MakeClient = Callable[..., WholeClient]

_roots = count()


@pytest.fixture(scope="session")
def new_cluster(real_cluster: Cluster) -> MakeCluster:
    """Return a function that makes a cluster; its ledger manager may be named."""

    def made(manager: str = "hierarchical") -> Cluster:
        root = f"/cluster{next(_roots)}"
        return Cluster.made(real_cluster.real, real_cluster.port, root, manager)

    return made


@pytest.fixture(scope="module")
def processes(
    new_cluster: MakeCluster, java_classes: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MakeProcesses]:
    """Yield a function that makes a cluster for processes; they are killed at the end."""
    with ExitStack() as stack:

        def made() -> BookieProcesses:
            folder = tmp_path_factory.mktemp("processes")
            return stack.enter_context(bookie_processes(new_cluster(), folder, java_classes))

        yield made


@pytest.fixture(scope="module")
def real_client() -> Iterator[MakeClient]:
    """Yield a function that opens a real client of a cluster; they are closed at the end."""
    with ExitStack() as stack:

        def opened(cluster: Cluster, protocol: str = "v3", **options: object) -> WholeClient:
            client = WholeClient(cluster.real, cluster.uri, protocol, **options)  # type: ignore[arg-type]
            stack.callback(client.close)
            return client

        yield opened
