"""`bkstore check`: rows, coverage, exit codes, and what is said beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main
from tests.offline.check.small_trees import DIGEST, PASSWORD, make_tree

Capsys = pytest.CaptureFixture[str]


def _run(capsys: Capsys, *words: object) -> tuple[int, list[dict[str, Any]], str]:
    """Return (exit code, rows, what went to stderr)."""
    code = main(["check", *map(str, words), "--format", "jsonl"])
    out, err = capsys.readouterr()
    return code, [json.loads(line) for line in out.splitlines()], err


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Return a sound directory."""
    make_tree(tmp_path / "bookie", "interleaved")
    return tmp_path / "bookie"


def test_clean(top: Path, capsys: Capsys) -> None:
    """A sound directory: no row, exit code 0, and what was checked on stderr."""
    code, rows, err = _run(capsys, top, "--digest-type", DIGEST, "--password", PASSWORD)

    assert (0, []) == (code, rows)
    assert "checked 187 of 187 index rows, 5 states of 5 ledgers" in err
    assert "188 records in 4 entry logs: 187 in the index, 1 older copies" in err
    assert "21,196 of 21,196 bytes of logs accounted for" in err
    assert err.endswith("no problems in what was checked\n")


def test_findings(top: Path, capsys: Capsys) -> None:
    """A row a finding, with kind, place and entries; exit code 1."""
    (top / "current" / "1.log").unlink()
    code, rows, err = _run(capsys, top)

    assert 1 == code
    assert {("damage", "no-log", "1.log")} == {
        (row["severity"], row["kind"], row["file"]) for row in rows
    }
    assert f"found: {len(rows)} findings of damage" in err
    assert all(row["last_entry"] - row["first_entry"] + 1 >= row["entries"] > 0 for row in rows)


def test_notes_are_no_findings(top: Path, capsys: Capsys) -> None:
    """Garbage alone is a note: exit code 0; with metadata that have its ledger it is damage."""
    (top / "current" / "0" / "2" / "2.idx").unlink()
    code, rows, err = _run(capsys, top)
    ledger = {"ledger_id": 2, "ensemble_size": 1, "write_quorum_size": 1, "ack_quorum_size": 1}
    ledger |= {"state": "CLOSED", "last_entry_id": 39, "length": 1, "digest_type": DIGEST}
    segments = [{"first_entry": 0, "ensemble": ["b:1"]}]
    metadata = top.parent / "metadata.json"
    metadata.write_text(json.dumps({"ledgers": [{"scope_id": 0, **ledger, "segments": segments}]}))
    with_metadata, damage, _ = _run(capsys, top, "--metadata", metadata)

    assert (0, 1) == (code, with_metadata)
    assert {("note", 2)} == {(row["severity"], row["ledger_id"]) for row in rows}
    assert {("damage", 2)} == {(row["severity"], row["ledger_id"]) for row in damage}
    assert "not checked: 27 records of ledgers not in the index" in err


def test_coverage(top: Path, capsys: Capsys) -> None:
    """--coverage answers with a row a log, and says the findings on stderr."""
    with (top / "current" / "2.log").open("r+b") as file:
        file.seek(1500)
        file.write(b"\xff" * 50)
    code, rows, err = _run(capsys, top, "--coverage")

    assert 1 == code
    assert [0, 1, 2, 3] == [row["log_id"] for row in rows]
    for row in rows:
        parts = ("header_bytes", "record_bytes", "map_bytes", "padding_bytes", "unaccounted_bytes")
        assert row["bytes"] == sum(row[part] for part in parts)
        assert row["unaccounted_bytes"] == sum(end - start for start, end in row["unaccounted"])
        assert (row["log_id"] == 2) == (row["unaccounted_bytes"] > 0)
    assert "damage: log: " in err
    assert "damage: no-record: " in err


def test_nothing(tmp_path: Path, capsys: Capsys) -> None:
    """Nothing checked has an exit code and a line of its own."""
    (tmp_path / "current").mkdir()
    (tmp_path / "current" / "lastId").write_text("0\n")
    code, rows, err = _run(capsys, tmp_path)

    assert (3, []) == (code, rows)
    assert "nothing was checked" in err
    assert "no problems in" not in err


def test_a_part(top: Path, capsys: Capsys) -> None:
    """A ledger or a log alone; a log is named as elsewhere."""
    _, _, ledger = _run(capsys, top, "--ledger-id", 3)
    _, _, log = _run(capsys, top, "--log", "1.log")
    _, _, number = _run(capsys, top, "--log", "0x1", "--jobs", 1)

    assert "checked 40 of 40 index rows, 1 state of 1 ledger" in ledger
    assert "in 1 entry log" in log
    assert log == number


def test_refused(top: Path, capsys: Capsys) -> None:
    """A scope without a ledger, a password without a type, output into the directory: 2."""
    for words in (
        ("--ledger-scope-id", 1),
        ("--password", "x"),
        ("-o", top / "current" / "out.json"),
        ("--log", "x"),
    ):
        code, rows, _ = _run(capsys, top, *words)

        assert (2, []) == (code, rows), words
