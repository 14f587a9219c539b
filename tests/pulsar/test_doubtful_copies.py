"""Copies that lack nodes, and names that no metadata store can have: nothing is a leak by them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore.errors import CorruptionError
from bkstore.formats.metadata.json_file import ClusterMetadata, encode_file
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.pulsar import LeakReport, LeakSearch, MemoryNodes, PulsarNodes
from bkstore.pulsar.sources.exports import decode_nodes, encode_nodes, read_all_nodes
from bkstore.pulsar.sources.folder_nodes import FolderNodes
from tests.pulsar.samples import (
    NOW,
    compacted_of,
    cursor,
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


class StrictNodes(MemoryNodes):
    """Nodes that refuse the paths that a client of ZooKeeper refuses."""

    def list_children(self, paths: Iterable[str]) -> Iterator[list[str] | None]:
        """Check the paths."""
        return super().list_children(_checked(paths))

    def read_many(self, paths: Iterable[str]) -> Iterator[Any]:
        """Check the paths."""
        return super().read_many(_checked(paths))


def _checked(paths: Iterable[str]) -> list[str]:
    asked = list(paths)
    for path in asked:
        assert path.startswith("/")
        assert not {"", ".", ".."} & set(path[1:].split("/")), path
        assert "\0" not in path
    return asked


def search(stored: list[LedgerMetadata], nodes: dict[str, Any] | PulsarNodes) -> LeakReport:
    """Return the report of a search over these nodes."""
    source = StrictNodes(node_values(nodes)) if isinstance(nodes, dict) else nodes
    return LeakSearch(store_of(stored), source, now=NOW).run()


def classes(report: LeakReport) -> dict[int, str]:
    """Return the class of each ledger."""
    return {each.ledger.ledger: each.ledger_class for each in report.ledgers}


def test_topic_without_a_value() -> None:
    """An export has a topic's cursor, and lacks the topic: what it lists is not known."""
    tree = {topic_path("paid", "sub"): cursor(3), topic_path("other"): managed_ledger(4)}
    stored = [
        ledger(1, owned()),
        ledger(2, compacted_of()),
        ledger(3, owned(cursor_name="sub")),
        ledger(4, owned("other")),
        ledger(5, owned("gone")),
    ]
    report = search(stored, tree)

    assert {
        1: "undetermined",
        2: "undetermined",
        3: "referenced",
        4: "referenced",
        5: "leaked",
    } == classes(report)
    assert [(topic_path("paid"), "the topic has cursors, but no value")] == [
        (finding.file, finding.detail) for finding in report.findings
    ]


def test_incomplete_offload() -> None:
    """A ledger is listed as deleted, though its offload is not complete: the copy in BookKeeper has
    a caution, and without one the ledger is dangling."""
    infos = (listed(each, offloaded=False, deleted=True) for each in (1, 2))
    report = search(
        [ledger(1, owned()), ledger(3, {})], {topic_path("paid"): managed_ledger(*infos, 3)}
    )

    assert {1: "offloaded-copy", 2: "dangling", 3: "referenced"} == classes(report)
    assert ["its offload is not complete: brokers may read the ledger from BookKeeper"] == [
        each.caution for each in report.ledgers if each.ledger_class == "offloaded-copy"
    ]


def test_certain_references() -> None:
    """Of several references to a ledger, one that needs the copy in BookKeeper counts, and of those
    one that is certain, in any order."""
    dropped = managed_ledger(listed(1, deleted=True))
    for first, second in (("a", "b"), ("b", "a")):
        tree = {
            topic_path(first): dropped,
            topic_path(second): b"",
            topic_path(second, "__compaction"): cursor(9, 1),
        }
        assert {1: "referenced", 9: "referenced"} == classes(
            search([ledger(1, owned()), ledger(9, {})], tree)
        )


@pytest.mark.parametrize(
    ("schema_id", "path"),
    [
        ("shop/orders/a", "shop/orders/a"),  # with another schema beneath
        ("shop/orders/x y", "shop/orders/x+y"),
        ("x", "x"),
        ("shop/x", "shop/x"),
    ],
)
def test_schemas_elsewhere(schema_id: str, path: str) -> None:
    """A locator is read wherever the id of a ledger's schema says, by the first look already."""
    custom = {**schema_of(), "pulsar/schemaId": schema_id.encode()}
    tree = {
        topic_path("paid"): managed_ledger(1),
        f"/schemas/{path}": locator(2),
        "/schemas/shop/orders/a/b": locator(3),
    }
    stored = [ledger(1, owned()), ledger(2, custom), ledger(3, schema_of("a/b"))]
    damaged = {**tree, f"/schemas/{path}": b"garbage"}

    assert dict.fromkeys((1, 2, 3), "referenced") == classes(search(stored, tree))
    report = search(stored, damaged)
    assert "undetermined" == classes(report)[2]
    assert [f"/schemas/{path}"] == [finding.file for finding in report.findings]


