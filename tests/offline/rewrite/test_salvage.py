"""Salvages: no undamaged entry is lost, and what is lost is told."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bkstore import Bookie, BookieDir, LedgerId, LedgerStorage, open_index
from bkstore.formats.entry import Entry, encode
from bkstore.offline.rewrite import Loss, salvage
from bkstore.storage.entry_log.scan import scan_log
from tests.offline.rewrite.conftest import SHAPES
from tests.worlds.bookies import Made, bookie_answers, directory_answers
from tests.worlds.damages import damage
from tests.worlds.loads import read_world
from tests.worlds.salvages import check_salvage, entries_of, logs_of

# -- nothing is damaged


@pytest.mark.parametrize("shape", SHAPES)
def test_undamaged(shape: str, made: Callable[[str], Made], tmp_path: Path) -> None:
    """Of an undamaged bookie all logs are copied, nothing is lost, and a bookie starts on it."""
    root = made(shape).root
    result = salvage(root, tmp_path / "one")
    expected, found = directory_answers(root), directory_answers(tmp_path / "one")

    assert ([], 0, 0) == (result.losses, result.rewritten_logs, result.found_by_index)
    for name, (state, records) in expected.items():
        assert state == found[name][0]
        assert records == {entry: found[name][1].get(entry) for entry in records}
    old = bookie_answers(root, tmp_path / "old")
    new = bookie_answers(tmp_path / "one", tmp_path / "new")
    assert old == {name: new[name] for name in old}


def test_ledgers_that_nobody_knows(tmp_path: Path) -> None:
    """All ledgers with records are made, deleted ones too; with `known_only` those known."""
    with LedgerStorage.open(tmp_path / "b", "sorted") as storage:
        for ledger in (7, 8):
            storage.set_master_key(ledger, b"key")
            storage.add_entry(encode(Entry(ledger, 0, -1, 9, bytes(60)), "CRC32C"))
        storage.flush()
        storage.delete_ledger(8)
    salvage(tmp_path / "b", tmp_path / "one")
    salvage(tmp_path / "b", tmp_path / "two", known_only=True)
    with open_index(tmp_path / "one") as one, open_index(tmp_path / "two") as two:
        assert [7, 8] == [name.ledger for name in one.ledgers()]
        assert [7] == [name.ledger for name in two.ledgers()]


# -- damages by hand


def _small(root: Path, entries: int = 6) -> Path:
    """Make a bookie of one log, ledger 7; return the log. Its frames have 4 + 96 bytes."""
    with LedgerStorage.open(root, "sorted") as storage:
        storage.set_master_key(7, b"key")
        for entry in range(entries):
            record = encode(Entry(7, entry, entry - 1, 60 * entry, bytes([entry]) * 60), "CRC32C")
            storage.add_entry(record)
    return root / "current" / "0.log"


def _overwrite(path: Path, at: int, data: bytes) -> None:
    whole = bytearray(path.read_bytes())
    whole[at : at + len(data)] = data
    path.write_bytes(whole)


def _frame(entry: int) -> int:
    return 1024 + 100 * entry


def _lines(losses: list[Loss]) -> list[tuple[object, ...]]:
    return [
        (loss.kind, loss.offset, loss.bytes, loss.first_entry, loss.last_entry) for loss in losses
    ]


def test_sizes_that_are_none(tmp_path: Path) -> None:
    """Frames without a size are told as bytes, and their entries as a range."""
    log = _small(tmp_path / "b")
    for entry in (2, 3):
        _overwrite(log, _frame(entry), bytes(4))
    result = salvage(tmp_path / "b", tmp_path / "one")

    assert [
        ("bytes", _frame(2), 200, None, None),
        ("entries", _frame(2) + 4, None, 2, 3),
    ] == _lines(result.losses)
    assert (1, 200, 2) == (result.rewritten_logs, result.lost_bytes, result.lost_entries)
    with open_index(tmp_path / "one") as index:
        assert [0, 1, 4, 5] == index.entries(7).tolist()
    assert [] == _scan_findings(tmp_path / "one/current/0.log")


def _scan_findings(path: Path) -> list[str]:
    findings: list[object] = []
    list(scan_log(path, findings))  # type: ignore[arg-type]
    return [str(finding) for finding in findings]


def test_a_size_that_swallows_a_record(tmp_path: Path) -> None:
    """A size that leads over the next record hides it from a scan; the old index finds it."""
    log = _small(tmp_path / "b")
    _overwrite(log, _frame(2), (96 + 100).to_bytes(4, "big"))
    found = [entry for batch in scan_log(log) for entry in batch.entry_id.tolist()]
    assert [0, 1, 2, 4, 5] == found

    result = salvage(tmp_path / "b", tmp_path / "one")
    assert (1, [], 1) == (result.found_by_index, result.losses, result.rewritten_logs)
    with BookieDir(tmp_path / "b") as old, BookieDir(tmp_path / "one") as new:
        assert list(range(6)) == new.index.entries(7).tolist()
        for entry in (0, 1, 3, 4, 5):
            assert old.read_entry(7, entry) == new.read_entry(7, entry)


def test_ids_that_are_wrong(tmp_path: Path) -> None:
    """A record with another's id does not take the place of the one that the index names."""
    log = _small(tmp_path / "b")
    _overwrite(log, _frame(4) + 4 + 8, (1).to_bytes(8, "big"))
    result = salvage(tmp_path / "b", tmp_path / "one")
    with BookieDir(tmp_path / "b") as old, BookieDir(tmp_path / "one") as new:
        assert old.read_entry(7, 1) == new.read_entry(7, 1)
        assert [0, 1, 2, 3, 5] == new.index.entries(7).tolist()
    assert [("entries", _frame(4) + 4, None, 4, 4)] == _lines(result.losses)


