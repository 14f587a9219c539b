"""Tables on a terminal: which columns stand there, how wide, and in which words."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from bkstore import Bookie, LedgerId, tables
from bkstore.cli.main import main
from bkstore.cli.screen.column_choice import screen_columns
from bkstore.cli.screen.tables import Screen
from bkstore.cli.screen.text_width import width
from bkstore.formats.entry import Coder, encode_explicit_lac, master_key
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.offline.dump import dump
from bkstore.tables import LEDGER_LIST, LOG_RECORDS, SEQUENCES, Schema, Table
from bkstore.tables.table import ConstantColumn
from tests.cli.screen.drawn_tables import (
    SCHEMAS,
    WIDE,
    Terminal,
    filled,
    lines_of,
    terminal,
    without_styles,
)

Capsys = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bookie: ledger 7 with an explicit LAC of 28, a large fenced one, one of a scope."""
    top = tmp_path_factory.mktemp("screen") / "bookie-1"
    coder, key = Coder("CRC32C", "secret"), master_key("secret")
    with Bookie.open(top, storage="db") as made:
        payloads = [b"the text of entry %d, " % entry * 9 for entry in range(30)]
        made.add_entries(coder.encode_many(7, range(30), payloads), key)
        made.set_explicit_lac(7, encode_explicit_lac(7, 28, "CRC32C", "secret"), key)
        made.add_entries(coder.encode_many(123456789012, [0], [b"x"]), key)
        made.fence(123456789012, key)
        made.add_entries(coder.encode_many(WIDE, range(2), [b"one", bytes(range(99))]), key)
    return top


def _said(capsys: Capsys, *words: object, code: int = 0) -> list[str]:
    assert code == main([*map(str, words)])

    return capsys.readouterr().out.splitlines()


# -- what fits

COMMANDS = [
    ("ledgers", "--all-scopes", "--show-keys"),
    ("ledger", "7"),
    ("readledger", "7"),
    ("readledger", str(WIDE), "--digest-type", "CRC32C", "--password", "secret"),
    ("readlog", "-m"),
    ("readjournal", "-m", "--show-keys"),
    ("availability", "7", "--missing-from", "0:99"),
    ("availability", str(WIDE), "--missing-from", "0:99", "--encoding", "bookkeeper"),
    ("where", "7", "--ranges"),
    ("readlogmetadata",),
    ("lastmark",),
]


