"""Real bookies of one cluster in the JVM of this run, stopped and started."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.interop.bookies import Cluster, Place, RealBookie


class RealBookies:
    """Real bookies by name, each with its storage."""

    def __init__(self, cluster: Cluster, folder: Path, storages: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.running: dict[str, RealBookie] = {}
        self._folder = folder
        self._storages = storages
        for name in storages:
            self.start(name)

    def start(self, name: str) -> None:
        """Start one, again on what it has, at another port."""
        root = self.root(name)
        place = Place(self.id_of(name), [root / "ledgers"], [root / "journal"])
        settings = self.cluster.settings(place, self._storages[name])
        self.running[name] = self.cluster.start(place, settings)

    def root(self, name: str) -> Path:
        """Return the folder that has a bookie's directories."""
        return self._folder / name

    def id_of(self, name: str) -> str:
        """Return the bookie's id: ids are unique in the JVM."""
        return f"{self.cluster.root[1:]}-{name}"

    def stop(self, bookie_id: str) -> str:
        """Stop one, by its id; return its name."""
        name = bookie_id.rpartition("-")[2]
        self.running.pop(name).stop()
        return name

    def read_only(self, bookie_id: str, value: bool) -> None:
        """Make one read-only, or writable again."""
        self.cluster.real.call("read_only", name=bookie_id, read_only=value)

    def close(self) -> None:
        """Stop all."""
        for bookie in self.running.values():
            bookie.stop()
