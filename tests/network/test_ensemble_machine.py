"""Five bookies and ZooKeeper as processes, killed at random: no acknowledged entry is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("kazoo", reason="kazoo is not installed")


from bkstore.errors import MissingDependency
from bkstore.ids import LedgerId
from bkstore.storage.options import StorageKind
from bkstore.testing.ensemble import Ensemble
from tests.cluster.client.cluster_model import Config
from tests.network.ensemble_machine import BOOKIES, EnsembleMachine

Start = Callable[[list[StorageKind]], Ensemble]

SEEDS, STEPS = 15, 25


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Yield a function that starts an ensemble of these storages; skip without Java."""
    started: list[Ensemble] = []

    def start(kinds: list[StorageKind]) -> Ensemble:
        try:
            place = tmp_path_factory.mktemp("ensemble") / "e"
            started.append(Ensemble(place, BOOKIES, kinds, session=3.0, sync=True))
        except MissingDependency as error:
            pytest.skip(str(error))
        return started[0].start()

    yield start
    for each in started:
        each.close()


def test_kills(start: Start) -> None:
    """Every acknowledged entry is read back, a fenced writer acknowledges nothing."""
    machine = EnsembleMachine(start(["sorted"]))
    machine.start(Config(3, 2, 2), 0, False)  # every copy counts
    look = machine.everything_acknowledged_is_readable
    try:
        one, other = machine.create(0), machine.create(1)
        assert isinstance(one, LedgerId)
        assert isinstance(other, LedgerId)
        killed = machine.handles[one].metadata.segments[-1].ensemble[0]
        machine.append_many(one, [5] * 8)
        machine.append_many(other, [5] * 8)
        machine.kill_during_appends(killed, one, [20] * 300)
        look()
        machine.kill_zookeeper(0.2)
        machine.append_many(one, [20] * 8)
        machine.recover(other)
        look()
        machine.bring_one_back(killed)
        machine.append_during_a_recovery(one, 60)
        look()
        third = machine.create(0)
        assert isinstance(third, LedgerId)
        machine.append(third, 5)
        paused = machine.handles[third].metadata.segments[-1].ensemble[1]
        machine.take_down(paused, "pause")
        going_on = threading.Timer(1.5, machine.bring_one_back, [paused])
        going_on.start()
        machine.append_many(third, [5] * 8)
        machine.recover(third)
        machine.append(third, 5)
        going_on.join()

        assert all(not model.writable for model in machine.models.values())
    finally:
        machine.teardown()  # which lets all come back, and looks again


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kinds", [["sorted", "db"], ["db"], ["interleaved", "sorted"]], ids=str)
def test_many_kills(start: Start, kinds: list[StorageKind]) -> None:
    """So it is in any order, with each storage."""
    ensemble = start(kinds)
    for seed in range(SEEDS):
        EnsembleMachine(ensemble).go(seed, STEPS)
