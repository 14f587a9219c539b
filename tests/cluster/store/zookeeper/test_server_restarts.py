"""ZooKeeper is killed and comes back while clients work: nothing that was acknowledged is lost."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from bkstore.cluster import Client, Cluster, ZooKeeperStore
from bkstore.errors import (
    BadVersion,
    BkstoreError,
    IllegalOperation,
    MetadataUnavailable,
    MissingDependency,
    NotEnoughBookies,
)
from bkstore.formats.metadata.service_info import ServiceInfo
from bkstore.ids import LedgerId
from bkstore.spark import java
from bkstore.testing import zookeeper_server
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import metadata_of, new_uri, said
from tests.worlds.zookeeper import expire


@pytest.fixture(scope="module")
def server(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZooKeeperServer]:
    """Yield a server of this module's own, which waits for the disk."""
    with ZooKeeperServer(tmp_path_factory.mktemp("restarted"), sync=True) as own:
        yield own


@pytest.fixture
def uri(server: ZooKeeperServer) -> str:
    """Return a new cluster's service URI."""
    found = new_uri(server)
    ZooKeeperStore.format(found).close()
    return found


class _Work:
    """What one client did: ledgers made, versions written, ids given, each when acknowledged."""

    def __init__(self, uri: str, first: int) -> None:
        self.made: list[int] = []
        self.version = 0
        self.ids: list[LedgerId] = []
        self.failed: list[BaseException] = []
        self.stop = threading.Event()
        self.store = ZooKeeperStore(uri)
        self.thread = threading.Thread(target=self._run, args=(first,))
        self.thread.start()

    def _run(self, first: int) -> None:
        try:
            self.store.create(metadata_of(first))
            self.made.append(first)
            while not self.stop.is_set():
                number = first + len(self.made)
                self.store.create(metadata_of(number))
                self.made.append(number)
                self.version = self.store.write(metadata_of(first), self.version)
                self.ids.append(self.store.next_id())
        except BaseException as error:  # noqa: BLE001  asserted on by the test
            self.failed.append(error)

    def end(self) -> None:
        self.stop.set()
        self.thread.join()
        self.store.close()


def test_killed_while_clients_work(server: ZooKeeperServer, uri: str) -> None:
    """Two kills under load: every change that was reported is there once, none was refused."""
    works = [_Work(uri, first) for first in (10**6, 2 * 10**6, 2**40)]
    for _ in range(2):
        time.sleep(0.3)
        server.kill()
        server.start()
    last = time.monotonic() + 30
    while min(len(work.ids) for work in works) <= 5 and time.monotonic() < last:
        time.sleep(0.1)
    for work in works:
        work.end()
    with ZooKeeperStore(uri) as store:
        listed = {name.ledger for name in store.ledgers()}
        versions = [store.read(work.made[0]).version for work in works]
    ids = [name for work in works for name in work.ids]

    assert [[], [], []] == [work.failed for work in works]
    assert {number for work in works for number in work.made} == listed
    assert [work.version for work in works] == versions
    assert len(set(ids)) == len(ids)
    assert min(map(len, (work.ids for work in works))) > 5


