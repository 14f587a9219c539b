"""Trees of clusters: made by the real commands and by ours, joined by bookies of both kinds."""

from __future__ import annotations

import re
import subprocess
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bkstore.cluster import ZooKeeperStore
from bkstore.errors import UnsupportedLayout
from bkstore.network import Client, RegisteredBookie
from tests.golden.zookeeper.real_clusters import raw, tree_of
from tests.interop.bookies import Cluster, Place
from tests.interop.class_path import java
from tests.interop.clusters.conftest import MakeClient, MakeCluster
from tests.interop.driver import RealError

MANAGERS = ("flat", "hierarchical", "longhierarchical")
FACTORIES = {
    "flat": "org.apache.bookkeeper.meta.FlatLedgerManagerFactory",
    "hierarchical": "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory",
    "longhierarchical": "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory",
}
UUID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_roots = count()


def _uri(cluster: Cluster, manager: str) -> tuple[str, str]:
    """Return a root where there is nothing yet, and its service URI."""
    root = f"/tree{next(_roots)}"
    return root, f"zk+{manager}://127.0.0.1:{cluster.port}{root}"


def _tree(uri: str, root: str) -> dict[str, Any]:
    """Return all nodes below a root but for the instance id, which is looked at."""
    with ZooKeeperStore(uri) as store:
        found = tree_of(raw(store), root)
    instance = found.pop("/INSTANCEID")

    assert UUID.fullmatch(instance[0])
    return {**found, "/INSTANCEID": instance[1:]}


def _ours(cluster: Cluster, manager: str) -> dict[str, Any]:
    root, uri = _uri(cluster, manager)
    ZooKeeperStore.format(uri).close()
    return _tree(uri, root)


def _shell(classes: Path, folder: Path, uri: str, *command: str) -> None:
    conf = folder / "bk_server.conf"
    conf.write_text(f"metadataServiceUri={uri}\n")
    line = java(classes, "org.apache.bookkeeper.bookie.BookieShell", "-conf", str(conf), *command)
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)

    assert 0 == done.returncode, done.stderr[-2000:]


@pytest.mark.parametrize("manager", MANAGERS)
def test_new_cluster(real_cluster: Cluster, manager: str) -> None:
    """`initnewcluster` and our `format` leave the same nodes: values, versions, access lists."""
    root, uri = _uri(real_cluster, manager)
    real_cluster.real.call("new_cluster", conf={"metadataServiceUri": uri})

    assert _tree(uri, root) == _ours(real_cluster, manager)


@pytest.mark.parametrize("manager", MANAGERS)
def test_formatted(real_cluster: Cluster, manager: str) -> None:
    """`metaformat` on nothing leaves them too, if the settings name the manager.

    It does not look at the manager in the URI: without that setting the cluster is hierarchical,
    which our store tells from what the URI says.
    """
    root, uri = _uri(real_cluster, manager)
    conf = {"metadataServiceUri": uri, "ledgerManagerFactoryClass": FACTORIES[manager]}

    assert real_cluster.real.call("format_cluster", conf=conf, force=False)
    assert _tree(uri, root) == _ours(real_cluster, manager)

    root, uri = _uri(real_cluster, manager)
    real_cluster.real.call("format_cluster", conf={"metadataServiceUri": uri}, force=False)
    plain = uri.replace(f"zk+{manager}:", "zk:")

    assert _tree(plain, root) == _ours(real_cluster, "hierarchical")
    if manager != "hierarchical":
        with pytest.raises(UnsupportedLayout, match=f"hierarchical.*{manager}"):
            ZooKeeperStore(uri)


def test_shell_commands(real_cluster: Cluster, java_classes: Path, tmp_path: Path) -> None:
    """The commands of the real shell make what its classes make."""
    for command in (["initnewcluster"], ["metaformat", "-nonInteractive"]):
        root, uri = _uri(real_cluster, "hierarchical")
        _shell(java_classes, tmp_path, uri, *command)

        assert _tree(uri, root) == _ours(real_cluster, "hierarchical")


def _known(store: Any, bookie: str) -> tuple[int, str | None]:
    """Return the version and the instance of a bookie's cookie in ZooKeeper."""
    known = store.cookie(bookie)
    assert known is not None
    return known.version, known.cookie.instance_id


def _life(cluster: Cluster, client: Client, theirs: Any) -> None:
    """Each client writes a ledger that the other reads and lists."""
    with client.create_ledger(2, 2, 2, password=b"pw") as mine:
        mine.append_many([b"ours"] * 20)
    written = theirs.create(2, 2, 2)
    theirs.add(written, [b"theirs"] * 20)
    theirs.close_ledger(written)
    theirs.open(mine.id, recovery=False)

    assert [b"ours"] * 20 == theirs.read(mine.id, 0, 19)
    reader = client.open_ledger(written, password=b"pw")
    assert [b"theirs"] * 20 == [entry.payload for entry in reader.read(0, 19)]
    both = sorted([mine.id, written])
    assert both == [name.ledger for name in client.store.ledgers()]
    assert both == theirs.ledgers()


