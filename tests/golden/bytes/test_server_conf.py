"""Files of `bk_server.conf` and what the real `ServerConfiguration` has of each."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore.errors import InvalidArgument
from bkstore.formats.syntax.configuration import Configuration
from bkstore.storage.directories.server_conf import read_server_conf
from tests.golden.data import load_json, refused


@pytest.fixture(scope="module")
def confs(
    golden: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[dict[str, Any], Configuration]]:
    """Return the vectors, each with its files as they were read."""
    found = []
    for vector in load_json(golden / "bookkeeper" / "conf_vectors.json")["files"]:
        folder = tmp_path_factory.mktemp("conf")
        for name, text in vector["include"].items():
            (folder / name).write_text(text)
        (folder / "bk_server.conf").write_bytes(base64.b64decode(vector["bytes_base64"]))
        found.append((vector, read_server_conf(folder / "bk_server.conf")))
    return found


def _items(conf: Configuration) -> Iterator[tuple[str, list[str] | None]]:
    for key in conf:
        try:
            yield key, conf.strings(key)
        except InvalidArgument:
            yield key, None


def test_properties(confs: list[tuple[dict[str, Any], Configuration]]) -> None:
    """Each key has the items that the real one gives, and no other key is there."""
    for vector, conf in confs:
        expected = {
            key: None if refused(items) else items for key, items in vector["properties"].items()
        }
        assert expected == dict(_items(conf)), base64.b64decode(vector["bytes_base64"])
