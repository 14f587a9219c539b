"""The pages about ZooKeeper: their bytes are what the code makes, their examples run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bkstore.cluster import ZooKeeperStore
from bkstore.formats.metadata.ledger_layout import LedgerLayout, decode_layout, encode_layout
from bkstore.formats.metadata.service_info import (
    ServiceInfo,
    decode_service_info,
    encode_service_info,
)
from bkstore.formats.metadata.underreplication import encode_check_time, encode_holder
from bkstore.ids import LedgerId
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import metadata_of, new_uri
from tests.docs.format_pages import shown_bytes, shown_text
from tests.paths import ROOT

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
