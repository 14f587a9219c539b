"""The real ServerConfiguration reads random files of settings: each key, in each way, is ours."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkstore.errors import BkstoreError
from bkstore.formats.syntax.configuration import Configuration
from bkstore.network.settings import keys
from bkstore.network.settings.server_settings import read_metadata_uri, read_storage_class
from bkstore.storage.directories.conf_directories import directory_names
from bkstore.storage.directories.server_conf import read_server_conf
from tests.interop.driver import RealBookKeeper
from tests.worlds.conf_files import ConfFiles

REFUSED = "refused"

READINGS: dict[str, Callable[[Configuration, str], Any]] = {
    "strings": Configuration.strings,
    "string": lambda conf, key: conf.string(key, None),
    "integer": lambda conf, key: conf.integer(key, None),
    "long": lambda conf, key: conf.integer(key, None, 64),
    "double": lambda conf, key: conf.double(key, None),
    "single": lambda conf, key: conf.single(key, None),
    "boolean": lambda conf, key: conf.boolean(key, None),
}


def _plain(kind: str, value: Any) -> Any:
    """Return a value of either side as something to compare."""
    if isinstance(value, str) and value.startswith("!"):
        return REFUSED
    if kind not in ("double", "single"):
        return value
    number = float(value)
    if math.isnan(number):
        return "NaN"
    return struct.pack("<f", number) if kind == "single" and math.isfinite(number) else number


def _tried(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except BkstoreError:
        return f"!{REFUSED}"


GETTERS: dict[str, Callable[[Configuration], Any]] = {
    "ledgerDirs": lambda conf: (
        directory_names(conf, "ledger") or keys.HONORED_KEYS["ledgerDirectories"].default
    ),
    "journalDirs": lambda conf: (
        directory_names(conf, "journal") or [keys.HONORED_KEYS["journalDirectory"].default]
    ),
    "indexDirs": lambda conf: (
        directory_names(conf, "index") if "indexDirectories" in conf else None
    ),
    "ledgerStorageClass": read_storage_class,
    "metadataServiceUri": read_metadata_uri,
}


def _ours(path: Path) -> Any:
    try:
        conf = read_server_conf(path)
    except BkstoreError:
        return REFUSED
    getters = {
        name: _plain(name, _tried(lambda read=read: read(conf)))  # type: ignore[misc]
        for name, read in GETTERS.items()
    }
    return _keys(conf), getters


def _keys(conf: Configuration) -> dict[str, Any]:
    return {
        key: {
            kind: _plain(kind, _tried(lambda read=read, key=key: read(conf, key)))  # type: ignore[misc]
            for kind, read in READINGS.items()
        }
        for key in conf
    }


def _real(answer: Any) -> Any:
    if isinstance(answer, str):
        return REFUSED
    read = {
        key: {kind: _plain(kind, value) for kind, value in found.items()}
        for key, found in answer["keys"].items()
    }
    return read, {name: _plain(name, value) for name, value in answer["getters"].items()}


@pytest.mark.parametrize("seed", range(2))
def test_random_files(real: RealBookKeeper, tmp_path: Path, seed: int) -> None:
    """Random files are read alike: which keys there are, and what each is in every type."""
    files = ConfFiles(seed)
    paths = [files.write(tmp_path / str(number)) for number in range(500)]
    answers = [_real(a) for a in real.call("configurations", paths=[*map(str, paths)])]
    assert 300 < sum(answer != REFUSED for answer in answers)
    for path, answer in zip(paths, answers):
        assert answer == _ours(path), path.read_bytes()


NO_KEYS = {
    "available",
    "org.apache.bookkeeper.conf.readsystemproperties",
    "readahead-max-batch-size",
    "write-cache-max-size",
}
"""Constants of those classes that are no keys of a file."""


def test_each_key_is_known(real: RealBookKeeper) -> None:
    """Each key of a bookie's classes is honored, refused, named as not honored, or one of those
    that change no answer of a bookie: threads, buffers, statistics, recovery daemons, and what is
    always done here (metadata are verified before garbage goes)."""
    found = set(real.call("configurationKeys")) - NO_KEYS
    passed_over = (Path(__file__).parent / "without_effect.txt").read_text().split()
    known = [*keys.HONORED_KEYS, *keys.REFUSED_KEYS, *keys.IGNORED_KEYS, *passed_over]

    others = {name for name in known if name.startswith("sasl")}  # keys of another class
    assert (set(), others) == (found - set(known), set(known) - found)
    assert len(known) == len(set(known))
