"""Real clusters' trees, in a real ZooKeeper: our store tells what the real classes told."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bkstore.cluster import ZooKeeperStore
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.ids import LedgerId
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.golden.zookeeper.real_clusters import NAMES, documents, manager, put_tree, raw

_tops = count()


def _ledger(facts: dict[str, Any], store: ZooKeeperStore) -> None:
    metadata, version = store.read(facts["ledger"])
    closed = facts["state"] == "CLOSED"

    assert facts["znode_version"] == version
    assert facts["format_version"] == metadata.version
    assert (facts["state"], facts["ensemble_size"]) == (metadata.state, metadata.ensemble_size)
    assert facts["write_quorum"] == metadata.write_quorum_size
    assert facts["ack_quorum"] == metadata.ack_quorum_size
    if closed:
        assert (facts["last_entry"], facts["length"]) == (metadata.last_entry_id, metadata.length)
    if facts["digest"] is not None:
        assert facts["digest"].replace("MAC", "HMAC") == metadata.digest_type
        assert bytes.fromhex(facts["password_hex"]) == metadata.password
    assert facts["ctoken"] == metadata.c_token
    assert {k: bytes.fromhex(v) for k, v in facts["custom_hex"].items()} == dict(
        metadata.custom_metadata
    )
    assert [(s["first_entry"], tuple(s["bookies"])) for s in facts["segments"]] == [
        (*each,) for each in metadata.segments
    ]


def _registered(tree: dict[str, Any], root: str) -> tuple[set[str], set[str]]:
    names = [path.removeprefix(f"{root}/available/") for path in tree if "/available/" in path]
    read_only = {name[9:] for name in names if name.startswith("readonly/")}
    return {name for name in names if not name.startswith("readonly")}, read_only


def _settings(stage: str, facts: dict[str, Any], store: ZooKeeperStore) -> None:
    marks = store.underreplication
    if stage == "settings":
        assert facts["delay"] == marks.recovery_delay()
        assert facts["check_all_ledgers_ctime"] == marks.check_time("checkallledgersctime")
        assert facts["placement_policy_check_ctime"] == marks.check_time(
            "placementpolicycheckctime"
        )
        assert facts["replicas_check_ctime"] == marks.check_time("replicascheckctime")
        assert facts["enabled"] == marks.enabled
    if "auditor" in facts:
        assert facts["auditor"] == marks.auditor()
    if stage == "locks":
        assert facts["worker_id"] == marks.holder(facts["polled"])
        assert facts["worker_id"] == marks.holder(facts["acquired"])
        assert marks.lock(facts["polled"]) is None


@pytest.mark.parametrize("name", NAMES)
def test_every_stage(name: str, golden: Path, zookeeper: ZooKeeperServer) -> None:
    """After each step ledgers, marks, settings, cookies and bookies are what the real ones told."""
    document = documents(golden)[name]
    root, seen = document["root"], 0
    with ZooKeeperStore.format(zookeeper.uri(f"/golden-{next(_tops)}/x")) as maker:
        for stage in document["stages"]:
            tree = stage["tree"]
            if f"{root}/LAYOUT" not in tree:
                continue
            top = f"/golden-{next(_tops)}"
            put_tree(raw(maker), top, tree)
            with ZooKeeperStore(zookeeper.uri(f"{top}{root}", manager(document))) as store:
                seen += _stage(stage, root, store)

    assert seen > 10


def _stage(stage: dict[str, Any], root: str, store: ZooKeeperStore) -> int:
    tree, facts = stage["tree"], stage["facts"]
    ledgers = facts.get("ledgers", [])
    for each in [ledgers] if isinstance(ledgers, dict) else ledgers:
        _ledger(each, store)
    paths = [path.removeprefix(root) for path in tree if path.startswith(f"{root}/")]
    listed = [name for name in map(store._tree.parse_path, paths) if name is not None]

    assert sorted(listed) == store.ledgers()
    assert len(listed) == len(dict(store.read_many(listed)))
    if "ranges" in facts:
        assert sorted(n for part in facts["ranges"] for n in part) == [
            name.ledger for name in sorted(listed)
        ]
    if "marks" in facts:
        assert {
            LedgerId.of(int(ledger)): UnderreplicatedMark(
                None if mark["ctime"] == -1 else mark["ctime"] / 1000, tuple(mark["replicas"])
            )
            for ledger, mark in facts["marks"].items()
        } == dict(store.underreplicated())
    _settings(stage["stage"], facts, store)
    writable, read_only = _registered(tree, root)
    assert (writable, read_only) == (set(store.writable_bookies()), set(store.read_only_bookies()))
    assert tree[f"{root}/INSTANCEID"]["text"] == store.instance_id()
    for bookie in store.cookies():
        stored = store.cookie(bookie)
        assert stored is not None
        assert bookie == stored.cookie.bookie_id
        if stage["stage"] not in ("wrong-instance", "cookie-missing", "registered-by-another"):
            assert store.instance_id() == stored.cookie.instance_id
    for bookie, info in facts.get("infos", {}).items():
        _info(bookie, info, store)
    return len(listed) + len(store.cookies())


def _info(bookie: str, info: dict[str, Any], store: ZooKeeperStore) -> None:
    found, said = store.service_info(bookie), info["service_info"]
    if isinstance(said, str):  # not registered: an error there
        assert found is None
        return
    assert found is not None
    assert [(one["protocol"], one["host"], one["port"]) for one in said["endpoints"]] == [
        (one.protocol, one.host, one.port) for one in found.endpoints
    ]
    if "resolves_to" in info:
        assert found.address is not None
        assert info["resolves_to"] == "{}:{}".format(*found.address)
    assert said["properties"] == dict(found.properties)