@pytest.mark.parametrize("columns", [100, 80])
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_commands_fit(
    bookie: Path, words: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command writes a line that a terminal of 100 or 80 characters would have to wrap."""
    out = terminal(columns, monkeypatch)
    monkeypatch.setattr(sys, "stdout", out)

    assert 0 == main([words[0], str(bookie), *words[1:]])

    lines = without_styles(out.getvalue().splitlines())

    assert 3 <= len(lines)
    assert columns >= max(map(width, lines))


@pytest.mark.parametrize("words", COMMANDS[:8], ids=lambda words: " ".join(words[:2]))
def test_pipes_have_100_characters(bookie: Path, words: tuple[str, ...], capsys: Capsys) -> None:
    """Where no terminal says how wide it is, lines have 100 characters, and no colour."""
    lines = _said(capsys, words[0], bookie, *words[1:])

    assert 100 >= max(map(width, lines))
    assert not any("\x1b" in line for line in lines)


@pytest.mark.parametrize("columns", [120, 100, 80])
@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_every_table_fits(schema: Schema, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table fits a terminal, with long names and large numbers; its first columns stay."""
    lines = without_styles(lines_of(terminal(columns, monkeypatch), filled(schema)))
    screen = screen_columns(schema)
    first = next(name for name in screen.columns if name not in screen.caption)

    assert columns >= max(map(width, lines))
    assert first in " ".join(lines)


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_screens_name_columns(schema: Schema) -> None:
    """What is said of a table's columns names columns that it has."""
    screen = screen_columns(schema)
    named = {*screen.columns, *screen.caption, *screen.hide_idle}
    named |= {*screen.drop_first, *screen.may_cut}

    assert set() == named - {*schema.names}
    assert len(screen.columns) == len({*screen.columns})


def test_cut_columns_have_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A payload takes what the other columns leave of a terminal, in later pieces too."""
    short, long = ({**filled(LOG_RECORDS).columns, "payload": [p] * 2} for p in (b"x", b"y" * 99))
    pieces = [Table(LOG_RECORDS, columns) for columns in (short, long)]
    lines = lines_of(terminal(140, monkeypatch), *pieces)

    assert [140, 140] == [len(line) for line in lines[-2:]]
    assert lines[-1].endswith("yyyy…")
    assert lines[-4].endswith("   x")


# -- which columns


def test_ledgers(bookie: Path, capsys: Capsys) -> None:
    """What is the same for all stands above the header, once; what says nothing does not."""
    assert [
        "bookie: bookie-1   layout: rocksdb",
        "        ledger_id   entries   first_entry   last_entry   fenced   explicit_lac_entry",
        "─" * 84,
        "                7        30             0           29   no                       28",
        "     123456789012         1             0            0   yes                       -",
        "c0ffee00…456789ab         2             0            1   no                        -",
    ] == _said(capsys, "ledgers", bookie, "--all-scopes")


def test_one_ledger_is_said_once(bookie: Path, capsys: Capsys) -> None:
    """`readledger` names its ledger above the header, whole."""
    lines = _said(capsys, "readledger", bookie, WIDE)

    assert f"ledger_id: {WIDE.qualified_name}" == lines[0]
    assert "entry_id   log_id   position   bytes   lac   length   digest_ok   payload" == lines[1]


def test_wide(bookie: Path, capsys: Capsys) -> None:
    """--wide shows every column, ids in their halves and by name, and nothing cut."""
    lines = _said(capsys, "ledgers", bookie, "--all-scopes", "--wide")
    record = _said(capsys, "availability", bookie, "7", "--encoding", "bookkeeper", "--wide")
    (row,) = (line.split() for line in lines if WIDE.qualified_name in line)

    assert LEDGER_LIST.names == lines[0].split()
    assert ["bookie-1", *map(str, WIDE.signed), WIDE.qualified_name, "2"] == row[:5]
    assert tables.AVAILABILITY.names == [line.split()[0] for line in record[2:] if line[0] != " "]

    text = "the text of entry 3, " * 9

    assert text.rstrip() in "\n".join(_said(capsys, "readledger", bookie, 7, "--wide"))
    assert text.rstrip() not in "\n".join(_said(capsys, "readledger", bookie, 7))


def test_a_column_that_begins_to_tell() -> None:
    """Where a later piece needs a column that was left out, it comes, and stays."""
    quiet = filled(SEQUENCES).columns | {"bookie": ["b1", "b1"]}
    other = quiet | {"bookie": ["b1", "b2"]}
    lines = lines_of(
        io.StringIO(), *(Table(SEQUENCES, columns) for columns in (quiet, other, quiet))
    )

    assert "bookie: b1" == lines[0]
    assert "ledger_id" == lines[1].split()[0]
    assert ["", "bookie", "b1", "b2", "b1", "b1"] == [
        (line.split() or [""])[0] for line in lines[5:] if "─" not in line
    ]


def test_another_value_is_never_passed_over() -> None:
    """A piece with one value after a piece with another one has the column."""
    columns = filled(SEQUENCES).columns
    pieces = [Table(SEQUENCES, columns | {"bookie": ConstantColumn(b, 2)}) for b in ("b1", "b2")]
    lines = lines_of(io.StringIO(), *pieces)

    assert ["b2", "b2"] == [line.split()[0] for line in lines[-2:]]


def test_every_quiet_value_is_told() -> None:
    """0, False and an explicit LAC of -1 are shown where they say something."""
    columns = {**filled(LEDGER_LIST).columns, "explicit_lac_entry": [None, -1]}
    columns |= {"limbo": [False, None], "fenced": [False, False], "master_key": [None] * 2}
    header, *rows = lines_of(io.StringIO(), Table(LEDGER_LIST, columns))[1:]

    assert "limbo" not in header
    assert "fenced" in header
    assert ["-", "-1"] == [
        row.split()[header.split().index("explicit_lac_entry")] for row in rows[1:]
    ]


@pytest.mark.parametrize("form", ["table", "json", "jsonl", "csv", "parquet"])
def test_columns(bookie: Path, form: str, tmp_path: Path, capsys: Capsys) -> None:
    """--columns gives these columns, in this order, in every format."""
    target = tmp_path / "out"
    words = ("ledgers", bookie, "--columns", "last_entry, ledger_id", "--format", form)

    assert [] == _said(capsys, *words, "-o", target)
    if form == "parquet":
        found = pytest.importorskip("pyarrow.parquet").read_table(target)

        assert {"last_entry": [29, 0], "ledger_id": [7, 123456789012]} == found.to_pydict()
    else:
        words_of = re.findall(r"\w+", target.read_text())

        assert ["last_entry", "ledger_id"] == words_of[:: 2 if "json" in form else 1][:2]
        assert ["29", "7", "0", "123456789012"] == [word for word in words_of if word.isdigit()]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("entries,name", "unknown column 'name'; known are bookie, scope_id, ledger_id, "),
        ("entries,entries", "column 'entries' is given twice"),
        ("", "unknown column ''"),
    ],
)
def test_unknown_columns(asked: str, message: str, capsys: Capsys) -> None:
    """A name that is no column is a usage error that lists the columns, before anything is read."""
    with pytest.raises(SystemExit) as stopped:
        main(["ledgers", "nowhere", "--columns", asked])

    assert 2 == stopped.value.code
    assert message in capsys.readouterr().err


def test_help_lists_the_columns(capsys: Capsys) -> None:
    """--help names every column of a command."""
    with pytest.raises(SystemExit):
        main(["readjournal", "--help"])

    assert ", ".join(tables.JOURNAL_RECORDS.names) in " ".join(capsys.readouterr().out.split())


# -- the terminal


def test_paths_keep_their_end(bookie: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files with long paths are told apart by their names."""
    out = terminal(60, monkeypatch)
    monkeypatch.setattr(sys, "stdout", out)
    main(["listfiles", str(bookie), "--entrylog"])

    assert out.getvalue().splitlines()[-1].endswith("/ledgers/current/0.log")


@pytest.mark.parametrize(
    ("variable", "value", "plain"),
    [("NO_COLOR", "1", True), ("NO_COLOR", "", False), ("TERM", "dumb", True)],
)
def test_no_color(variable: str, value: str, plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The header is bold on a terminal, not with NO_COLOR or where the terminal is dumb."""
    monkeypatch.setenv(variable, value)
    lines = lines_of(Terminal(), filled(SEQUENCES))

    assert plain == (lines == without_styles(lines))
    if not plain:
        assert "\x1b[1m" == lines[1][:4]
        assert lines[3:] == without_styles(lines[3:])


@pytest.mark.parametrize("terminals", [0, 1, 2])
def test_hidden_columns(bookie: Path, terminals: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line names what is left out where both streams are a terminal, none in a pipe."""
    out, err = (Terminal() if at < terminals else io.StringIO() for at in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    main(["ledgers", str(bookie), "--all-scopes"])
    first = err.getvalue()
    main(["ledgers", str(bookie), "--wide"])

    assert ("--wide shows qualified_name, explicit_lac too\n" if terminals == 2 else "") == first
    assert first == err.getvalue()


def test_inspect_folds(bookie: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long values of `inspect` go on below themselves on a terminal, and lose nothing."""
    out = terminal(50, monkeypatch)
    monkeypatch.setattr(sys, "stdout", out)
    main(["inspect", str(bookie)])
    lines = without_styles(out.getvalue().splitlines())
    values = "".join(line[22:] for line in lines[2:])

    assert 50 >= max(map(len, lines))
    assert f"{bookie}/ledgers/current" in values


def test_ascii_terminals(tmp_path: Path) -> None:
    """Where the encoding has no line and no ellipsis, there are characters of ASCII instead."""
    with HierarchicalIndex(tmp_path, writable=True) as index:
        index.put(WIDE, 0, 1028)
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    ids = {**filled(LOG_RECORDS).columns}
    screen = Screen(stream, LOG_RECORDS)
    screen.write(Table(LOG_RECORDS, ids))
    stream.flush()

    assert b"c0ffee00..456789ab" in raw.getvalue()
    assert b"---" in raw.getvalue()
    assert b"..." in raw.getvalue().splitlines()[2]


def test_numbers_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are left out or whole, never cut, however narrow the terminal is."""
    values = np.array([2**62, 2**62 + 1])
    table = Table(tables.LOCATIONS, dict.fromkeys(tables.LOCATIONS.names, values))
    lines = without_styles(lines_of(terminal(30, monkeypatch), table))

    assert [str(2**62), str(2**62 + 1)] == [line.strip() for line in lines[2:]]


# -- audit and analyze


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with metadata, three bookies and their dump; one lacks two entries."""
    pytest.importorskip("pyarrow")
    top = tmp_path_factory.mktemp("audited")
    held = {"b1": [0, 2, 3, 5, 6, 8], "b2": [0, 1, 3, 4, 6, 7], "b3": [1, 2, 7, 8]}
    for name, entries in held.items():
        with HierarchicalIndex(top / name, writable=True) as index:
            for ledger in (7, WIDE):
                index.put_many(ledger, entries, [1028 + 104 * entry for entry in entries])
    quorums = {"ensemble_size": 3, "write_quorum_size": 2, "ack_quorum_size": 2}
    rest = {"state": "CLOSED", "last_entry_id": 8, "length": 9, "digest_type": "CRC32C"}
    segments = [{"first_entry": 0, "ensemble": ["b1", "b2", "b3"]}]
    listed = [
        {"scope_id": each.scope, "ledger_id": each.ledger, **quorums, **rest, "segments": segments}
        for each in (LedgerId.of(7), WIDE)
    ]
    (top / "metadata.json").write_text(json.dumps({"ledgers": listed}))
    dump([str(top / name) for name in held], top / "dump")
    return top


def _audit(top: Path) -> list[str]:
    return ["audit", str(top / "metadata.json"), *(f"{n}={top / n}" for n in ("b1", "b2", "b3"))]


def _analyze(top: Path, *words: str) -> list[str]:
    pytest.importorskip("duckdb")
    return ["analyze", str(top / "dump"), "--metadata", str(top / "metadata.json"), *words]


def test_audit_and_analyze_look_alike(
    audited: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `audit` and `analyze` find appears in the same table, on any terminal."""
    for columns in (120, 100, 80):
        shown = []
        for words in (_audit(audited), _analyze(audited, "--only", "violations")):
            out = terminal(columns, monkeypatch)
            monkeypatch.setattr(sys, "stdout", out)

            assert 1 == main(words)

            shown.append(sorted(without_styles(out.getvalue().splitlines())))
        wide = [line for line in shown[0] if "c0ffee00…456789ab" in line]

        assert shown[0] == shown[1]
        assert columns >= max(map(width, shown[0]))
        assert 1 == len(wide)
        assert "4-5" in wide[0]


def test_wide_audit(audited: Path, capsys: Capsys) -> None:
    """--wide gives every field of a violation as a record, --columns those that are named."""
    record = _said(capsys, *_audit(audited), "--wide", code=1)
    named = _said(capsys, *_audit(audited), "--columns", "bookie,missing_entries", code=1)

    owners = [
        "owner",
        "application",
        "component",
        "tenant",
        "namespace",
        "topic",
        "partition",
        "cursor",
        "schema",
    ]

    assert [*tables.VIOLATIONS.names, *owners] == [
        line.split()[0] for line in record[2 : record.index("")]
    ]
    assert ["bookie   missing_entries", "b3                     2"] == [named[0], named[2]]


def test_an_entry_without_a_log(tmp_path: Path, capsys: Capsys) -> None:
    """A table has a dash for the directory of a log that is in none; other formats have -1."""
    with HierarchicalIndex(tmp_path, writable=True) as index:
        index.put_many(7, [0, 1], [1028, (1 << 32) + 1028])
    (tmp_path / "current" / "0.log").write_bytes(bytes(1024))

    assert 0 == main(["ledger", str(tmp_path), "7"])
    assert ["0", "-"] == [line.split()[1] for line in capsys.readouterr().out.splitlines()[2:]]
    main(["ledger", str(tmp_path), "7", "--format", "csv", "--columns", "dir_index"])
    assert ["dir_index", "0", "-1"] == capsys.readouterr().out.split()


def test_analyze_columns(audited: Path, capsys: Capsys) -> None:
    """--columns goes with one analysis, and with columns that it has."""
    only = _analyze(audited, "--only", "bytes_by_ledger", "--columns", "replicas,qualified_name")

    assert ["replicas", "qualified_name"] == _said(capsys, *only)[0].split()
    for words, message in (
        (_analyze(audited, "--columns", "rows"), "--columns requires one --only"),
        (_analyze(audited, "--only", "holes", "--columns", "x"), "unknown column 'x'"),
    ):
        assert 2 == main(words)
        assert message in capsys.readouterr().err


def test_a_summary_folds(audited: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an analysis says goes on below itself on a narrow terminal, and is whole."""
    main(_analyze(audited))
    whole = "".join(capsys.readouterr().out.split()).replace("─", "")
    out = terminal(60, monkeypatch)
    monkeypatch.setattr(sys, "stdout", out)
    main(_analyze(audited))
    lines = without_styles(out.getvalue().splitlines())
    below = [line.startswith("    ") for line in lines]
    folded_lines = [line for line, *both in zip(lines[1:], below, below[1:]) if all(both)]

    assert 60 >= max(map(len, lines))
    assert folded_lines
    # Texts below their rows have no header.
    assert whole.replace("result", "", 1) == "".join("".join(lines).split()).replace("─", "")
