"""The pages about ensembles of processes: their examples, on a real ZooKeeper and real bookies."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kazoo", reason="kazoo is not installed")

from bkstore.errors import MissingDependency
from bkstore.network import Client
from bkstore.testing.ensemble import Ensemble
from bkstore.testing.ensemble.stop_and_remove import stop
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import new_uri
from tests.docs.page_runs import run_page
from tests.interop.class_path import class_path, missing, tool
from tests.paths import ROOT

DOCS = ROOT / "docs"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the current directory, with no ensemble in `trial`; stop what runs there at the end."""
    monkeypatch.chdir(tmp_path)
    try:
        Ensemble().close()
    except MissingDependency as error:
        pytest.skip(str(error))
    yield tmp_path
    if (tmp_path / "trial").exists():
        stop(tmp_path / "trial", 60)


def test_tutorial(place: Path) -> None:
    """From `ensemble up` to the lost entry the second page prints what it shows; a free port
    stands for ZooKeeper's. What it made is gone at its end."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = (DOCS / "tutorial-cluster.md").read_text(encoding="utf-8")

    assert text.count("2181") > 5
    page = place / "page.md"
    page.write_text(text.replace("2181", str(port)), encoding="utf-8")
    run_page(page, spark=False)

    assert ["page.md"] == [path.name for path in place.iterdir()]


def test_repair(
    zookeeper: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the lost bookie to the clean audit, each step of the worst day prints what it shows; a
    cluster in the ZooKeeper of this run stands for the page's."""
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "repair.md").read_text(encoding="utf-8")
    uri = "zk+hierarchical://localhost:2181/ledgers"
    assert text.count(uri) > 8
    (tmp_path / "page.md").write_text(text.replace(uri, new_uri(zookeeper)), encoding="utf-8")
    run_page(tmp_path / "page.md", spark=False)


@pytest.mark.long
def test_clients(place: Path) -> None:
    """The files of the page of clients are written by its blocks, and its tests pass."""
    run_page(DOCS / "clients-in-tests.md", spark=False)
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(place)]
    command = [sys.executable, "-m", "pytest", *options, "test_client.py", "test_faults.py"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)

    assert "6 passed" in result.stdout, result.stdout + result.stderr


@pytest.mark.long
def test_java_client(place: Path) -> None:
    """The page's Java program, with a real BookKeeper, prints the entry that it wrote; bkstore
    reads it with the page's password."""
    if (reason := missing()) is not None:
        pytest.skip(reason)
    text = (DOCS / "clients-in-tests.md").read_text(encoding="utf-8")
    program = re.search(r"^```java\n// (\w+\.java)\n(.*?)^```", text, re.M | re.S)
    command = re.search(r"^```sh\njava (.*) -cp", text, re.M)
    assert program is not None
    assert command is not None
    (place / program[1]).write_text(program[2], encoding="utf-8")
    words = [str(tool("java")), command[1], "-cp", class_path(), program[1]]
    with Ensemble("trial", 3) as ensemble:
        environment = {**os.environ, **ensemble.env}
        result = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)

        assert ["hello"] == result.stdout.splitlines()[-1:], result.stdout + result.stderr
        with Client(ensemble.uri) as client:
            ledger = client.open_ledger(0, password=b"secret")
            assert b"hello" == ledger.read_entry(0).payload


@pytest.mark.long
def test_example(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The example of the page of ensembles prints what it shows."""
    found = re.search(
        r"<!-- example: ensemble -->\n```py\n(.*?)^```\n\n```text\n(.*?)^```",
        (DOCS / "ensemble.md").read_text(encoding="utf-8"),
        re.M | re.S,
    )
    assert found is not None
    names: dict[str, Any] = {}
    exec(found[1], names)

    assert found[2] == capsys.readouterr().out
