"""Pulsar's nodes in a metadata file: what is exported is what is read, and nothing else is."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkstore.cluster import open_metadata
from bkstore.errors import CorruptionError
from bkstore.formats.metadata.json_file import ClusterMetadata, decode_file, encode_file
from bkstore.pulsar import MemoryNodes, NodeValue, read_references
from bkstore.pulsar.sources.exports import decode_nodes, encode_nodes, read_all_nodes
from bkstore.pulsar.sources.folder_nodes import FolderNodes
from bkstore.pulsar.sources.opening import open_pulsar
from tests.pulsar.samples import cursor, locator, managed_ledger, topic_path

VALUES = {
    topic_path("a%2Fb"): NodeValue(managed_ledger(1), 3, 1_700_000_000_000),
    topic_path("a%2Fb", "sub"): NodeValue(cursor(2)),
    topic_path("bad"): NodeValue(b"garbage"),
    "/schemas/shop/orders/paid": NodeValue(locator(4), 0, 5),
}


def export(nodes: Any, read_at: int = 7) -> bytes:
    """Return a metadata file with these nodes."""
    text = encode_nodes(read_all_nodes(nodes), read_at, nodes.is_complete)
    return encode_file(ClusterMetadata(), other_parts={"pulsar": text})


def test_round_trip() -> None:
    """Values, versions and times come back, undecodable ones too; the ledgers are still read."""
    data = export(MemoryNodes(VALUES))
    nodes = decode_nodes(data, "f")

    assert nodes is not None
    assert VALUES == {path: nodes.values[path] for path in VALUES}
    assert {"/managed-ledgers", "/schemas"} == set(nodes.values) - set(VALUES)
    assert (7, True, False) == (nodes.read_at, nodes.is_complete, nodes.is_live)
    assert {1, 2, 4} == set(read_references(nodes).ledgers)
    assert [f"f: {topic_path('bad')}"] == [each.file for each in read_references(nodes).findings]
    assert ClusterMetadata() == decode_file(data)
    assert decode_nodes(encode_file(ClusterMetadata())) is None


@pytest.mark.parametrize("opened", [open_metadata, open_pulsar])
def test_a_file_is_in_memory_once(opened: Callable[[Path], object], tmp_path: Path) -> None:
    """Reading and parsing a file take no second copy of it, for either side."""
    path = tmp_path / "both.json"
    data = export(MemoryNodes(VALUES)).rstrip().removesuffix(b"}") + b" " * (8 << 20) + b"}"
    path.write_bytes(data)
    opened(path)  # loads modules
    tracemalloc.start()
    opened(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert len(data) < peak < 1.6 * len(data)


def test_nodes_that_are_exported(tmp_path: Path) -> None:
    """All nodes down to the cursors of topics, of the old form too; not what is below cursors."""
    topics = ("t/n/persistent/a", "t/c/n/persistent/a", "t/c/persistent/persistent/a")
    paths = [f"/managed-ledgers/{topic}/sub" for topic in topics]
    paths += ["/managed-ledgers/my/ledger/a/b/c/d", "/schemas/t/n/persistent/a/sub/x"]
    nodes = MemoryNodes({path: NodeValue(b"") for path in [*paths, f"{paths[0]}/x"]})
    for path in paths:
        (tmp_path / path[1:]).mkdir(parents=True)

    assert {*paths, "/managed-ledgers", "/schemas"} == {path for path, _ in read_all_nodes(nodes)}
    exported = {
        path: isinstance(value, CorruptionError)
        for path, value in read_all_nodes(FolderNodes(tmp_path))
    }
    # A topic's own value, and that of an empty folder, are missed; those of other folders are not.
    missed = [*paths, *(path.removesuffix("/sub") for path in paths[:3])]
    roots = {"/managed-ledgers": False, "/schemas": False}
    assert {**dict.fromkeys(missed, True), **roots} == {
        path: problem for path, problem in exported.items() if path not in TWICE_PERSISTENT
    }


TWICE_PERSISTENT = ("/managed-ledgers/t/c/persistent/persistent",)
"""A folder or a topic: the domain may be either."""


def test_what_a_copy_lacks(tmp_path: Path) -> None:
    """An absent tree and an absent value of an incomplete copy are not taken for empty."""
    (tmp_path / topic_path("x", "sub")[1:]).mkdir(parents=True)
    nodes = decode_nodes(export(FolderNodes(tmp_path)), "f")

    assert nodes is not None
    assert not nodes.is_complete
    findings = [str(finding) for finding in read_references(nodes).findings]
    assert any("/schemas: is not in the copy" in text for text in findings)
    assert 2 == sum("no file .data" in text for text in findings)


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (5, "pulsar is not of type dict"),
        ({}, "pulsar.nodes is not of type list"),
        ({"nodes": [5]}, r"pulsar.nodes\[0\] is not of type dict"),
        ({"nodes": [{"path": 5}]}, r"nodes\[0\].path is not of type str"),
        ({"nodes": [{"path": "x"}]}, r"nodes\[0\].path is not a path"),
        ({"nodes": [{"path": "/x"}]}, "value_hex is not of type str"),
        ({"nodes": [{"path": "/x", "value_hex": "0"}]}, "not hexadecimal"),
        ({"nodes": [{"path": "/x", "value_hex": "", "version": True}]}, "version is not of type"),
        ({"nodes": [{"path": "/x", "problem": 3}]}, "problem is not of type str"),
        ({"nodes": [{"path": "/x", "value_hex": ""}] * 2}, "/x is there twice"),
        ({"nodes": []}, "pulsar.read_at is not of type int"),
        ({"nodes": [], "read_at": 1}, "pulsar.is_complete is not of type bool"),
    ],
)
def test_other_documents(part: Any, reason: str) -> None:
    """A document of another form is refused, with the place."""
    with pytest.raises(CorruptionError, match=reason):
        decode_nodes(json.dumps({"pulsar": part}).encode())


def test_no_json() -> None:
    """What is not JSON is refused; another JSON has no nodes."""
    with pytest.raises(CorruptionError):
        decode_nodes(b"{")
    assert decode_nodes(b"[]") is None
