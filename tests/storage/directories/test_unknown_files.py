"""Files under names that no bookie gives are named by every command that tells what is here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bkstore.cli.main import main
from bkstore.offline.check import Check
from bkstore.offline.rewrite import RewriteResult, convert, rebuild_index, salvage
from bkstore.offline.usage import Usage
from bkstore.storage.bookie import Bookie
from bkstore.storage.directories.layout import Layout
from bkstore.storage.directories.unknown_files import find_unknown_files
from bkstore.storage.options import StorageKind
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.testing.suites.storage.base import KEY, record

ODD = {
    "ledgers/current/0.log.bak",
    "ledgers/current/.0.log.AbC123",
    "ledgers/current/copies",
    "journal/current/.lastMark.Zq81xy",
    "journal/current/1.txn.gz",
    "ledgers/current/7/notes",
    "ledgers/current/0/3/384.idx.bak",
    "ledgers/current/0/3/.384.idx.AbC123",
    "ledgers/current/00000000/0000000a/x.tmp",
    "ledgers/current/00000000/0000000a/00000001/.1.idx.Q",
}
"""Copies under other names, rsync's partial files, folders of somebody."""


def _made(top: Path, storage: StorageKind = "sorted") -> Path:
    with Bookie.open(top, storage) as bookie:
        bookie.add_entry(record(0x384, 0), KEY)
    return top


def _add_odd(top: Path) -> set[str]:
    for name in ODD:
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.name == "copies":
            path.mkdir()
            (path / "1.log").write_bytes(b"somebody's")
        else:
            path.write_bytes(b"somebody's")
    return {str(top / name) for name in ODD}


@pytest.mark.parametrize("storage", ["sorted", "db"])
def test_bookie_leaves_none(tmp_path: Path, storage: StorageKind) -> None:
    """What a bookie itself has in its directories is no unknown file."""
    _made(tmp_path, storage)
    (tmp_path / "ledgers" / "current" / "DIRTY").touch()
    (tmp_path / "ledgers" / "current" / "metadata-cache").mkdir()

    currents = [tmp_path / "ledgers" / "current", tmp_path / "journal" / "current"]
    assert [] == list(find_unknown_files(currents))


@pytest.mark.parametrize("storage", ["sorted", "db"])
def test_each_is_told_once(
    tmp_path: Path, storage: StorageKind, capsys: pytest.CaptureFixture[str]
) -> None:
    """`inspect`, `check`, `usage` and `listfiles` name each with its path, once."""
    odd = _add_odd(_made(tmp_path, storage))

    with BookieDir(tmp_path) as bookie:
        found = [each.file for each in bookie.unknown_files()]
        assert sorted(odd) == sorted(map(str, found))
        assert [0x384] == [each.ledger for each in bookie.index.ledgers()]
        usage = Usage(bookie)
        assert odd == {each.file for each in usage.findings}
        told = [each.file for each in Check(bookie) if each.severity != "note"]
    assert sorted(odd) == sorted(map(str, told))

    assert 1 == main(["inspect", "--format", "json", str(tmp_path)])
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert sorted(odd) == sorted(each["file"] for each in findings)

    assert 0 == main(["listfiles", "--format", "jsonl", str(tmp_path)])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    listed = [row["file"] for row in rows]
    assert len(set(listed)) == len(listed)
    assert odd <= set(listed)
    assert odd >= {row["file"] for row in rows if row["kind"] == "other"}


REWRITES: dict[str, Callable[[Path, Path, Layout], RewriteResult]] = {
    "convert": convert,
    "rebuild-index": rebuild_index,
    "salvage": lambda source, target, to: salvage(source, target, to).rewrite,
}


@pytest.mark.parametrize("rewrite", REWRITES)
@pytest.mark.parametrize("storage", ["sorted", "db"])
def test_rewrites_carry_or_name_each(tmp_path: Path, storage: StorageKind, rewrite: str) -> None:
    """A rewrite copies what lies beside the logs, and names what it leaves behind."""
    source, target = _made(tmp_path / "source", storage), tmp_path / "target"
    odd = _add_odd(source)
    for name in ("5.log.compacting", "5.log.4.compacted"):
        (source / "ledgers" / "current" / name).write_bytes(b"begun")
        odd.add(str(source / "ledgers" / "current" / name))

    result = REWRITES[rewrite](source, target, "idx" if storage == "db" else "rocksdb")

    left = {str(each.file) for each in result.findings}
    carried = {
        str(source / path.relative_to(target)) for path in target.rglob("*") if path.is_file()
    }
    assert odd == (left | carried) & odd
    assert not left & carried
    assert b"somebody's" == (target / "ledgers/current/0.log.bak").read_bytes()
    assert all("not in the target" in each.detail for each in result.findings)
