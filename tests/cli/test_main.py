"""The command line: formats, id options, transcripts, exit codes, one-line errors."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bkstore import LedgerId
from bkstore.cli.main import main
from bkstore.index.api import LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex

WIDE = LedgerId.parse("c0ffee00-feed-4bad-9e55-0123456789ab")
LAC = (16).to_bytes(8, "big") + bytes(8)


@pytest.fixture(params=["idx", "rocksdb"])
def bookie(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a bookie directory: ledger 7 with a hole, ledger 16 fenced, one of a scope."""
    top = tmp_path / "bookie-9" / "ledgers"
    kind = HierarchicalIndex if request.param == "idx" else RocksIndex
    with kind(top, writable=True) as index:
        index.set_state(7, LedgerState(b"\x01" * 20))
        index.put_many(7, [0, 1, 3], [1028, 1100, (2 << 32) + 1028])
        index.set_state(16, LedgerState(b"\x02" * 20, True, False, LAC))
        index.put_many(WIDE, [5], [1028])
    return str(top)


def _rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    code = main([*words, "--format", "json"])
    out, err = capsys.readouterr()

    assert (0, "") == (code, err)
    rows: list[dict[str, object]] = json.loads(out)
    return rows


def test_ledgers(bookie: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`ledgers` shows scope 0 unless asked, with states and bounds."""
    rows = _rows(capsys, "ledgers", bookie, "--show-keys")
    seven = {"entries": 3, "first_entry": 0, "last_entry": 3, "fenced": False}
    sixteen = {"entries": 0, "first_entry": None, "last_entry": None, "fenced": True}

    assert [7, 16] == [row["ledger_id"] for row in rows]
    assert seven == {key: rows[0][key] for key in seven}
    assert sixteen == {key: rows[1][key] for key in sixteen}
    assert ["01" * 20, "02" * 20] == [row["master_key"] for row in rows]
    assert [None, LAC.hex()] == [row["explicit_lac"] for row in rows]
    assert {"bookie-9"} == {row["bookie"] for row in rows}


def test_scopes(bookie: str, capsys: pytest.CaptureFixture[str]) -> None:
    """--all-scopes and --ledger-scope-id choose; ids appear in two's complement and as names."""
    everything = _rows(capsys, "ledgers", bookie, "--all-scopes")
    one = _rows(capsys, "ledgers", bookie, "--ledger-scope-id", hex(WIDE.scope))

    assert [7, 16, WIDE.ledger - 2**64] == [row["ledger_id"] for row in everything]
    assert [WIDE.qualified_name] == [row["qualified_name"] for row in one]


@pytest.mark.parametrize(
    "words",
    [
        ("--ledger-id", "7"),
        ("--ledger-id", "0x7"),
        ("--ledger-id", "0" * 31 + "7"),
        ("--ledger-id", "00000000-0000-0000-0000-000000000007"),
        ("--ledger-id", "7", "--ledger-scope-id", "0"),
        ("--ledger-qualified-name", "0" * 31 + "7"),
    ],
    ids=" ".join,
)
def test_text_forms_of_an_id(
    bookie: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every text form names the same ledger, in every command that takes one."""
    places = _rows(capsys, "ledger", bookie, *words)
    (answer,) = _rows(capsys, "availability", bookie, *words)

    assert [0, 1, 3] == [row["entry_id"] for row in places]
    assert [(0, 1028), (0, 1100), (2, 1028)] == [(r["log_id"], r["position"]) for r in places]
    assert 3 == answer["entries"]


def test_wide_ids(bookie: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A ledger of another scope is named by UUID, by qualified name, or by both halves."""
    forms = (
        ("--ledger-id", str(WIDE.uuid)),
        ("--ledger-qualified-name", WIDE.qualified_name),
        ("--ledger-id", str(WIDE.ledger), "--ledger-scope-id", str(WIDE.scope)),
        ("--ledger-id", str(WIDE.ledger - 2**64), "--ledger-scope-id", str(WIDE.scope - 2**64)),
    )
    answers = [_rows(capsys, "availability", bookie, *words)[0]["ranges"] for words in forms]

    assert [[[5, 5]]] * 4 == answers


def test_availability(bookie: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer: groups, bytes in both encodings, ranges, and what is missing of a range."""
    words = ("availability", bookie, "--ledger-id", "7", "--missing-from", "0:5")
    (grouped,) = _rows(capsys, *words)
    (built,) = _rows(capsys, *words, "--encoding", "bookkeeper")
    header = "0000000000000002" + "00" * 56
    rows = "0000000000000000" * 2 + "00000002" + "00000000"
    rows += "0000000000000003" * 2 + "00000001" + "00000000"

    assert header + rows == grouped["bytes"] == built["bytes"]
    assert [[0, 0, 2, 0], [3, 3, 1, 0]] == grouped["groups"]
    assert [[0, 1], [3, 3]] == grouped["ranges"]
    assert [[2, 2], [4, 5]] == grouped["missing"]


def test_missing_of_a_stripe(bookie: str, capsys: pytest.CaptureFixture[str]) -> None:
    """--stripe asks only for what one bookie of an ensemble should hold."""
    words = ("availability", bookie, "--ledger-id", "7", "--missing-from", "0:8")
    (row,) = _rows(capsys, *words, "--stripe", "3:2:1")
    held, due = {0, 1, 3}, {e for e in range(9) if 1 in (e % 3, (e + 1) % 3)}

    assert sorted(due - held) == [e for a, b in row["missing"] for e in range(a, b + 1)]  # type: ignore[attr-defined]


def test_unknown_ledger(bookie: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown ledger is an empty answer, exit code 1, and one line on stderr."""
    for command, rows in (("availability", 1), ("ledger", 0), ("readledger", 0)):
        code = main([command, bookie, "99", "--format", "json"])
        out, err = capsys.readouterr()
        found = json.loads(out)

        assert (1, rows) == (code, len(found))
        assert "ledger 99 is not on this bookie\n" == err
        assert {0} >= {row["entries"] for row in found}


def test_formats_agree(bookie: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """json, jsonl, csv, parquet and -o give the same rows."""
    words = ["ledger", bookie, "--ledger-id", "7"]
    document = _rows(capsys, *words)
    main([*words, "--format", "jsonl"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    main([*words, "--format", "csv"])
    table = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    for form in ("json", "parquet"):
        assert 0 == main([*words, "--format", form, "-o", str(tmp_path / form)])
    parquet = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "parquet").to_pylist()

    assert document == lines == json.loads((tmp_path / "json").read_text()) == parquet
    assert [{key: str(value) for key, value in row.items()} for row in document] == table
    assert "" == capsys.readouterr().out


def test_transcript(bookie: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What a person sees: aligned columns, no blank frame, every row whole in a pipe."""
    assert 0 == main(["ledger", bookie, "--ledger-id", "7"])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    number = [] if (Path(bookie) / "current" / "locations").exists() else ["-"]

    assert ["entry_id", *(["dir_index"] if number else []), "log_id", "position", "location"] == (
        lines[0].split()
    )
    assert {"─"} == set(lines[1])
    assert [["0", *number, "0", "1028", "1028"], ["1", *number, "0", "1100", "1100"]] == [
        line.split() for line in lines[2:4]
    ]
    assert 5 == len(lines)


def test_inspect(bookie: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`inspect` says layout, directories and counts; as JSON lines a property a line."""
    assert 0 == main(["inspect", bookie, "--format", "jsonl"])
    rows = map(json.loads, capsys.readouterr().out.splitlines())
    said = {row["property"]: row["value"] for row in rows}
    layout = "rocksdb" if (Path(bookie) / "current" / "locations").exists() else "idx"
    expected = {
        "bookie": "bookie-9",
        "layout": layout,
        "ledger directory 0": f"{bookie}/current",
        "ledgers": "3",
        "fenced ledgers": "1",
        "scopes other than 0": "1",
        "128-bit ledger ids": "yes (bkstore's own layout)",
        "entry logs": "0",
        "findings": "0",
    }

    assert expected == {key: said[key] for key in expected}


def test_findings_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Damage is named on stderr with file and offset; the other rows come all the same."""
    with HierarchicalIndex(tmp_path, writable=True) as index:
        index.put_many(1, [0], [1028])
        index.put_many(2, [0], [1028])
        path = Path(index.path(1) or "")
    path.write_bytes(bytes(1024) + path.read_bytes()[1024:])
    code = main(["ledgers", str(tmp_path), "--format", "jsonl"])
    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]

    assert 1 == code
    assert [(1, None), (2, 1)] == [(row["ledger_id"], row["entries"]) for row in rows]
    assert f"damage: {path}: offset 0: signature is 00000000, not 'BKLE'\n" == err


BAD = {
    "no such directory": ("inspect", "{tmp}/nowhere"),
    "not a bookie directory": ("inspect", "{tmp}/empty"),
    "not a ledger id: 'x7'": ("ledger", "{dir}", "--ledger-id", "x7"),
    "outside 0..9223372036854775807": ("ledger", "{dir}", "--ledger-id=-1"),
    "does not fit 64 bits": ("ledger", "{dir}", "--ledger-id", "9" * 20),
    "not a qualified name": ("ledger", "{dir}", "--ledger-qualified-name", "12"),
    "not a ledger scope id": ("ledgers", "{dir}", "--ledger-scope-id", "zz"),
    "differs": ("ledger", "{dir}", "--ledger-id", "0" * 32, "--ledger-scope-id", "3"),
    "not a range of entry ids": ("availability", "{dir}", "--ledger-id=7", "--missing-from=5"),
    "is empty or beyond": ("availability", "{dir}", "--ledger-id=7", "--missing-from=5:3"),
    "not a range of entry ids: '0:99": (
        "availability",
        "{dir}",
        "--ledger-id=7",
        "--missing-from=0:" + "9" * 5000,
    ),
    "ensemble_size must be a whole number, 1 to 2147483647": (
        "availability",
        "{dir}",
        "--ledger-id=7",
        "--missing-from=0:3",
        "--stripe=9999999999:1:0",
    ),
    "not a ledger scope id: '0b1'": ("ledgers", "{dir}", "--ledger-scope-id", "0b1"),
    "which is only read": ("ledgers", "{dir}", "-o", "{dir}/current/out.csv"),
    "is inside {dir}": ("dump", "{dir}", "{dir}/current/new/out"),
    "not a stripe": ("availability", "{dir}", "--ledger-id=7", "--missing-from=0:3", "--stripe=3"),
    "give both": ("availability", "{dir}", "--ledger-id=7", "--stripe=3:2:1"),
    "bookie index 3 is outside 0..2": (
        "availability",
        "{dir}",
        "--ledger-id=7",
        "--missing-from=0:3",
        "--stripe=3:2:3",
    ),
    "No such file or directory": ("inspect", "{dir}", "-o", "{tmp}/no/where"),
    "is also an input": ("dump", "{dir}", "{dir}"),
    "2 directories, 1 --bookie-id": ("dump", "{dir}", "{dir}", "{tmp}/o", "--bookie-id=a"),
}


@pytest.mark.parametrize("message", BAD)
def test_one_line_errors(
    message: str, bookie: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bad input is one line on stderr, exit code 2, nothing on stdout, no traceback."""
    (tmp_path / "empty").mkdir()
    words = [word.format(tmp=tmp_path, dir=bookie) for word in BAD[message]]
    code = main(words)
    out, err = capsys.readouterr()

    assert (2, "") == (code, out)
    assert 1 == err.count("\n")
    assert err.startswith("bkstore: ")
    assert message.format(dir=bookie) in err


@pytest.mark.parametrize(
    "words", [(), ("nosuch",), ("ledger", "d"), ("inspect", "d", "--format=x")]
)
def test_usage_errors(words: tuple[str, ...]) -> None:
    """Wrong usage exits 2 with the usage on stderr."""
    with pytest.raises(SystemExit) as stopped:
        main(list(words))

    assert 2 == stopped.value.code


def test_broken_pipe_is_quiet(bookie: str) -> None:
    """A reader that leaves early sees no traceback."""
    command = f"{sys.executable} -m bkstore.cli.main ledgers {bookie} --format jsonl | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)

    assert ("{", "") == (done.stdout, done.stderr)


def test_parquet_refuses_a_terminal(bookie: str) -> None:
    """Binary output does not go to a terminal."""
    import pty

    parent, child = pty.openpty()
    command = [sys.executable, "-m", "bkstore.cli.main", "ledgers", bookie, "--format", "parquet"]
    done = subprocess.run(command, stdout=child, stderr=subprocess.PIPE, text=True, check=False)
    os.close(child)
    os.close(parent)

    assert (2, "bkstore: parquet cannot be printed to a terminal: give -o FILE\n") == (
        done.returncode,
        done.stderr,
    )


def test_nothing_is_written_into_the_directory(
    bookie: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every reading command leaves names, sizes and times of all files as they were."""

    def seen() -> dict[Path, tuple[int, int]]:
        return {p: (p.stat().st_size, p.stat().st_mtime_ns) for p in Path(bookie).rglob("*")}

    before = seen()
    main(["inspect", bookie])
    main(["ledgers", bookie, "--all-scopes"])
    main(["ledger", bookie, "--ledger-id", "7"])
    main(["availability", bookie, "--ledger-id", "7"])
    main(["dump", bookie, str(tmp_path / "out")])
    capsys.readouterr()

    assert before == seen()
