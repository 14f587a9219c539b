"""Bookies as processes of their own, ours and real ones, which can be killed."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bkstore.cluster import ZooKeeperStore
from tests.interop.bookies import Cluster, Place
from tests.interop.class_path import java

SECONDS = 60


class BookieProcess:
    """A bookie's process. `start` returns at once; `BookieProcesses` waits."""

    def __init__(self, name: str, folder: Path, command: list[str]) -> None:
        self.name = name
        self.folder = folder
        self.log = folder.with_suffix(".log")
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def running(self) -> bool:
        """Return whether it runs."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill it, as `kill -9` does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Have it end by itself."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(SECONDS)


class BookieProcesses:
    """Bookies of one cluster by id: killed, registrations ended, started again."""

    def __init__(self, cluster: Cluster, folder: Path, classes: Path) -> None:
        self.cluster = cluster
        self.store = ZooKeeperStore(cluster.uri)
        self.bookies: dict[str, BookieProcess] = {}
        self._folder = folder
        self._classes = classes
        self._gone: set[str] = set()

    def ours(self, name: str, storage: str = "sorted", *words: str) -> BookieProcess:
        """Start `bkstore serve` on a new directory; `registered` waits for it."""
        folder = self._folder / name
        command = [sys.executable, "-m", "bkstore", "serve", str(folder), "--create", "--port", "0"]
        named = ["--metadata", self.cluster.uri, "--bookie-id", name, "--storage", storage]
        return self._made(name, [*command, *named, *words])

    def real(self, name: str, storage: str = "sorted") -> BookieProcess:
        """Start a real bookie in a JVM of its own; `registered` waits for it."""
        folder = self._folder / name
        folder.mkdir(parents=True)
        place = Place(name, [folder / "ledgers"], [folder / "journal"])
        conf = folder / "bk_server.conf"
        settings = self.cluster.settings(place, storage)
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        main = "org.apache.bookkeeper.server.Main"
        command = java(self._classes, main, "--conf", str(conf))
        command[1:1] = ["-XX:TieredStopAtLevel=1", "-Xshare:auto"]  # starts in half of the time
        return self._made(name, command)

    def _made(self, name: str, command: list[str]) -> BookieProcess:
        self.bookies[name] = made = BookieProcess(name, self._folder / name, command)
        made.start()
        return made

    def registered(self) -> None:
        """Wait until every bookie that runs is registered and takes connections."""
        until = time.monotonic() + SECONDS
        for name, bookie in self.bookies.items():
            while bookie.running() and not self._listens(name):
                assert time.monotonic() < until, f"{name}: see {bookie.log}"
                time.sleep(0.02)

            assert bookie.running() or name in self._gone, bookie.log.read_text()[-2000:]

    def _listens(self, name: str) -> bool:
        info = self.store.service_info(name)
        if info is None or info.address is None:
            return False
        try:
            socket.create_connection(info.address, 1).close()
        except OSError:
            return False
        return True

    def kill(self, name: str) -> None:
        """Kill a bookie; it stays registered until its session ends."""
        self._gone.add(name)
        self.bookies[name].kill()

    def lose(self, name: str) -> None:
        """Kill a bookie and end its session: it is gone for everybody."""
        self.kill(name)
        self.cluster.expire(name)

    def start_again(self, name: str) -> None:
        """Start a bookie that was killed, and wait for it."""
        if name in self.store.registered_bookies():
            self.cluster.expire(name)
        self._gone.discard(name)
        self.bookies[name].start()
        self.registered()

    def all_again(self) -> None:
        """Start all bookies again that were killed."""
        for name, bookie in self.bookies.items():
            if not bookie.running():
                self.start_again(name)

    def close(self) -> None:
        """Kill all."""
        for bookie in self.bookies.values():
            if bookie.running():
                bookie.kill()
        self.store.close()


@contextmanager
def bookie_processes(cluster: Cluster, folder: Path, classes: Path) -> Iterator[BookieProcesses]:
    """Yield an empty set of processes; what was started is killed at the end."""
    found = BookieProcesses(cluster, folder, classes)
    try:
        yield found
    finally:
        found.close()