def test_an_entry_far_out(tmp_path: Path) -> None:
    """A damaged entry id that no index file has a place for does not stop a salvage to idx."""
    log = _small(tmp_path / "b")
    _overwrite(log, _frame(4) + 4 + 8, (2**60).to_bytes(8, "big"))
    result = salvage(tmp_path / "b", tmp_path / "one", "idx")

    assert 5 == result.rewrite.entries
    assert 1 == result.lost_entries


def test_a_missing_log(made: Callable[[str], Made], tmp_path: Path) -> None:
    """The entries of a log that is not there are told by ledger and range."""
    shutil.copytree(made("sorted").root, tmp_path / "b")
    kept = entries_of(tmp_path / "b")
    path = logs_of(tmp_path / "b")[0]
    path.unlink()
    result = check_salvage(tmp_path / "b", kept, tmp_path / "one", path)
    expected = {one[:2] for one in kept if (tmp_path / "b" / one.file) == path}
    there = directory_answers(tmp_path / "one")
    expected -= {(name, entry) for name, (_, rows) in there.items() for entry in rows}
    told = {(loss.ledger, entry) for loss in result.losses for entry in loss.entry_set or ()}

    assert expected == told
    assert len(expected) == result.lost_entries > 0
    assert len({loss.ledger for loss in result.losses}) == len(result.losses)  # one row each
    assert all(loss.detail.endswith("entry log is missing") for loss in result.losses)


def test_a_header(tmp_path: Path) -> None:
    """A log whose header is damaged loses nothing, and gets a new header."""
    log = _small(tmp_path / "b")
    _overwrite(log, 0, b"XXXXXXXX")
    result = salvage(tmp_path / "b", tmp_path / "one", "rocksdb")

    assert (6, [], 1) == (result.rewrite.entries, result.losses, result.rewritten_logs)
    assert b"BKLO\0\0\0\1" == (tmp_path / "one/current/0.log").read_bytes()[:8]


def test_a_log_that_is_no_file(tmp_path: Path) -> None:
    """What has a log's name and cannot be read is a loss of all that the index knew there."""
    log = _small(tmp_path / "b")
    log.unlink()
    log.mkdir()
    result = salvage(tmp_path / "b", tmp_path / "one")

    assert ["bytes", "entries"] == [loss.kind for loss in result.losses]
    assert (0, 6) == (result.rewrite.entries, result.lost_entries)


