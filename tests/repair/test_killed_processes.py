"""`bkstore repair` killed at its requests, and servers killed under it: again, it ends the same."""

from __future__ import annotations

import signal
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bkstore.errors import MetadataUnavailable
from bkstore.ledger_metadata import Segment
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import new_uri
from tests.repair.killable_clusters import EndState, KillableCluster, end_of_undisturbed

_ROOT = Path(__file__).parents[2]


def _run_killed(cluster: KillableCluster, last_request: int) -> subprocess.CompletedProcess[str]:
    """Run a repair in a process that is killed before a request (0: before none)."""
    arguments = [cluster.uri, str(last_request)]
    return subprocess.run(
        [sys.executable, "-m", "tests.repair.killed_repair", *arguments],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def _judge_kills(server: ZooKeeperServer, top: Path, choose: slice) -> None:
    """Kill a repair at the chosen requests of one that is not killed."""
    requests: list[int] = []

    def count_requests(cluster: KillableCluster) -> None:
        done = _run_killed(cluster, 0)
        assert 0 == done.returncode, done.stderr
        requests.extend(range(1, int(done.stdout) + 1))

    end = end_of_undisturbed(new_uri(server), top / "undisturbed", count_requests)
    _check_end(end)
    assert len(requests) > 40
    for request in requests[choose]:
        cluster = KillableCluster(new_uri(server), top / str(request))
        try:
            killed = _run_killed(cluster, request)
            assert -signal.SIGKILL == killed.returncode, killed.stderr
            assert cluster.repair_to_the_end().is_clean
            assert end == cluster.end_state(), f"killed at request {request}"
        finally:
            cluster.close()


def _check_end(end: EndState) -> None:
    """Compare an end with what a repaired cluster must have: no mark, and two replicas of each."""
    _, entries, marks = end
    assert [] == marks
    for number, count in enumerate((60, 30)):
        replicas = [entry for held in entries.values() for entry in held[number]]
        assert sorted(replicas) == sorted([*range(count), *range(count)])


def test_killed_in_the_middle(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """It has locked a ledger and copied some of its entries."""
    _judge_kills(zookeeper, tmp_path, slice(40, 41))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(4))
def test_killed_anywhere(zookeeper: ZooKeeperServer, tmp_path: Path, first: int) -> None:
    """Each request is the last one once."""
    _judge_kills(zookeeper, tmp_path, slice(first, None, 4))


@pytest.fixture
def killable(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[KillableCluster]:
    """Yield a cluster that lacks replicas."""
    made = KillableCluster(new_uri(zookeeper), tmp_path / "cluster")
    yield made
    made.close()


@pytest.fixture
def whole_end(zookeeper: ZooKeeperServer, tmp_path: Path) -> EndState:
    """Return how a cluster ends that is repaired while nothing fails."""
    made = end_of_undisturbed(new_uri(zookeeper), tmp_path / "whole", KillableCluster.repair)
    _check_end(made)
    return made


@pytest.mark.parametrize("is_target", [True, False])
def test_killed_bookies(killable: KillableCluster, whole_end: EndState, is_target: bool) -> None:
    """A bookie that receives entries, or one that has them, ends during the first copy."""
    ensemble = killable.store.read(killable.ledgers[0]).metadata.segments[0].ensemble
    victim = next(name for name in ensemble if (name == killable.lossy) == is_target)

    def kill(*_: int) -> None:
        if victim in killable.bookies:
            killable.kill(victim)

    report = killable.repair(progress=kill)
    assert not report.is_clean
    killable.start(victim)
    assert killable.repair_to_the_end().is_clean
    # A ledger that is planned while the victim is away is cut where only the victim has entries.
    segments, entries, marks = killable.end_state()
    assert [_by_entry(each) for each in whole_end[0]] == [_by_entry(each) for each in segments]
    assert whole_end[1:] == (entries, marks)


def _by_entry(segments: Sequence[Segment]) -> list[tuple[str, ...]]:
    """Return the ensemble of each of the first 60 entries."""
    starts = [segment.first_entry for segment in segments]
    return [segments[bisect_right(starts, entry) - 1].ensemble for entry in range(60)]


def test_killed_zookeeper(tmp_path: Path, zookeeper: ZooKeeperServer, whole_end: EndState) -> None:
    """ZooKeeper ends during the first copy and is away for longer than requests wait; then all
    locks have ended with their sessions, and the next repair ends as an undisturbed one."""
    with ZooKeeperServer(tmp_path / "zookeeper") as server:
        cluster = KillableCluster(server.uri(), tmp_path / "killed", timeout=1.0)
        try:
            with pytest.raises(MetadataUnavailable):
                cluster.repair(progress=lambda *_: server.kill())
            server.start()
            assert cluster.repair_to_the_end().is_clean
            assert whole_end == cluster.end_state()
        finally:
            cluster.close()
