"""`bkstore serve --metadata`, as a process: found by clients, killed, stopped; what it refuses."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from bkstore import BookieDir
from bkstore.cli import serve
from bkstore.cli.main import main
from bkstore.cli.server_process import StateChanges
from bkstore.cluster import ZooKeeperStore
from bkstore.cluster.client.ledger_handle import LedgerHandle
from bkstore.cluster.garbage import BackgroundCollector
from bkstore.errors import MetadataUnavailable
from bkstore.network import Client, RegisteredBookie
from bkstore.network.checkpoints import CheckpointRunner
from bkstore.network.settings import ServerSettings
from bkstore.storage.bookie import Bookie
from bkstore.testing.zookeeper_server import ZooKeeperServer
from bkstore.wire.server import BookieServer
from tests.cluster.store.samples import new_uri
from tests.network.bookies_on_sockets import serving
from tests.wire.admin.asking import TOKEN, until


@pytest.mark.parametrize(
    "way", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.long)]
)
def test_in_a_process(zookeeper: ZooKeeperServer, tmp_path: Path, way: signal.Signals) -> None:
    """A client finds the bookie; stopped it is gone at once, killed it stays registered until its
    session expires; started again it has what was acknowledged, under the id that it has."""
    uri = new_uri(zookeeper)
    with ZooKeeperStore.format(uri) as store, Client(uri) as client:
        process = serving(
            tmp_path / "b1", uri, "--create", "--bookie-id", "b1", "--session-timeout", "4"
        )
        try:
            with client.create_ledger(1, 1, 1) as ledger:
                ledger.append_many([b"x"] * 50)
            process.send_signal(way)
            process.communicate(timeout=60)
            killed = way is signal.SIGKILL

            assert (-way if killed else 0) == process.returncode
            assert (frozenset({"b1"}) if killed else frozenset()) == store.registered_bookies()
            process = serving(tmp_path / "b1", uri, "--extended", "--session-timeout", "4")
            reader = client.open_ledger(ledger.ledger)

            assert 50 == len(reader.read(0, 49))
            assert 0 == client.create_ledger(1, 1, 1, scope=9).append(b"y")
        finally:
            process.kill()
            process.communicate()


def test_a_stop_unregisters_first(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """Who is hung up on by a bookie that stops does not find it registered any more: not as a
    process that gets SIGTERM, and not as an object that is closed."""
    uri = new_uri(zookeeper)
    with ZooKeeperStore.format(uri) as store:
        process = serving(tmp_path / "b1", uri, "--create", "--bookie-id", "b1")
        try:
            info = store.service_info("b1")
            assert info is not None
            assert info.address is not None
            with socket.create_connection(info.address, timeout=30) as client:
                process.terminate()
                hung_up = client.recv(1)
                registered = store.registered_bookies()
        finally:
            process.terminate()
            process.communicate()

        assert (b"", frozenset()) == (hung_up, registered)
        served = RegisteredBookie.open(uri, tmp_path / "b1")
        with socket.create_connection(served.server.address, timeout=30) as client:
            closing = Thread(target=served.close)
            closing.start()
            hung_up, registered = client.recv(1), store.registered_bookies()
            closing.join(30)

        assert (b"", frozenset()) == (hung_up, registered)


def test_garbage(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """The admin of a bookie of a cluster collects what the cluster has deleted, and no more."""
    pytest.importorskip("aiohttp")
    uri, token = new_uri(zookeeper), tmp_path / "token"
    token.write_text(TOKEN)
    with ZooKeeperStore.format(uri), Client(uri) as client:
        words = ["--create", "--bookie-id", "b1", "--http", "0", "--http-token-file", str(token)]
        process = serving(tmp_path / "b1", uri, *words)
        try:
            ledgers = [client.create_ledger(1, 1, 1) for _ in range(4)]
            for ledger in ledgers:
                ledger.append_many([b"x"] * 9)
            client.delete_ledger(ledgers[1].ledger)
            assert process.stderr is not None
            url = process.stderr.readline().split()[-1]
            sanity = json.load(urlopen(f"{url}/api/v1/bookie/sanity"))  # its ledger is garbage
            head = {"Authorization": f"Bearer {TOKEN}"}
            urlopen(Request(f"{url}/api/v1/bookie/gc", method="PUT", headers=head)).read()
            while json.load(urlopen(f"{url}/api/v1/bookie/gc"))["is_in_force_gc"] == "true":
                time.sleep(0.02)
        finally:
            process.terminate()
            process.communicate()
    with BookieDir(tmp_path / "b1") as bookie:
        kept = [ledger.ledger for ledger in ledgers if ledger is not ledgers[1]]

        assert {"passed": True, "readOnly": False} == sanity
        assert kept == list(bookie.index.ledgers())


def test_garbage_goes_by_itself(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """The bytes of a ledger that the cluster has deleted go from a bookie that runs, from a log
    that it compacts all the time; SIGTERM ends a compaction that would take minutes."""
    uri, folder = new_uri(zookeeper), tmp_path / "b1"
    always = ["--gc-wait", "0.02", "--minor-compaction", "0:0", "--major-compaction", "1:0.02"]
    with ZooKeeperStore.format(uri), Client(uri) as client:

        def written(payload: bytes, entries: int) -> LedgerHandle:
            with client.create_ledger(1, 1, 1) as ledger:
                ledger.append_many([payload] * entries)
            return ledger

        def logs() -> bytes:
            paths = list((folder / "ledgers" / "current").glob("*.log"))
            with suppress(FileNotFoundError):
                return b"".join(path.read_bytes() for path in paths)
            return logs()  # one went meanwhile

        process = serving(folder, uri, "--create", "--bookie-id", "b1", *always)
        try:
            live, gone = written(b"<live>", 9), written(b"<gone>", 9)
            until(lambda: b"<gone>" in logs())
            client.delete_ledger(gone.ledger)
            until(lambda: b"<gone>" not in logs())

            assert 9 == len(client.open_ledger(live.ledger).read(0, 8))
            process.terminate()
            process.communicate(timeout=60)
            process = serving(folder, uri, *always, "--compaction-rate", "1")
            gone = written(b"<gone>", 9)
            until(lambda: b"<gone>" in logs())
            client.delete_ledger(gone.ledger)
            written(b"<more>", 500)
            until(lambda: b"<more>" in logs())
            process.terminate()
            process.communicate(timeout=60)

            assert 0 == process.returncode
        finally:
            process.kill()
            process.communicate()
    with BookieDir(folder) as bookie:
        assert list(range(9)) == bookie.index.entries(live.ledger).tolist()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gc-wait", "5"], "need --metadata"),
        (["--metadata", "zk://127.0.0.1:1/l", "--minor-compaction", "0.2"], "SHARE:SECONDS"),
        (["--metadata", "zk://127.0.0.1:1/l", "--gc-wait", "7200"], "minor_compaction_interval"),
    ],
)
def test_bad_settings_of_garbage_collection(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    """They are refused before a bookie is made."""
    assert 2 == main(["serve", str(tmp_path / "b"), "--create", "--port", "0", *words])
    assert said in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


@contextmanager
def _stalled(zookeeper: ZooKeeperServer) -> Iterator[None]:
    """Let a ZooKeeper answer nothing inside the block; connections to it stay."""
    assert zookeeper.pid is not None
    os.kill(zookeeper.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, zookeeper.pid, os.WSTOPPED)  # all its threads have stopped
    try:
        yield
    finally:
        os.kill(zookeeper.pid, signal.SIGCONT)


def test_what_waits_for_a_stalled_zookeeper_ends(zookeeper: ZooKeeperServer) -> None:
    """However long calls may wait for answers, all end soon when their store is to finish, and
    so does the end of the session; what is asked behind that waits for nothing."""
    with ZooKeeperStore.format(new_uri(zookeeper), timeout=3000) as store:
        errors: list[str] = []

        def ask(call: Callable[[], object]) -> None:
            with pytest.raises(MetadataUnavailable) as raised:
                call()
            errors.append(str(raised.value))

        calls = (store.ledgers, store.instance_id, lambda: list(store.read_many([1, 2])))
        with _stalled(zookeeper):
            threads = [Thread(target=ask, args=(call,), daemon=True) for call in calls]
            for thread in threads:
                thread.start()
            store.finish_within(0.1)
            for thread in threads:
                thread.join(60)
            ask(store.instance_id)
            closing = Thread(target=store.close, daemon=True)
            closing.start()
            closing.join(60)
            ended = not closing.is_alive()

    assert (4, True) == (len(errors), ended)
    assert all("gave no answer in time" in error for error in errors)


def test_a_stop_while_zookeeper_is_stalled(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """SIGTERM ends the command in order where ZooKeeper answers nothing, with requests of the
    admin and a pass of garbage collection waiting for it: they are 503, and the exit code is 0."""
    pytest.importorskip("aiohttp")
    uri = new_uri(zookeeper)
    ZooKeeperStore.format(uri).close()
    words = ["--create", "--bookie-id", "b1", "--http", "0", "--gc-wait", "0.02"]
    process = serving(tmp_path / "b1", uri, *words)
    assert process.stderr is not None
    url = process.stderr.readline().split()[-1]
    found: list[int] = []

    def ask() -> None:
        with pytest.raises(HTTPError) as raised:
            urlopen(f"{url}/api/v1/ledger/list", timeout=60)
        with raised.value as answer:
            found.append(answer.status or 0)

    waiting = [Thread(target=ask) for _ in range(3)]
    try:
        with _stalled(zookeeper):
            for thread in waiting:
                thread.start()
            with urlopen(f"{url}/heartbeat") as alive:
                assert b"OK\n" == alive.read()
            process.terminate()
            told = process.communicate(timeout=29)[1]  # ZooKeeper's own limit is 30
    finally:
        process.kill()
        process.communicate()
        for thread in waiting:
            thread.join()

    assert (0, True) == (process.returncode, told.startswith("bkstore: stopping"))
    assert [503] * 3 == found


def test_full_disks_are_told(
    zookeeper: ZooKeeperServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The terminal says that a bookie is read-only and why, at its start and later, for full disks
    as for checkpoints that fail, and when it is writable again: one line for each change."""
    uri, free = new_uri(zookeeper), [1]
    monkeypatch.setattr("shutil.disk_usage", lambda path: _Disk(100, 100 - free[0], free[0]))
    arguments = Namespace(metadata=uri, advertise=None, extended=True, tls_certificate=None)
    with (
        ZooKeeperStore.format(uri) as store,
        Bookie.open(tmp_path / "b1", "sorted", bookie_id="b1") as bookie,
        BookieServer(bookie) as server,
    ):
        checkpoints = CheckpointRunner(bookie)
        asked = ServerSettings()
        given = checkpoints, BackgroundCollector(bookie, store), asked, StateChanges(asked), None
        with serve._register_bookie(arguments, store, server, *given) as made:
            assert made is not None
            started = capsys.readouterr().err
            free[0] = 50
            made.check_disks(), made.check_disks()
            checkpoints._set_problem("a checkpoint failed: no room")
            checkpoints._set_problem("a checkpoint failed: still none")
            checkpoints._set_problem(None)
            later = capsys.readouterr().err.splitlines()

    assert "bkstore: read-only: all disks of ledger directories are full: 99.0% used\n" in started
    assert [
        "bkstore: writable again",
        "bkstore: read-only: a checkpoint failed: no room",
        "bkstore: writable again",
    ] == later