def test_bookies_stay_registered(server: ZooKeeperServer, uri: str) -> None:
    """A restarted server still has the bookies, or has them again; a lock is held or told lost."""
    with ZooKeeperStore(uri, session_timeout=2) as store, ZooKeeperStore(uri) as other:
        registration = store.register("b1", ServiceInfo.at("127.0.0.1", 3181))
        store.underreplication.mark(7)
        lock = store.underreplication.lock_any()
        assert lock is not None
        seen: list[frozenset[str]] = []
        store.watch_bookies(lambda writable, _: seen.append(writable))
        server.kill()
        server.start()
        end = time.monotonic() + 20
        while other.registered_bookies() != {"b1"} or registration.problem is not None:
            assert time.monotonic() < end
            time.sleep(0.05)
        with suppress(IllegalOperation):
            store.underreplication.mark_replicated(lock)
            assert {} == other.underreplicated()
        other.register("b2", ServiceInfo.at("127.0.0.1", 3182))
        while seen[-1:] != [frozenset({"b1", "b2"})]:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_server_that_stays_away(server: ZooKeeperServer, uri: str) -> None:
    """While nobody answers each call ends in time and claims nothing; then it goes on."""
    with ZooKeeperStore(uri, timeout=0.2) as store:
        store.create(metadata_of(7))
        server.stop()
        try:
            for call in (
                lambda: store.read(7),
                lambda: store.create(metadata_of(8)),
                lambda: store.write(metadata_of(7), 0),
                store.ledgers,
                store.next_id,
                store.underreplicated,
            ):
                with pytest.raises(MetadataUnavailable, match=r"no answer within 0\.2 s"):
                    call()
        finally:
            server.start()
        end = time.monotonic() + 20
        while True:
            with suppress(MetadataUnavailable):
                found = store.read(7)
                break
            assert time.monotonic() < end

        assert metadata_of(7) == said(found).metadata


def _until_registered(store: ZooKeeperStore, bookies: int) -> None:
    end = time.monotonic() + 20
    while True:
        with suppress(MetadataUnavailable):
            if len(store.registered_bookies()) == bookies:
                return
        assert time.monotonic() < end
        time.sleep(0.02)


def test_ledgers_of_a_cluster(server: ZooKeeperServer, uri: str, tmp_path: Path) -> None:
    """Writer, ensemble change and recovery over it, with expiries and a kill in between."""
    with (
        ZooKeeperStore(uri) as store,
        ZooKeeperStore(uri) as second,
        Cluster.open(tmp_path / "bookies", bookies=4, store=store) as cluster,
    ):
        other = Client(second, cluster.bookies)
        writer = cluster.create_ledger(3, 2, 2)
        acknowledged = [writer.append(b"%d" % at) for at in range(5)]
        expire(store)
        _until_registered(second, 4)  # who is registered for the moment is who can be chosen
        cluster.stop(writer.metadata.segments[-1].ensemble[0])
        acknowledged += [writer.append(b"%d" % at) for at in range(5, 9)]
        server.kill()
        server.start()
        acknowledged.append(writer.append(b"9"))
        expire(second)
        reader = other.open_ledger(writer.ledger)

        assert list(range(10)) == acknowledged
        assert [b"%d" % at for at in range(10)] == [entry.payload for entry in reader.read(0, 9)]
        with pytest.raises(BkstoreError):
            writer.append(b"after the fence")
        assert reader.metadata.closed
        assert store.read(writer.ledger).metadata.segments == reader.metadata.segments
        assert len(reader.metadata.segments) > 1


def test_read_only_bookies_get_no_ledgers(uri: str, tmp_path: Path) -> None:
    """A new ledger goes to writable bookies; one that is read only is still registered."""
    with (
        ZooKeeperStore(uri) as store,
        Cluster.open(tmp_path / "bookies", bookies=3, store=store) as cluster,
    ):
        store._registrations["bookie-2"].set_read_only(True)
        for _ in range(5):
            ledger = cluster.create_ledger(2, 2, 2)
            assert {"bookie-1", "bookie-3"} == ledger.metadata.bookies
        with pytest.raises(NotEnoughBookies):
            cluster.create_ledger(3, 2, 2)

        assert frozenset({"bookie-1", "bookie-2", "bookie-3"}) == store.registered_bookies()


