"""A cluster on a real ZooKeeper that lacks replicas in each way that a repair mends."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bkstore.cluster import ZooKeeperStore
from bkstore.cluster.placement.policies import DefaultPlacement
from bkstore.errors import BkstoreError, IllegalOperation, MetadataUnavailable
from bkstore.ids import LedgerId
from bkstore.network import Client, RegisteredBookie
from bkstore.repair import Repairer, RepairReport
from tests.network.bookies_on_sockets import registered

BOOKIES = ("b1", "b2", "b3", "b4")
_DEADLINE_SECONDS = 30.0

EndState = tuple[list[Any], dict[str, list[list[int]]], list[LedgerId]]


class KillableCluster:
    """Bookies of which one is gone and another one has lost entries, and marks of both ledgers.

    Ledger 0 lacks entries on `lossy`; ledger 1 names `gone`, which does not run, and has to be
    replaced. The client waits `timeout` seconds for ZooKeeper.
    """

    def __init__(self, uri: str, top: Path, timeout: float = 30.0) -> None:
        ZooKeeperStore.format(uri).close()
        self.uri, self.top = uri, top
        self.bookies: dict[str, RegisteredBookie] = {
            name: registered(uri, top, name) for name in BOOKIES
        }
        self.store: Any = ZooKeeperStore(uri, timeout=timeout)
        self.client = Client(self.store, placement=DefaultPlacement(seed=0))
        self.ledgers = [self._write((2, 2, 2), 60), self._write((3, 2, 2), 30)]
        first, second = (self.store.read(each).metadata for each in self.ledgers)
        self.gone = next(name for name in BOOKIES if name in second.bookies - first.bookies)
        self.lossy = first.segments[0].ensemble[0]
        self.kill(self.gone)
        self.bookies[self.lossy].bookie.delete_ledger(self.ledgers[0])
        self.store.underreplication.mark(self.ledgers[0], [self.lossy])
        self.store.underreplication.mark(self.ledgers[1], [self.gone])

    def _write(self, sizes: tuple[int, int, int], entries: int) -> LedgerId:
        with self.client.create_ledger(*sizes) as ledger:
            ledger.append_many(b"payload %d" % number for number in range(entries))
        return ledger.ledger

    def kill(self, name: str) -> None:
        """End a bookie and its registration."""
        self.bookies.pop(name).close()

    def start(self, name: str) -> None:
        """Start a bookie again."""
        self.bookies[name] = registered(self.uri, self.top, name)

    def repair(self, **arguments: Any) -> RepairReport:
        """Repair by the client of this cluster."""
        return Repairer(self.client.context).run(**arguments)

    def repair_to_the_end(self) -> RepairReport:
        """Repair as soon as ZooKeeper answers and the locks of another process have ended, until
        all is repaired."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while True:
            try:
                report = self.repair()
                if report.is_clean or time.monotonic() > deadline:
                    return report
            except BkstoreError as error:
                is_passing = isinstance(error, IllegalOperation | MetadataUnavailable)
                if not is_passing or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def end_state(self) -> EndState:
        """Return the segments of the ledgers, the entries of each bookie, and the marks."""
        return (
            [self.store.read(ledger).metadata.segments for ledger in self.ledgers],
            {
                name: [each.bookie.entries(ledger).tolist() for ledger in self.ledgers]
                for name, each in sorted(self.bookies.items())
            },
            sorted(self.store.underreplicated() or ()),
        )

    def close(self) -> None:
        """End all."""
        self.client.close()
        self.store.close()
        for bookie in self.bookies.values():
            bookie.close()


def end_of_undisturbed(
    uri: str, top: Path, repair: Callable[[KillableCluster], object]
) -> EndState:
    """Return the end of a cluster that `repair` repairs."""
    cluster = KillableCluster(uri, top)
    try:
        repair(cluster)
        return cluster.end_state()
    finally:
        cluster.close()
