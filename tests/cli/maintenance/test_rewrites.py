"""`convert`, `rebuild-index` and `salvage`: rows, messages, exit codes, what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bkstore import LedgerStorage, open_index
from bkstore.cli.main import main
from bkstore.formats.entry import Entry, encode
from bkstore.tables import LOSSES, REWRITES
from tests.worlds.bookies import make_bookie, tree_bytes

Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a bookie of ledger 7 with six entries of 96 bytes in one log; 8 was deleted."""
    with LedgerStorage.open(tmp_path / "b", "sorted") as storage:
        for ledger, count in ((7, 6), (8, 1)):
            storage.set_master_key(ledger, b"key")
            for entry in range(count):
                record = encode(Entry(ledger, entry, entry - 1, 60, bytes(60)), "CRC32C")
                storage.add_entry(record)
        storage.flush()
        storage.delete_ledger(8)
    return tmp_path / "b"


def _run(capsys: Capsys, *words: object) -> tuple[int, list[dict[str, Any]], str]:
    """Return (exit code, rows, what went to stderr)."""
    code = main([*map(str, words), "--format", "jsonl"])
    out, err = capsys.readouterr()
    return code, [json.loads(line) for line in out.splitlines()], err


@pytest.mark.parametrize("command", ["convert", "rebuild-index"])
def test_row_of_a_rewrite(command: str, small: Path, tmp_path: Path, capsys: Capsys) -> None:
    """One row says what was made, that it was compared, and which columns there are."""
    code, (row,), err = _run(capsys, command, small, tmp_path / "out", "--to", "rocksdb")
    told = "not rebuilt: 1 ledger in the logs that are unknown to the bookie (--all-ledgers)\n"

    assert (0, "" if command == "convert" else told) == (code, err)
    assert REWRITES.names == list(row)
    assert {
        "target": str(tmp_path / "out"),
        "layout_before": "idx",
        "layout": "rocksdb",
        "ledgers": 1,
        "entries": 6,
        "left_out": 0 if command == "convert" else 1,
        "linked": False,
        "compared": True,
    }.items() <= row.items()
    with open_index(tmp_path / "out") as index:
        assert "rocksdb" == index.layout


def test_all_ledgers(small: Path, tmp_path: Path, capsys: Capsys) -> None:
    """Ledgers that nobody knows are made if asked for; that their states are lost is a finding."""
    code, (row,), err = _run(
        capsys, "rebuild-index", small, tmp_path / "out", "--to", "idx", "--all-ledgers"
    )

    assert (1, 2, 7) == (code, row["ledgers"], row["entries"])
    assert "1 without a master key" in err


def test_losses(small: Path, tmp_path: Path, capsys: Capsys) -> None:
    """A salvage prints a row for each loss, a summary on stderr, and ends with 1."""
    log = small / "current" / "0.log"
    data = bytearray(log.read_bytes())
    data[1024 + 200 : 1024 + 204] = bytes(4)
    log.write_bytes(data)
    code, rows, err = _run(capsys, "salvage", small, tmp_path / "out", "--known-only")

    assert 1 == code
    assert [LOSSES.names] * 2 == [list(row) for row in rows]
    assert [("bytes", 1224, 100, None), ("entries", 1228, None, 2)] == [
        (row["kind"], row["offset"], row["bytes"], row["first_entry"]) for row in rows
    ]
    assert "5 entries of 1 ledger (idx) in 1 entry log, 1 rewritten; lost: 1 entry" in err
    assert "damage: " in err


def test_nothing_lost(tmp_path: Path, capsys: Capsys) -> None:
    """A salvage of a whole bookie has no rows, and ends with 0."""
    make_bookie(tmp_path / "b", "db", directories=2, scopes=False)
    code, rows, err = _run(capsys, "salvage", tmp_path / "b", tmp_path / "out", "--known-only")

    assert (0, []) == (code, rows)
    assert "0 rewritten" in err


def test_output_file(small: Path, tmp_path: Path, capsys: Capsys) -> None:
    """-o takes the row; a file in the source or the target is refused before any work."""
    words = ["convert", str(small), str(tmp_path / "out"), "--to", "rocksdb"]
    before = tree_bytes(small)
    for place in (small / "current" / "row.json", tmp_path / "out" / "row.json"):
        assert 2 == main([*words, "-o", str(place)])
    assert [small] == list(tmp_path.iterdir())
    assert 0 == main([*words, "-o", str(tmp_path / "row.json")])
    assert 6 == json.loads((tmp_path / "row.json").read_text())[0]["entries"]
    assert before == tree_bytes(small)
    assert "is inside" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["convert", "rebuild-index", "salvage"])
def test_refusals(command: str, small: Path, tmp_path: Path, capsys: Capsys) -> None:
    """A target that is there, one in the source, no bookie: one line, exit code 2, no change."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    before = tree_bytes(tmp_path)
    for source, target in (
        (small, tmp_path / "full"),
        (small, small / "new"),
        (tmp_path / "full", tmp_path / "new"),
        (tmp_path / "none", tmp_path / "new"),
    ):
        code = main([command, str(source), str(target), "--to", "idx"])
        out, err = capsys.readouterr()

        assert (2, "", 1) == (code, out, err.count("\n"))
    assert before == tree_bytes(tmp_path)


def test_to_is_needed(small: Path, tmp_path: Path, capsys: Capsys) -> None:
    """Where a layout has to be said, the parser asks for it; a salvage takes the source's."""
    for command in ("convert", "rebuild-index"):
        with pytest.raises(SystemExit):
            main([command, str(small), str(tmp_path / "out")])
        assert "--to" in capsys.readouterr().err
    main(["salvage", str(small), str(tmp_path / "out")])
    with open_index(tmp_path / "out") as index:
        assert "idx" == index.layout


def test_links(small: Path, tmp_path: Path, capsys: Capsys) -> None:
    """--link makes hard links of entry logs, and says so."""
    _, (row,), _ = _run(capsys, "convert", small, tmp_path / "out", "--to", "idx", "--link")

    assert row["linked"] is True
    assert 2 == (tmp_path / "out" / "current" / "0.log").stat().st_nlink


def test_damaged_index(small: Path, tmp_path: Path, capsys: Capsys) -> None:
    """A conversion of a damaged index ends with 2 and names the file; a rebuild does it."""
    (path,) = small.rglob("*.idx")
    path.write_bytes(path.read_bytes()[:1000])
    shutil.rmtree(tmp_path / "out", ignore_errors=True)

    assert 2 == main(["convert", str(small), str(tmp_path / "out"), "--to", "rocksdb"])
    err = capsys.readouterr().err
    assert path.name in err
    assert "bkstore rebuild-index makes an index from the entry logs" in err
    code, (row,), err = _run(capsys, "rebuild-index", small, tmp_path / "out", "--to", "rocksdb")
    assert (1, 6) == (code, row["entries"])
    assert path.name in err
