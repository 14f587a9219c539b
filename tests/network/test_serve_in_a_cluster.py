"""`bkstore serve --metadata`, as a process: found by clients, killed, stopped; what it refuses."""

from __future__ import annotations

import json
import signal
import time
from argparse import Namespace
from pathlib import Path
from typing import NamedTuple, cast
from urllib.request import Request, urlopen

import pytest

from bkstore import BookieDir
from bkstore.cli import serve
from bkstore.cli.main import main
from bkstore.cluster import ZooKeeperStore
from bkstore.network import Client, RegisteredBookie
from bkstore.network.checkpoints import Checkpoints
from bkstore.storage.bookie import Bookie
from bkstore.testing.zookeeper_server import ZooKeeperServer
from bkstore.wire.server import BookieServer
from tests.cluster.store.samples import new_uri
from tests.network.bookies_on_sockets import serving
from tests.wire.admin.asking import TOKEN


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
            head = {"Authorization": f"Bearer {TOKEN}"}
            urlopen(Request(f"{url}/api/v1/bookie/gc", method="PUT", headers=head)).read()
            while json.load(urlopen(f"{url}/api/v1/bookie/gc"))["is_in_force_gc"] == "true":
                time.sleep(0.02)
        finally:
            process.terminate()
            process.communicate()
    with BookieDir(tmp_path / "b1") as bookie:
        kept = [ledger.ledger for ledger in ledgers if ledger is not ledgers[1]]

        assert kept == list(bookie.index.ledgers())


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
        checkpoints = Checkpoints(bookie)
        with serve._registered(arguments, store, server, checkpoints) as found:
            made = cast(RegisteredBookie, found)
            started = capsys.readouterr().err
            free[0] = 50
            made.check_disks(), made.check_disks()
            checkpoints._tell("a checkpoint failed: no room")
            checkpoints._tell("a checkpoint failed: still none")
            checkpoints._tell(None)
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
