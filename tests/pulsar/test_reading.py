"""References of Pulsar's metadata, from memory, a copied folder, and ZooKeeper."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore.errors import MetadataUnavailable
from bkstore.ledger_metadata import read_owner
from bkstore.pulsar import MemoryNodes, NodeValue, PulsarNodes, read_references
from bkstore.pulsar.references import LedgerReference
from bkstore.pulsar.sources.folder_nodes import OWN_VALUE, FolderNodes
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.pulsar.samples import (
    compacted_of,
    cursor,
    listed,
    locator,
    managed_ledger,
    node_values,
    owned,
    packed,
    schema_of,
    topic_path,
)

TREE = {
    topic_path("paid"): managed_ledger(1, listed(2, offloaded=True, deleted=True)),
    topic_path("paid", "my+sub"): cursor(3),
    topic_path("paid", "__compaction"): packed(cursor(4, 5), "zstd"),
    topic_path("new"): b"",
    topic_path("a%2Fb-partition-1"): packed(managed_ledger(6), "lz4"),
    "/managed-ledgers/old/west/orders/persistent/paid": managed_ledger(7),
    "/managed-ledgers/old/west/orders/persistent/paid/sub": cursor(-1),
    "/schemas/shop/orders/a+b": locator(8, 9),
    "/schemas/old/west/orders/paid": locator(10),
}


def write_folder(top: Path, tree: dict[str, bytes]) -> None:
    """Write a tree as a copied folder."""
    for path, data in tree.items():
        has_children = any(other.startswith(f"{path}/") for other in tree)
        file = Path(f"{top}{path}")
        file = file / OWN_VALUE if has_children else file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


@pytest.fixture(params=["memory", "folder", "zookeeper"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PulsarNodes]:
    """Yield the same tree from each kind of source."""
    if request.param == "memory":
        yield MemoryNodes(node_values(TREE))
    elif request.param == "folder":
        write_folder(tmp_path, TREE)
        yield FolderNodes(tmp_path)
    else:
        server: ZooKeeperServer = request.getfixturevalue("zookeeper")
        yield from _zookeeper_nodes(server)


def _zookeeper_nodes(server: ZooKeeperServer) -> Iterator[PulsarNodes]:
    from bkstore.pulsar.sources.zookeeper_nodes import ZooKeeperNodes

    source = ZooKeeperNodes([server.address], f"/reading-{os.getpid()}")
    client = source._connection.client
    for path, data in TREE.items():
        client.create(f"{source.root}{path}", data, makepath=True)
    yield source
    client.delete(source.root, recursive=True)
    source.close()


def test_references(nodes: PulsarNodes) -> None:
    """Each reference has its owner, as the ledger's own custom metadata state it."""
    references = read_references(nodes)
    paid = read_owner(owned("paid"))
    old = {**owned(), "pulsar/managed-ledger": b"old/west/orders/persistent/paid"}
    bucket_free = {
        1: LedgerReference(paid),
        2: LedgerReference(paid, offloaded=True, bookkeeper_deleted=True),
        3: LedgerReference(read_owner(owned("paid", "my sub"))),
        4: LedgerReference(read_owner(owned("paid", "__compaction"))),
        5: LedgerReference(read_owner(compacted_of("paid")), may_be_replaced=True),
        6: LedgerReference(read_owner(owned("a%2Fb-partition-1"))),
        7: LedgerReference(read_owner(old)),
        8: LedgerReference(read_owner(schema_of("a b"))),
        9: LedgerReference(read_owner(schema_of("a b"))),
    }

    assert [] == references.findings
    assert {**bucket_free} == {
        ledger: reference for ledger, reference in references.ledgers.items() if ledger != 10
    }
    assert "old/west/orders/paid" == references.ledgers[10].owner.schema
    assert "shop/orders/persistent/new" == references.topics["persistent://shop/orders/new"]
    assert 4 == len(references.topics)


def test_some_topics(nodes: PulsarNodes) -> None:
    """Of the named topics and schemas only; names that are not there are passed over."""
    names = ["shop/orders/persistent/paid", "shop/orders/persistent/gone"]
    references = read_references(nodes, names, ["shop/orders/a b", "shop/orders/gone"])

    assert {1, 2, 3, 4, 5, 8, 9} == set(references.ledgers)
    assert [] == references.findings
    assert ["persistent://shop/orders/paid"] == list(references.topics)


@pytest.mark.parametrize("element", ["a+b%2Fc", "a b/c"])
def test_some_schemas(element: str) -> None:
    """The locator of a schema is found with its topic encoded, and as it is."""
    nodes = MemoryNodes({f"/schemas/shop/orders/{element}": NodeValue(locator(8, 9))})

    assert {8, 9} == set(read_references(nodes, [], ["shop/orders/a b/c"]).ledgers)
    assert set() == set(read_references(nodes, [], ["shop/orders/a b"]).ledgers)


def test_delayed_messages() -> None:
    """Each bucket that a cursor names is referred to, as that subscription's."""
    buckets = {f"#pulsar.internal.delayed.bucket_{n}": str(n) for n in (77, 78)}
    tree = {topic_path("paid"): managed_ledger(1), topic_path("paid", "sub"): cursor(9, **buckets)}
    references = read_references(MemoryNodes(node_values(tree))).ledgers
    owners = [references[number].owner for number in (77, 78)]

    assert {1, 9, 77, 78} == references.keys()
    assert [("delayed-index-bucket", "sub")] * 2 == [(o.component, o.cursor) for o in owners]