class _Disk(NamedTuple):
    """What the system says of a disk."""

    total: int
    used: int
    free: int


def test_refusals(
    zookeeper: ZooKeeperServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Words that need --metadata, a cluster that is not there, a new bookie without an id, and an
    address that nobody can come to: one line each, and nothing is made."""
    uri, folder = new_uri(zookeeper), str(tmp_path / "b1")
    new = ["serve", folder, "--create", "--port", "0"]

    assert 2 == main([*new, "--bookie-id", "b1"])
    assert "need --metadata" in capsys.readouterr().err
    assert 2 == main([*new, "--metadata", uri])
    assert "has the cluster been initialized?" in capsys.readouterr().err

    ZooKeeperStore.format(uri).close()

    assert 2 == main([*new, "--metadata", uri])
    assert "needs an id" in capsys.readouterr().err
    assert not (tmp_path / "b1").exists()
    for words in (["--host", "0.0.0.0"], ["--host", "::"], ["--advertise", "0.0.0.0"]):
        assert 2 == main([*new, "--metadata", uri, "--bookie-id", "b1", *words])
        assert "advertise a host" in capsys.readouterr().err
    for seconds in ("0", "-1", "4000"):
        assert 2 == main([*new, "--metadata", uri, "--session-timeout", seconds])
        assert "--session-timeout must be a number above 0" in capsys.readouterr().err
    assert not (tmp_path / "b1").exists()
    with ZooKeeperStore(uri) as store:
        assert (frozenset(), None) == (store.registered_bookies(), store.cookie("b1"))
