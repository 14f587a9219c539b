"""Bookie directories made by hand: cookies, configuration files, index files, databases, logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bkstore import (
    BkstoreError,
    BookieDir,
    UnsupportedLayout,
)
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex

COOKIE = '4\nbookieHost: "{id}"\njournalDir: "{journal}"\nledgerDirs: "{ledgers}"\n'


def paths_text(dirs: Sequence[str]) -> str:
    """Return paths as a cookie lists them: their number, then each behind a tab."""
    return "\\t".join((str(len(dirs)), *dirs))


def make_cookies(
    root: Path, names: Sequence[str], ledgers: Sequence[str], bookie: str = "b:1"
) -> None:
    """Put one cookie into the directories `names` of a root."""
    text = COOKIE.format(id=bookie, journal="/j", ledgers=paths_text(ledgers))
    for name in names:
        (root / name / "current").mkdir(parents=True, exist_ok=True)
        (root / name / "current" / "VERSION").write_text(text)


def make_idx(directory: Path, *ledgers: int) -> None:
    """Make a ledger directory with index files."""
    with HierarchicalIndex(directory, writable=True) as index:
        for ledger in ledgers:
            index.put_many(ledger, [0, 1], [1028, 1100])


def make_rocks(directory: Path, *ledgers: int) -> None:
    """Make a ledger directory with RocksDB databases."""
    with RocksIndex(directory, writable=True) as index:
        for ledger in ledgers:
            index.put_many(ledger, [0, 1], [1028, 1100])


def make_log(directory: Path, number: int) -> None:
    """Put the beginning of an entry log into a ledger directory."""
    (directory / "current").mkdir(parents=True, exist_ok=True)
    (directory / "current" / f"{number:x}.log").write_bytes(b"BKLO")


def folder_names(currents: Sequence[Path]) -> list[str]:
    """Return the names of the ledger directories."""
    return [current.parent.name for current in currents]


def refusal(path: Path, error: type[BkstoreError] = UnsupportedLayout) -> str:
    """Return the text with which `BookieDir` refuses a path."""
    with pytest.raises(error) as caught:
        BookieDir(path)
    return str(caught.value)


# -- bk_server.conf


def make_conf(tmp_path: Path, text: str) -> Path:
    """Return a configuration file of that text."""
    path = tmp_path / "conf" / "bk_server.conf"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path
