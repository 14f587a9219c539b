"""`bkstore sql`: queries over a dump, in every format, and what it says of bad ones."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from pyarrow import parquet

from bkstore.cli.main import main
from bkstore.cluster.store.dump_store import snapshot
from bkstore.formats.metadata.json_file import encode_file
from bkstore.offline import analyses
from bkstore.offline.analyses import ANALYSES, open_dump
from bkstore.tables.dump import DUMP_TABLES
from tests.worlds.random_dumps import random_dump, write_dump

pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two dumps, and the metadata of the first."""
    top = tmp_path_factory.mktemp("sql")
    world = random_dump(7)
    write_dump(world, top / "dump")
    write_dump(random_dump(8), top / "later")
    (top / "metadata.json").write_bytes(encode_file(snapshot(world.store())))
    return top


def test_rows_in_every_format(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers, texts, nulls, sums, lists and dates; a name that occurs twice gets a number."""
    query = (
        "select 1 as a, 'x' as b, null as c, sum(range) as d, 2.5 as e, [1, 2] as f,"
        " date '2024-02-29' as g, true as h, 2 as a, '\\xFF'::blob as i from range(4)"
    )
    values = [1, "x", None, 6, 2.5, "[1, 2]", "2024-02-29", True, 2, "ff"]
    names = ["a", "b", "c", "d", "e", "f", "g", "h", "a_2", "i"]

    assert 0 == main(["sql", f"{folder}/dump", query, "--format", "json"])
    assert [dict(zip(names, values))] == json.loads(capsys.readouterr().out)
    assert 0 == main(["sql", f"{folder}/dump", query, "--format", "csv"])
    assert ",".join(names) == capsys.readouterr().out.splitlines()[0]

    target = folder / "rows.parquet"

    assert 0 == main(["sql", f"{folder}/dump", query, "-o", str(target)])
    assert [dict(zip(names, [*values[:-1], b"\xff"]))] == parquet.read_table(target).to_pylist()


def test_groups_are_rows_of_numbers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lists of lists stay lists: a sequence group is four numbers, a range two."""
    query = "select missing from violations where missing is not null"
    command = ["sql", f"{folder}/dump", query, "--metadata", f"{folder}/metadata.json"]

    assert 0 == main([*command, "--format", "jsonl"])

    rows = [json.loads(line)["missing"] for line in capsys.readouterr().out.splitlines()]
    table = analyses.run("violations", folder / "dump", str(folder / "metadata.json"))

    assert [value for value in table.column("missing").to_pylist() if value is not None] == rows
    assert all(first <= last for ranges in rows for first, last in ranges)


def test_a_result_has_every_column_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A column whose values are all zero is shown too, and one row for each of the result."""
    assert 0 == main(["sql", f"{folder}/dump", "select 0 as dir_index from range(5000)"])

    header, _, *rows = capsys.readouterr().out.splitlines()

    assert ("dir_index", 5000) == (header, len(rows))


def test_without_a_query_the_tables(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every table and analysis with its columns, those of attached dumps by their names."""
    command = ["sql", f"{folder}/dump", "--attach", f"later={folder}/later", "--format", "jsonl"]

    assert 0 == main(command)

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    columns = {line["table"]: line["columns"].split(", ") for line in lines}
    names = [*DUMP_TABLES, "bookies", *ANALYSES]

    assert [*names, *(f"later.{name}" for name in names)] == list(columns)
    assert all(DUMP_TABLES[name].names == columns[f"later.{name}"] for name in DUMP_TABLES)
    assert all(ANALYSES[name].schema.names == columns[name] for name in ANALYSES)


def test_a_query_from_stdin_over_two_dumps(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several statements run in order, and the last one's rows are printed."""
    query = (
        "create table t as select count(*) as n from ledgers;"
        " select t.n, (select count(*) from later.ledgers) from t"
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(query))
    attach = ["--attach", f"later={folder}/later", "--format", "csv"]

    assert 0 == main(["sql", f"{folder}/dump", *attach, "-"])

    rows = [open_dump(folder / name).read("ledgers").num_rows for name in ("dump", "later")]

    assert f"{rows[0]},{rows[1]}" == capsys.readouterr().out.splitlines()[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["select nope from ledgers"], 'the query failed: Binder Error: .*"nope"'),
        (["selec 1"], 'the query failed: Parser Error: .*"selec" LINE 1: selec 1$'),
        (
            ["select * from violations"],
            r"^bkstore: violations needs ledger metadata \(--metadata\)$",
        ),
        (["select 1", "--attach", "main=DUMP"], "'main' cannot be the name"),
        (["select 1", "--attach", "x=DUMP", "--attach", "x=DUMP"], "two dumps have the name 'x'"),
        (["select 1", "--attach", "DUMP"], "is not NAME="),
        (["select 1", "-o", "DUMP/rows.csv"], "DUMP"),
    ],
)
def test_what_is_refused(
    words: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit code 2, and no rows."""
    before = sorted(folder.rglob("*"))
    words = [word.replace("DUMP", f"{folder}/dump") for word in words]
    try:
        code: int | str | None = main(["sql", f"{folder}/dump", *words])
    except SystemExit as exit_:
        code = exit_.code
    captured = capsys.readouterr()
    last_line = captured.err.splitlines()[-1]

    assert (2, "") == (code, captured.out)
    assert re.search(message.replace("DUMP", f"{folder}/dump"), last_line)
    assert before == sorted(folder.rglob("*"))
