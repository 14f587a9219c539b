"""Real bookies on directories: settings, cookies as bookie and ZooKeeper have them, answers."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bkstore.formats import cookie as cookie_format
from bkstore.formats.cookie import Cookie
from tests.interop.driver import RealBookKeeper

CLASSES = {
    "sorted": "org.apache.bookkeeper.bookie.SortedLedgerStorage",
    "interleaved": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage",
    "db": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
}

QUIET = {
    "advertisedAddress": "127.0.0.1",
    "allowLoopback": "true",
    "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.98",
    "gcWaitTime": "86400000",
    "minorCompactionInterval": "0",
    "majorCompactionInterval": "0",
    "journalPreAllocSizeMB": "1",
    "journalMaxSizeMB": "16",
    "serverNumIOThreads": "2",
    "dbStorage_writeCacheMaxSizeMb": "16",
    "dbStorage_readAheadCacheMaxSizeMb": "16",
    "dbStorage_readAheadCacheBatchSize": "0",  # reads ahead may show superseded copies
    "dbStorage_rocksDB_blockCacheSize": "4194304",
}
"""Settings of a small bookie on loopback that collects no garbage while a test looks."""


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass(frozen=True)
class Place:
    """A bookie's id and directories, in their configured order."""

    bookie_id: str
    ledger: Sequence[Path]
    journal: Sequence[Path]
    index: Sequence[Path] = ()

    def cookie(self, instance_id: str | None) -> Cookie:
        """Return the cookie that a bookie with these settings has."""
        return Cookie(
            5,
            self.bookie_id,
            tuple(map(str, self.journal)),
            tuple(map(str, self.ledger)),
            tuple(map(str, self.index)) or None,
            instance_id,
        )


@dataclass
class Cluster:
    """A real ZooKeeper with a cluster in it, and the JVM that has both."""

    real: RealBookKeeper
    port: int
    root: str = "/ledgers"
    manager: str = "hierarchical"
    instance_id: str = ""
    _names: Iterator[int] = field(default_factory=lambda: iter(range(1 << 30)))

    @classmethod
    def started(cls, real: RealBookKeeper, folder: Path) -> Cluster:
        """Start ZooKeeper on a folder and make the cluster."""
        folder.mkdir()
        return cls.made(real, real.call("zookeeper", folder=str(folder)), "/ledgers")

    @classmethod
    def made(
        cls, real: RealBookKeeper, port: int, root: str, manager: str = "hierarchical"
    ) -> Cluster:
        """Make a cluster below a root of a ZooKeeper that runs."""
        cluster = cls(real, port, root, manager)
        cluster.instance_id = real.call("new_cluster", conf={"metadataServiceUri": cluster.uri})
        return cluster

    @property
    def uri(self) -> str:
        """The metadata service's address, as all parts of BookKeeper take it."""
        return f"zk+{self.manager}://127.0.0.1:{self.port}{self.root}"

    def expire(self, bookie_id: str) -> None:
        """End the session that keeps a bookie registered, as if its time were up."""
        path = f"{self.root}/available/{bookie_id}"
        self.real.call("expire", port=self.port, path=path)

    def new_id(self) -> str:
        """Return a bookie id that none has had."""
        return f"bookie-{next(self._names)}"

    def stamp(self, place: Place) -> None:
        """Give directories the cookie of a bookie of this cluster, and tell ZooKeeper of it."""
        data = cookie_format.encode(place.cookie(self.instance_id))
        for folder in {*place.ledger, *place.journal, *place.index}:
            (folder / "current").mkdir(parents=True, exist_ok=True)
            (folder / "current" / cookie_format.FILE_NAME).write_bytes(data)
        self.register_cookie(place.bookie_id, data.decode())

    def register_cookie(self, bookie_id: str, text: str) -> None:
        """Tell ZooKeeper a bookie's cookie."""
        conf = {"metadataServiceUri": self.uri}
        self.real.call("register_cookie", conf=conf, bookie_id=bookie_id, text=text)

    def settings(self, place: Place, storage: str, more: Mapping[str, str] = {}) -> dict[str, str]:
        """Return the settings of a bookie on these directories."""
        found = {
            **QUIET,
            "bookieId": place.bookie_id,
            "bookiePort": str(free_port()),
            "metadataServiceUri": self.uri,
            "ledgerStorageClass": CLASSES[storage],
            "ledgerDirectories": ",".join(map(str, place.ledger)),
            "journalDirectories": ",".join(map(str, place.journal)),
        }
        if place.index:
            found["indexDirectories"] = ",".join(map(str, place.index))
        return {**found, **more}

    @contextmanager
    def bookie(
        self, place: Place, storage: str, more: Mapping[str, str] = {}
    ) -> Iterator[RealBookie]:
        """Start a real bookie, cookies checked; it is stopped, flushed, at the end."""
        bookie = self.start(place, self.settings(place, storage, more))
        try:
            yield bookie
        finally:
            bookie.stop()

    def start(self, place: Place, conf: Mapping[str, str]) -> RealBookie:
        """Start a real bookie, cookies checked."""
        self.real.call("start", name=place.bookie_id, conf=conf)
        return RealBookie(self.real, place.bookie_id, int(conf["bookiePort"]))


