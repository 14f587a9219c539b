"""What reaches a terminal, a spreadsheet or a broken pipe: whole lines, safe to look at."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

from bkstore.cli.screen.tables import Screen
from bkstore.cli.terminal.table_output import write_tables
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.offline.dump import dump
from bkstore.offline.reading.manifest import read_manifest
from bkstore.tables import FINDINGS, LOCATIONS, Table
from bkstore.tables.columns import make_schema

COMMAND = [sys.executable, "-c", "import sys; from bkstore.cli.main import main; sys.exit(main())"]
# Clears the screen, ends the line, turns what follows around, and is no UTF-8.
HOSTILE = b"b\x1b[2J\n\xe2\x80\xae\xff"
SEEN = "b\\x1b[2J\\n\\u202e\\udcff"
PAIRS = make_schema("pairs", "name:string value?")


@pytest.fixture
def hostile(tmp_path: Path) -> bytes:
    """Return a bookie's directory with a hostile name, which is its id, and a finding of it."""
    top = os.path.join(os.fsencode(tmp_path), HOSTILE)
    try:
        os.mkdir(top)
    except OSError:
        pytest.skip("the file system takes names in UTF-8 only")
    with HierarchicalIndex(os.fsdecode(top), writable=True) as index:
        index.put_many(7, [0, 1], [1028, 1100])
    (Path(os.fsdecode(top)) / "current" / "0" / "7" / "7.idx.rloc").touch()
    return top


def _run(*words: Any, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *words], capture_output=True, check=False, **options)


@pytest.mark.parametrize(
    ("form", "encoding"),
    [
        ("table", "utf-8"),
        ("table", "ascii"),
        ("jsonl", "utf-8"),
        ("csv", "utf-8"),
        ("csv", "ascii"),
    ],
)
def test_hostile_names(hostile: bytes, form: str, encoding: str) -> None:
    """No form on standard output or error has a control character but the line's end, whatever
    the stream's encoding; each finding is one line."""
    done = _run(
        "inspect", hostile, "--format", form, env={**os.environ, "PYTHONIOENCODING": encoding}
    )
    text, said = done.stdout.decode(encoding), done.stderr.decode(encoding)

    assert 1 == done.returncode
    assert SEEN in text.replace("\\\\", "\\") or form in ("json", "jsonl")
    assert 1 == said.count("\n") == said.count(SEEN)
    assert all(c.isprintable() or c == "\n" for c in text + said)


def test_hostile_names_in_errors(tmp_path: Path) -> None:
    """Errors of a command and of its arguments are one line each, and show what they name."""
    missing = os.path.join(os.fsencode(tmp_path), HOSTILE)
    for words, code in ((["inspect", missing], 2), (["inspect", missing, HOSTILE], 2)):
        done = _run(*words)

        assert code == done.returncode
        assert SEEN in done.stderr.decode().splitlines()[-1]
        assert b"Traceback" not in done.stderr


def test_hostile_names_in_a_dump(hostile: bytes, tmp_path: Path) -> None:
    """A name that is no UTF-8 is dumped, as text that every reader of the tables takes."""
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "out"
    result = dump([os.fsdecode(hostile)], out)
    (said,) = read_manifest(out)["bookies"]
    (bookie,) = {row["bookie"] for row in parquet.read_table(out / "entries").to_pylist()}

    assert {"entries": 2} == {"entries": result.rows["entries"]}
    assert "b\x1b[2J\n\u202e\\udcff" == said["id"] == bookie
    assert 1 == len(parquet.read_table(out / "findings"))


def test_csv_is_no_formula() -> None:
    """A text that a spreadsheet would calculate is one for it; numbers stay numbers."""
    texts = ["=1+1", "+1", "-1", "@A1", "\t=1", "\uff1d1", "plain", "", "a=b", 'say "x"', "\u202e"]
    shown = ["'=1+1", "'+1", "'-1", "'@A1", "\\t=1", "'\uff1d1", "plain", "", "a=b", 'say "x"']
    out = io.StringIO()
    numbers = [-1, *range(10)]
    _write(out, "csv", [Table(PAIRS, {"name": texts, "value": numbers})])
    rows = list(csv.reader(io.StringIO(out.getvalue())))

    assert [["name", "value"]] == rows[:1]
    assert [*shown, "\\u202e"] == [name for name, _ in rows[1:]]
    assert list(map(str, numbers)) == [number for _, number in rows[1:]]


