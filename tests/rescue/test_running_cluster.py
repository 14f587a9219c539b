"""Rescue into a running cluster: bookies of this process, behind the client."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from bkstore import Bookie
from bkstore.cluster import MemoryStore
from bkstore.errors import InvalidArgument, NotEnoughBookies
from bkstore.files.scratch import scratch_directory
from bkstore.network import Client
from bkstore.rescue import RescueJob, WantedLedgers, open_source
from bkstore.rescue.outputs import RunningClusterOutput
from bkstore.wire.server import BookieServer
from tests.rescue.rescue_worlds import RescueWorld


class RunningCluster:
    """Some bookies on loopback and a client of them."""

    def __init__(self, top: Path, count: int) -> None:
        self.store = MemoryStore()
        self._stack = ExitStack()
        enter = self._stack.enter_context
        self.servers = []
        for number in range(count):
            server = enter(BookieServer(enter(Bookie.open(top / f"new-{number}"))))
            self.store.register_bookie(str(server.address))
            self.servers.append(server)
        self.client = enter(Client(self.store))

    def close(self) -> None:
        """Stop the bookies."""
        self._stack.close()


def rescue_to(client: Client, world: RescueWorld) -> RescueJob:
    """Rescue a world into the cluster of a client."""
    with ExitStack() as stack:
        sources = [
            stack.enter_context(open_source(world.path(bookie), bookie)) for bookie in world.bookies
        ]
        metadata = {ledger_id: each.metadata for ledger_id, each in world.ledgers.items()}
        job = RescueJob(sources, WantedLedgers(metadata), jobs=1)
        scratch = stack.enter_context(scratch_directory("rescue"))
        job.survey(scratch / "surveys", scratch)
        job.write_to(RunningClusterOutput(client))
    return job


def check_ledgers(cluster: RunningCluster, world: RescueWorld) -> None:
    """Read every ledger by its password, and compare its metadata with the old ones."""
    for ledger_id, ledger in world.ledgers.items():
        old = ledger.metadata
        stored = cluster.store.read(ledger_id).metadata
        assert (stored.state, stored.last_entry_id) == ("CLOSED", len(ledger.records) - 1)
        assert stored.length == sum(map(len, ledger.payloads.values()))
        for name in ("digest_type", "password", "custom_metadata", "ctime"):
            assert getattr(stored, name) == getattr(old, name)
        assert stored.ensemble_size == min(old.ensemble_size, len(cluster.servers))
        handle = cluster.client.open_ledger(ledger_id, password=old.password or b"")
        if ledger.records:
            entries = list(handle.read(0, len(ledger.records) - 1))
            assert [entry.payload for entry in entries] == list(ledger.payloads.values())


@pytest.mark.parametrize("count", [1, 3])
def test_ledgers_keep_their_ids_and_metadata(tmp_path: Path, count: int) -> None:
    """On fewer bookies too; a second run leaves everything as it is."""
    world = RescueWorld(tmp_path / "world", seed=3, scopes=False)
    cluster = RunningCluster(tmp_path, count)
    try:
        assert rescue_to(cluster.client, world).is_whole
        check_ledgers(cluster, world)
        versions = {each: cluster.store.read(each).version for each in world.ledgers}
        rescue_to(cluster.client, world)
        assert {each: cluster.store.read(each).version for each in world.ledgers} == versions
    finally:
        cluster.close()


def test_an_interrupted_rescue_goes_on(tmp_path: Path) -> None:
    """A ledger that is IN_RECOVERY from an earlier run gets all of its entries."""
    world = RescueWorld(tmp_path / "world", seed=3, scopes=False)
    cluster = RunningCluster(tmp_path, 2)
    try:
        rescue_to(cluster.client, world)
        for ledger_id in world.ledgers:
            metadata, version = cluster.store.read(ledger_id)
            unfinished = {"state": "IN_RECOVERY", "last_entry_id": -1, "length": 0}
            cluster.store.write(replace(metadata, **unfinished), version)  # type: ignore[arg-type]
        rescue_to(cluster.client, world)
        check_ledgers(cluster, world)
    finally:
        cluster.close()


def test_another_ledger_of_the_id_is_kept(tmp_path: Path) -> None:
    """Nothing is written if one of the ids is taken; nor without a bookie."""
    world = RescueWorld(tmp_path / "world", seed=3, scopes=False)
    taken = max(world.ledgers)
    cluster = RunningCluster(tmp_path, 2)
    try:
        cluster.client.create_ledger(1, 1, 1, ledger=taken, password=b"other")
        before = cluster.store.read(taken)
        with pytest.raises(InvalidArgument, match=f"another ledger {taken}"):
            rescue_to(cluster.client, world)
        assert cluster.store.ledgers() == [taken]
        assert cluster.store.read(taken) == before
    finally:
        cluster.close()
    with Client(MemoryStore()) as client, pytest.raises(NotEnoughBookies):
        rescue_to(client, world)
