"""Random clusters with random losses, and what a repair must make of them by every copy."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bkstore.cluster import Cluster
from bkstore.errors import BkstoreError
from bkstore.files.disk_changes import UnsyncedFiles
from bkstore.formats.entry import Coder
from bkstore.ids import LedgerId
from bkstore.repair import ReplicaRepair

STORAGES: Any = ["sorted", "interleaved", "db"]
PASSWORD = b"secret"

Copy = tuple[LedgerId, int, str]


class LossyWorld:
    """Up to nine bookies, ledgers of random sizes with ensemble changes, then random losses.

    `sound` has each sound copy of an entry after the losses, with its bytes; `payloads` what was
    written. A bookie in `gone` does not run and is not registered.
    """

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.chance = random.Random(seed)
        self.payloads: dict[tuple[LedgerId, int], bytes] = {}
        self.gone: set[str] = set()
        self._gone_count = self.chance.choice([0, 0, 1, 1, 2])
        self._write_ledgers()
        self._lose()
        self.sound = dict(self.read_all())
        self.to_stay_lost = self.without_copy() & self.lacking()

    def _write_ledgers(self) -> None:
        spare = max(1, self._gone_count)  # bookies that can replace others
        for _ in range(self.chance.randint(1, 4)):
            size = self.chance.randint(1, min(7, len(self.cluster.bookies) - spare))
            quorum = self.chance.randint(1, size)
            sizes = size, quorum, self.chance.randint(1, quorum)
            digest = self.chance.choice(["CRC32", "CRC32C", "HMAC"])
            scope = self.chance.choice([0, 0, 5])
            ledger = self.cluster.create_ledger(
                *sizes, digest_type=digest, password=PASSWORD, scope=scope
            )
            for _ in range(self.chance.randint(1, 3)):
                self._append(ledger)
                down = self.chance.choice(ledger.metadata.segments[-1].ensemble)
                self.cluster.crash(down)
                self._append(ledger)
                self.cluster.start(down)
            if self.chance.random() < 0.8:
                ledger.close()
        self.cluster.flush()

    def _append(self, ledger: Any) -> None:
        for _ in range(self.chance.randint(0, 12)):
            payload = self.chance.randbytes(self.chance.choice([0, 1, 20, 300]))
            self.payloads[ledger.ledger, ledger.append(payload)] = payload

    def _lose(self) -> None:
        bookies = sorted(self.cluster.bookies)
        for bookie in self.chance.sample(bookies, self.chance.randint(0, 3)):
            for ledger in self.cluster.bookie(bookie).ledgers():
                held = self.cluster.bookie(bookie).entries(ledger).tolist()
                match self.chance.choice(["rows", "rows", "ledger", "bytes", "none"]):
                    case "rows":
                        lost = self.chance.sample(held, self.chance.randint(0, len(held)))
                        self.cluster.lose(bookie, ledger, lost)
                    case "ledger":
                        self.cluster.lose_ledger(bookie, ledger)
                    case "bytes" if held:
                        part: Any = self.chance.choice(["payload", "header"])
                        self.cluster.corrupt(bookie, ledger, self.chance.choice(held), part)
        for bookie in self.chance.sample(bookies, self._gone_count):
            self.cluster.crash(bookie)
            self.gone.add(bookie)

    def running(self) -> list[str]:
        """Return the bookies that run."""
        return sorted(set(self.cluster.bookies) - self.gone)

    def read_all(self) -> Iterator[tuple[Copy, bytes]]:
        """Yield each sound copy that a running bookie returns, with its bytes."""
        for ledger, entry in self.payloads:
            digest = self.cluster.store.read(ledger).metadata.digest_type
            coder = Coder(str(digest), PASSWORD)
            for bookie in self.running():
                try:
                    record = self.cluster.bookie(bookie).read_entry(ledger, entry)
                    coder.decode(record, ledger, entry)
                except BkstoreError:
                    continue
                yield (ledger, entry, bookie), record

    def finished_entries(self) -> set[tuple[LedgerId, int]]:
        """Return the entries of segments that cannot grow any more."""
        finished = set()
        for ledger, entry in self.payloads:
            metadata = self.cluster.store.read(ledger).metadata
            end = metadata.last_entry_id if metadata.closed else metadata.segments[-1][0] - 1
            if entry <= end:
                finished.add((ledger, entry))
        return finished

    def write_set(self, ledger: LedgerId, entry: int) -> list[str]:
        """Return the bookies that should have an entry by the metadata as they are now."""
        metadata = self.cluster.store.read(ledger).metadata
        ensemble, quorum = metadata.ensemble_at(entry), metadata.write_quorum_size
        return [ensemble[(entry + nth) % len(ensemble)] for nth in range(quorum)]

    def holds(self, bookie: str, ledger: LedgerId, entry: int) -> bool:
        """Return whether a running bookie lists an entry."""
        return entry in self.cluster.bookie(bookie).availability(ledger)

    def lacking(self) -> set[tuple[LedgerId, int]]:
        """Return the finished entries that a bookie of their write set is known to lack: it does
        not list them, or is gone."""
        return {
            (ledger, entry)
            for ledger, entry in self.finished_entries()
            if any(
                bookie in self.gone or not self.holds(bookie, ledger, entry)
                for bookie in self.write_set(ledger, entry)
            )
        }

    def without_copy(self) -> set[tuple[LedgerId, int]]:
        """Return the entries of which no running bookie of their write set has a sound copy."""
        return {
            (ledger, entry)
            for ledger, entry in self.payloads
            if not any(
                (ledger, entry, bookie) in self.sound for bookie in self.write_set(ledger, entry)
            )
        }


def impossible_entries(repairs: list[ReplicaRepair]) -> set[tuple[LedgerId, int]]:
    """Return the entries that a repair says it cannot repair."""
    return {
        (repair.ledger, entry)
        for repair in repairs
        if repair.status == "impossible"
        for entry in repair.missing
    }


def open_world(top: Path, seed: int) -> LossyWorld:
    """Return a world of a seed, in a folder; close its cluster."""
    storage = STORAGES[seed % 3 :] + STORAGES
    cluster = Cluster.open(top, bookies=4 + seed % 6, storage=storage, files=UnsyncedFiles())
    return LossyWorld(cluster, seed)
