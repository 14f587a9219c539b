"""The recipes that need a server, run against what answers like one."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

from bkstore.cli.main import main
from bkstore.cluster import MemoryStore, open_metadata, snapshot
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from tests.cluster.store.samples import IDS, metadata_of
from tests.paths import ROOT

NODES = {
    "/LAYOUT": b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1",
    "/available/readonly": b"",
    "/cookies/bookie-1:3181": b"4\n",
    "/idgen/ID-0000000007": b"",
    "/INSTANCEID": b"1234",
}


def _recipe(name: str) -> str:
    text = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    (code,) = re.findall(rf"<!-- example: {name} -->\n```py\n(.*?)^```$", text, re.M | re.S)
    return str(code)


@pytest.fixture(params=["tree", "keys"])
def store(request: pytest.FixtureRequest) -> MemoryStore:
    """Return a store with ledgers of all kinds, registered bookies and a mark."""
    made = MemoryStore(layout=request.param)
    for ledger in IDS:
        made.create(metadata_of(ledger))
    made.register_bookie("bookie-1:3181")
    made.mark_underreplicated(7, UnderreplicatedMark(1.5e9, ("bookie-2:3181",)))
    return made


def _nodes(store: MemoryStore, top: str) -> dict[str, bytes]:
    """Return the store's paths below `top`, and what else a cluster has there, by path."""
    keys = store._values.keys("/")
    found = {key: store._values.get(key) for key in keys}
    own = {key: value.data for key, value in found.items() if value is not None}
    return {top + key: data for key, data in (own | NODES).items()}


def _same(store: MemoryStore, folder: Path) -> None:
    told = snapshot(open_metadata(folder))
    expected = snapshot(store)

    assert len(IDS) == len(told.ledgers)
    assert expected.ledgers == told.ledgers
    assert frozenset({"bookie-1:3181"}) == frozenset(told.registered_bookies or ())
    assert expected.underreplicated == told.underreplicated


class _Client:
    """What answers as `kazoo.client.KazooClient` does, from nodes by path."""

    nodes: ClassVar[dict[str, bytes]] = {}
    states: ClassVar[list[str]] = []

    def __init__(self, hosts: str, *, read_only: bool) -> None:
        assert (hosts, read_only) == ("localhost:2181", True)

    def start(self) -> None:
        self.states.append("started")

    def stop(self) -> None:
        self.states.append("stopped")

    def get_children(self, path: str) -> list[str]:
        names = {key.removeprefix(f"{path}/").split("/")[0] for key in self._below(path)}
        assert names or path in self.nodes
        return sorted(names)

    def get(self, path: str) -> tuple[bytes | None, object]:
        return self.nodes[path] or None, object()

    def _below(self, path: str) -> list[str]:
        return [key for key in self.nodes if key.startswith(f"{path}/")]


def test_zookeeper(store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe's folder says all that ZooKeeper did: ledgers, bookies, marks."""
    kazoo = ModuleType("kazoo.client")
    kazoo.KazooClient = _Client  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kazoo", ModuleType("kazoo"))
    monkeypatch.setitem(sys.modules, "kazoo.client", kazoo)
    monkeypatch.setattr(_Client, "nodes", _nodes(store, "/ledgers"))
    monkeypatch.setattr(_Client, "states", [])
    monkeypatch.chdir(tmp_path)
    exec(_recipe("zookeeper"), {})

    assert ["started", "stopped"] == _Client.states
    _same(store, tmp_path / "metadata")


def test_etcd(store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe's folder says all that etcd did; a value that is empty is not in its JSON."""
    nodes = _nodes(store, "/bookkeeper/ledgers")

    def answer(command: list[str]) -> bytes:
        assert ["etcdctl", "get", "--prefix", "--write-out=json"] == [*command[:3], *command[4:]]
        rows = [
            {"key": base64.b64encode(key.encode()).decode(), "version": 1}
            | ({"value": base64.b64encode(data).decode()} if data else {})
            for key, data in nodes.items()
            if key.startswith(command[3])
        ]
        return json.dumps({"header": {}, "kvs": rows}).encode()

    monkeypatch.setattr(subprocess, "check_output", answer)
    monkeypatch.chdir(tmp_path)
    exec(_recipe("etcd"), {})

    _same(store, tmp_path / "metadata")


def test_audit_takes_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`bkstore audit` judges by such a folder: what a ledger's bookie lacks is told."""
    store = MemoryStore()
    store.create(metadata_of(7, state="CLOSED", last_entry_id=1, length=9))
    for key, data in _nodes(store, "/ledgers").items():
        path = Path(f"{tmp_path}/metadata{key}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (tmp_path / "b1" / "current").mkdir(parents=True)
    code = main(["audit", f"{tmp_path}/metadata", f"b1={tmp_path}/b1", "--format", "jsonl"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert 1 == code
    assert [7] == [row["ledger_id"] for row in rows if row["bookie"] == "b1"]
