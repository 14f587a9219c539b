"""`leaked_ledgers` by the local engine: the classes, owners and bytes that a random world was made
with, which `LeakSearch` finds too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bkstore.errors import InvalidArgument, UnsupportedLayout
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, OwnerFilter
from bkstore.offline import analyses
from bkstore.offline.analyses import Inputs, LocalEngine, Options, PulsarMetadata
from bkstore.pulsar import LeakSearch, MemoryNodes, NodeValue
from tests.models.leaks import check_leaks, leak_rows
from tests.models.pulsar_dumps import PulsarWorld, random_pulsar
from tests.pulsar.samples import (
    NOW,
    ledger,
    listed,
    locator,
    managed_ledger,
    node_values,
    owned,
    schema_of,
    store_of,
    topic_path,
)
from tests.worlds.random_dumps import DumpWorld, write_dump

pytest.importorskip("duckdb")

ENGINE = LocalEngine(threads=1)
_LONG = pytest.param(1000, marks=pytest.mark.long)


@pytest.mark.parametrize("count", [6, _LONG])
def test_random_worlds(count: int, tmp_path: Path) -> None:
    """Each ledger has the row that it was made with."""
    classes = set()
    for seed in range(count):
        world = random_pulsar(seed)
        check_leaks(ENGINE, world, write_dump(world.dump, tmp_path / str(seed)))
        classes |= {each.ledger_class for each in world.expected}
        search = LeakSearch(world.store, world.pulsar(), now=NOW)
        found = {(each.ledger, each.ledger_class) for each in search.run().ledgers}

        assert {each[:2][::-1] for each in world.expected} == found, seed

    assert 7 == len(classes)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[PulsarWorld, Inputs]:
    """Return a world, and the inputs of its analyses."""
    world = random_pulsar(1, ledgers=80)
    dump = write_dump(world.dump, tmp_path_factory.mktemp("world") / "dump")
    options, pulsar = Options(as_of=NOW), PulsarMetadata(world.pulsar())
    return world, analyses.open_inputs(dump, world.store, None, options, pulsar)


def test_a_topic(made: tuple[PulsarWorld, Inputs]) -> None:
    """With a filter only the ledgers of its owners count: others in their logs stay."""
    world, inputs = made
    options = Options(as_of=NOW, owners=OwnerFilter(topic="*/ü-partition-7"))
    rows = leak_rows(ENGINE, Inputs(inputs.dump, inputs.metadata, None, options, inputs.pulsar))

    assert rows
    assert world.rows(topic="shop/orders/ü-partition-7") == rows


def test_removable_bytes_of_a_topic(tmp_path: Path) -> None:
    """A log with leaks of two topics goes if both are deleted; with those of one it stays."""
    ledgers = [ledger(1, owned("paid")), ledger(2, owned("other")), ledger(9, owned("paid"))]
    nodes = {topic_path("paid"): managed_ledger(9), topic_path("other"): b""}
    world = DumpWorld(held={"b1": {}})
    sizes = {LedgerId.of(1): 10, LedgerId.of(2): 20}
    world.logs = {
        ("b1", 0, 1): (1054, True, sizes),
        ("b1", 0, 2): (1029, True, {LedgerId.of(1): 5}),
    }
    pulsar = PulsarMetadata(MemoryNodes(node_values(nodes)))
    dump = write_dump(world, tmp_path / "dump")
    rows = {}
    for topic in (None, "*/paid"):
        options = Options(as_of=NOW, owners=OwnerFilter(topic=topic))
        inputs = analyses.open_inputs(dump, store_of(ledgers), None, options, pulsar)
        rows[topic] = [(row[2], *row[5:7]) for row in leak_rows(ENGINE, inputs)]

    assert {None: [(2, 20, 20), (1, 15, 15)], "*/paid": [(1, 15, 5)]} == rows


def test_owners_of_offloaded_copies(tmp_path: Path) -> None:
    """The topic that a ledger states, though another one lists it; the latter if it states none."""
    ledgers = [ledger(1, owned("paid")), ledger(2, {}), ledger(9, owned("other"))]
    copies = [listed(number, offloaded=True, deleted=True) for number in (1, 2)]
    nodes = {topic_path("other"): managed_ledger(*copies, 9)}
    pulsar = PulsarMetadata(MemoryNodes(node_values(nodes)))
    dump = write_dump(DumpWorld(held={"b1": {}}), tmp_path / "dump")
    inputs = analyses.open_inputs(dump, store_of(ledgers), None, Options(as_of=NOW), pulsar)

    assert [
        ("offloaded-copy", 1, "persistent://shop/orders/paid"),
        ("offloaded-copy", 2, "persistent://shop/orders/other"),
    ] == [(row[0], row[2], row[3]) for row in leak_rows(ENGINE, inputs)]


def _rows_of(
    ledgers: list[LedgerMetadata], tree: dict[str, bytes | NodeValue], dump: Path
) -> tuple[list[tuple[Any, ...]], PulsarMetadata]:
    """Return the rows of some ledgers that no bookie has, and the metadata of Pulsar."""
    pulsar = PulsarMetadata(MemoryNodes(node_values(tree)))
    made = write_dump(DumpWorld(held={"b1": {}}), dump)
    inputs = analyses.open_inputs(made, store_of(ledgers), None, Options(as_of=NOW), pulsar)
    return leak_rows(ENGINE, inputs), pulsar


@pytest.mark.parametrize("age", [299_999, 300_000])
def test_recent_changes(age: int, tmp_path: Path) -> None:
    """A change of the last five minutes is a caution, to the millisecond."""
    value = managed_ledger(9, listed(2, offloaded=True, deleted=True))
    tree: dict[str, bytes | NodeValue] = {topic_path("paid"): NodeValue(value, 3, NOW - age)}
    rows, _ = _rows_of(
        [ledger(number, owned("paid")) for number in (1, 2, 9)], tree, tmp_path / "d"
    )

    assert [("leaked", 1), ("offloaded-copy", 2)] == [(row[0], row[2]) for row in rows]
    assert [age < 300_000] * 2 == [row[8] is not None for row in rows]


def test_incomplete_offload(tmp_path: Path) -> None:
    """A ledger is listed as deleted, though its offload is not complete: the copy in BookKeeper has
    a caution, and without one the ledger is dangling."""
    value = managed_ledger(9, *(listed(each, offloaded=False, deleted=True) for each in (2, 3)))
    rows, _ = _rows_of(
        [ledger(number, owned("paid")) for number in (2, 9)],
        {topic_path("paid"): value},
        tmp_path / "d",
    )

    assert [("dangling", 3, False), ("offloaded-copy", 2, True)] == [
        (row[0], row[2], "is not complete" in (row[8] or "")) for row in rows
    ]


@pytest.mark.parametrize("schema_id", ["x", "shop/x", "shop/orders/a"])
def test_schemas_elsewhere(schema_id: str, tmp_path: Path) -> None:
    """A locator is read where the id of a schema says, though no topic's would be there."""
    custom = {**schema_of(), "pulsar/schemaId": schema_id.encode()}
    tree: dict[str, bytes | NodeValue] = {
        topic_path("paid"): managed_ledger(1),
        f"/schemas/{schema_id}": locator(2),
        "/schemas/shop/orders/a/b": locator(3),
    }
    ledgers = [ledger(1, owned()), *(ledger(each, custom) for each in (2, 4))]
    rows, pulsar = _rows_of([*ledgers, ledger(3, schema_of("a/b"))], tree, tmp_path / "d")

    assert [("leaked", 0, 4)] == [row[:3] for row in rows]
    assert [] == pulsar.findings


