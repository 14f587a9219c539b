"""Golden worlds of Pulsar over BookKeeper: the owner and the class of each ledger."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main
from bkstore.cluster import ZooKeeperStore
from bkstore.ledger_metadata import read_owner
from bkstore.pulsar import LeakSearch
from bkstore.pulsar.sources.folder_nodes import OWN_VALUE
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.golden.pulsar.worlds import (
    OWNER_FIELDS,
    load_worlds,
    read_ledgers,
    world_nodes,
    world_store,
)

pytestmark = pytest.mark.usefixtures("golden")


@pytest.fixture(scope="module")
def worlds(golden: Path) -> list[dict[str, Any]]:
    """Return the golden worlds."""
    return load_worlds()


def test_owners(worlds: list[dict[str, Any]]) -> None:
    """The custom metadata of each ledger state its owner, as the world has it."""
    assert len(worlds) >= 40
    for world in worlds:
        for metadata in read_ledgers(world):
            truth = world["ledgers"][str(metadata.ledger_id)]
            owner = read_owner(metadata.custom_metadata)
            if truth["class"] == "unknown-owner":
                assert owner.application != "pulsar", (world["seed"], metadata.ledger)
                assert owner.topic is None, (world["seed"], metadata.ledger)
            else:
                stated = {field: getattr(owner, field) for field in OWNER_FIELDS}
                expected = {field: truth.get(field) for field in OWNER_FIELDS}

                assert expected == stated, (world["seed"], metadata.ledger)


def test_classes(worlds: list[dict[str, Any]]) -> None:
    """Each ledger has the class and the owner of the world, and no other ledger is reported. Of a
    topic whose value is garbage nothing is a leak, and the garbage is a finding."""
    for world in worlds:
        search = LeakSearch(
            world_store(world), world_nodes(world), now=world["now_ms"], grace=world["grace_ms"]
        )
        report = search.run()
        reported = {str(each.ledger.ledger): each for each in report.ledgers}
        undecodable = (world["undecodable"] or "").removeprefix("/managed-ledgers/")
        for ledger_id, truth in world["ledgers"].items():
            context = (world["seed"], ledger_id, truth)
            in_doubt = bool(undecodable) and truth.get("managed_ledger") == undecodable
            each = reported.pop(ledger_id, None)
            if in_doubt and (each is None or each.ledger_class == "undetermined"):
                # A listed ledger that BookKeeper does not have is not known at all.
                assert each is not None or truth["class"] == "dangling", context
                continue
            assert each is not None, context
            assert truth["class"] == each.ledger_class, context
            if truth["class"] != "unknown-owner":
                stated = {field: getattr(each.owner, field) for field in OWNER_FIELDS}
                assert {field: truth.get(field) for field in OWNER_FIELDS} == stated, context

        assert {} == reported, world["seed"]
        assert [world["undecodable"]] * bool(undecodable) == [
            finding.file for finding in report.findings
        ]


def _write_folder(world: dict[str, Any], top: Path) -> str:
    """Write a world as a folder copied from ZooKeeper, and return the path of its ledgers."""
    for path, value in world["tree"].items():
        is_topic = path.startswith("/managed-ledgers/") and path.count("/") == 5
        file = top / (f"{path}/{OWN_VALUE}" if is_topic else path)[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes.fromhex(value))
    (top / "schemas").mkdir(exist_ok=True)
    return str(top / "ledgers")


def _write_cluster(world: dict[str, Any], server: ZooKeeperServer) -> str:
    """Write a world into a ZooKeeper, and return the service URI."""
    root = f"/world-{world['seed']}"
    with ZooKeeperStore.format(server.uri(f"{root}/ledgers")) as store:
        for path, value in world["tree"].items():
            store._connection.client.create(f"{root}{path}", bytes.fromhex(value), makepath=True)
        return str(store.uri)


@pytest.mark.parametrize("index", [3, 16, 19])
def test_leaks_command(
    worlds: list[dict[str, Any]],
    index: int,
    tmp_path: Path,
    zookeeper: ZooKeeperServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`bkstore leaks` has a row with its class for each ledger, of a folder and of ZooKeeper."""
    world = worlds[index]
    as_of = datetime.fromtimestamp(world["now_ms"] / 1000, UTC).isoformat()
    options = ["--grace", f"{world['grace_ms'] // 1000}s", "--as-of", as_of, "--pause", "0"]
    doubtful = (world["undecodable"] or "/").rpartition("/managed-ledgers/")[2]
    for place in (_write_folder(world, tmp_path), _write_cluster(world, zookeeper)):
        assert 1 == main(["leaks", place, "--all", *options, "--format", "jsonl"])
        rows = map(json.loads, capsys.readouterr().out.splitlines())
        shown = {str(row["ledger_id"]): row for row in rows}
        for ledger_id, truth in world["ledgers"].items():
            if truth.get("managed_ledger") != doubtful:
                assert truth["class"] == shown[ledger_id]["class"], (place, ledger_id, truth)
                assert truth.get("topic") == shown[ledger_id]["topic"], (place, ledger_id, truth)
        assert set(shown) <= set(world["ledgers"])
        assert "leaked" not in {
            row["class"] for row in shown.values() if row["managed_ledger"] == doubtful
        }
