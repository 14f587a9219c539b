"""`bkstore rocks`: files and rows of a bookie's databases, as terminals and machines get them."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rocksdict import AccessType, Rdict

from bkstore import LedgerId
from bkstore.cli.main import main
from bkstore.formats.entry import encode_explicit_lac
from bkstore.index.api import LedgerState
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex
from bkstore.index.rocks.files import scratch_links
from bkstore.index.rocks.options import location_options
from bkstore.tables import ROCKS_FILES, ROCKS_ROWS

SCOPED = LedgerId.parse("550e8400-e29b-41d4-a716-446655440000")
KEY = bytes(range(20))
Capsys = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of an index while it was open: rows in tables and logs, of both key widths."""
    top = tmp_path_factory.mktemp("made")
    with RocksIndex(top / "open", writable=True) as index:
        index.put_many(7, range(100), range(2**32 + 1, 2**32 + 101))
        index.put_many(SCOPED, [3], [2**33 + 5])
        index.flush()
        for database in index._databases.values():
            database._handle.flush()
        index.put_many(8, [5, 6], [11, 3 * 2**32 + 12])
        lac = encode_explicit_lac(8, 6, "CRC32C", "pw")
        index.set_state(8, LedgerState(KEY, True, False, lac))
        index.delete(SCOPED)
        index.delete(7)
        shutil.copytree(top / "open", top / "copy")
    return top / "copy"


def rows_of(capsys: Capsys, *words: object, code: int = 0) -> list[dict[str, Any]]:
    """Return the rows that a command prints."""
    assert code == main(["rocks", *map(str, words), "--format", "jsonl"])

    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_one_file(made: Path, capsys: Capsys) -> None:
    """`sst_dump` takes a table's path; here the database is given, with an option for the file."""
    table = next(made.rglob("*.sst"))

    assert 2 == main(["rocks", str(table)])
    database, name = table.parent, table.name
    said = capsys.readouterr().err
    assert f"the database's directory, {database}, with --rows {name} or --properties" in said


def test_files(made: Path, capsys: Capsys) -> None:
    """One row a file that counts, by database; ranges of keys as ledgers and entries."""
    rows = rows_of(capsys, made)
    ranges = {
        (row["database"], row["kind"]): (row["first_key"], row["last_key"])
        for row in rows
        if row["kind"] in ("table", "log")
    }

    assert {
        ("locations", "table"): ("7/0", "7/99"),
        ("locations", "log"): ("7/0", "8/6"),
        ("ledgers", "table"): ("7", "7"),
        ("ledgers", "log"): ("7", "8"),
        ("locations-128", "table"): (f"{SCOPED}/3", f"{SCOPED}/3"),
        ("locations-128", "log"): (f"{SCOPED}/0", f"{SCOPED}/0"),
        ("ledgers-128", "table"): (str(SCOPED), str(SCOPED)),
        ("ledgers-128", "log"): (str(SCOPED), str(SCOPED)),
    } == ranges
    for row in rows:
        path = made / "current" / row["database"] / row["file"]

        assert path.stat().st_size == row["file_bytes"]
        assert (row["level"] == 0) == (row["kind"] == "table")
    (log,) = [row for row in rows if (row["database"], row["kind"]) == ("locations", "log")]

    assert (3, 0, 1) == (log["rows"], log["tombstones"], log["range_tombstones"])
    assert (101, 103) == (log["smallest_sequence"], log["largest_sequence"])


def test_rows_of_logs(made: Path, capsys: Capsys) -> None:
    """Puts with their locations, a range delete with its end, states of ledgers."""
    rows = rows_of(capsys, made, "--log")
    columns = (
        "sequence",
        "kind",
        "scope_id",
        "ledger_id",
        "entry_id",
        "log_id",
        "position",
        "end_key",
    )
    locations = [
        tuple(row[name] for name in columns) for row in rows if row["database"] == "locations"
    ]

    assert [
        (101, "put", 0, 8, 5, 0, 11, None),
        (102, "put", 0, 8, 6, 3, 12, None),
        (103, "range-delete", 0, 7, 0, None, None, "7/end"),
    ] == locations
    assert 3 * 2**32 + 12 == rows[1]["location"]
    (put, *_) = [row for row in rows if row["fenced"]]

    assert ("ledgers", 8, True, 6) == (
        put["database"],
        put["ledger_id"],
        put["fenced"],
        put["explicit_lac_entry"],
    )
    scoped = [row for row in rows if row["database"] == "locations-128"]

    assert [(*SCOPED.signed, "range-delete", f"{SCOPED}/end")] == [
        (row["scope_id"], row["ledger_id"], row["kind"], row["end_key"]) for row in scoped
    ]