@pytest.mark.parametrize("times", [(5, 9), (9, 5)])
def test_newest_change(times: tuple[int, int]) -> None:
    """Of a schema with two locators, the last change is that of the one changed last."""
    paths = ("/schemas/shop/orders/a+b", "/schemas/shop/orders/a b")
    values = {path: NodeValue(locator(8), time, time) for path, time in zip(paths, times)}

    assert (9, 9) == read_references(MemoryNodes(values)).last_change(read_owner(schema_of("a b")))


def test_changes(zookeeper: ZooKeeperServer) -> None:
    """How often and when nodes changed is what ZooKeeper says."""
    for nodes in _zookeeper_nodes(zookeeper):
        client: Any = nodes._connection.client  # type: ignore[attr-defined]
        path = nodes.location_of(topic_path("paid", "my+sub"))
        client.set(path, cursor(33))
        stat = client.exists(path)
        references = read_references(nodes)
        data, cursor_owner = read_owner(owned("paid")), read_owner(owned("paid", "my sub"))
        data_change = references.last_change(data)
        cursor_change = references.last_change(cursor_owner)

        assert data_change is not None
        assert 0 == data_change.version
        assert (1, stat.mtime) == cursor_change
        assert references.last_change(read_owner(owned("gone"))) is None
        assert 33 in references.ledgers


@pytest.mark.parametrize("codec", ["none", "plain"])
def test_undecodable(codec: str) -> None:
    """A value that cannot be decoded is a finding, and a doubt about what it may refer to."""
    broken = packed(b"garbage", codec) if codec == "none" else b"garbage"
    doubted = {
        topic_path("paid"): [owned(), owned(cursor_name="sub"), compacted_of()],
        topic_path("paid", "sub"): [owned(cursor_name="sub"), owned(cursor_name="other")],
        topic_path("paid", "__compaction"): [owned(cursor_name="sub"), compacted_of()],
        "/schemas/shop/orders/paid": [schema_of()],
    }
    every = [owned(), owned(cursor_name="sub"), compacted_of(), schema_of()]
    tree = {**TREE, **dict.fromkeys(doubted, managed_ledger())}
    tree[topic_path("paid", "sub")] = cursor(3)
    tree[topic_path("paid", "__compaction")] = cursor(4, 5)
    tree["/schemas/shop/orders/paid"] = locator(11)
    for path, customs in doubted.items():
        references = read_references(MemoryNodes(node_values({**tree, path: broken}), "dump"))
        (finding,) = references.findings

        assert f"dump: {path}" == finding.file
        for custom in customs:
            assert f"dump: {path} cannot be read" == references.doubt(read_owner(custom)), custom
        for custom in every:
            if custom not in customs:
                assert references.doubt(read_owner(custom)) is None, custom
        assert references.doubt(read_owner(owned("other"))) is None


def test_unknown_components() -> None:
    """A ledger of Pulsar whose references are not known is in doubt, whatever was read."""
    references = read_references(MemoryNodes(node_values(TREE)))
    pulsar = {"application": b"pulsar"}
    for custom in (
        pulsar,
        {**pulsar, "component": b"delayed-index-bucket"},
        {**owned(), "component": b"newer"},
        {**pulsar, "component": b"managed-ledger"},
        {**pulsar, "component": b"schema"},
    ):
        assert "is not known" in (references.doubt(read_owner(custom)) or ""), custom


def test_partial_folder(tmp_path: Path) -> None:
    """What a copy does not have is a finding: a node's own value, a whole tree."""
    tree = {path: data for path, data in TREE.items() if path.startswith("/managed-ledgers")}
    write_folder(tmp_path, tree)
    os.unlink(f"{tmp_path}{topic_path('paid')}/{OWN_VALUE}")
    references = read_references(FolderNodes(tmp_path))

    assert [f"{tmp_path}{topic_path('paid')}", f"{tmp_path}/schemas"] == sorted(
        str(finding.file) for finding in references.findings
    )
    assert "not in the copy" in (references.doubt(read_owner(schema_of())) or "")
    assert "cannot be read" in (references.doubt(read_owner(owned())) or "")
    assert {3, 4, 5, 6, 7} == set(references.ledgers)
    assert references.doubt(read_owner(owned("new"))) is None
    empty = read_references(FolderNodes(tmp_path / "nowhere"))
    assert empty.doubt(read_owner(owned("new")))
    assert read_references(MemoryNodes({})).doubt(read_owner(owned("new"))) is None


def test_references_to_one_ledger() -> None:
    """A reference to BookKeeper's copy prevails, in whatever order they are read."""
    kept, dropped = managed_ledger(1), managed_ledger(listed(1, deleted=True))
    for first, second in ((kept, dropped), (dropped, kept)):
        tree = {topic_path("a"): first, topic_path("b"): second}
        references = read_references(MemoryNodes(node_values(tree)))

        assert not references.ledgers[1].bookkeeper_deleted


def test_no_zookeeper() -> None:
    """Without an answer, that is raised: nothing is taken for absent."""
    pytest.importorskip("kazoo", reason="kazoo is not installed")
    from bkstore.pulsar.sources.zookeeper_nodes import ZooKeeperNodes

    with pytest.raises(MetadataUnavailable):
        ZooKeeperNodes(["127.0.0.1:1"], timeout=0.2)


def test_unread_nodes() -> None:
    """The value of a node without one is not looked for: folders have none."""
    nodes = MemoryNodes({"/managed-ledgers/shop": NodeValue(b"")})

    assert [None, NodeValue(b"")] == list(nodes.read_many(["/x", "/managed-ledgers/shop"]))
    assert {} == read_references(nodes).ledgers
