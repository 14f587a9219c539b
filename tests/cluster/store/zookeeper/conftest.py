"""Clusters in ZooKeeper, and two clients of one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bkstore.cluster import ZooKeeperStore
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import new_uri


@pytest.fixture
def uri(zookeeper: ZooKeeperServer) -> str:
    """Return a new cluster's service URI."""
    found = new_uri(zookeeper)
    ZooKeeperStore.format(found).close()
    return found


@pytest.fixture
def stores(uri: str) -> Iterator[tuple[ZooKeeperStore, ZooKeeperStore]]:
    """Yield two clients of the cluster."""
    with ZooKeeperStore(uri, session_timeout=1) as one, ZooKeeperStore(uri) as other:
        yield one, other
