"""The page of clusters over sockets: its example, on a real ZooKeeper."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import new_uri
from tests.paths import ROOT


def test_example(
    zookeeper: ZooKeeperServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The page's example prints what it shows."""
    page = (ROOT / "docs" / "network.md").read_text(encoding="utf-8")
    found = re.search(
        r"<!-- example: ensemble -->\n```py\n(.*?)^```\n\n```text\n(.*?)^```", page, re.M | re.S
    )
    assert found is not None
    monkeypatch.chdir(tmp_path)
    uri = new_uri(zookeeper)
    names: dict[str, Any] = {}
    exec(found[1].replace("zk+hierarchical://localhost:2181/ledgers", uri), names)

    assert found[2] == capsys.readouterr().out