@pytest.mark.parametrize("manager", MANAGERS)
def test_our_bookies_join(
    new_cluster: MakeCluster, real_client: MakeClient, manager: str, tmp_path: Path
) -> None:
    """Bookies of ours join a cluster that `initnewcluster` made: cookies, addresses, ledgers."""
    cluster = new_cluster(manager)
    names = ["b0", "b1"]
    bookies = [
        RegisteredBookie.open(cluster.uri, tmp_path / name, bookie_id=name) for name in names
    ]
    with Client(cluster.uri) as client:
        theirs = real_client(cluster)

        assert {"writable": names, "read_only": [], "ever": names} == theirs.bookies()
        for name in names:
            assert (0, cluster.instance_id) == _known(client.store, name)
        _life(cluster, client, theirs)
    for bookie in bookies:
        bookie.close()

    assert {"writable": [], "read_only": [], "ever": names} == theirs.bookies()


@pytest.mark.parametrize("manager", MANAGERS)
def test_real_bookies_join(
    real_cluster: Cluster, real_client: MakeClient, manager: str, tmp_path: Path
) -> None:
    """Real bookies start on a cluster that our `format` made; their cookies have its instance."""
    root, uri = _uri(real_cluster, manager)
    with ZooKeeperStore.format(uri) as store:
        instance = store.instance_id()
        assert instance is not None
        cluster = Cluster(real_cluster.real, real_cluster.port, root, manager, instance)
        places = [
            Place(f"{root[1:]}-{number}", [tmp_path / f"{number}/l"], [tmp_path / f"{number}/j"])
            for number in range(2)
        ]
        with (
            cluster.bookie(places[0], "sorted"),
            cluster.bookie(places[1], "db"),
            Client(store) as client,
        ):
            for place in places:
                assert (0, instance) == _known(store, place.bookie_id)
            _life(cluster, client, real_client(cluster))


@pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
def test_one_directory(new_cluster: MakeCluster, storage: Any, tmp_path: Path) -> None:
    """A directory goes from our bookie to a real one and back, in the same cluster, as it is.

    Each finds the cookie of the other, and has what it acknowledged.
    """
    cluster = new_cluster()
    place = Place("b0", [tmp_path / "b0" / "ledgers"], [tmp_path / "b0" / "journal"])
    said = [b"%d" % number for number in range(30)]
    with Client(cluster.uri) as client:
        ledger = -1
        for turn in range(3):
            bookie = (
                cluster.bookie(place, storage)
                if turn == 1
                else RegisteredBookie.open(cluster.uri, tmp_path / "b0", storage, bookie_id="b0")
            )
            with bookie:
                if turn:
                    reader = client.open_ledger(ledger, password=b"pw")
                    assert said == [entry.payload for entry in reader.read(0, 29)]
                writer = client.create_ledger(1, 1, 1, password=b"pw")
                writer.append_many(said)
                ledger = writer.id

        assert 0 == _known(client.store, "b0")[0]


def test_formatted_again(new_cluster: MakeCluster, tmp_path: Path) -> None:
    """`metaformat -force` on a cluster of ours: no ledgers, ids from 0, new instance id.

    A bookie of ours that was in it refuses to start, as a real one does.
    """
    cluster = new_cluster()
    conf = {"metadataServiceUri": cluster.uri}
    with (
        RegisteredBookie.open(cluster.uri, tmp_path / "b0", bookie_id="b0"),
        Client(cluster.uri) as client,
    ):
        for number in range(3):
            assert number == client.create_ledger(1, 1, 1).id

        assert not cluster.real.call("format_cluster", conf=conf, force=False)
        assert 3 == len(client.store.ledgers())
        assert cluster.real.call("format_cluster", conf=conf, force=True)
        assert [] == client.store.ledgers()
        assert 0 == client.create_ledger(1, 1, 1).id
        assert frozenset() == client.store.cookies()
        assert cluster.instance_id != client.store.instance_id()
    with pytest.raises(UnsupportedLayout, match="is of cluster"):
        RegisteredBookie.open(cluster.uri, tmp_path / "b0", bookie_id="b0")


def test_made_already(real_cluster: Cluster) -> None:
    """Neither makes a cluster where the other has made one."""
    root, uri = _uri(real_cluster, "hierarchical")
    ZooKeeperStore.format(uri).close()
    before = _tree(uri, root)
    with pytest.raises(RealError, match="there already"):
        real_cluster.real.call("new_cluster", conf={"metadataServiceUri": uri})

    assert before == _tree(uri, root)
