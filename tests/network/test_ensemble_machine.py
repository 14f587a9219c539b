"""Five bookies and ZooKeeper as processes, killed at random: no acknowledged entry is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("kazoo", reason="kazoo is not installed")

from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from bkstore.errors import MissingDependency
from bkstore.storage.options import Storage
from bkstore.testing.ensemble import Ensemble
from tests.network.ensemble_machine import BOOKIES, EnsembleMachine

Start = Callable[[list[Storage]], Ensemble]

# Times differ from run to run: a failure is shown as it was, not made smaller.
FEW = settings(max_examples=2, stateful_step_count=10, deadline=None, phases=[Phase.generate])
MANY = settings(FEW, max_examples=40, stateful_step_count=30)


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Yield a function that starts an ensemble of these storages; skip without Java."""
    started: list[Ensemble] = []

    def start(kinds: list[Storage]) -> Ensemble:
        try:
            place = tmp_path_factory.mktemp("ensemble") / "e"
            started.append(Ensemble(place, BOOKIES, kinds, session=2.0, sync=True))
        except MissingDependency as error:
            pytest.skip(str(error))
        return started[0].start()

    yield start
    for each in started:
        each.close()


def _run(ensemble: Ensemble, size: settings) -> None:
    run_state_machine_as_test(lambda: EnsembleMachine(ensemble), settings=size)


def test_kills(start: Start) -> None:
    """Every acknowledged entry is read back, a fenced writer acknowledges nothing."""
    _run(start(["sorted"]), FEW)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kinds", [["sorted", "db"], ["db"], ["interleaved", "sorted"]], ids=str)
def test_many_kills(start: Start, kinds: list[Storage]) -> None:
    """So it is with each storage, for longer."""
    _run(start(kinds), MANY)