@pytest.mark.parametrize("schema_id", ["shop/orders/x y+", "shop/orders/100%", "shop/orders/x+y"])
def test_damaged_locators(schema_id: str) -> None:
    """A schema is in doubt if its locator is damaged, whether its id is encoded in both or not."""
    custom = {**schema_of(), "pulsar/schemaId": schema_id.encode()}
    tree = {topic_path("paid"): managed_ledger(1), f"/schemas/{schema_id}": b"garbage"}

    assert {1: "referenced", 2: "undetermined"} == classes(
        search([ledger(1, owned()), ledger(2, custom)], tree)
    )


@pytest.mark.parametrize(
    "custom",
    [
        *(
            {**owned(), "pulsar/managed-ledger": name.encode()}
            for name in (
                "",
                "/",
                "../x",
                "a//b",
                "a/",
                "a\0b",
                "t/n/persistent/..",
                "t/./persistent/x",
            )
        ),
        *(
            {**compacted_of(), "pulsar/compactedTopic": f"persistent://{name}".encode()}
            for name in ("../n/x", "t/../x", "t/\0/x")
        ),
        *({**schema_of(), "pulsar/schemaId": name.encode()} for name in ("../n/x", "", "..")),
    ],
)
def test_impossible_names(custom: dict[str, bytes]) -> None:
    """A ledger states a name that is no path of a node: no such node is read, and whether Pulsar
    refers to the ledger is not known. The search goes on."""
    stored = [ledger(1, owned()), ledger(2, custom), ledger(3, owned("gone")), ledger(4, custom)]
    report = search(stored, {topic_path("paid"): managed_ledger(1, listed(4, deleted=True))})

    assert {1: "referenced", 2: "undetermined", 3: "leaked", 4: "offloaded-copy"} == classes(report)
    assert [] == report.findings


def test_topics_like_old_names() -> None:
    """The name of a topic with slashes, which may also be one of the old form, is no other path."""
    custom = {**compacted_of(), "pulsar/compactedTopic": b"persistent://shop/orders/../x//y"}
    tree = {topic_path("paid"): managed_ledger(1), topic_path("..%2Fx%2F%2Fy", "__compaction"): b""}
    tree[topic_path("..%2Fx%2F%2Fy")] = b""
    stored = [ledger(1, owned()), ledger(2, custom)]

    assert {1: "referenced", 2: "undetermined"} == classes(search(stored, tree))
    tree[topic_path("..%2Fx%2F%2Fy", "__compaction")] = cursor(-1, 2)
    assert {1: "referenced", 2: "referenced"} == classes(search(stored, tree))


def _folder(top: Path) -> Path:
    """Make a copy whose topic "paid" lists ledger 1; return the folder of its topics."""
    topics = top / topic_path("")[1:]
    topics.mkdir(parents=True)
    (topics / "paid").write_bytes(managed_ledger(1))
    (top / "schemas").mkdir()
    return topics


def _exported(nodes: PulsarNodes) -> PulsarNodes:
    """Return the nodes of a metadata file with these nodes."""
    part = encode_nodes(read_all_nodes(nodes), NOW, nodes.is_complete)
    exported = decode_nodes(encode_file(ClusterMetadata(), other_parts={"pulsar": part}))
    assert exported is not None
    return exported


FITTING, LONG = "%C3%BC" * 42 + "abc", "%C3%BC" * 42 + "abcd"
"""Names of 255 characters, as many as a file's has at most, and of one more."""


