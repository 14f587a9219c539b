"""Files of `bk_server.conf` and what the real `ServerConfiguration` has of each."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bkstore.errors import InvalidArgument
from bkstore.formats.syntax.configuration import Configuration
from bkstore.network.settings.keys import HONORED_KEYS
from bkstore.network.settings.server_settings import read_metadata_uri, read_storage_class
from bkstore.storage.directories.conf_directories import directory_names
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


def _read(key: str, conf: Configuration) -> Any:
    return HONORED_KEYS[key].read(conf)


def _directory(getter: str, conf: Configuration) -> list[str] | None:
    if getter == "ledgerDirs":
        return directory_names(conf, "ledger") or HONORED_KEYS["ledgerDirectories"].default
    if getter == "journalDirs":
        return directory_names(conf, "journal") or [HONORED_KEYS["journalDirectory"].default]
    return directory_names(conf, "index") if "indexDirectories" in conf else None


VALUES = {
    "bookiePort": "bookiePort",
    "bookieId": "bookieId",
    "advertisedAddress": "advertisedAddress",
    "gcWaitTime": "gcWaitTime",
    "minorThreshold": "minorCompactionThreshold",
    "majorInterval": "majorCompactionInterval",
    "diskUsageThreshold": "diskUsageThreshold",
    "readOnlyModeEnabled": "readOnlyModeEnabled",
    "httpServerEnabled": "httpServerEnabled",
    "httpServerPort": "httpServerPort",
    "journalMaxSizeMB": "journalMaxSizeMB",
    "entryLogSizeLimit": "logSizeLimit",
    "nettyMaxFrameSizeBytes": "nettyMaxFrameSizeBytes",
    "maxBatchReadSize": "maxBatchReadSize",
    "entryLogPerLedger": "entryLogPerLedgerEnabled",
}
"""Getters that read one key, and the key."""

READERS: dict[str, Callable[[Configuration], Any]] = {
    **{name: partial(_read, key) for name, key in VALUES.items()},
    **{name: partial(_directory, name) for name in ("ledgerDirs", "journalDirs", "indexDirs")},
    "ledgerStorageClass": read_storage_class,
    "metadataServiceUri": read_metadata_uri,
    "authProvider": lambda conf: conf.string("bookieAuthProviderFactoryClass", None),
    "tlsProvider": lambda conf: conf.string("tlsProviderFactoryClass", None),
    "journalSyncData": lambda conf: conf.boolean("journalSyncData", True),
    "diskLow": lambda conf: (
        _read("diskUsageThreshold", conf)
        if "diskUsageLwmThreshold" not in conf
        else _read("diskUsageLwmThreshold", conf)
    ),
}


@pytest.mark.parametrize("getter", READERS)
def test_getters(confs: list[tuple[dict[str, Any], Configuration]], getter: str) -> None:
    """Each getter gives what the real one gives, its defaults too, and refuses what it refuses."""
    for vector, conf in confs:
        expected = vector["getters"][getter]
        if refused(expected):
            with pytest.raises(InvalidArgument):
                READERS[getter](conf)
        else:
            assert expected == READERS[getter](conf), base64.b64decode(vector["bytes_base64"])


def test_every_getter_is_compared(confs: list[tuple[dict[str, Any], Configuration]]) -> None:
    """No getter of the vectors is left out."""
    assert set(READERS) == {name for vector, _ in confs for name in vector["getters"]}