def test_master_keys_only_if_asked(made: Path, capsys: Capsys) -> None:
    """Neither as such nor within the stored value."""
    for form in ("table", "json", "jsonl", "csv"):
        main(["rocks", str(made), "--log", "--wide", "--format", form])
        assert KEY.hex() not in capsys.readouterr().out
    rows = rows_of(capsys, made, "--log", "--show-keys")
    (row,) = [row for row in rows if row["master_key"] == KEY.hex()]

    assert KEY.hex() in row["stored_value"]


def test_one_database(made: Path, capsys: Capsys) -> None:
    """By --database, or by its own directory."""
    rows = rows_of(capsys, made, "--database", "ledgers")

    assert {"ledgers"} == {row["database"] for row in rows}
    assert rows == rows_of(capsys, made / "current" / "ledgers")
    (log,) = [row["file"] for row in rows if row["kind"] == "log"]
    named = rows_of(capsys, made / "current" / "ledgers", "--log", log)

    assert named == rows_of(capsys, made, "--database", "ledgers", "--log")
    assert named


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--database", "tables"], "--database tables: there is no such one, only locations"),
        (["--log", "000999.log"], "--log 000999.log: no such log"),
        (["--log", "../locations/CURRENT"], "no such log"),
        (["--columns", "level", "--log"], "unknown column 'level'"),
        (["--columns", "sequence"], "unknown column 'sequence'"),
        (["--files", "--log"], "not allowed with argument"),
        (["--rows", "000999.sst"], "--rows 000999.sst: no such table file or log"),
        (["--properties", "CURRENT"], "no such table file in"),
        (["--log", "000009.sst"], "no such log in"),
        (["--ledger-id", "7"], "a ledger cannot be chosen with --files"),
        (["--columns", "sequence", "--properties"], "unknown column 'sequence'"),
    ],
)
def test_refused(made: Path, capsys: Capsys, words: list[str], reason: str) -> None:
    """Names that are not there, and columns of another view: exit code 2."""
    with suppress(SystemExit):  # of the parser, with the same code
        assert 2 == main(["rocks", str(made), *words])

    assert reason in capsys.readouterr().err


def test_no_databases(tmp_path: Path, capsys: Capsys) -> None:
    """A directory with index files has none."""
    with HierarchicalIndex(tmp_path, writable=True) as index:
        index.put_many(7, [0], [1028])

    assert 2 == main(["rocks", str(tmp_path)])
    assert "contains no RocksDB database" in capsys.readouterr().err


def test_damage_in_a_log(made: Path, tmp_path: Path, capsys: Capsys) -> None:
    """The rows before it are printed; the finding has file and offset; exit code 1."""
    copy = Path(shutil.copytree(made, tmp_path / "copy"))
    (log,) = (copy / "current" / "locations").glob("*.log")
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    whole = rows_of(capsys, made, "--log", "--database", "locations")

    assert 1 == main(["rocks", str(copy), "--database", "locations", "--log", "--format", "jsonl"])
    out, err = capsys.readouterr()

    assert whole[:2] == [json.loads(line) for line in out.splitlines()]
    assert f"damage: {log}: offset " in err
    assert "fails its checksum" in err


def test_live(tmp_path: Path, capsys: Capsys) -> None:
    """A database in use is refused, and read with --live."""
    with RocksIndex(tmp_path, writable=True) as index:
        index.put_many(7, [1], [2])

        assert 2 == main(["rocks", str(tmp_path)])
        assert "is open elsewhere" in capsys.readouterr().err
        assert [1] == [
            row["entry_id"]
            for row in rows_of(capsys, tmp_path, "--live", "--log")
            if row["entry_id"]
        ]


def test_live_rows_are_those_of_the_index(made: Path, capsys: Capsys) -> None:
    """--rows has what the binding reads: overwritten and deleted rows are gone, by key."""
    with RocksIndex(made) as index:
        expected = [
            (*ledger.signed, entry, location)
            for batch in index.scan()
            for ledger, entries, locations in batch.by_ledger()
            for entry, location in zip(entries.tolist(), locations.tolist())
        ]
        ledgers = [ledger.signed for ledger in index.ledgers()]
    rows = rows_of(capsys, made, "--rows")
    locations = [row for row in rows if row["database"].startswith("locations")]

    assert expected == [
        (row["scope_id"], row["ledger_id"], row["entry_id"], row["location"]) for row in locations
    ]
    assert [101, 102] == [row["sequence"] for row in locations]
    assert ledgers == [
        (row["scope_id"], row["ledger_id"]) for row in rows if row["database"].startswith("ledgers")
    ]
    assert {"put"} == {row["kind"] for row in rows}


