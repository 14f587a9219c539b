"""Service URIs as upstream writes them, and what is said of those that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore.cluster import DirectoryStore, MemoryStore, open_metadata, open_store, snapshot
from bkstore.cluster.store.opening import parse_metadata_location, refuse_metadata
from bkstore.cluster.store.zookeeper.service_uri import (
    is_service_uri,
    parse_service_uri,
)
from bkstore.errors import BkstoreError, InvalidArgument, UnsupportedLayout
from bkstore.formats.metadata.json_file import encode_file


@pytest.mark.parametrize(
    ("text", "manager", "servers", "root"),
    [
        ("zk://a:2181/ledgers", None, ("a:2181",), "/ledgers"),
        ("zk+null://a:2181/ledgers", None, ("a:2181",), "/ledgers"),
        ("ZK+Hierarchical://a/x/y", "hierarchical", ("a:2181",), "/x/y"),
        ("zk+flat://a:1;b.example:2;[::1]:3/l", "flat", ("a:1", "b.example:2", "[::1]:3"), "/l"),
        ("zk+longhierarchical://a/ledgers", "longhierarchical", ("a:2181",), "/ledgers"),
    ],
)
def test_parts(text: str, manager: str | None, servers: tuple[str, ...], root: str) -> None:
    """Manager, servers and root are told apart; scheme and manager in any case."""
    found = parse_service_uri(text)

    assert (manager, servers, root) == found
    assert found == parse_service_uri(str(found))
    assert is_service_uri(text)
    assert text == parse_metadata_location(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("etcd://a:2379/ledgers", "not a service URI of ZooKeeper"),
        ("zk:/a/ledgers", "not a service URI of ZooKeeper"),
        (
            "zk+tree://a/ledgers",
            "unknown ledger manager 'tree', known are: flat, hierarchical, longhierarchical",
        ),
        ("zk://a:1,b:2/ledgers", "separate servers by ;"),
        ("zk://a:0/ledgers", "'a:0' is not host:port"),
        ("zk://a:70000/ledgers", "not host:port"),
        ("zk:///ledgers", "'' is not host:port"),
        ("zk://a:2181", "it lacks the ledgers root"),
        ("zk://a:2181/", "'/' is not a ledgers root"),
        ("zk://a:2181/x/", "'/x/' is not a ledgers root"),
        ("zk://a:2181/x/../y", "not a ledgers root"),
    ],
)
def test_wrong_uris(text: str, reason: str) -> None:
    """What is wrong with a URI is said in one line, before anybody is asked."""
    with pytest.raises(InvalidArgument) as caught:
        parse_service_uri(text)

    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("manager", ["ms", "legacyhierarchical"])
def test_managers_that_are_not_here(manager: str) -> None:
    """A manager that upstream has and bkstore has not is told from a misspelt one."""
    with pytest.raises(UnsupportedLayout, match=f"ledger manager {manager} is not supported"):
        parse_service_uri(f"zk+{manager}://a/ledgers")


def test_paths_and_file_uris(tmp_path: Path) -> None:
    """A path, `file:` before it or not, opens what lies there; a store to change is made."""
    store = open_store(f"file:{tmp_path}/a%20b")
    file = tmp_path / "m.json"
    file.write_bytes(encode_file(snapshot(MemoryStore())))

    assert isinstance(store, DirectoryStore)
    assert tmp_path / "a b" == store.path
    for place in (f"file:{tmp_path}/a%20b", f"file://{tmp_path}/a b", tmp_path / "a b"):
        assert isinstance(open_metadata(place), DirectoryStore)
    for place in (f"file://localhost{file}", str(file)):
        assert isinstance(open_metadata(place), MemoryStore)
    with pytest.raises(InvalidArgument, match="is a file"):
        open_store(file)
    with pytest.raises(InvalidArgument, match="not a service URI of ZooKeeper"):
        open_metadata("etcd://a/b")
    with pytest.raises(BkstoreError):
        open_metadata("zk:/a/b")


def test_outputs(tmp_path: Path) -> None:
    """A file of metadata is not written over; a service URI is in nobody's way."""
    file = tmp_path / "m.json"
    file.write_text("{}")
    refuse_metadata(file, "zk://a/ledgers")
    with pytest.raises(InvalidArgument):
        refuse_metadata(file, f"file:{file}")
