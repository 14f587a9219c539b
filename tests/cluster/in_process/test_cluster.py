"""A cluster in this process: directories, names, openings, clients of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore import BookieDir
from bkstore.cluster import Client, Cluster, DirectoryStore, MemoryStore
from bkstore.cluster.client.bookie_client import BatchAdder, BookieClient
from bkstore.cluster.placement.policies import RackPlacement
from bkstore.errors import (
    BookieUnavailable,
    InvalidArgument,
    NotEnoughBookies,
)
from bkstore.ledger_metadata import Segment
from bkstore.testing.factories import ClusterFactory

DATA = [b"zero", b"", b"two", b"three" * 50]


class TestClusterItself:
    """Directories, ids, stores, clients."""

    def test_directories_can_be_inspected(self, bkstore_cluster: ClusterFactory) -> None:
        """After the close each bookie's directory reads as a bookie's, of its own storage."""
        cluster = bkstore_cluster(3, ["sorted", "db", "interleaved"])
        ledger = cluster.create_ledger(3, 3, 2)
        ledger.append_many(DATA)
        ledger.close()
        cluster.close()
        found = {}
        for number in (1, 2, 3):
            with BookieDir(cluster.path / f"bookie-{number}") as bookie:
                found[bookie.bookie_id] = (bookie.layout, bookie.index.entries(0).tolist())

        assert {
            "bookie-1": ("idx", [0, 1, 2, 3]),
            "bookie-2": ("rocksdb", [0, 1, 2, 3]),
            "bookie-3": ("idx", [0, 1, 2, 3]),
        } == found

    @pytest.mark.parametrize("checkpoint", [True, False])
    def test_a_cluster_is_opened_again(self, tmp_path: Path, checkpoint: bool) -> None:
        """With a store of its own a cluster goes on where it was, journals replayed."""
        with Cluster.open(tmp_path / "c", store=DirectoryStore(tmp_path / "m")) as cluster:
            ledger = cluster.create_ledger(password=b"pw")
            ledger.append_many(DATA)
            cluster.close(checkpoint)
        with Cluster.open(tmp_path / "c", store=DirectoryStore(tmp_path / "m")) as cluster:
            again = cluster.open_ledger(ledger.ledger, password=b"pw")

            assert DATA == [entry.payload for entry in again.read(0, 3)]

    def test_names(self, bkstore_cluster: ClusterFactory, tmp_path: Path) -> None:
        """Bookies have the ids given, else numbers; more can join; no id is taken twice."""
        cluster = bkstore_cluster(["left", "right"], ["sorted", "db"])

        assert "bookie-3" == cluster.add_bookie()
        assert "odd" == cluster.add_bookie("odd", "interleaved")
        assert ["left", "right", "bookie-3", "odd"] == list(cluster.bookies)
        assert "bookie-2" == bkstore_cluster(["bookie-1", "bookie-3"]).add_bookie("bookie-2")
        assert "bookie-4" == bkstore_cluster(["bookie-1", "bookie-3"]).add_bookie()
        assert ["sorted", "db", "sorted", "interleaved"] == [
            cluster.bookie(name).storage.storage for name in cluster.bookies
        ]
        assert {"left", "right", "bookie-3", "odd"} == cluster.store.registered_bookies()
        for name in ("left", "a/b", "..", ""):
            with pytest.raises(InvalidArgument):
                cluster.add_bookie(name)
        with pytest.raises(InvalidArgument, match="no bookie 'up'; there are left, right"):
            cluster.stop("up")
        with pytest.raises(InvalidArgument, match="empty list"):
            Cluster.open(tmp_path, 1, [])

    def test_bookies_are_clients(self, bkstore_cluster: ClusterFactory) -> None:
        """What `bookies` has keeps to the protocols, and changes as bookies join."""
        cluster = bkstore_cluster(1)
        view = cluster.bookies
        cluster.add_bookie()

        assert 2 == len(view) == len(list(view))
        assert all(isinstance(client, BookieClient) for client in view.values())
        assert all(isinstance(client, BatchAdder) for client in view.values())
        assert ["bookie-1", "bookie-2"] == [client.bookie_id for client in view.values()]
        assert "bookie-1" in repr(cluster)

    def test_a_bookie_that_does_not_open_closes_the_others(self, tmp_path: Path) -> None:
        """`open` raises, and leaves no bookie open behind."""
        from bkstore.errors import DirectoryInUse

        with Cluster.open(tmp_path, 2) as cluster, pytest.raises(DirectoryInUse):
            Cluster.open(tmp_path, ["bookie-3", "bookie-2"])
        with Cluster.open(tmp_path, 3) as cluster:
            assert 3 == len(cluster.bookies)

    def test_placement(self, bkstore_cluster: ClusterFactory) -> None:
        """Ensembles are the policy's choice, new ones and those that replace a bookie."""
        racks = {f"bookie-{n}": f"/rack-{n % 2}" for n in range(1, 7)}
        cluster = bkstore_cluster(6, placement=RackPlacement(racks, enforce=True, seed=3))
        ledger = cluster.create_ledger(4, 2, 2)
        ensemble = ledger.metadata.segments[0].ensemble
        cluster.crash(ensemble[1])
        ledger.append(b"x")
        ledger.append(b"y")
        changed = ledger.metadata.segments[-1].ensemble

        assert ensemble[1] not in changed
        for bookies in (ensemble, changed):
            assert all(racks[a] != racks[b] for a, b in zip(bookies, [*bookies[1:], bookies[0]]))

    def test_a_client_of_its_own(self, bkstore_cluster: ClusterFactory) -> None:
        """A `Client` needs a store and bookies only; bookies that it lacks are unreachable."""
        cluster = bkstore_cluster(3)
        store = MemoryStore(known_lists=frozenset())
        client = Client(store, {name: cluster.bookies[name] for name in ("bookie-1", "bookie-2")})
        ledger = client.create_ledger(2, 2, 2)
        ledger.append(b"x")
        ledger.close()
        lone = Client(store, {"bookie-1": cluster.bookies["bookie-1"]}).open_ledger(0)
        nobody = Client(store, {}).open_ledger(0)

        assert b"x" == lone.read_last().payload
        with pytest.raises(BookieUnavailable, match="bookie-2 is unknown to this client"):
            nobody.read_last()
        with pytest.raises(NotEnoughBookies):
            client.create_ledger(3, 2, 2)

    def test_segments_are_segments(self, bkstore_cluster: ClusterFactory) -> None:
        """A fresh ledger has one segment, from entry 0 on."""
        metadata = bkstore_cluster(2).create_ledger(2, 2, 1).metadata

        assert [0] == [segment.first_entry for segment in metadata.segments]
        assert isinstance(metadata.segments[0], Segment)
        assert [] == metadata.problems()