@pytest.mark.parametrize("topics", [0, 1])
def test_no_topics(topics: int, tmp_path: Path) -> None:
    """Without a single topic a leak has a caution, and the tree is a finding."""
    tree: dict[str, bytes | NodeValue] = {"/managed-ledgers/shop": b""}
    if topics:
        tree[topic_path("paid")] = b""
    rows, pulsar = _rows_of(
        [ledger(1, owned("paid")), ledger(2, schema_of())], tree, tmp_path / "d"
    )

    assert [("leaked", 1), ("leaked", 2)] == [(row[0], row[2]) for row in rows]
    assert [not topics] * 2 == ["no topics at all" in (row[8] or "") for row in rows]
    assert [not topics] == [bool(pulsar.findings)]


def test_another_cluster(tmp_path: Path) -> None:
    """A ledger of another scope is not the one that Pulsar lists: if none of those is there, the
    nodes may be another cluster's, which is a finding."""
    scoped = replace(ledger(50, owned("paid")), ledger=LedgerId(7, 50))
    tree: dict[str, bytes | NodeValue] = {topic_path("other"): managed_ledger(50)}
    rows, pulsar = _rows_of([scoped, ledger(2, owned("paid"))], tree, tmp_path / "dump")

    assert ["is this its Pulsar" in finding.detail for finding in pulsar.findings] == [True]
    assert [("dangling", 0, 50), ("undetermined", 0, 2), ("undetermined", 7, 50)] == [
        row[:3] for row in rows
    ]


def test_grace_and_time(made: tuple[PulsarWorld, Inputs]) -> None:
    """A ledger is leaked from the age of grace on, to the millisecond."""
    _, inputs = made

    def leaked(grace: int, as_of: int) -> set[int]:
        options = Options(grace=grace, as_of=as_of)
        rows = leak_rows(ENGINE, Inputs(inputs.dump, inputs.metadata, None, options, inputs.pulsar))
        return {row[2] for row in rows if row[0] == "leaked"}

    age = 10 * 24 * 60 * 60 * 1000  # of the old ones

    assert leaked(age, NOW)
    assert leaked(age, NOW) < leaked(0, NOW)
    assert set() == leaked(age + 1, NOW) == leaked(age, NOW - 1)
    assert leaked(age + 1, NOW + 1) == leaked(age, NOW)


def test_refusals(made: tuple[PulsarWorld, Inputs], tmp_path: Path) -> None:
    """Without Pulsar's metadata, with those of a running cluster, and with none of topics."""
    _, inputs = made
    with pytest.raises(InvalidArgument, match="leaked_ledgers needs Pulsar's metadata"):
        analyses.run("leaked_ledgers", inputs.dump, inputs.metadata)
    with pytest.raises(InvalidArgument, match="analyses need a copy, not a running cluster"):
        PulsarMetadata.open("zk://localhost:1/")
    live: Any = MemoryNodes({})
    live.is_live = True
    with pytest.raises(InvalidArgument, match="use `bkstore leaks`"):
        PulsarMetadata(live)
    with pytest.raises(UnsupportedLayout, match="is the root of Pulsar's metadata right"):
        analyses.run(
            "leaked_ledgers", inputs.dump, inputs.metadata, pulsar=PulsarMetadata(MemoryNodes({}))
        )