def test_a_fresh_log_is_closed(made: Callable[[str], Made], tmp_path: Path) -> None:
    """A fresh log has a ledgers map of what is in it, scopes included, as a scan counts it."""
    shutil.copytree(made("db").root, tmp_path / "b")
    for path in logs_of(tmp_path / "b"):
        _overwrite(path, 1024, bytes(4))
    result = salvage(tmp_path / "b", tmp_path / "one")
    assert result.rewritten_logs == len(logs_of(tmp_path / "one")) > 2
    with BookieDir(tmp_path / "one") as bookie:
        for log in bookie.entry_logs:
            if log.bytes == 1024:
                continue
            metadata, source = bookie.log_metadata(log.log_id, log.dir_index)
            counted: dict[LedgerId, int] = {}
            for batch in bookie.scan_log(log.log_id, log.dir_index):
                for name, rows in batch.ledgers():
                    size = int(np.sum(batch.size[rows] + 4))
                    counted[name] = counted.get(name, 0) + size

            assert ("map", counted) == (source, metadata.ledgers)


def test_a_bookie_goes_on(made: Callable[[str], Made], tmp_path: Path) -> None:
    """A bookie starts on a salvaged directory, takes entries and compacts it."""
    shutil.copytree(made("sorted").root, tmp_path / "b")
    _overwrite(logs_of(tmp_path / "b")[0], 1024, bytes(200))
    salvage(tmp_path / "b", tmp_path / "one")
    expected = directory_answers(tmp_path / "one")
    with Bookie.open(tmp_path / "one") as bookie:
        bookie.add_entry(encode(Entry(777, 0, -1, 9, bytes(60)), "CRC32C"), b"key")
        bookie.storage.flush()
        bookie.storage.collect_garbage()
    found = directory_answers(tmp_path / "one")
    del found[LedgerId.of(777)]

    assert expected == found


# -- damages at random


def _random_damage(
    made: Callable[[str], Made], shape: str, seed: int, top: Path, files: str
) -> None:
    root = top / "b"
    shutil.copytree(made(shape).root, root)
    kept = entries_of(root)
    found = logs_of(root) if files == "logs" else _index_files(root)
    shown = damage(found, seed)
    check_salvage(root, kept, top / "one", (shape, seed, shown))
    shutil.rmtree(top)


def _index_files(root: Path) -> list[Path]:
    """Return index files, RocksDB's own and `.idx`."""
    folders = ("locations", "ledgers", "locations-128", "ledgers-128")
    idx = list(root.rglob("*.idx"))
    return idx or [
        path for path in root.rglob("*") if path.parent.name in folders and path.suffix == ".sst"
    ]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("shape", ["sorted", "interleaved-3", "db-2-tail"])
def test_damaged_logs(shape: str, seed: int, made: Callable[[str], Made], tmp_path: Path) -> None:
    """Whatever is done to a log, every entry whose frame is whole is saved; SRC stays."""
    _random_damage(made, shape, seed, tmp_path / "top", "logs")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shape", ["sorted", "db"])
def test_damaged_indexes(
    shape: str, seed: int, made: Callable[[str], Made], tmp_path: Path
) -> None:
    """Whatever is done to an index file, every entry in the logs is saved."""
    _random_damage(made, shape, seed, tmp_path / "top", "index")


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("files", ["logs", "index"])
@pytest.mark.parametrize("shape", SHAPES)
def test_many_damages(shape: str, files: str, made: Callable[[str], Made], tmp_path: Path) -> None:
    """The same for hundreds of damages."""
    for seed in range(100, 200):
        _random_damage(made, shape, seed, tmp_path / "top", files)


def test_worlds_of_a_salvaged_index(made: Callable[[str], Made], tmp_path: Path) -> None:
    """Both layouts of a salvage hold the same rows and states."""
    shutil.copytree(made("interleaved-3").root, tmp_path / "b")
    _overwrite(logs_of(tmp_path / "b")[1], 1500, bytes(300))
    for to in ("rocksdb", "idx"):
        salvage(tmp_path / "b", tmp_path / to, to)  # type: ignore[arg-type]
    with open_index(tmp_path / "rocksdb") as one, open_index(tmp_path / "idx") as other:
        assert read_world(one) == read_world(other)