def test_recoveries_race(server: ZooKeeperServer, uri: str, tmp_path: Path) -> None:
    """Two recoveries and the writer at once: one end, and every acknowledged entry before it."""
    with (
        ZooKeeperStore(uri) as store,
        ZooKeeperStore(uri) as second,
        Cluster.open(tmp_path / "bookies", bookies=3, store=store) as cluster,
    ):
        writer = cluster.create_ledger(3, 3, 2)
        acknowledged: list[int] = []
        ends: list[int] = []

        def write() -> None:
            with suppress(BkstoreError):
                while True:
                    acknowledged.append(writer.append(b"x"))

        def recover(client: Client) -> None:
            time.sleep(0.2)
            ends.append(client.open_ledger(writer.ledger).metadata.last_entry_id)

        threads = [threading.Thread(target=write)]
        for each in (store, second):
            client = Client(each, cluster.bookies)
            threads.append(threading.Thread(target=recover, args=(client,)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        last = store.read(writer.ledger).metadata.last_entry_id

        assert [last, last] == ends
        assert list(range(len(acknowledged))) == acknowledged
        assert len(acknowledged) - 1 <= last


def test_bad_version_is_no_loss(server: ZooKeeperServer, uri: str) -> None:
    """A write of an older version is refused after a restart as before."""
    with ZooKeeperStore(uri) as store:
        store.create(metadata_of(7))
        store.write(metadata_of(7, ack_quorum_size=2), 0)
        server.kill()
        server.start()
        with pytest.raises(BadVersion):
            store.write(metadata_of(7), 0)

        assert (metadata_of(7, ack_quorum_size=2), 1) == said(store.read(7))


# -- the server for tests


def test_server_is_started_once(server: ZooKeeperServer) -> None:
    """A server that runs is not started again; its URI names port, root and manager."""
    with pytest.raises(IllegalOperation, match="is running"):
        server.start()

    assert f"zk+flat://127.0.0.1:{server.port}/x" == server.uri("/x", "flat")


def test_a_port_that_is_taken_for_a_moment(tmp_path: Path) -> None:
    """A server that comes back tries again when its port is somebody's own; one whose port never
    was its own does not wait for it."""
    ended: list[list[str]] = []
    failing = 0

    def spawn(command: list[str]) -> subprocess.Popen[bytes]:
        if len(ended) < failing:
            ended.append(command)
            return subprocess.Popen(["false"])
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    server, failing = ZooKeeperServer(tmp_path, port=port, spawn=spawn), 1
    with pytest.raises(MetadataUnavailable, match="does not serve"):
        server.start()
    with server.start():
        assert port == server.port
        server.kill()
        failing = 2
        server.start()

        assert server.pid is not None
    assert 2 == len(ended)


def test_ended_while_it_starts(tmp_path: Path) -> None:
    """A start whose process another thread ends says so, and leaves alone what that one starts."""
    spawned: list[subprocess.Popen[bytes]] = []

    def spawn(command: list[str]) -> subprocess.Popen[bytes]:
        command = command if spawned else ["sleep", "60"]
        spawned.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))
        return spawned[-1]

    server = ZooKeeperServer(tmp_path, spawn=spawn)
    with ThreadPoolExecutor(1) as threads:
        start = threads.submit(server.start)
        while server.pid is None:
            time.sleep(0.01)
        server.kill()
        with server.start():
            with pytest.raises(MetadataUnavailable, match="was stopped while it started"):
                start.result(20)
            assert spawned[1].pid == server.pid
    assert 2 == len(spawned)


def test_what_the_server_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Java, or without jars of a ZooKeeper, one line says what to install."""
    monkeypatch.setattr(java, "_bundled_home", lambda: None)
    monkeypatch.setattr(java, "_installed_homes", list)
    with pytest.raises(MissingDependency, match="ZooKeeper needs Java 17 or newer: set JAVA_HOME"):
        ZooKeeperServer(tmp_path)
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    monkeypatch.setattr(zookeeper_server, "find_spec", lambda name: None)
    monkeypatch.setattr(zookeeper_server, "_DEBIAN_FOLDER", tmp_path)
    with pytest.raises(MissingDependency, match="needs ZooKeeper's jars: set ZOOKEEPER_HOME"):
        ZooKeeperServer(tmp_path)


def test_no_process_is_left(server: ZooKeeperServer) -> None:
    """A server that was stopped leaves no process, and comes back on its port."""
    process, port = server._process, server.port
    assert process is not None
    server.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    server.start()

    assert port == server.port
