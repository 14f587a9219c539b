"""The files of a compaction: none is left when it ends, and a crash's are cleaned up everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bkstore.files.disk_changes import OS_FILES
from bkstore.storage.entry_log.compaction_log import drop_unfinished_outputs, list_compacted_logs
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.testing.suites.storage.base import KEY, read_content, record

KINDS: tuple[Any, ...] = ("sorted", "interleaved", "db")


def _half_deleted(path: Path, kind: Any) -> LedgerStorage:
    """Return a storage with a closed log, half of it of a ledger that is deleted."""
    with LedgerStorage.open(path, kind) as storage:
        for ledger in (7, 8):
            storage.set_master_key(ledger, KEY)
        for entry in range(20):
            for ledger in (7, 8):
                storage.add_entry(record(ledger, entry, bytes(100)))
    storage = LedgerStorage.open(path, kind)
    storage.delete_ledger(8)
    return storage


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("transactional", [False, True])
def test_nothing_but_logs_is_left(tmp_path: Path, kind: Any, transactional: bool) -> None:
    """When a compaction has ended, no name is there that a next opening would have to clean up."""
    with _half_deleted(tmp_path, kind) as storage:
        report = storage.collect_garbage(threshold=0.9, transactional=transactional)

        assert 20 == report.moved_entries
        names = {path.name for path in (tmp_path / "current").iterdir() if ".log" in path.name}
        assert {name for name in names if not name.endswith(".log")} == set()


def test_what_a_crash_left_goes_from_every_directory(tmp_path: Path) -> None:
    """Output that was not finished is removed, wherever it lies; what is no output stays."""
    currents = [tmp_path / name / "current" for name in ("a", "b", "c")]
    for current in currents:
        current.mkdir(parents=True)
        (current / "1f.log.compacting").write_bytes(b"half")
        (current / "1f.log.1e.compacted").write_bytes(b"whole")
        (current / "compacting").write_bytes(b"another's")
    drop_unfinished_outputs(currents, OS_FILES)

    for current in currents:
        assert {"1f.log.1e.compacted", "compacting"} == {path.name for path in current.iterdir()}


def test_ids_in_names_are_hexadecimal(tmp_path: Path) -> None:
    """A finished output names the new log and the old one, both in hex, from any directory."""
    for name, output in (("a", "10.log.9.compacted"), ("b", "1f.log.1e.compacted")):
        (tmp_path / name).mkdir()
        (tmp_path / name / output).write_bytes(b"")
    (tmp_path / "b" / "01.log.2.compacted").write_bytes(b"")  # no log is called so

    assert [
        (tmp_path / "a" / "10.log.9.compacted", 16, 9),
        (tmp_path / "b" / "1f.log.1e.compacted", 31, 30),
    ] == list_compacted_logs([tmp_path / "a", tmp_path / "b"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("named", [True, False])
def test_an_opening_finishes_what_the_index_does_not_know(
    tmp_path: Path, kind: Any, named: bool
) -> None:
    """After a crash before the switch, the old log goes only when the index says the new one."""
    whole, before = tmp_path / "whole", tmp_path / "before"
    with _half_deleted(whole, kind) as storage:
        wanted = read_content(storage)
    current = whole / "current"
    old = {path.name for path in current.glob("*.log")}
    with LedgerStorage.open(whole, kind) as storage:
        report = storage.collect_garbage(threshold=0.9, transactional=True)
        ((_, old_id),) = report.compacted_logs
    (new,) = (path for path in current.glob("*.log") if path.name not in old)
    # As if nothing had come after the links: the old log is back, its locations too.
    with _half_deleted(before, kind):
        pass
    (before / "current" / new.name).write_bytes(new.read_bytes())
    marked = before / "current" / f"{new.name}.{old_id:x}.compacted"
    marked.hardlink_to(before / "current" / new.name)
    if not named:  # the crash came between the two links
        (before / "current" / new.name).unlink()
    with LedgerStorage.open(before, kind) as storage:
        assert wanted == read_content(storage)
        assert f"{old_id:x}.log" not in {path.name for path in (before / "current").iterdir()}
        assert not marked.exists()
