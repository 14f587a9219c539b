"""`where`: the logs that hold entries, as rows, transcripts and exit codes."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main
from bkstore.formats.entry import Coder, Entry
from bkstore.ids import LedgerId
from bkstore.storage.ledger_storage import LedgerStorage

Capsys = pytest.CaptureFixture[str]

SCOPED = LedgerId(5, 7)


def _run(capsys: Capsys, *words: object) -> tuple[int, list[dict[str, Any]], str]:
    """Return (exit code, rows, what went to stderr)."""
    code = main([*map(str, words), "--format", "jsonl"])
    out, err = capsys.readouterr()
    return code, [json.loads(line) for line in out.splitlines()], err


def _rows(capsys: Capsys, *words: object) -> list[dict[str, Any]]:
    code, rows, err = _run(capsys, *words)

    assert (0, "") == (code, err)
    return rows


def _write(top: Path, *batches: tuple[int | LedgerId, list[int]]) -> list[bytes]:
    """Write each batch into a log of its own, as a start begins one; return all records."""
    coder, records = Coder("CRC32C", "pw"), []
    for ledger, entries in batches:
        made = [coder.encode(Entry(ledger, entry, -1, 9, b"payload")) for entry in entries]
        with LedgerStorage.open(top, "interleaved") as storage:
            storage.add_entries(made, master_key=b"k" * 20)
        records += made
    return records


def test_rows_are_where_the_index_says(tree: Any, capsys: Capsys) -> None:
    """Counts and bounds of each log are those of the places that `ledger` lists."""
    for answer in tree.known[:6]:
        chosen = ("--ledger-id", answer["ledger"])
        places = defaultdict(list)
        for row in _rows(capsys, "ledger", tree.root, *chosen):
            places[row["dir_index"], row["log_id"]].append(row["entry_id"])
        code, rows, _ = _run(capsys, "where", tree.root, *chosen)
        found = {(row["dir_index"], row["log_id"]): row for row in rows}
        lost = sum(row["entries"] for row in rows) - answer["num_entries"]

        assert 0 == code
        assert [f"{row['log_id']:x}.log" for row in rows] == [row["file"] for row in rows]
        assert set(places) <= set(found)
        if lost == 0:  # else the log has more than the index: deleted, or taken away
            assert {
                place: (len(ids), ids[0], ids[-1]) for place, ids in sorted(places.items())
            } == {
                place: (row["entries"], row["first_entry"], row["last_entry"])
                for place, row in found.items()
            }


def test_ranges_are_the_entries(tree: Any, reader: Any, capsys: Capsys) -> None:
    """With --ranges the runs of all logs together are the entries of the ledger."""
    for answer in tree.known[:6]:
        words = ("where", tree.root, "--ledger-id", answer["ledger"], "--ranges")
        _, rows, _ = _run(capsys, *words)
        runs = [[row["first_entry"], row["last_entry"]] for row in rows]
        entries = sorted(reader.expand_runs(runs))

        assert [last - first + 1 for first, last in runs] == [row["entries"] for row in rows]
        assert set(reader.expand_runs(answer["entries"])) <= set(entries)
        assert len(set(entries)) == len(entries)


def test_a_transcript(tmp_path: Path, capsys: Capsys) -> None:
    """The table that a person sees."""
    _write(tmp_path, (7, [0, 1, 3]), (8, [0]), (7, [2, 10]))
    code = main(["where", str(tmp_path), "--ledger-id", "7"])
    out, err = capsys.readouterr()

    assert (0, "") == (code, err)
    assert [
        ["log_id", "file", "entries", "ranges"],
        ["0", "0.log", "3", "0-1, 3 (3 entries)"],
        ["2", "2.log", "2", "2, 10 (2 entries)"],
    ] == [re.split("   +", line.strip()) for line in out.splitlines() if "─" not in line]


def test_the_range_may_stand_anywhere(tmp_path: Path, capsys: Capsys) -> None:
    """A:B, both inclusive, before the options, behind and between them."""
    _write(tmp_path, (7, [0, 1, 3]), (8, [0]), (7, [2, 10]))
    orders = [
        (tmp_path, "1:3", "--ledger-id", 7),
        (tmp_path, "--ledger-id", 7, "1:3"),
        ("--ledger-id", 7, tmp_path, "1:3"),
        (tmp_path, 7, "1:3"),
        (tmp_path, 7, "--live", "1:3"),
        (tmp_path, "--ranges", "1:3", "--ledger-id", 7),
    ]
    expected = [(0, 2, 1, 3), (2, 1, 2, 2)]
    for words in orders[:-1]:
        rows = _rows(capsys, "where", *words)

        assert expected == [
            (row["log_id"], row["entries"], row["first_entry"], row["last_entry"]) for row in rows
        ]

    assert [(0, 1, 1), (0, 3, 3), (2, 2, 2)] == [
        (row["log_id"], row["first_entry"], row["last_entry"])
        for row in _rows(capsys, "where", *orders[-1])
    ]


def test_copies(tmp_path: Path, capsys: Capsys) -> None:
    """An entry added again is in the newest log; --copies shows the older one too."""
    _write(tmp_path, (7, [0, 1]), (7, [1, 2]))
    words = ("where", tmp_path, "--ledger-id", 7)

    assert [(0, 1), (1, 2)] == [(row["log_id"], row["entries"]) for row in _rows(capsys, *words)]
    assert [(0, 2), (1, 2)] == [
        (row["log_id"], row["entries"]) for row in _rows(capsys, *words, "--copies")
    ]


def test_scoped_ledgers(tmp_path: Path, capsys: Capsys) -> None:
    """Every way to name a ledger of another scope finds it, and not its namesake."""
    _write(tmp_path, (7, [0]), (SCOPED, [4]))
    for words in (
        ("--ledger-id", 7, "--ledger-scope-id", 5),
        ("--ledger-qualified-name", SCOPED.qualified_name),
    ):
        (row,) = _rows(capsys, "where", tmp_path, *words)

        assert (1, 4) == (row["log_id"], row["first_entry"])

    (row,) = _rows(capsys, "where", tmp_path, "--ledger-id", 7)

    assert (0, 0) == (row["log_id"], row["first_entry"])


def test_without_index_files(tmp_path: Path, capsys: Capsys) -> None:
    """`where` answers where `ledger` has nothing left to say."""
    _write(tmp_path, (7, [0, 1]))
    for path in sorted(tmp_path.rglob("*.idx")):
        path.unlink()
    (row,) = _rows(capsys, "where", tmp_path, "--ledger-id", 7)

    assert (0, 2) == (row["log_id"], row["entries"])
    assert [] == _run(capsys, "ledger", tmp_path, "--ledger-id", 7)[1]


def test_nothing_found(tmp_path: Path, capsys: Capsys) -> None:
    """No rows, and a line that says so; exit code 1 unless the index knows the ledger."""
    _write(tmp_path, (7, [0, 1]))
    for words, expected in (((9,), 1), ((7, "5:9"), 0)):
        code, rows, err = _run(capsys, "where", tmp_path, *words)

        assert (expected, []) == (code, rows)
        assert f"no entry log here has a matching entry of ledger {words[0]}\n" == err

        assert expected == main(["where", str(tmp_path), *map(str, words)])
        assert "" == capsys.readouterr().out  # no header without rows
    for path in sorted(tmp_path.rglob("*.idx")):
        path.unlink()

    assert 1 == _run(capsys, "where", tmp_path, 7, "5:9")[0]


def test_damage(tmp_path: Path, capsys: Capsys) -> None:
    """Named on stderr, with exit code 1; what can be read is shown, and nothing "not found"."""
    records = _write(tmp_path, (7, [0, 1, 2]))
    (log,) = (tmp_path / "current").glob("*.log")
    data = bytearray(log.read_bytes())
    place = data.index(records[1]) - 4
    data[place : place + 12] = b"\xff" * 12
    log.write_bytes(data)
    code, rows, err = _run(capsys, "where", tmp_path, "--ledger-id", 7)

    assert (1, [(2, 0, 2)]) == (
        code,
        [(row["entries"], row["first_entry"], row["last_entry"]) for row in rows],
    )
    assert f"damage: {log}: offset {place}: " in err

    code, rows, err = _run(capsys, "where", tmp_path, "--ledger-id", 7, "1:1")

    assert (1, []) == (code, rows)
    assert "note:" not in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("D", "--ledger-id", "7", "9:5"), "range 9:5 is empty"),
        (("D", "7", "5"), "not a range of entry ids: '5'"),
        (("D", "--ledger-id", "x"), "not a ledger id"),
        (("D/nothing", "--ledger-id", "7"), "no such directory"),
        (("D", "--ledger-id", "7", "-o", "D/current/out"), "which is only read"),
    ],
)
def test_wrong_usage(tmp_path: Path, capsys: Capsys, words: tuple[str, ...], message: str) -> None:
    """What cannot be meant is one line on stderr, no rows, and exit code 2."""
    _write(tmp_path, (7, [0]))
    code, rows, err = _run(capsys, "where", *(w.replace("D", str(tmp_path), 1) for w in words))

    assert (2, [], 1) == (code, rows, err.count("\n"))
    assert message in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("D",), "LEDGER --ledger-id --ledger-qualified-name is required"),
        (("D", "1:2"), "LEDGER --ledger-id --ledger-qualified-name is required"),
        (("D", "7", "--ledger-id", "7"), "LEDGER: not allowed with argument --ledger-id"),
        (("D", "7", "1:2", "--ledger-qualified-name", "0"), "--ledger-qualified-name"),
        (("--ledger-id", "7"), "arguments are required: DIR"),
        (("D", "7", "1:2", "3:4"), "unrecognized arguments: 3:4; bkstore where takes "),
        (("D", "--ledger-id", "7", "--entries"), "unrecognized arguments: --entries"),
    ],
)
def test_wrong_words(capsys: Capsys, words: tuple[str, ...], message: str) -> None:
    """The parser's own refusals are as for the other commands."""
    with pytest.raises(SystemExit) as stopped:
        main(["where", *words])

    assert 2 == stopped.value.code
    assert message in capsys.readouterr().err


