"""One `bk_server.conf` for both: ours makes the bookie, the real one goes on, ours again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.interop.bookies import CLASSES, QUIET, Cluster, free_port
from tests.interop.class_path import java
from tests.interop.clusters.conftest import MakeClient, MakeProcesses
from tests.interop.clusters.processes import BookieProcess, BookieProcesses

NAME = "b-conf"


def _conf(folder: Path, cluster: Cluster, storage: str) -> Path:
    """Return a conf that is written as people do, in forms that Java's own reader has not."""
    folder.mkdir()
    (folder / "disks.conf").write_text(f"disks : {folder / 'disks'}\n")
    path = folder / "bk_server.conf"
    path.write_text(
        "".join(f"{key} = {value}\n" for key, value in QUIET.items())
        + f"bookieId : {NAME}\nbookiePort {free_port()}\nmetadataServiceUri={cluster.uri}\n"
        "listeningInterface lo\nadvertisedAddress=127.0.0.1\n"
        f"ledgerStorageClass:{CLASSES[storage]}\n"
        "include = disks.conf\n"
        "ledgerDirectories ${disks}/l1, \\\n  # the second\n  ${disks}/l2\n"
        "journalDirectories ${disks}/journal\n"
        "journalPreAllocSizeMB=1\n"
    )
    return path


def _started(processes: BookieProcesses, command: list[str], folder: Path) -> BookieProcess:
    made = processes.bookies[NAME] = BookieProcess(NAME, folder, command)
    made.start()
    processes.registered()
    return made


@pytest.mark.parametrize("storage", ["sorted", "db"])
def test_a_bookie_by_its_conf(
    processes: MakeProcesses,
    real_client: MakeClient,
    java_classes: Path,
    tmp_path: Path,
    storage: str,
) -> None:
    """What one of them acknowledged the other has, under the id and at the port of the conf."""
    found = processes()
    conf = _conf(tmp_path / NAME, found.cluster, storage)
    ours = [sys.executable, "-m", "bkstore", "serve", str(conf), "--create"]
    real = java(java_classes, "org.apache.bookkeeper.server.Main", "--conf", str(conf))
    client = real_client(found.cluster)
    ledgers: list[int] = []
    for command in (ours, real, ours):
        bookie = _started(found, command, conf.parent)
        ledgers.append(client.create(1, 1, 1))  # waits until the client knows the bookie again
        client.add(ledgers[-1], [b"%d" % entry for entry in range(20)])
        client.close_ledger(ledgers[-1])
        for ledger in ledgers:
            assert [b"%d" % entry for entry in range(20)] == client.read(ledger, 0, 19)
        bookie.stop()

    assert {"disks", "bk_server.conf", "disks.conf"} == {
        path.name for path in conf.parent.iterdir()
    }
