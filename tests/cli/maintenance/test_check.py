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


# -- several directories


@pytest.fixture(scope="module")
def folder_of_copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make `one`, `two` (without a log), `gone` (no bookie) and `bare` (nothing to check)."""
    top = tmp_path_factory.mktemp("copies")
    make_tree(top / "one", "db", entries=8)
    make_tree(top / "two", "interleaved")
    (top / "two" / "current" / "1.log").unlink()
    (top / "gone").mkdir()
    (top / "bare" / "current").mkdir(parents=True)
    (top / "bare" / "current" / "lastId").write_text("0\n")
    return top


@pytest.fixture
def copies(folder_of_copies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in the folder of the copies."""
    monkeypatch.chdir(folder_of_copies)


_ONE = "one: checked 37 of 37 index rows, 5 states of 5 ledgers, 38 records in 1 entry log; "


def test_several_equal_each_alone(copies: None, capsys: Capsys) -> None:
    """In processes or not, the rows are those of each directory alone, in the order given."""
    alone = [row for path in ("two", "one") for row in _run(capsys, path)[1]]
    for jobs in (1, 2):
        code, rows, err = _run(capsys, "two", "one", "--jobs", jobs)

        assert (1, alone) == (code, rows)
        assert {"two"} == {row["bookie"] for row in rows}
        lines = err.splitlines()
        assert lines[0].startswith("two: checked 187 of 187 index rows, 5 states of 5 ledgers, ")
        assert lines[0].endswith(f" in 3 entry logs; {len(rows)} findings of damage")
        assert _ONE + "no problems" == lines[1]
        assert lines[2].startswith("2 bookies: checked 224 of 224 index rows, 10 states of 10 led")
        assert lines[2].endswith(" records in 4 entry logs")
        assert f"found: {len(rows)} findings of damage" == lines[-1]
        assert 1 == lines.count("not checked: journals: there are none")


def test_one_of_several_cannot_be_read(copies: None, capsys: Capsys) -> None:
    """The others' rows and coverage are printed, and the exit code is 2, findings or not."""
    code, rows, err = _run(capsys, "gone", "two", "one")
    clean, none, clean_err = _run(capsys, "one", "gone")

    assert (2, 2, []) == (code, clean, none)
    assert {"two"} == {row["bookie"] for row in rows}
    assert err.startswith("bkstore: left out: gone: not a bookie directory")
    assert "\n2 of 3 bookies: checked 224 of 224 index rows" in err
    assert "\n1 of 2 bookies: checked 37 of 37 index rows" in clean_err


def test_nothing_in_one_of_several(copies: None, capsys: Capsys) -> None:
    """A bookie without anything to check keeps the check from passing; findings count first."""
    code, _, err = _run(capsys, "one", "bare")
    with_findings, _, _ = _run(capsys, "bare", "two")
    all_bare, _, bare_err = _run(capsys, "bare", "bare")

    assert (3, 1, 3) == (code, with_findings, all_bare)
    lines = err.splitlines()
    assert "bare: nothing was checked: there are no index rows, ledgers or records" == lines[1]
    assert lines[2].startswith("2 bookies: checked 37 of 37")
    assert "not checked: journals: there are none (one)" in lines
    assert "no problems in what was checked" == lines[-1]
    assert 3 == bare_err.count("nothing was checked") == len(bare_err.splitlines())


def test_parts_not_checked_of_many(copies: None, capsys: Capsys) -> None:
    """A part that concerns some of the bookies names up to three, else says how many."""
    three, four = ["one"] * 3, ["one"] * 4
    _, _, named = _run(capsys, *three, "bare")
    _, _, counted = _run(capsys, *four, "bare")

    assert "not checked: journals: there are none (one, one, one)\n" in named
    assert "not checked: journals: there are none (4 of 5 bookies)\n" in counted


def test_coverage_of_several(copies: None, capsys: Capsys) -> None:
    """Rows of each bookie's logs; findings on stderr with their directory, as many as rows
    elsewhere."""
    _, findings, _ = _run(capsys, "two")
    code, rows, err = _run(capsys, "one", "two", "--coverage", "--jobs", 2)
    _, alone, alone_err = _run(capsys, "two", "--coverage")

    assert 1 == code
    assert [("one", 0), ("two", 0), ("two", 2), ("two", 3)] == [
        (row["bookie"], row["log_id"]) for row in rows
    ]
    assert alone == rows[1:]
    assert (
        len(findings)
        == err.count("two: damage: no-log: 1.log: ")
        == alone_err.count("\ndamage") + 1
    )
    assert alone_err.startswith("damage: no-log: 1.log: ")
    left_out, _, err = _run(capsys, "gone", "two", "--coverage")
    assert (2, len(findings)) == (left_out, err.count("two: damage: no-log: "))


def test_the_bookie_on_screen(copies: None, capsys: Capsys) -> None:
    """A table has the bookie's column for several directories; other formats always have it."""
    headers = []
    for words in (["two"], ["two", "one"], ["two", "--format", "csv"], ["two", "--coverage"]):
        main(["check", *words])
        headers.append(capsys.readouterr().out.splitlines()[0].replace(",", " ").split()[:2])

    assert [
        ["severity", "kind"],
        ["bookie", "severity"],
        ["bookie", "severity"],
        ["log_id", "bytes"],
    ] == headers


def test_options_are_read_once(
    copies: None, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt for the password comes once, and it reaches each process: a wrong one contradicts
    the master keys of both bookies."""
    answers = iter([PASSWORD, "wrong"])
    monkeypatch.setattr("getpass.getpass", lambda _: next(answers))
    words = ("one", "two", "--ledger-id", 5, "--digest-type", DIGEST, "--ask-password")
    _, right, _ = _run(capsys, *words, "--jobs", 1)
    _, wrong, _ = _run(capsys, *words, "--jobs", 2)

    assert [] == [row for row in right if row["kind"] == "state"]
    assert ["one", "two"] == [row["bookie"] for row in wrong if row["kind"] == "state"]


def test_refused_of_several(copies: None, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong option, and output into any directory, are refused before a row is printed and
    before a password is asked for."""
    output = ("-o", "two/current/out.json", "--digest-type", DIGEST, "--ask-password")
    monkeypatch.setattr("getpass.getpass", lambda _: pytest.fail("asked"))
    for words in (("--password", "x"), ("--jobs", 0), output):
        code, rows, err = _run(capsys, "one", "two", *words)

        assert (2, []) == (code, rows), words
        assert "left out" not in err
