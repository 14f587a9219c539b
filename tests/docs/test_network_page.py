"""The pages of clusters over sockets: their examples, on a real ZooKeeper."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import new_uri
from tests.paths import ROOT


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("network", "ensemble"),
        ("network", "asyncio"),
        ("live-audit", "live-audit"),
        ("repair", "repair"),
    ],
)
def test_example(
    page: str,
    name: str,
    zookeeper: ZooKeeperServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A page's example prints what it shows."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    example = rf"<!-- example: {name} -->\n```py\n(.*?)^```\n\n```text\n(.*?)^```"
    found = re.search(example, text, re.M | re.S)
    assert found is not None
    monkeypatch.chdir(tmp_path)
    uri = new_uri(zookeeper)
    names: dict[str, Any] = {}
    exec(found[1].replace("zk+hierarchical://localhost:2181/ledgers", uri), names)

    assert found[2] == capsys.readouterr().out
