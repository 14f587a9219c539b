"""Where Pulsar's metadata are: URIs in both forms, folders, files, and what is taken by default."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore.errors import BkstoreError, CorruptionError, InvalidArgument
from bkstore.pulsar.sources.folder_nodes import FolderNodes
from bkstore.pulsar.sources.opening import (
    PulsarUri,
    default_pulsar_location,
    open_pulsar,
    parse_pulsar_location,
)


@pytest.mark.parametrize(
    ("text", "servers", "root"),
    [
        ("zk://a:2181", ("a:2181",), ""),
        ("zk://a/", ("a:2181",), ""),
        ("zk://a:1;b:2/pulsar/x/", ("a:1", "b:2"), "/pulsar/x"),
        ("zk:a:1,b:2/pulsar", ("a:1", "b:2"), "/pulsar"),
        ("zk:a:1", ("a:1",), ""),
        ("zk://[::1]:5/x", ("[::1]:5",), "/x"),
    ],
)
def test_uris(text: str, servers: tuple[str, ...], root: str) -> None:
    """Servers and root, in the form of service URIs and in Pulsar's."""
    uri = parse_pulsar_location(text)

    assert PulsarUri(servers, root) == uri
    assert uri == parse_pulsar_location(str(uri))


@pytest.mark.parametrize(
    "text", ["zk://", "zk:", "zk://a:x/", "zk+flat://a/x", "etcd://a", "zk:a b"]
)
def test_other_uris(text: str) -> None:
    """Another URI is refused, without a word of the folder that was never named."""
    with pytest.raises(BkstoreError) as caught:
        parse_pulsar_location(text)

    assert isinstance(caught.value, InvalidArgument)
    assert "managed-ledgers" not in str(caught.value)


def test_paths() -> None:
    """Everything else is a path."""
    for text in ("copied", "/a/zk", "./zk:a"):
        assert Path(text) == parse_pulsar_location(text)
    assert Path("zk:a") == parse_pulsar_location(Path("zk:a"))


def test_defaults(tmp_path: Path) -> None:
    """Beside the ledgers root, in the same folder or file, or beside the folder of the ledgers."""
    assert PulsarUri(("a:1",), "") == default_pulsar_location("zk+flat://a:1/ledgers")
    assert PulsarUri(("a:1",), "/x/y") == default_pulsar_location("zk://a:1/x/y/ledgers")
    assert tmp_path / "f.json" == default_pulsar_location(tmp_path / "f.json")
    (tmp_path / "ledgers").mkdir()
    assert tmp_path.resolve() == default_pulsar_location(tmp_path / "ledgers")
    (tmp_path / "managed-ledgers").mkdir()
    assert tmp_path == default_pulsar_location(tmp_path)


def test_open(tmp_path: Path) -> None:
    """A folder, or an error that says what is missing."""
    with pytest.raises(InvalidArgument, match="has no folder managed-ledgers"):
        open_pulsar(tmp_path)
    (tmp_path / "managed-ledgers").mkdir()
    assert isinstance(open_pulsar(tmp_path), FolderNodes)
    file = tmp_path / "f.json"
    file.write_text('{"ledgers": []}')
    with pytest.raises(InvalidArgument, match="has no metadata of Pulsar"):
        open_pulsar(file)
    file.write_text('{"pulsar": 3}')
    with pytest.raises(CorruptionError, match=r"f\.json: pulsar is not"):
        open_pulsar(file)
    with pytest.raises(BkstoreError, match="nowhere"):
        open_pulsar(tmp_path / "nowhere")