def _write(stream: io.StringIO, form: str, tables: list[Table]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        write_tables(tables[0].schema, tables, form)


def test_json_is_exact() -> None:
    """JSON lines have every text as it is; half of a surrogate pair as its escape in text."""
    texts = ["=1", "\x1b[2J", "\u202e", "\udcff", "\U0001f600"]
    out = io.StringIO()
    _write(out, "jsonl", [Table(PAIRS, {"name": texts, "value": range(5)})])
    names = [json.loads(line)["name"] for line in out.getvalue().splitlines()]

    assert [*texts[:3], "\\udcff", texts[4]] == names


# -- tables


def _lines(*pieces: Table) -> list[str]:
    out = io.StringIO()
    screen = Screen(out, pieces[0].schema)
    for piece in pieces:
        screen.write(piece)
    screen.finish()
    return out.getvalue().splitlines()


def test_header_once() -> None:
    """The pieces of a long listing stand below one header; columns never become narrower."""
    first = Table(PAIRS, {"name": ["a", "b"], "value": [1, None]})
    wide = Table(PAIRS, {"name": ["longer than the header"], "value": np.array([10**12])})
    last = Table(PAIRS, {"name": ["c"], "value": [-1]})

    assert [
        "name   value",
        "────────────",
        "a          1",
        "b          -",
        "longer than the header   1000000000000",
        "c                                   -1",
    ] == _lines(first, wide, last)


def test_cells_of_two_columns() -> None:
    """A wide character takes two cells, a combining one none: the columns stay aligned."""
    names = ["日本", "e\u0301", "plain"]
    lines = _lines(Table(PAIRS, {"name": names, "value": [1, 22, 333]}))

    assert ["日本        1", "e\u0301          22", "plain     333"] == lines[2:]
    assert {13} == {cell_len(line) for line in lines[2:]}


def test_empty_table() -> None:
    """A listing of nothing has its header."""
    assert ["name   value", "────────────"] == _lines(Table(PAIRS, {"name": [], "value": []}))


def test_records_fold() -> None:
    """A row with lists is a record of 100 characters; long values are cut between ranges, or
    anywhere, and of bytes a line is shown."""
    one = make_schema("one", "name:string bytes:binary ranges")
    ranges = [[10_000 * n, 10_000 * n + 5] for n in range(1, 20)]
    row = {"name": ["x" * 100], "bytes": [b"\xab" * 60], "ranges": [ranges]}
    lines = _lines(Table(one, row))
    words = " ".join(f"{first}-{last}" for first, last in ranges)

    assert ["field    value", "name     " + "x" * 91, "         " + "x" * 9] == [
        lines[0],
        *lines[2:4],
    ]
    assert "bytes    60 bytes: " + "ab" * 40 + "…" == lines[4]
    assert "ranges   10000-10005 20000-20005" == lines[5][:32]
    assert words == " ".join(line[9:] for line in lines[5:])
    assert 100 == max(map(len, lines))


def test_many_rows_are_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked of rich, which measures every cell by itself, where texts are ASCII."""
    monkeypatch.setitem(sys.modules, "rich.cells", None)
    values = np.arange(50_000)
    lines = _lines(Table(LOCATIONS, dict.fromkeys(LOCATIONS.names, values)))

    assert 50_002 == len(lines)
    assert [49_999] * 5 == list(map(int, lines[-1].split()))


# -- standard streams that are broken

BROKEN = [
    (["inspect", "DIR"], ">&-", "Bad file descriptor"),
    (["ledgers", "DIR", "--format", "jsonl"], ">&-", "Bad file descriptor"),
    (["ledgers", "DIR", "--format", "parquet"], ">&-", "Bad file descriptor"),
    (["inspect", "DIR"], ">/dev/full", "No space left on device"),
    (["ledgers", "DIR", "--format", "csv"], ">/dev/full", "No space left on device"),
    (["ledgers", "DIR", "--format", "parquet"], ">/dev/full", "No space left on device"),
    (["ledgers", "DIR", "-o", "/dev/full"], "", "No space left on device"),
    (["--help"], ">/dev/full", "No space left on device"),
    (["--help"], ">&-", "Bad file descriptor"),
    (["--version"], ">/dev/full", "No space left on device"),
    (["--version"], ">&-", "Bad file descriptor"),
    (["inspect", "--help"], ">&-", "Bad file descriptor"),
    (["completion", "bash"], ">&-", "Bad file descriptor"),
    (["completion", "bash"], ">/dev/full", "No space left on device"),
    (["metadata", "export", "STORE"], ">&-", "Bad file descriptor"),
    (["demo", "--bookie", "DIR"], ">&-", "Bad file descriptor"),
]


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Return a small bookie without findings."""
    top = tmp_path / "bookie-1"
    with HierarchicalIndex(top, writable=True) as index:
        index.put_many(7, [0, 1], [1028, 1100])
    return top


def _shell(line: str, *words: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["/bin/sh", "-c", f'"$@" {line}', "sh", *COMMAND, *words], capture_output=True, check=False
    )


@pytest.mark.parametrize(("words", "line", "reason"), BROKEN, ids=lambda value: str(value)[-40:])
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_output_that_cannot_be_written(
    plain: Path, tmp_path: Path, words: list[str], line: str, reason: str
) -> None:
    """Closed or full, standard output or a file: one line, exit code 2, no traceback."""
    store = tmp_path / "metadata.json"
    store.write_text('{"ledgers": []}')
    paths = {"DIR": str(plain), "STORE": str(store)}
    done = _shell(line, *(paths.get(word, word) for word in words))

    assert (2, 1) == (done.returncode, done.stderr.count(b"\n"))
    named = "/dev/full" if "-o" in words else "standard output"
    assert f"bkstore: {named}: cannot be written: {reason}\n" == done.stderr.decode()


@pytest.mark.parametrize("line", ["2>&-", "2>/dev/full", "2>&1 >/dev/null | true"])
def test_nobody_to_tell(tmp_path: Path, hostile: bytes, line: str) -> None:
    """Without a standard error that takes anything, the exit code still tells, and data come."""
    missing = _shell(line, "inspect", tmp_path / "none")
    found = _shell(line, "ledgers", hostile, "--format", "jsonl")

    assert b"" == missing.stdout + missing.stderr
    if "|" not in line:
        assert 2 == missing.returncode
        assert (1, 1) == (_shell(line, "inspect", hostile).returncode, found.stdout.count(b"\n"))


def test_reader_that_leaves(plain: Path) -> None:
    """A pipe whose reader left is the end of the listing, not an error."""
    done = _shell("| true", "ledgers", plain, "--format", "jsonl")

    assert (0, b"") == (done.returncode, done.stderr)


def test_deep_json(tmp_path: Path, plain: Path) -> None:
    """Nesting without end is one line in every command that reads JSON."""
    deep = tmp_path / "deep.json"
    deep.write_text('{"ledgers": ' + "[" * 200_000)
    dumped = tmp_path / "dumped"
    dumped.mkdir()
    (dumped / "manifest.json").write_text("[" * 200_000)
    for words in (
        ["audit", deep, f"b1={plain}"],
        ["streams", "lookup", deep, "--stream", "1", "--start", "0", "--end", "1"],
        ["analyze", dumped],
        ["load", dumped, tmp_path / "made", "--to", "idx"],
    ):
        done = _run(*map(str, words))

        assert (2, 1) == (done.returncode, done.stderr.count(b"\n")), words
        assert b"not JSON: nested too deeply" in done.stderr


def test_findings_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Cells of findings, which quote what was found, are escaped like any other."""
    row = ("damage", "a\x9bb\u2028c\x7f", "/f\x07", *(None,) * 6)
    _write(out := io.StringIO(), "table", [Table.from_rows(FINDINGS, [row])])

    assert r"a\x9bb\u2028c\x7f   /f\x07" in out.getvalue()
