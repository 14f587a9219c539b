"""Copies of databases while RocksDB works on their files in the background."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bkstore.errors import DirectoryInUse
from bkstore.index.rocks.files import running_copies
from bkstore.index.rocks.files.running_copies import copy_running_database, copy_running_tree
from tests.patched_modules import patch_module

Contents = dict[str, bytes]

BEFORE: Contents = {
    "CURRENT": b"MANIFEST-1",
    "MANIFEST-1": b"000007 000008",
    "000007.sst": b"older",
    "000008.sst": b"newer",
    "000009.log": b"log",
}
AFTER: Contents = {
    "CURRENT": b"MANIFEST-1",
    "MANIFEST-1": b"000007 000008, then 000010 for both",
    "000010.sst": b"older newer",
    "000009.log": b"log, longer",
}


def write_database(path: Path, contents: Contents) -> None:
    """Give a directory these files and no others."""
    path.mkdir(parents=True, exist_ok=True)
    for file in path.iterdir():
        if file.name not in contents:
            file.unlink()
    for name, data in contents.items():
        (path / name).write_bytes(data)


def read_files(path: Path) -> Contents:
    """Return the files of a directory."""
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.fixture
def compact_before_copy(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, int], list[str]]:
    """Let a compaction of a database end just before its N-th file is copied."""

    def install(database: Path, copied_before: int) -> list[str]:
        copied: list[str] = []
        copy_file = shutil.copyfile

        def copy(source: str, target: str, **options: bool) -> object:
            if len(copied) == copied_before:
                write_database(database, AFTER)
            copied.append(os.path.basename(source))
            return copy_file(source, target, **options)

        patch_module(monkeypatch, running_copies, "shutil", copyfile=copy)
        return copied

    return install


@pytest.mark.parametrize("copied_before", range(len(BEFORE)))
def test_a_compaction_during_the_copy(
    tmp_path: Path, compact_before_copy: Callable[[Path, int], list[str]], copied_before: int
) -> None:
    """The copy has the files that the compaction left, and no others."""
    source, target = tmp_path / "source", tmp_path / "target"
    write_database(source, BEFORE)
    target.mkdir()
    copied = compact_before_copy(source, copied_before)
    copy_running_database(source, target)

    assert read_files(target) == AFTER
    assert len(copied) > len(AFTER)


def test_what_is_not_part_of_a_database(tmp_path: Path) -> None:
    """The target is emptied, and RocksDB's information log is not copied."""
    source, target = tmp_path / "source", tmp_path / "target"
    write_database(source, {**BEFORE, "LOG": b"information"})
    target.mkdir()
    (target / "000003.sst").write_bytes(b"of an earlier attempt")
    copy_running_database(source, target)

    assert read_files(target) == BEFORE


def test_a_database_that_never_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copying is given up if each attempt meets a change."""
    source, target = tmp_path / "source", tmp_path / "target"
    write_database(source, BEFORE)
    target.mkdir()
    copy_file = shutil.copyfile

    def copy(file: str, copied: str) -> object:
        result = copy_file(file, copied)
        with (source / "000008.sst").open("ab") as table:
            table.write(b".")
        return result

    patch_module(monkeypatch, running_copies, "shutil", copyfile=copy)
    with pytest.raises(DirectoryInUse, match=r"source.*changes faster than it can be copied"):
        copy_running_database(source, target)


def test_a_tree_with_databases(
    tmp_path: Path, compact_before_copy: Callable[[Path, int], list[str]]
) -> None:
    """Databases below are copied consistently, all other files and links as they are."""
    source, target = tmp_path / "bookie", tmp_path / "copy"
    database = source / "ledgers0" / "current" / "locations"
    write_database(database, BEFORE)
    (source / "journal").mkdir()
    (source / "journal" / "1.txn").write_bytes(b"journal")
    (source / "link").symlink_to("journal/1.txn")
    compact_before_copy(database, 3)
    copy_running_tree(source, target)

    assert read_files(target / "ledgers0" / "current" / "locations") == AFTER
    assert (target / "journal" / "1.txn").read_bytes() == b"journal"
    assert os.readlink(target / "link") == "journal/1.txn"
