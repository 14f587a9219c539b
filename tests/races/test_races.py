"""Two clients at once, over all stores: what was acknowledged is there, whoever came first.

A request to the store or to a bookie is a turn, and a seed says whose: so a failure is repeated
by its seed. `store_races` and `client_races` are the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.races.client_races import CLIENT_RACES
from tests.races.store_races import STORE_RACES, ZOOKEEPER_RACES
from tests.races.two_clients import Bookies, TwoClients, bookies, two_clients

LAYOUTS = ["hierarchical", "longhierarchical", "flat"]
SEEDS = {"memory": 8, "directory": 2, "hierarchical": 1}
MANY = {"memory": 300, "directory": 100, **dict.fromkeys(LAYOUTS, 60)}

Run = Callable[[str, int, Callable[[TwoClients], None]], None]


@pytest.fixture(scope="module")
def shared() -> Iterator[Bookies]:
    """Yield the bookies of all races."""
    with bookies() as opened:
        yield opened


@pytest.fixture
def run(shared: Bookies, tmp_path: Path, request: pytest.FixtureRequest) -> Run:
    """Return a function that runs a race over a store with so many seeds."""

    def run(kind: str, seeds: int, race: Callable[[TwoClients], None]) -> None:
        server: ZooKeeperServer | None = None
        if kind in LAYOUTS:
            server = request.getfixturevalue("zookeeper")
        for seed in range(seeds):
            with two_clients(kind, tmp_path, server, shared, seed) as here:
                try:
                    race(here)
                except AssertionError as error:
                    raise AssertionError(f"seed {seed}") from error

    return run


RACES = {
    **{f"store: {name}": race for name, race in STORE_RACES.items()},
    **{f"client: {name}": race for name, race in CLIENT_RACES.items()},
}


@pytest.mark.parametrize("kind", SEEDS)
@pytest.mark.parametrize("name", RACES)
def test_races(run: Run, name: str, kind: str) -> None:
    """Nothing that was acknowledged is lost, nothing is given twice, and all see one truth."""
    run(kind, SEEDS[kind], RACES[name])


@pytest.mark.parametrize("name", ZOOKEEPER_RACES)
def test_races_of_zookeeper(run: Run, name: str) -> None:
    """So it is with marks, locks, votes and cookies."""
    run("hierarchical", 8, lambda here: ZOOKEEPER_RACES[name](here, *here.stores))


@pytest.mark.long
@pytest.mark.parametrize("kind", MANY)
@pytest.mark.parametrize("name", RACES)
def test_many_races(run: Run, name: str, kind: str) -> None:
    """The same, in many orders."""
    run(kind, MANY[kind], RACES[name])


@pytest.mark.long
@pytest.mark.parametrize("name", ZOOKEEPER_RACES)
def test_many_races_of_zookeeper(run: Run, name: str) -> None:
    """The same, in many orders."""
    run(
        "hierarchical", MANY["hierarchical"], lambda here: ZOOKEEPER_RACES[name](here, *here.stores)
    )
