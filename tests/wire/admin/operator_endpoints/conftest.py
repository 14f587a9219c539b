"""An admin of a bookie of a cluster in ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bkstore import Bookie
from bkstore.cluster import ZooKeeperStore
from bkstore.testing.zookeeper_server import ZooKeeperServer
from bkstore.wire.admin import AdminServer
from tests.cluster.store.samples import new_uri
from tests.wire.admin.asking import TOKEN


@pytest.fixture
def store(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperStore]:
    """Yield the metadata of a new cluster."""
    with ZooKeeperStore.format(new_uri(zookeeper)) as made:
        yield made


@pytest.fixture
def admin(bookie: Bookie, store: ZooKeeperStore) -> Iterator[AdminServer]:
    """Yield the admin of `bookie`, with a token and the cluster's metadata."""
    pytest.importorskip("aiohttp")
    with AdminServer(bookie, token=TOKEN, metadata=store) as serving:
        yield serving