def test_help_names_the_range(capsys: Capsys) -> None:
    """The usage shows DIR, LEDGER and A:B."""
    with pytest.raises(SystemExit) as stopped:
        main(["where", "-h"])

    assert 0 == stopped.value.code
    assert "DIR [LEDGER] [A:B]" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["table", "json", "csv", "parquet"])
def test_formats(tmp_path: Path, capsys: Capsys, form: str) -> None:
    """Each format is written, of many rows and of none."""
    if form == "parquet":
        pytest.importorskip("pyarrow")
    _write(tmp_path / "bookie", (7, [0, 2, 4]))
    out = tmp_path / "out"
    for ledger, shown in (("7", True), ("9", False)):
        words = ["where", str(tmp_path / "bookie"), "--ledger-id", ledger, "--ranges"]

        assert (0 if shown else 1) == main([*words, "--format", form, "-o", str(out)])
        if form == "parquet":
            assert b"PAR1" == out.read_bytes()[:4]
        else:
            assert shown == ("0.log" in out.read_text())


def test_many_runs_come_in_pieces(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are written in pieces, none lost and none twice, also where the last piece is full."""
    monkeypatch.setattr("bkstore.cli.bookie.where.ROWS_PER_TABLE", 4)
    for count in (7, 8):
        _write(tmp_path / str(count), (7, list(range(0, 2 * count, 2))))
        rows = _rows(capsys, "where", tmp_path / str(count), "--ledger-id", 7, "--ranges")

        assert list(range(0, 2 * count, 2)) == [row["first_entry"] for row in rows]