@dataclass(frozen=True)
class RealBookie:
    """A real bookie that runs."""

    real: RealBookKeeper
    name: str
    port: int

    def stop(self) -> None:
        """Stop it, flushed."""
        self.real.call("stop", name=self.name)

    def ledgers(self) -> list[int]:
        """Return the ledgers that it calls active, in order."""
        return sorted(self.real.call("ledgers", name=self.name))

    def answers(self, asked: Mapping[int, list[list[int]]]) -> dict[int, dict[str, Any]]:
        """Return what it says of ledgers, by ledger; `asked` are runs of entries to read."""
        ledgers = [{"ledger": ledger, "runs": runs} for ledger, runs in asked.items()]
        said = self.real.call("answers", name=self.name, ledgers=ledgers)
        return {answer.pop("ledger"): answer for answer in said}

    def held(self, ledger: int, last: int) -> list[int]:
        """Return which of the entries 0 to `last` of a ledger it can read."""
        said = self.answers({ledger: [[0, last]]})[ledger]["missing"]
        missing = {
            entry for runs in said.values() for run in runs for entry in range(run[0], run[1] + 1)
        }
        return [entry for entry in range(last + 1) if entry not in missing]

    def add(self, records: Sequence[bytes], master_key: bytes) -> None:
        """Add records through its journal."""
        self.real.call(
            "add",
            name=self.name,
            master_key=master_key.hex(),
            records=[record.hex() for record in records],
        )

    def fence(self, ledger: int, master_key: bytes) -> bool:
        """Fence a ledger, durably."""
        key = master_key.hex()
        return bool(self.real.call("fence", name=self.name, ledger=ledger, master_key=key))

    def explicit_lac(self, body: bytes, master_key: bytes) -> int:
        """Keep an explicit LAC body; return the code that a client would see."""
        key = master_key.hex()
        return int(self.real.call("explicit_lac", name=self.name, body=body.hex(), master_key=key))

    def flush(self) -> None:
        """Flush its storage."""
        self.real.call("flush", name=self.name)

    def delete(self, ledger: int) -> None:
        """Delete a ledger, as its garbage collection does."""
        self.real.call("delete", name=self.name, ledger=ledger)

    def collect_garbage(self) -> None:
        """Collect garbage and compact entry logs."""
        self.real.call("collect_garbage", name=self.name)

    def inconsistencies(self) -> list[str]:
        """Return what its own check of index and logs finds: "ledger/entry"."""
        return list(self.real.call("inconsistencies", name=self.name))


def records_digest(records: Iterator[bytes]) -> str:
    """Return the digest of records as `answers` gives it."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(record)
    return digest.hexdigest()
