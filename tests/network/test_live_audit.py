"""`bkstore audit URI`: what a running cluster holds, by what its bookies say over sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore.ids import LedgerId
from bkstore.network import RegisteredBookie
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import new_uri
from tests.models.audit import BOOKIES, random_world
from tests.network.live_audits import audited, cluster_of, rows_of
from tests.worlds.audits import closed

Capsys = pytest.CaptureFixture[str]
B3 = ("b1", "b2", "b3")
WHOLE = range(6)
SCOPED = LedgerId(5, 2**63 + 7)


@pytest.fixture
def uri(zookeeper: ZooKeeperServer) -> str:
    """Return the service URI of a root that nobody had before."""
    return new_uri(zookeeper)


@pytest.fixture
def running(uri: str, tmp_path: Path) -> Iterator[dict[str, RegisteredBookie]]:
    """Yield three bookies; of ledgers 1 to 4 there are fewer and fewer replicas of entry 4."""
    names = [LedgerId.of(ledger) for ledger in range(1, 5)] + [SCOPED]
    held: dict[str, dict[LedgerId, Any]] = {b: dict.fromkeys(names, WHOLE) for b in B3}
    for bookie, ledgers in {"b3": (2, 3, 4), "b2": (3, 4), "b1": (4,)}.items():
        for ledger in ledgers:
            held[bookie][LedgerId.of(ledger)] = [0, 1, 2, 3, 5]
    ledgers = [closed(name) for name in names]  # type: ignore[arg-type]
    with cluster_of(uri, tmp_path, ledgers, held) as bookies:
        yield bookies


def test_every_category_of_durability(
    uri: str, running: dict[str, RegisteredBookie], capsys: Capsys
) -> None:
    """Losses at bookies of all storages are found over the wire, in the category of the worst
    entry; a ledger of a scope is judged with the others."""
    code, rows, err = audited(capsys, uri)
    found = {(row["category"], row["ledger_id"], row["bookie"]) for row in rows}

    assert 1 == code
    assert {
        ("below_write_quorum", 2, "b3"),
        ("below_ack_quorum", 3, "b2"),
        ("below_ack_quorum", 3, "b3"),
        *(("no_replica", 4, name) for name in B3),
    } == found
    assert {str([[4, 4]])} == {str(row["missing"]) for row in rows}
    assert "5 of 5 ledgers checked (0 of them empty), 15 answers of bookies" in err


@pytest.mark.parametrize("seed", range(2))
def test_live_and_from_directories_the_same(
    seed: int, uri: str, tmp_path: Path, capsys: Capsys
) -> None:
    """Random clusters: over the wire, from the directories of the same bookies, and by sets of
    entries the same rows come out."""
    world = random_world(seed, ledgers=8)
    with cluster_of(uri, tmp_path, world.ledgers, world.held):
        live = audited(capsys, uri)
    directories = [f"{name}={tmp_path / name}" for name in BOOKIES]
    offline = audited(capsys, uri, "--offline", *directories)
    expected = {(row[0], row[1].qualified_name, row[2], row[3]) for row in world.rows()}

    assert expected == {row[:4] for row in rows_of(live[1])}
    assert rows_of(live[1]) == rows_of(offline[1])
    assert live[2].splitlines()[-1] == offline[2].splitlines()[-1]
