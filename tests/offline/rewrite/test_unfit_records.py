"""Salvages that are given a digest type: records whose digest does not fit are left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from bkstore import BookieDir, InvalidArgument, LedgerStorage, open_index
from bkstore.cli.main import main
from bkstore.formats.entry import Coder, Entry, encode
from bkstore.offline.check import Check
from bkstore.offline.rewrite import SalvageResult, salvage
from tests.worlds.bookies import directory_answers, tree_bytes

FRAME = 4 + 32 + 4 + 60


def _frame(number: int) -> int:
    return 1024 + FRAME * number


def _make(root: Path, entries: int = 6, again: tuple[int, ...] = ()) -> Path:
    """Make a bookie of ledgers 7, CRC32C, and 8, whose type is CRC32; return its only log.

    Entry by entry in turns, 7 first; then entries of 7 that are added `again`.
    """
    added = [(ledger, entry) for entry in range(entries) for ledger in (7, 8)]
    with LedgerStorage.open(root, "sorted") as storage:
        for ledger in (7, 8):
            storage.set_master_key(ledger, b"key")
        for part in (added, [(7, entry) for entry in again]):
            for ledger, entry in part:
                kind = "CRC32C" if ledger == 7 else "CRC32"
                record = encode(Entry(ledger, entry, entry - 1, 60, bytes([entry]) * 60), kind)
                storage.add_entry(record)
                if part is not added:
                    storage.flush()
            storage.flush()
    return root / "current" / "0.log"


def _position(root: Path, ledger: int, entry: int) -> int:
    with open_index(root) as index:
        location = index.get(ledger, entry)
    assert location is not None
    return location & 0xFFFFFFFF


def _flip(log: Path, at: int) -> None:
    data = bytearray(log.read_bytes())
    data[at] ^= 1
    log.write_bytes(data)


def _entries(root: Path) -> dict[int, list[int]]:
    with open_index(root) as index:
        return {name.ledger: index.entries(name).tolist() for name in index.ledgers()}


def _told(result: SalvageResult) -> list[tuple[object, ...]]:
    return [
        (loss.kind, loss.offset, loss.bytes, loss.first_entry, loss.last_entry, loss.detail)
        for loss in result.losses
    ]


def test_a_payload(tmp_path: Path) -> None:
    """A record with a flipped bit is lost, bytes and entry; without the type it is taken. The
    ledger of another type stays whole, and is told."""
    log = _make(tmp_path / "b")
    place = _position(tmp_path / "b", 7, 2)
    _flip(log, place + 50)
    before = tree_bytes(tmp_path / "b")
    blind = salvage(tmp_path / "b", tmp_path / "blind")
    result = salvage(tmp_path / "b", tmp_path / "one", digest_type="CRC32C")

    assert [] == blind.losses
    assert {7: list(range(6)), 8: list(range(6))} == _entries(tmp_path / "blind")
    why = "the CRC32C digest of its record does not match"
    assert [
        ("bytes", place - 4, FRAME, None, None, why),
        ("entries", place, None, 2, 2, "entry 2 of ledger 7: its record is damaged"),
    ] == _told(result)
    assert (1, 1) == (result.rewritten_logs, result.lost_entries)
    assert {7: [0, 1, 3, 4, 5], 8: list(range(6))} == _entries(tmp_path / "one")
    (finding,) = result.rewrite.findings
    assert (str(log), 8) == (finding.file, finding.ledger and finding.ledger.ledger)
    assert (
        "no digest of 6 records matches CRC32C and the password: taken unverified" in finding.detail
    )
    assert before == tree_bytes(tmp_path / "b")
    with BookieDir(tmp_path / "one") as made:
        assert [] == [each for each in Check(made, "CRC32C", ledger=7) if each.severity != "note"]


def test_an_older_copy(tmp_path: Path) -> None:
    """Where the last copy of an entry is damaged, a sound one before it is the entry."""
    log = _make(tmp_path / "b", again=(3,))
    last = _position(tmp_path / "b", 7, 3)
    assert last > _frame(11)
    _flip(log, last + 50)
    result = salvage(tmp_path / "b", tmp_path / "one", digest_type="CRC32C")

    assert [("bytes", last - 4)] == [line[:2] for line in _told(result)]
    assert list(range(6)) == _entries(tmp_path / "one")[7]
    with BookieDir(tmp_path / "one") as made:
        assert bytes([3]) * 60 == Coder("CRC32C").decode(made.read_entry(7, 3)).payload


def test_ids(tmp_path: Path) -> None:
    """A record whose ledger id is damaged does not become a ledger that nobody knows."""
    log = _make(tmp_path / "b")
    place = _position(tmp_path / "b", 7, 2)
    _flip(log, place + 6)
    salvage(tmp_path / "b", tmp_path / "blind")
    result = salvage(tmp_path / "b", tmp_path / "one", digest_type="CRC32C")

    assert 7 + (1 << 8) in _entries(tmp_path / "blind")
    assert {7: [0, 1, 3, 4, 5], 8: list(range(6))} == _entries(tmp_path / "one")
    assert [("bytes", place - 4), ("entries", place)] == [line[:2] for line in _told(result)]


def test_a_wrong_type(tmp_path: Path) -> None:
    """With a type that no ledger has nothing is lost: every ledger is told."""
    _make(tmp_path / "b")
    result = salvage(tmp_path / "b", tmp_path / "one", digest_type="HMAC", password=b"other")

    assert ([], 0) == (result.losses, result.rewritten_logs)
    assert directory_answers(tmp_path / "b") == directory_answers(tmp_path / "one")
    assert [7, 8] == [each.ledger.ledger for each in result.rewrite.findings if each.ledger]


def test_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is verified window by window; a record that is larger than one is a window."""
    monkeypatch.setattr("bkstore.offline.rewrite.digest_mismatches._WINDOW_BYTES", 150)
    log = _make(tmp_path / "b", entries=20)
    wrong = [0, 7, 8, 19]
    for entry in wrong:
        _flip(log, _position(tmp_path / "b", 7, entry) + 30)
    salvage(tmp_path / "b", tmp_path / "one", digest_type="CRC32C")

    assert [entry for entry in range(20) if entry not in wrong] == _entries(tmp_path / "one")[7]


def test_what_is_no_type(tmp_path: Path) -> None:
    """A type that is none, and a password without a type, are refused before anything is made."""
    _make(tmp_path / "b")
    with pytest.raises(InvalidArgument, match="requires digest_type"):
        salvage(tmp_path / "b", tmp_path / "one", password="pw")
    with pytest.raises(InvalidArgument, match="CRC99"):
        salvage(tmp_path / "b", tmp_path / "one", digest_type="CRC99")

    assert ["b"] == [path.name for path in tmp_path.iterdir()]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--digest-type` and the ways to give a password; a password alone is wrong usage."""
    log = _make(tmp_path / "b")
    _flip(log, _position(tmp_path / "b", 7, 5) + 50)
    words = ["salvage", str(tmp_path / "b"), str(tmp_path / "one")]
    assert 2 == main([*words, "--password", "pw"])
    assert "digest" in capsys.readouterr().err

    assert 1 == main([*words, "--digest-type", "CRC32C", "--format", "jsonl"])
    out, err = capsys.readouterr()
    assert 2 == len(out.splitlines())
    assert "lost: 1 entry that the old index had, 100 bytes of entry logs" in err
