"""Rescue into a running cluster: bookies of this process, behind the client."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from bkstore import Bookie
from bkstore.cluster import MemoryStore
from bkstore.errors import InvalidArgument, NoSuchLedger, NotEnoughBookies
from bkstore.files.scratch import scratch_directory
from bkstore.formats.entry import RecordBatch
from bkstore.ids import LedgerId
from bkstore.network import Client
from bkstore.rescue import RescueJob, WantedLedgers, open_source, rescue_job, rescued_records
from bkstore.rescue.ledger_plans import LedgerPlan
from bkstore.rescue.outputs import RunningClusterOutput
from bkstore.schedule import write_set
from bkstore.wire.server import BookieServer
from tests.rescue.rescue_worlds import RescueWorld, WrittenLedger


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


class CountedOutput(RunningClusterOutput):
    """Keeps what is sent; ends when so many entries have been."""

    def __init__(self, client: Client, stop_after: int) -> None:
        super().__init__(client)
        self.sent: list[tuple[LedgerId, int]] = []
        self._stop_after = stop_after

    def add(self, plan: LedgerPlan, records: RecordBatch) -> None:
        """Send records, or fail."""
        if len(self.sent) >= self._stop_after:
            raise NotEnoughBookies("interrupted")
        self.sent += [(plan.metadata.ledger, entry) for entry in records.entries.tolist()]
        super().add(plan, records)


def rescue_to(
    client: Client, world: RescueWorld, output: RunningClusterOutput | None = None
) -> RescueJob:
    """Rescue a world into the cluster of a client."""
    with ExitStack() as stack:
        sources = [
            stack.enter_context(open_source(world.path(bookie), bookie)) for bookie in world.bookies
        ]
        metadata = {ledger_id: each.metadata for ledger_id, each in world.ledgers.items()}
        job = RescueJob(sources, WantedLedgers(metadata), jobs=1)
        scratch = stack.enter_context(scratch_directory("rescue"))
        job.survey(scratch / "surveys", scratch)
        job.write_to(output or RunningClusterOutput(client))
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


@pytest.mark.parametrize("was_open", [False, True])
def test_an_interrupted_rescue_goes_on(tmp_path: Path, was_open: bool) -> None:
    """A ledger that is IN_RECOVERY from an earlier run, with all of its entries, is closed, at the
    length that its last record has if nobody closed it before."""
    world = RescueWorld(tmp_path / "world", seed=3, scopes=False)
    if was_open:
        for ledger in world.ledgers.values():
            fields = {"state": "OPEN", "last_entry_id": -1, "length": 0}
            ledger.metadata = replace(ledger.metadata, **fields)  # type: ignore[arg-type]
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


def lacking_entries(cluster: RunningCluster, ledger: WrittenLedger) -> list[int]:
    """Return the entries of a ledger that some bookie of their write sets lacks."""
    stored = cluster.store.read(ledger.metadata.ledger).metadata
    (segment,) = stored.segments
    held = {}
    for bookie in segment.ensemble:
        try:
            held[bookie] = {*cluster.client.bookies[bookie].availability(stored.ledger)}
        except NoSuchLedger:
            held[bookie] = set()
    return [
        entry
        for entry in ledger.records
        if not all(
            entry in held[segment.ensemble[index]]
            for index in write_set(entry, stored.ensemble_size, stored.write_quorum_size)
        )
    ]


def test_only_missing_entries_are_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ledgers are closed at checkpoints; of the one that is not, only the rest is sent, with the
    last entry, which has the length."""
    monkeypatch.setattr(rescue_job, "CHECKPOINT_LEDGERS", 1)
    monkeypatch.setattr(rescued_records, "_BATCH_BYTES", 700)
    world = RescueWorld(tmp_path / "world", seed=1, scopes=False)
    first, second, third = sorted(world.ledgers)
    cluster = RunningCluster(tmp_path, 2)
    try:
        stop_after = len(world.ledgers[first].records) + len(world.ledgers[second].records) // 2
        with pytest.raises(NotEnoughBookies, match="interrupted"):
            rescue_to(cluster.client, world, CountedOutput(cluster.client, stop_after))
        assert cluster.store.read(first).metadata.closed
        assert cluster.store.read(second).metadata.state == "IN_RECOVERY"
        assert third not in cluster.store.ledgers()

        missing = lacking_entries(cluster, world.ledgers[second])
        last = len(world.ledgers[second].records) - 1
        assert 0 < len(missing) < last
        output = CountedOutput(cluster.client, 1 << 30)
        rescue_to(cluster.client, world, output)
        rest = [(third, entry) for entry in world.ledgers[third].records]
        assert output.sent == [(second, entry) for entry in sorted({*missing, last})] + rest
        check_ledgers(cluster, world)
    finally:
        cluster.close()


def test_what_a_closed_ledger_lacks_is_sent(tmp_path: Path) -> None:
    """An entry that the first run could not read is sent by the second one; bookies that do not
    answer are not asked twice."""
    world = RescueWorld(tmp_path / "world", seed=1, scopes=False)
    ledger_id = min(world.ledgers)
    cluster = RunningCluster(tmp_path, 2)
    try:
        rescue_to(cluster.client, world)
        (bookie, *_) = cluster.store.read(ledger_id).metadata.segments[0].ensemble
        server = next(each for each in cluster.servers if str(each.address) == bookie)
        server.bookie.delete_ledger(ledger_id)
        missing = lacking_entries(cluster, world.ledgers[ledger_id])
        assert missing
        output = CountedOutput(cluster.client, 1 << 30)
        rescue_to(cluster.client, world, output)
        assert output.sent == [(ledger_id, entry) for entry in missing]
        check_ledgers(cluster, world)

        server.close()
        output = CountedOutput(cluster.client, 1 << 30)
        rescue_to(cluster.client, world, output)
        assert output.sent == []
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
