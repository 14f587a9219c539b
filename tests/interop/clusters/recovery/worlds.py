"""Bookies of ours that the real replication worker, and our repair, work on."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from bkstore.cluster import ZooKeeperStore
from bkstore.network import Client, DiskOptions, RegisteredBookie
from bkstore.storage.options import StorageKind
from tests.interop.bookies import Cluster
from tests.interop.clusters.recovery.replication import RealMarks

STORAGES: dict[str, StorageKind] = {
    "b0": "sorted",
    "b1": "interleaved",
    "b2": "db",
    "b3": "sorted",
    "b4": "db",
}
NUMBERS = {"striped": (3, 2, 2), "whole": (3, 3, 2), "more": (4, 2, 2)}
PAYLOADS = [b"%d," % number * (number % 30) for number in range(90)]


class World:
    """Bookies of ours in a cluster, one of which goes; what the real worker makes of that."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.store = ZooKeeperStore(cluster.uri)
        self.client = Client(self.store)
        self.marks = RealMarks(cluster)
        self.used = dict.fromkeys(STORAGES, 0.5)
        self.bookies = {name: self._opened(name) for name in STORAGES}

    def _opened(self, name: str) -> RegisteredBookie:
        return RegisteredBookie.open(
            self.cluster.uri,
            self.folder / name,
            STORAGES[name],
            bookie_id=name,
            disk_options=DiskOptions(full=0.9, writable_again=0.9, interval=3600),
            get_used_share=lambda path: self.used[name],
        )

    def lose(self, name: str) -> None:
        """Stop a bookie without a checkpoint; its registration goes."""
        bookie = self.bookies.pop(name)
        bookie.close()

    def written(self, payloads: list[bytes], *numbers: int, close: bool = True) -> Any:
        """Return a ledger with these entries."""
        made = self.client.create_ledger(*numbers, password=b"pw")
        made.append_many(payloads)
        if close:
            made.close()
        return made

    def replaced(self, ledger: Any, lost: str) -> bool:
        """Return whether the metadata name the lost bookie no more, and the mark is gone."""
        segments = self.store.read(ledger.ledger).metadata.segments
        named = any(lost in members for _, members in segments)
        return not named and ledger.ledger not in self.store.underreplicated()

    def until(self, holds: Callable[[], object]) -> None:
        """Wait until it is so.

        A real worker keeps what it saw of the tree, and can miss that it changed while it looked;
        it looks again at the next change, which is made here.
        """
        end = time.monotonic() + 60
        for turn in count(1):
            if holds():
                return
            assert time.monotonic() < end
            time.sleep(0.02)
            if turn % 250 == 0:
                lock = self.store.underreplication.lock(2**40)
                assert lock is not None
                self.store.underreplication.release(lock)

    def close(self) -> None:
        """Stop all."""
        for name in list(self.bookies):
            self.lose(name)
        self.marks.close()
        self.client.close()
        self.store.close()
