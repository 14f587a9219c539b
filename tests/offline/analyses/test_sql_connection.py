"""SQL over dumps: the tables of a dump, its analyses as tables, and attached dumps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore.errors import BkstoreError, CorruptionError, InvalidArgument, ReadFailed
from bkstore.offline import analyses, connect
from bkstore.offline.analyses import LocalEngine, open_dump
from bkstore.tables.dump import DUMP_TABLES
from tests.models.analyses import ALONE
from tests.worlds.random_dumps import DumpWorld, random_dump, write_dump

duckdb = pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[DumpWorld, Path, Path]:
    """Return a random world, its dump, and the dump of another world."""
    top = tmp_path_factory.mktemp("sql")
    world = random_dump(7)
    write_dump(world, top / "dump")
    write_dump(random_dump(8), top / "later")
    return world, top / "dump", top / "later"


@pytest.fixture
def connection(made: tuple[DumpWorld, Path, Path]) -> Iterator[Any]:
    """Yield a connection with metadata and an attached dump."""
    world, dump, later = made
    with connect(dump, world.store(), attach={"later": later}) as connection:
        yield connection


def test_tables_of_a_dump(connection: Any, made: tuple[DumpWorld, Path, Path]) -> None:
    """Each table has the rows of the dump's files, the attached one's in its schema."""
    for schema, path in (("main", made[1]), ("later", made[2])):
        dump = open_dump(path)
        for name in DUMP_TABLES:
            expected = dump.read(name).to_pylist()
            rows = connection.sql(f"select * from {schema}.{name}").to_arrow_table().to_pylist()

            assert sorted(map(repr, expected)) == sorted(map(repr, rows))
        bookies = connection.sql(f"select bookie from {schema}.bookies").fetchall()

        assert {*dump.bookies, *dump.unread_bookies} == {row[0] for row in bookies}


@pytest.mark.parametrize("name", [*ALONE, "comparison"])
def test_analyses_are_tables(
    name: str, connection: Any, made: tuple[DumpWorld, Path, Path]
) -> None:
    """A query of an analysis returns its rows, in its order; `comparison` is that of two dumps."""
    world, dump, later = made
    schema, other = ("later", later) if name == "comparison" else ("main", None)
    expected = analyses.run(name, dump, world.store(), other)

    rows = connection.sql(f"from {schema}.{name}").to_arrow_table()

    assert expected.to_pylist() == rows.to_pylist()


def test_analyses_of_the_attached_dump(connection: Any, made: tuple[DumpWorld, Path, Path]) -> None:
    """They judge the attached dump by the same metadata."""
    expected = analyses.run("ledger_health", made[2], made[0].store())

    rows = connection.sql("from later.ledger_health").to_arrow_table()

    assert expected.to_pylist() == rows.to_pylist()


def test_an_analysis_runs_once_and_when_it_is_read(
    made: tuple[DumpWorld, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for its columns, and not a second time in the same query or the next."""
    ran: list[str] = []
    run = LocalEngine.run

    def counted(self: LocalEngine, analysis: Any, inputs: Any) -> Any:
        ran.append(analysis.name)
        return run(self, analysis, inputs)

    monkeypatch.setattr(LocalEngine, "run", counted)
    with connect(made[1]) as connection:
        assert 10 == len(connection.sql("describe holes").fetchall())
        assert [] == ran

        connection.sql("select * from holes a join holes b using (qualified_name)").fetchall()
        connection.sql("select count(*) from holes").fetchall()

    assert ["holes"] == ran


def test_functions_for_ids(connection: Any) -> None:
    """Ids compare as unsigned numbers, and have the 32 digits of `qualified_name`."""
    assert [(-1,), (0,)] == connection.sql(
        "select id from (values (-1::bigint), (0)) t(id) order by bk_unsigned(id) desc"
    ).fetchall()
    assert (
        []
        == connection.sql(
            "from ledgers where qualified_name <> bk_qualified(scope_id, ledger_id)"
        ).fetchall()
    )


def test_inputs_that_are_missing(made: tuple[DumpWorld, Path, Path]) -> None:
    """Analyses that need metadata are listed, and say so when they are read."""
    with connect(made[1]) as connection:
        assert connection.sql("describe violations").fetchall()
        with pytest.raises(duckdb.Error, match="violations needs ledger metadata"):
            connection.sql("from violations").fetchall()
        with pytest.raises(duckdb.Error, match="comparison needs a second dump"):
            connection.sql("from comparison").fetchall()


def test_damage_is_an_error_of_opening(made: tuple[DumpWorld, Path, Path], tmp_path: Path) -> None:
    """A file that is not as the manifest says is not queried, and not counted as empty."""
    write_dump(made[0], tmp_path / "damaged")
    file = next((tmp_path / "damaged").rglob("*.parquet"))
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(CorruptionError, match=file.name):
        connect(tmp_path / "damaged")


@pytest.mark.parametrize("name", ["main", "Temp", "a b", "", 'x"y', "1st"])
def test_names_that_cannot_be_attached(name: str, made: tuple[DumpWorld, Path, Path]) -> None:
    """A name is one that a query can write without quotes, and no schema of DuckDB's."""
    with pytest.raises(InvalidArgument, match="cannot be the name"):
        connect(made[1], attach={name: made[2]})


def test_spills_go_to_the_temporary_directory(
    made: tuple[DumpWorld, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query larger than the memory limit spills there, and nothing is left of it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with connect(made[1], memory=128, threads=1) as connection:
        rows = "select hash(range) h, repeat('x', 100) || range x from range(3_000_000)"
        result = connection.execute(f"{rows} order by h")

        assert list(tmp_path.glob("bkstore-sql-*"))
        assert result.fetchone() is not None

    assert [] == os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("message", "error_type", "told"),
    [
        (
            'IO Error: Cannot open file "/d/a.parquet": Permission denied\n\nLINE 1: create',
            ReadFailed,
            "^/d/a.parquet: cannot be read: Permission denied$",
        ),
        (
            'IO Error: Could not read from file "/d/a.parquet": Input/output error',
            CorruptionError,
            "^/d/a.parquet: cannot be read: Input/output error$",
        ),
        ("Catalog Error: odd", BkstoreError, "^the views cannot be made: Catalog Error: odd$"),
    ],
)
def test_files_that_duckdb_cannot_open(
    made: tuple[DumpWorld, Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    message: str,
    error_type: type[BkstoreError],
    told: str,
) -> None:
    """While the views are made DuckDB opens files; what it is refused names the file."""

    def refuse(*_: object) -> None:
        raise duckdb.IOException(message)

    monkeypatch.setattr("bkstore.offline.analyses.sql_connection.select_rows", refuse)
    with pytest.raises(error_type, match=told) as raised:
        connect(made[1])
    assert error_type is raised.type