@pytest.mark.parametrize("namespace", ["shop/orders", "shop/new", "new/orders", f"new/{LONG}"])
def test_names_too_long_for_a_folder(namespace: str, tmp_path: Path) -> None:
    """A folder cannot have the node of a topic, cursor or schema with so long a name: its ledgers
    are in doubt, also where nothing else is in its namespace, and in an export of the folder."""
    _folder(tmp_path)
    topic = "x" if LONG in namespace else LONG

    def of(custom: dict[str, bytes]) -> dict[str, bytes]:
        return {key: _moved(value, namespace) for key, value in custom.items()}

    stored = [
        ledger(1, owned()),
        ledger(2, owned("x")),
        ledger(3, owned(FITTING)),
        ledger(4, of(owned(topic))),
        ledger(5, of(schema_of(topic))),
        ledger(6, owned("paid", "ü" * 42 + "abc")),
    ]
    expected = {2: "leaked", 3: "leaked", 6: "leaked", 4: "undetermined", 5: "undetermined"}
    for nodes in (FolderNodes(tmp_path), _exported(FolderNodes(tmp_path))):
        report = search(stored, nodes)

        assert {1: "referenced", **expected} == classes(report)
        assert ["the name is too long for a file of the copy"] * 2 == [
            finding.detail for finding in report.findings
        ]


def _moved(value: bytes, namespace: str) -> bytes:
    return value.replace(b"shop/orders", namespace.encode())


def test_cursors_too_long_for_a_folder(tmp_path: Path) -> None:
    """A folder cannot have the node of a cursor with so long a name, so no listing has it."""
    _folder(tmp_path)
    stored = [
        ledger(1, owned()),
        ledger(2, owned("paid", "ü" * 42 + "abcd")),
        ledger(3, owned("paid", "sub")),
        ledger(4, owned("paid")),
        ledger(5, owned("gone", "ü" * 42 + "abcd")),
    ]
    expected = {1: "referenced", 2: "undetermined", 4: "leaked", 3: "undetermined", 5: "leaked"}
    for nodes in (FolderNodes(tmp_path), _exported(FolderNodes(tmp_path))):
        report = search(stored, nodes)

        assert expected == classes(report)
        assert ["the name is too long for a file of the copy"] == [
            finding.detail for finding in report.findings
        ]


OTHER_OWNERS = [
    *({**owned(), "pulsar/managed-ledger": name} for name in (b"my", b"my/ledger", b"a/b/c/d/e")),
    *({**schema_of(), "pulsar/schemaId": name} for name in (b"x", b"shop/x", b"shop/orders/a")),
]


@pytest.mark.parametrize("custom", OTHER_OWNERS)
def test_exports_of_other_nodes(custom: dict[str, bytes], tmp_path: Path) -> None:
    """A ledger names a node that is no topic's and no common schema's: it is exported as well, also
    if other nodes are below it. If a copied folder lacks its value, the ledger is in doubt."""
    if "pulsar/schemaId" in custom:
        path = f"/schemas/{custom['pulsar/schemaId'].decode()}"
        values = {path: locator(2), f"{path}/below/it": locator(4)}
    else:
        path = f"/managed-ledgers/{custom['pulsar/managed-ledger'].decode()}"
        values = {path: managed_ledger(2), f"{path}/below": cursor(4)}
    tree = {topic_path("paid"): managed_ledger(1), "/schemas/shop/orders/b": locator(1), **values}
    stored = [ledger(1, owned()), *(ledger(each, custom) for each in (2, 3)), ledger(4, {})]
    nodes = MemoryNodes(node_values(tree))

    expected = {1: "referenced", 2: "referenced", 3: "leaked", 4: "referenced"}
    assert expected == classes(search(stored, nodes)) == classes(search(stored, _exported(nodes)))
    for each, data in tree.items():
        file = tmp_path / (f"{each}/.data" if each in (path, topic_path("paid")) else each)[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    folder = FolderNodes(tmp_path)
    assert expected == classes(search(stored, folder)) == classes(search(stored, _exported(folder)))
    (tmp_path / path[1:] / ".data").unlink()
    for source in (folder, _exported(folder)):
        report = search(stored, source)
        found = classes(report)
        assert ("undetermined", "undetermined") == (found[2], found[3])
        assert [path] == [finding.file[-len(path) :] for finding in report.findings if finding.file]


def test_file_names_that_are_not_text(tmp_path: Path) -> None:
    """A folder with such a name is no copy of Pulsar's nodes."""
    topics = _folder(tmp_path)
    try:
        (topics / os.fsdecode(b"caf\xe9")).touch()
    except OSError:
        pytest.skip("the file system has no such names")

    with pytest.raises(CorruptionError, match="is not UTF-8") as caught:
        search([ledger(1, owned())], FolderNodes(tmp_path))
    assert str(topics) == str(caught.value.file)
