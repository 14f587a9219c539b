"""The writer's lock: one storage has one lock, by whatever path it is reached."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bkstore.errors import DirectoryInUse, InvalidArgument
from bkstore.files import lock_files
from bkstore.storage.bookie import Bookie
from bkstore.storage.directories.writer_lock import LOCK_NAME
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import StorageKind
from bkstore.storage.read_only.bookie_dir import BookieDir
from bkstore.testing.suites.storage.base import KEY, record
from tests.patched_modules import patch_module


def _link_to_directory(top: Path) -> Path:
    (top / "other").symlink_to(top / "ledgers")
    return top / "other"


def _link_to_current(top: Path) -> Path:
    (top / "other").mkdir()
    (top / "other" / "current").symlink_to(top / "ledgers" / "current")
    return top / "other"


def _chain_of_links(top: Path) -> Path:
    (top / "one").symlink_to("ledgers")
    (top / "other").mkdir()
    (top / "other" / "current").symlink_to("../one/current")
    return top / "other"


def _under_a_new_name(top: Path) -> Path:
    (top / "ledgers").rename(top / "other")
    return top / "other"


def _without_lock_file(top: Path) -> Path:
    (top / "ledgers" / LOCK_NAME).unlink()
    return top / "ledgers"


WAYS = [
    _link_to_directory,
    _link_to_current,
    _chain_of_links,
    _under_a_new_name,
    _without_lock_file,
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("storage", ["sorted", "interleaved", "db"])
def test_second_writer_by_another_path(
    tmp_path: Path, storage: StorageKind, way: Callable[[Path], Path]
) -> None:
    """A second writer is refused, and so is a reader, however they reach the directory."""
    first = LedgerStorage.open(tmp_path / "ledgers", storage)
    try:
        first.set_master_key(7, KEY)
        first.add_entry(record(7, 0))
        first.flush()
        other = way(tmp_path)

        with pytest.raises(DirectoryInUse, match=f"{other} is open for writing"):
            LedgerStorage.open(other, storage)
        with pytest.raises(DirectoryInUse, match=f"{other} is open for writing"):
            BookieDir(other)
    finally:
        if way is _under_a_new_name:
            other.rename(tmp_path / "ledgers")
        first.close()
    with LedgerStorage.open(tmp_path / "ledgers", storage) as again:
        assert [0] == again.entries(7).tolist()


def test_current_that_only_a_link_calls_so(tmp_path: Path) -> None:
    """Where ``current`` is a link to a folder of another name, that folder has one lock."""
    (tmp_path / "disk").mkdir()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "current").symlink_to(tmp_path / "disk")

    with LedgerStorage.open(tmp_path / "one"), pytest.raises(DirectoryInUse):
        LedgerStorage.open(tmp_path / "two")
    LedgerStorage.open(tmp_path / "two").close()


BIND = """
set -e
mkdir -p "$1/other/current"
mount --bind "$1/ledgers/current" "$1/other/current"
exec "$2" -c '
import sys
from bkstore.errors import DirectoryInUse
from bkstore.storage.ledger_storage import LedgerStorage
try:
    LedgerStorage.open(sys.argv[1]).close()
    print("opened")
except DirectoryInUse:
    print("in use")
' "$1/other"
"""


def _may_mount(folder: Path) -> bool:
    try:
        asked = ["unshare", "-rm", "mount", "--bind", str(folder), str(folder)]
        return not subprocess.run(asked, capture_output=True).returncode
    except FileNotFoundError:
        return False


def test_second_writer_by_a_bind_mount(tmp_path: Path) -> None:
    """The directory is the same by a bind mount of ``current/``, where no path tells."""
    if not _may_mount(tmp_path):
        pytest.skip("bind mounts need user namespaces here")
    with LedgerStorage.open(tmp_path / "ledgers"):
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c", BIND, "sh", str(tmp_path), sys.executable],
            capture_output=True,
            text=True,
            check=True,
        )
    assert "in use" == done.stdout.strip()


@pytest.mark.parametrize("storage", ["sorted", "db"])
@pytest.mark.parametrize("probed", [LOCK_NAME, "current"])
def test_reader_that_asks_does_not_refuse_a_writer(
    tmp_path: Path, storage: StorageKind, probed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that begins while a reader asks whether one is there gets in."""
    LedgerStorage.open(tmp_path, storage).close()
    fd = os.open(tmp_path / probed, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)  # what a reader does for a moment
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        fcntl.flock(fd, fcntl.LOCK_UN)

    patch_module(monkeypatch, lock_files, "time", sleep=pause)
    try:
        LedgerStorage.open(tmp_path, storage).close()
        assert 1 == len(waits)
    finally:
        os.close(fd)


def test_directory_given_twice(tmp_path: Path) -> None:
    """One directory is not two of a kind, whichever way it is given a second time."""
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    for twice in (["a", "a"], ["a", "link"]):
        paths = [tmp_path / name for name in twice]
        with pytest.raises(InvalidArgument, match="ledger directory is given twice"):
            LedgerStorage.open(paths)
        with pytest.raises(InvalidArgument, match="index directory is given twice"):
            LedgerStorage.open([tmp_path / "x", tmp_path / "y"], index_dirs=paths)
        with pytest.raises(InvalidArgument, match="journal directory is given twice"):
            Bookie.open(ledger_dirs=[tmp_path / "x"], journal_dirs=paths)


def test_directory_of_two_roles(tmp_path: Path) -> None:
    """Ledgers, index and journal may share a directory, also where a link says so."""
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    dirs, link = [tmp_path / "a"], [tmp_path / "link"]

    with Bookie.open(ledger_dirs=dirs, index_dirs=link, journal_dirs=link) as bookie:
        bookie.add_entry(record(7, 0), KEY)
    with Bookie.open(ledger_dirs=dirs, index_dirs=link, journal_dirs=link) as bookie:
        assert [0] == bookie.entries(7).tolist()