def test_rows_of_a_table(made: Path, capsys: Capsys) -> None:
    """--rows FILE has all that was written to it, in the order of keys, with sequence numbers."""
    tables = [row for row in rows_of(capsys, made) if row["kind"] == "table"]
    (table,) = [row for row in tables if row["database"] == "locations"]
    rows = rows_of(capsys, made, "--database", "locations", "--rows", table["file"])

    assert [(7, entry, 1 + entry, 1, 1 + entry) for entry in range(100)] == [
        (row["ledger_id"], row["entry_id"], row["sequence"], row["log_id"], row["position"])
        for row in rows
    ]
    assert (100, 0, 0, "LZ4") == (
        table["rows"],
        table["tombstones"],
        table["range_tombstones"],
        table["compression"],
    )


def test_rows_of_a_ledger(made: Path, capsys: Capsys) -> None:
    """--ledger-id leaves out those of others, in every view of rows."""
    assert [5, 6] == [
        row["entry_id"]
        for row in rows_of(capsys, made, "--rows", "--ledger-id", "8")
        if row["database"] == "locations"
    ]
    assert [] == rows_of(capsys, made, "--rows", "--ledger-id", "7")
    assert {7} == {row["ledger_id"] for row in rows_of(capsys, made, "--log", "--ledger-id", "7")}
    assert [] == rows_of(capsys, made, "--rows", "--ledger-id", str(SCOPED))


def test_properties(made: Path, capsys: Capsys) -> None:
    """What the binding says of each file is what its properties say."""
    path = made / "current" / "locations"
    rows = {row["property"]: row for row in rows_of(capsys, path, "--properties")}
    read_only = AccessType.read_only(error_if_log_file_exist=False)
    with scratch_links.link_copy(path) as scratch:
        opened = Rdict(str(scratch), location_options(), access_type=read_only)
        (file,) = opened.live_files()
        opened.close()

    assert str(file["num_entries"]) == rows["num.entries"]["value"] == "100"
    assert str(file["num_deletions"]) == rows["deleted.keys"]["value"]
    assert ("5", "XXH32", "LZ4") == tuple(
        rows[name]["value"] for name in ("format.version", "footer.checksum", "compression")
    )
    assert "leveldb.BytewiseComparator" == rows["comparator"]["value"]
    assert Path(file["name"]).name == rows["comparator"]["file"]


@pytest.mark.parametrize("view", ["--rows", "--properties", "--files"])
def test_damage_in_a_table(made: Path, tmp_path: Path, capsys: Capsys, view: str) -> None:
    """A table that cannot be read is a finding with file and offset; others are shown."""
    copy = Path(shutil.copytree(made, tmp_path / "copy"))
    (table,) = (copy / "current" / "locations").glob("*.sst")
    data = bytearray(table.read_bytes())
    for position in (10, len(data) - 300):  # in the data block, in the properties
        damaged = bytearray(data)
        damaged[position] ^= 1
        table.write_bytes(damaged)
        code = main(["rocks", str(copy), view, "--format", "jsonl"])
        out, err = capsys.readouterr()
        is_read = view == "--rows" or position != 10

        assert is_read == code
        assert is_read == (f"damage: {table}: offset " in err)
        assert "ledgers" in {json.loads(line)["database"] for line in out.splitlines()}
    table.write_bytes(data)


@pytest.mark.parametrize("view", [[], ["--log"], ["--rows"]])
def test_parquet(made: Path, tmp_path: Path, view: list[str]) -> None:
    """The declared columns, in every format."""
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "rows.parquet"

    assert 0 == main(["rocks", str(made), *view, "-o", str(out)])
    table = parquet.read_table(out)

    assert (ROCKS_ROWS if view else ROCKS_FILES).names == table.column_names
    assert len(table) > 2


def test_several_directories(tmp_path: Path, capsys: Capsys) -> None:
    """Databases of several index directories have the number of theirs."""
    for number, ledger in enumerate((6, 7)):
        with RocksIndex(tmp_path / f"l{number}", writable=True) as index:
            index.put_many(ledger, np.arange(3), np.arange(1, 4))
    rows = rows_of(capsys, tmp_path)

    assert {0: "6/0", 1: "7/0"} == {
        row["dir_index"]: row["first_key"]
        for row in rows
        if (row["database"], row["kind"]) == ("locations", "table")
    }
