"""The pages about ZooKeeper: their bytes are what the code makes, their examples run."""

from __future__ import annotations

import csv
import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main
from bkstore.cluster import ZooKeeperStore
from bkstore.formats.metadata.ledger_layout import LedgerLayout, decode_layout, encode_layout
from bkstore.formats.metadata.service_info import (
    ServiceInfo,
    decode_service_info,
    encode_service_info,
)
from bkstore.formats.metadata.underreplication import encode_check_time, encode_holder
from bkstore.ids import LedgerId
from bkstore.pulsar import read_references
from bkstore.pulsar.sources.opening import open_pulsar
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import metadata_of, new_uri
from tests.docs.format_pages import shown_bytes, shown_text
from tests.docs.page_blocks import blocks
from tests.paths import ROOT
from tests.pulsar.samples import ledger, managed_ledger, owned, topic_path

PAGE = "zookeeper.md"


def test_layout() -> None:
    """LAYOUT of the default manager, without a last line feed; the table names all managers."""
    shown = shown_text(PAGE, "layout").removesuffix("\n").encode()
    page = (ROOT / "docs" / "formats" / PAGE).read_text(encoding="utf-8")

    assert encode_layout(LedgerLayout.of("hierarchical")) == shown
    assert "hierarchical" == decode_layout(shown).manager
    for manager, name in re.findall(r"^\| `(\w+)` \| `(\w+)` \|", page, re.M):
        assert f"org.apache.bookkeeper.meta.{name}" == LedgerLayout.of(manager).factory


def test_registration() -> None:
    """A registration's bytes, both ways."""
    shown = shown_bytes(PAGE, "registration")

    assert encode_service_info(ServiceInfo.at("127.0.0.1", 3181)) == shown
    assert ServiceInfo.at("127.0.0.1", 3181) == decode_service_info(shown, "b1")


def test_check_times_and_lock() -> None:
    """Check times are binary, locks are text."""
    times = b"".join(map(encode_check_time, (1700000000001, 0, -1)))

    assert times == shown_bytes(PAGE, "check-times")
    assert encode_holder("worker-1.example") == shown_text(PAGE, "lock").encode()


def test_scopes(zookeeper: ZooKeeperServer) -> None:
    """Other scopes lie where the page says, under a marker with the cluster's id."""
    shown = shown_text(PAGE, "marker")
    instance = shown.splitlines()[2]
    uri = new_uri(zookeeper)
    with ZooKeeperStore.format(uri, instance_id=instance) as store:
        store.create(metadata_of(LedgerId(1, 4660)))
        raw, top = store._connection.client, f"{store.uri.root}-scopes"

        assert shown.encode() == raw.get(top)[0]
        assert raw.exists(f"{top}/S0000000000000001/0000/0000/0000/L1234")


def test_pulsar_commands(
    zookeeper: ZooKeeperServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The commands on Pulsar's topics that need a ZooKeeper find and delete what is leaked there;
    all others of that page are transcripts, which `test_page_runs` runs."""
    monkeypatch.chdir(tmp_path)
    shown = blocks(ROOT / "docs" / "pulsar.md")
    lines = [line for block in shown if block.kind != "console" for line in _commands(block.text)]
    leaks = ["7", "8"]
    with ZooKeeperStore.format(new_uri(zookeeper)) as store:
        uri, root = str(store.uri), store.uri.root.removesuffix("/ledgers")
        for number in (3, 7, 8):
            store.create(ledger(number, owned()))
        node = (f"{root}{topic_path('paid')}", managed_ledger(3))
        store._connection.client.create(*node, makepath=True)
        codes = []
        for line in lines:
            assert line.startswith("bkstore ")
            assert "zk://" in line
            line = line.replace(
                "zk://pulsar:2181/cluster-1", f"zk://127.0.0.1:{zookeeper.port}{root}"
            )
            line = re.sub(r"zk://\w+:2181/ledgers", uri, line)
            codes.append(main(shlex.split(line)[1:]))
            if "leaks.csv" in line and "--from" not in line:
                text = Path("leaks.csv").read_text(encoding="utf-8")
                rows = list(csv.DictReader(io.StringIO(text)))

                assert leaks == [row["ledger_id"] for row in rows if row["class"] == "leaked"]
            elif "--from" in line:
                remaining = [3] if "--apply" in line else [3, 7, 8]

                assert remaining == [each.ledger for each in store.ledgers()]
            capsys.readouterr()

    assert [1, 1, 0, 0, 0] == codes
    exported = read_references(open_pulsar(Path("metadata.json")))
    assert {3} == set(exported.ledgers)


def _commands(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("bkstore ")]


def _example(name: str) -> tuple[str, str]:
    page = (ROOT / "docs" / PAGE).read_text(encoding="utf-8")
    found = re.search(
        rf"<!-- example: {name} -->\n```py\n(.*?)^```\n\n```text\n(.*?)^```", page, re.M | re.S
    )
    assert found is not None
    return found[1], found[2]


def test_examples(
    zookeeper: ZooKeeperServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The page's examples print what it shows; the second has the names of the first."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for name in ("store", "server"):
        code, output = _example(name)
        there = code.replace("localhost:2181", f"127.0.0.1:{zookeeper.port}")
        exec(there, names)

        assert output == capsys.readouterr().out
