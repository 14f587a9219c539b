"""Ensembles in a ZooKeeper that runs already: it is used, and neither started nor stopped."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from bkstore.cluster import ZooKeeperStore
from bkstore.errors import IllegalOperation, InvalidArgument, UnsupportedLayout
from bkstore.network import Client
from bkstore.testing.ensemble import Ensemble
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import new_uri


def test_bookies_of_an_ensemble(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """They register there, are killed and come back; after the end ZooKeeper serves as before,
    and the same directory continues the cluster."""
    uri, pid = new_uri(zookeeper), zookeeper.pid
    with Ensemble(tmp_path / "e", 2, metadata=uri) as ensemble:
        assert (uri, None, f"runs at {uri}") == (
            ensemble.uri,
            ensemble.zookeeper_pid,
            ensemble.zookeeper_origin,
        )
        with Client(uri) as client:
            ledger = client.create_ledger(2, 2, 2)
            ledger.append(b"x")
            ledger.close()
        ensemble.kill("bookie-1")
        ensemble.start("bookie-1")
        with pytest.raises(IllegalOperation, match="is not this ensemble's"):
            ensemble.kill_zookeeper()
        with pytest.raises(IllegalOperation, match="is running"):
            ensemble.start_zookeeper()
    with ZooKeeperStore(uri) as store:
        assert frozenset() == store.writable_bookies()
    with Ensemble(tmp_path / "e") as again, Client(again.uri) as client:
        assert [b"x"] == [entry.payload for entry in client.open_ledger(ledger.id).read(0, 0)]
    assert pid == zookeeper.pid is not None


@pytest.mark.parametrize(
    ("uri", "servers", "root"),
    [
        ("zk://zk1.example:2181/a/ledgers", "zk1.example:2181", "/a/ledgers"),
        ("zk+flat://zk1:2182;zk2/bk", "zk1:2182,zk2:2181", "/bk"),
    ],
)
def test_environment(uri: str, servers: str, root: str, tmp_path: Path) -> None:
    """The URI is as given, `zkServers` has commas as in `bk_server.conf`; no bookie runs."""
    with contextlib.closing(Ensemble(tmp_path / "e", 1, metadata=uri)) as ensemble:
        assert ensemble.env == {
            "BK_metadataServiceUri": uri,
            "BK_zkServers": servers,
            "BK_zkLedgersRootPath": root,
            "BKSTORE_BOOKIES": "",
        }


def test_a_cluster_that_is_there_is_not_joined(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """A root that exists may be a real cluster's: nothing is started in it."""
    uri = new_uri(zookeeper)
    ZooKeeperStore.format(uri).close()
    with (
        pytest.raises(IllegalOperation, match="an ensemble needs a root of its own"),
        Ensemble(tmp_path / "e", 1, metadata=uri),
    ):
        pass
    with ZooKeeperStore(uri) as store:
        assert frozenset() == store.registered_bookies()


def test_what_is_refused(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """Options of a ZooKeeper to be started, other places, and what is no service URI."""
    uri = new_uri(zookeeper)
    for options in ({"port": 2181}, {"manager": "flat"}, {"zookeeper_home": tmp_path}):
        with pytest.raises(InvalidArgument, match="of a ZooKeeper that runs"):
            Ensemble(tmp_path / "e", metadata=uri, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="is not a service URI"):
        Ensemble(tmp_path / "e", metadata="localhost:2181")
    with pytest.raises(UnsupportedLayout):
        Ensemble(tmp_path / "e", metadata="zk+ms://localhost:2181/ledgers")
    Ensemble(tmp_path / "mine", 1, metadata=uri).close()
    with pytest.raises(InvalidArgument, match="its cluster is at"):
        Ensemble(tmp_path / "mine", metadata=new_uri(zookeeper))
