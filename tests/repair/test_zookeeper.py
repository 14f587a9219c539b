"""Repairs in a cluster on a real ZooKeeper: its locks, its marks, and its switch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore.cluster import ZooKeeperStore
from bkstore.errors import IllegalOperation, MetadataUnavailable
from bkstore.network import Client, RegisteredBookie
from bkstore.repair import Repairer, RepairReport
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import new_uri
from tests.network.bookies_on_sockets import registered


class RealStore:
    """Three bookies and a ledger of two, of which one has lost entries; two clients."""

    def __init__(self, uri: str, top: Path) -> None:
        ZooKeeperStore.format(uri).close()
        self.bookies: dict[str, RegisteredBookie] = {
            name: registered(uri, top, name) for name in ("b1", "b2", "b3")
        }
        self.client, self.other = Client(uri), ZooKeeperStore(uri)
        with self.client.create_ledger(2, 2, 2) as ledger:
            ledger.append_many(b"payload %d" % number for number in range(5))
        self.ledger = ledger.ledger
        self.lossy = ledger.metadata.segments[0].ensemble[0]
        self.bookies[self.lossy].bookie.delete_ledger(self.ledger)
        self.other.underreplication.mark(self.ledger, [self.lossy])

    def repair(self) -> RepairReport:
        """Repair by a client."""
        return Repairer(self.client.context).run()

    def entries(self) -> list[int]:
        """Return what the lossy bookie has."""
        held: list[int] = self.bookies[self.lossy].bookie.entries(self.ledger).tolist()
        return held

    def close(self) -> None:
        """End all."""
        self.client.close()
        self.other.close()
        for bookie in self.bookies.values():
            bookie.close()


@pytest.fixture
def running(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[RealStore]:
    """Yield the cluster."""
    made = RealStore(new_uri(zookeeper), tmp_path)
    yield made
    made.close()


def test_marks(running: RealStore) -> None:
    """A marked ledger is repaired, its mark removed, its lock released."""
    report = running.repair()
    marks: Any = running.other.underreplication

    assert [0, 1, 2, 3, 4] == running.entries()
    assert (1, True) == (report.removed_marks, report.is_clean)
    assert {} == running.other.underreplicated()
    assert marks.lock(running.ledger) is not None


def test_a_locked_ledger(running: RealStore) -> None:
    """A ledger that another worker has locked is skipped, and its mark stays."""
    lock = running.other.underreplication.lock(running.ledger)
    assert lock is not None
    (repair,) = running.repair().repairs

    assert "skipped" == repair.status
    assert "has locked the ledger" in repair.detail
    assert [] == running.entries()
    assert {running.ledger} == set(running.other.underreplicated() or ())
    running.other.underreplication.release(lock)
    assert running.repair().is_clean


def test_replication_disabled(running: RealStore) -> None:
    """Where replication is disabled nothing is repaired."""
    running.other.underreplication.disable()
    with pytest.raises(IllegalOperation, match="replication is disabled"):
        running.repair()
    assert [] == running.entries()


def test_one_repair_at_a_time(running: RealStore) -> None:
    """A second repair of the cluster is refused until the first has ended."""
    manager = running.other.underreplication
    assert manager.lock_repairs()
    assert not manager.lock_repairs()
    with pytest.raises(IllegalOperation, match="another repair of this cluster runs on "):
        running.repair()
    manager.release_repairs()
    assert running.repair().is_clean
    assert manager.repairs_holder() is None


def test_locks_that_were_not_released(running: RealStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """If ZooKeeper gives no answer when locks end, but the session lives on, the next repair of
    this process takes them over; those of others stay."""
    manager: Any = running.client.store
    manager = manager.underreplication
    lock = manager.lock(running.ledger)
    assert manager.lock_repairs()
    with monkeypatch.context() as broken:
        broken.setattr(manager, "_ask", _give_no_answer)
        for release in (manager.release_repairs, lambda: manager.release(lock)):
            with pytest.raises(MetadataUnavailable):
                release()
    others: Any = running.other.underreplication
    assert (False, None) == (others.lock_repairs(), others.lock(running.ledger))
    assert running.repair().is_clean
    assert [0, 1, 2, 3, 4] == running.entries()
    assert others.lock_repairs()
    assert not manager.lock_repairs()


def _give_no_answer(*_: object) -> object:
    raise MetadataUnavailable("no answer")


def test_a_mark_that_changes(running: RealStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark that another process adds to during the repair is left."""
    repairer = Repairer(running.client.context)
    plan = repairer.planner.plan()
    copied: list[int] = []

    def add_to_mark(done: int, total: int, byte_count: int) -> None:
        copied.append(done)
        running.other.underreplication.mark(running.ledger, ["b9"])

    report = repairer.run(plan, progress=add_to_mark)
    assert [5] == copied
    assert 0 == report.removed_marks
    (mark,) = (running.other.underreplicated() or {}).values()
    assert (running.lossy, "b9") == mark.missing_bookies
