"""`bkstore analyze`: what it prints, writes, and returns."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest

from bkstore.cli.datasets.analyze import _ANALYSES, _PINNED_THRESHOLD
from bkstore.cli.main import main
from bkstore.cluster.store.dump_store import snapshot
from bkstore.formats.metadata.json_file import encode_file
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.offline.analyses import ANALYSES, Analysis, Inputs, LocalEngine, Options
from bkstore.offline.analyses.catalog import PINNED_OCCUPANCY
from tests.models.analyses import ALONE, Expected
from tests.worlds.random_dumps import DumpWorld, random_dump, write_dump

pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[DumpWorld, Path]:
    """Return a random world, and a folder with its dump and its metadata."""
    top = tmp_path_factory.mktemp("cli")
    world = random_dump(7)
    write_dump(world, top / "dump")
    (top / "metadata.json").write_bytes(encode_file(snapshot(world.store())))
    return world, top


def _metadata(bookies: list[str], **fields: Any) -> LedgerMetadata:
    """Return what is known of ledger 1, which has one entry, or as `fields` say;
    `ledger` is another id."""
    given = {"state": "CLOSED", "last_entry_id": 0, "length": 10}
    make: Any = LedgerMetadata
    ledger = fields.pop("ledger", 1)
    made: LedgerMetadata = make(ledger, 1, 1, 1, [(0, bookies)], **given | fields)
    return made


def _summary(text: str) -> dict[str, dict[str, Any]]:
    return {row["analysis"]: row for row in map(json.loads, text.splitlines())}


def test_summary_begins_with_what_was_found(
    made: tuple[DumpWorld, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows of every analysis that the inputs allow; findings first; exit code 1."""
    world, top = made
    command = ["analyze", f"{top}/dump", "--metadata", f"{top}/metadata.json"]
    code = main([*command, "--format", "jsonl"])
    captured = capsys.readouterr()
    rows = _summary(captured.out)
    flags = [row["finding"] for row in rows.values()]
    expected = Expected(world)
    lost = sum(row[6] for row in expected.violations())

    assert 1 == code
    assert set(ALONE) == set(rows)
    assert {n: len(getattr(expected, n)()) for n in rows} == {n: r["rows"] for n, r in rows.items()}
    assert sorted(flags, reverse=True) == flags
    assert f"{lost} replicas missing" in rows["violations"]["result"]
    assert "without --other: no comparison" in captured.err


def test_a_sound_dump_is_exit_code_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing is lost or damaged the exit code is 0, even with metadata not given."""
    world = DumpWorld(held={"b": {LedgerId.of(1): {0: (0, 1, 2), 1: (0, 1, 99)}}})
    code = main(["analyze", str(write_dump(world, tmp_path / "dump")), "--format", "jsonl"])
    rows = _summary(capsys.readouterr().out)

    assert 0 == code
    assert not any(row["finding"] for row in rows.values())
    world.held["b"][LedgerId.of(1)][7] = (0, 1, 200)
    assert 1 == main(["analyze", str(write_dump(world, tmp_path / "holed"))])


_LEDGER = LedgerId.of(1)
_NOT_HERE = {"a": {}, "b": {_LEDGER: {0: (0, 1, 2)}}, "c": {}}
_NOTHING_TO_CHECK = {
    "no metadata, no entries": ([], {"b": {_LEDGER: {}}}, None),
    "no ledger in the metadata": (["--metadata", "FILE"], _NOT_HERE, []),
    "none closed": (
        ["--metadata", "FILE"],
        _NOT_HERE,
        [_metadata(["b"], state="OPEN", last_entry_id=-1, length=0)],
    ),
    "no bookie of it in the dump": (["--metadata", "FILE"], _NOT_HERE, [_metadata(["elsewhere"])]),
}


@pytest.mark.parametrize("only", [[], ["--only", "CHECK"], ["--only", "bytes_by_bookie"]])
@pytest.mark.parametrize("case", _NOTHING_TO_CHECK.values(), ids=_NOTHING_TO_CHECK)
def test_nothing_checked_is_not_passed(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    case: tuple[list[str], Any, list[LedgerMetadata] | None],
    only: list[str],
) -> None:
    """Exit code 3 where losses are looked for and nothing is due; not for tables that count."""
    words, held, metadata = case
    world = DumpWorld(held=held, metadata=metadata or [])
    (tmp_path / "FILE").write_bytes(encode_file(snapshot(world.store())))
    check = "holes" if metadata is None else "violations"
    asked = [*words, *(check if word == "CHECK" else word for word in only)]
    asked = [str(tmp_path / "FILE") if word == "FILE" else word for word in asked]
    code = main(["analyze", str(write_dump(world, tmp_path / "dump")), *asked])
    counts = only[1:] == ["bytes_by_bookie"]

    assert (0 if counts else 3) == code
    assert counts != ("nothing was checked" in capsys.readouterr().err)


def test_metadata_of_other_bookies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The reason names the bookies of both, as directories may have been given under other ids."""
    elsewhere = [_metadata([f"e{number}"], ledger=number) for number in range(7)]
    world = DumpWorld(held=_NOT_HERE, metadata=elsewhere)
    (tmp_path / "FILE").write_bytes(encode_file(snapshot(world.store())))

    assert 3 == main(
        ["analyze", str(write_dump(world, tmp_path / "dump")), "--metadata", f"{tmp_path}/FILE"]
    )
    assert (
        "nothing was checked: the ensembles of the metadata are of e0, e1, e2, e3, e4 and 2 more, "
        "the dump is of a, b and c; NAME=DIR gives the bookie of a directory its id\n"
    ) in capsys.readouterr().err


@pytest.mark.parametrize("only", [[], ["--only", "violations"]])
def test_something_checked_is_passed(
    tmp_path: Path, only: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """One entry at the bookie where it is due is enough, and so is a ledger without entries. A
    table without rows is not silence."""
    for name, ledger in {"one": {}, "empty": {"last_entry_id": -1, "length": 0}}.items():
        world = DumpWorld(held=_NOT_HERE, metadata=[_metadata(["b"], **ledger)])
        (tmp_path / f"{name}.json").write_bytes(encode_file(snapshot(world.store())))
        dump = write_dump(world, tmp_path / name)

        assert 0 == main(["analyze", str(dump), "--metadata", f"{tmp_path / name}.json", *only])
        assert bool(only) == ("violations: 0 rows\n" in capsys.readouterr().err)


def test_a_bookie_that_was_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bookie that the dump could not read is named on stderr; exit code 1."""
    world = DumpWorld(held={"b": {LedgerId.of(1): {0: (0, 1, 2)}}, "c": {}}, lost={"c"})
    code = main(["analyze", str(write_dump(world, tmp_path / "dump")), "--only", "sequences"])

    assert 1 == code
    assert "c counts as not dumped: gone" in capsys.readouterr().err


def test_only_prints_the_table_itself(
    made: tuple[DumpWorld, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """With --only the table's rows come out, the top ones by the column asked for."""
    world, top = made
    only = ["--only", "bytes_by_ledger", "--top", "2", "--by", "replicas", "--format", "json"]
    main(["analyze", f"{top}/dump", *only])
    rows = json.loads(capsys.readouterr().out)
    expected = Expected(world, judged=False).bytes_by_ledger()
    ordered = sorted(expected, key=lambda row: -row[4])[:2]

    assert ordered == [tuple(row.values()) for row in rows]


def test_engines_give_the_top_rows_where_no_sum_is_told(
    made: tuple[DumpWorld, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table alone is cut by who makes it; a summary adds up all rows, and what is amiss with
    the metadata is seen in all rows of `ledger_health`.
    """
    asked: dict[str, Options] = {}

    def noted(self: LocalEngine, analysis: Analysis, inputs: Inputs) -> Any:
        asked[analysis.name] = inputs.options
        return run(self, analysis, inputs)

    run = LocalEngine.run
    monkeypatch.setattr(LocalEngine, "run", noted)
    command = ["analyze", f"{made[1]}/dump", "--metadata", f"{made[1]}/metadata.json"]
    main([*command, "--only", "holes,ledger_health", "--top", "2", "--pinned", "0.5"])

    assert {"holes": Options(2, None, 0.5), "ledger_health": Options(pinned=0.5)} == asked
    main([*command, "--only", "holes", "--top", "2", "--by", "entries"])

    assert Options(2, "entries") == asked["holes"]
    for words in ([], ["--only", "holes", "--out", f"{tmp_path}/out"]):
        main([*command, *words, "--top", "2"])

        assert Options() == asked["holes"]


def test_nothing_of_an_owner_is_not_passed(tmp_path: Path) -> None:
    """A pattern that matches no ledger is exit code 3, as no ledger was checked."""
    world = DumpWorld(held=_NOT_HERE, metadata=[_metadata(["b"])])
    (tmp_path / "FILE").write_bytes(encode_file(snapshot(world.store())))
    command = ["analyze", str(write_dump(world, tmp_path / "dump")), "--only", "violations"]

    assert 0 == main([*command, "--metadata", f"{tmp_path}/FILE"])
    assert 3 == main([*command, "--metadata", f"{tmp_path}/FILE", "--topic", "nowhere"])


def test_ledgers_of_some_owners(
    made: tuple[DumpWorld, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """The filters choose rows; analyses of all ledgers are left out, or refused if asked for."""
    world, top = made
    dump = f"{top}/dump"
    command = ["analyze", dump, "--metadata", f"{top}/metadata.json", "--tenant", "shop"]
    main([*command, "--only", "bytes_by_owner", "--group-by", "namespace", "--format", "json"])
    rows = [tuple(row.values()) for row in json.loads(capsys.readouterr().out)]
    all_rows = Expected(world).bytes_by_owner("namespace")

    assert [row for row in all_rows if str(row[0]).startswith("shop/")] == rows
    assert 2 == len(rows)
    main([*command, "--format", "jsonl"])
    captured = capsys.readouterr()
    assert "left out: orphans, bytes_by_bookie, bytes_by_scope, log_occupancy" in captured.err
    left_out = {name for name in ANALYSES if ANALYSES[name].chooses_by is None}
    assert set(ALONE) - left_out == set(_summary(captured.out))
    for words, refusal in {
        (*command, "--only", "orphans"): "orphans cannot be limited to the ledgers of some owners",
        (*command, "--report", f"{top}/r.html"): "--report is about all ledgers",
    }.items():
        assert 2 == main(list(words))
        assert refusal in capsys.readouterr().err


def test_damage_of_other_ledgers_and_bookies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a filter the exit code is about the chosen ledgers: damage of another ledger, and
    damage and absence of a bookie that has none of them, do not count."""
    shop, bank = LedgerId.of(1), LedgerId.of(2)
    made = DumpWorld(held={name: {} for name in ("b1", "b2", "b3")})
    made.lost = {"b3"}
    for ledger_id, tenant, bookie in ((shop, "shop", "b1"), (bank, "bank", "b2")):
        name = f"{tenant}/orders/persistent/paid".encode()
        custom = {"application": b"pulsar", "component": b"managed-ledger"}
        segments = [(0, [bookie])]
        closed = {"state": "CLOSED", "last_entry_id": 1, "length": 9}
        custom["pulsar/managed-ledger"] = name
        made.metadata.append(
            LedgerMetadata(ledger_id, 1, 1, 1, segments, custom_metadata=custom, **closed)
        )
        made.held[bookie][ledger_id] = {0: (0, 1, 2), 1: (0, 1, 99)}
    (tmp_path / "metadata.json").write_bytes(encode_file(snapshot(made.store())))
    codes = {}
    for number, unread in enumerate([set(), {("b2", bank)}, {("b1", bank)}, {("b1", shop)}]):
        made.unread = unread
        dump = write_dump(made, tmp_path / str(number))
        words = ["analyze", str(dump), "--metadata", f"{tmp_path}/metadata.json"]
        words += ["--only", "violations"]
        codes[number] = [
            main(words),
            *(main([*words, "--tenant", each]) for each in ("shop", "bank")),
        ]

    assert {0: [1, 0, 0], 1: [1, 0, 1], 2: [1, 0, 1], 3: [1, 1, 0]} == codes
    made.unread = set()
    words[1] = str(write_dump(made, tmp_path / "general"))
    _make_damage_of_oddities(tmp_path / "general", "b2")

    assert [0, 1] == [main([*words, "--tenant", each]) for each in ("shop", "bank")]
    made.lost = {"b2", "b3"}
    words[1] = str(write_dump(made, tmp_path / "lost"))

    assert [0, 1] == [main([*words, "--tenant", each]) for each in ("shop", "bank")]


def _make_damage_of_oddities(dump: Path, bookie: str) -> None:
    """Let the findings on a bookie, which are about no ledger, be of damage."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (file,) = (dump / "findings").glob(f"{bookie}-*")
    table = pq.read_table(file)
    field, index = table.schema.field("severity"), table.schema.get_field_index("severity")
    severities = pa.array(["damage"] * table.num_rows, field.type)
    pq.write_table(table.set_column(index, field, severities), file)


def test_top_rows_have_the_exit_code_of_all(tmp_path: Path) -> None:
    """What is amiss in rows that are not shown counts, too."""
    world = random_dump(7)
    world.lost.clear()  # which alone would be exit code 1
    world.unread.clear()
    (tmp_path / "metadata.json").write_bytes(encode_file(snapshot(world.store())))
    dump = write_dump(world, tmp_path / "dump")
    codes = {}
    for name in ALONE:
        command = ["analyze", str(dump), "--metadata", f"{tmp_path}/metadata.json", "--only", name]
        codes[name] = [main(command), main([*command, "--top", "1"])]

    assert {} == {name: both for name, both in codes.items() if both[0] != both[1]}
    assert [1, 1] == codes["ledger_health"]


@pytest.mark.parametrize(
    ("words", "master", "fast"),
    [
        ([], "local[*]", True),
        (["--master", "local"], "local", True),
        (["--master", "local[1,2]"], "local[1,2]", True),
        (["--master", "local-cluster[2,1,1024]"], "local-cluster[2,1,1024]", False),
        (["--master", "spark://host:7077"], "spark://host:7077", False),
    ],
)
def test_where_spark_runs(
    words: list[str],
    master: str,
    fast: bool,
    made: tuple[DumpWorld, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """--master says where; JVMs start quickly, rather than run well, only on this machine."""
    pytest.importorskip("pyspark")
    from bkstore.cli.datasets import analysis_engines
    from bkstore.spark import analysis, session

    given: list[Any] = []

    @contextmanager
    def stand_in(name: str, where: str, *, fast_start: bool) -> Iterator[Any]:
        given.append((name, where, fast_start))
        yield MagicMock()

    monkeypatch.setattr(analysis_engines, "require_java", lambda: None)
    monkeypatch.setattr(session, "local_session", stand_in)
    monkeypatch.setattr(analysis, "SparkEngine", lambda _: LocalEngine())
    command = ["analyze", f"{made[1]}/dump", "--only", "holes", "--engine", "spark"]
    code = main([*command, *words])

    assert (1, [("bkstore analyze", master, fast)]) == (code, given)


@pytest.mark.parametrize("form", [None, "csv", "jsonl"])
def test_out_has_a_file_for_each_table(
    made: tuple[DumpWorld, Path], form: str | None, tmp_path: Path
) -> None:
    """--out writes each table, as Parquet unless asked otherwise, and no row is missing."""
    import pyarrow.parquet as pq

    world, top = made
    out = tmp_path / "out"
    main(["analyze", f"{top}/dump", "--out", str(out), *(["--format", form] if form else [])])
    names = {name for name in ALONE if not ANALYSES[name].needs_metadata}

    assert {f"{name}.{form or 'parquet'}" for name in names} == {p.name for p in out.iterdir()}
    expected = Expected(world, judged=False).sequences()
    if form is None:
        table = pq.read_table(out / "sequences.parquet")
        assert expected == list(zip(*table.to_pydict().values()))
    else:
        lines = (out / f"sequences.{form}").read_text().splitlines()
        assert len(expected) + (form == "csv") == len(lines)


def test_report_gets_the_tables(
    made: tuple[DumpWorld, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--report hands over every table by its name, the manifest, and where metadata came from."""
    world, top = made
    seen: dict[str, Any] = {}
    stand_in = ModuleType("bkstore.report")
    stand_in.write_report = lambda *args, **named: seen.update(named, args=args)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bkstore.report", stand_in)
    metadata = f"{top}/metadata.json"
    command = ["analyze", f"{top}/dump", "--metadata", metadata]
    main([*command, "--report", f"{tmp_path}/r.html"])
    target, tables = seen["args"]

    assert tmp_path / "r.html" == target
    assert {*ALONE, "findings"} == set(tables)
    assert len(Expected(world).violations()) == tables["violations"].num_rows
    assert (metadata, list(world.held)) == (
        seen["source"]["metadata"],
        [each["id"] for each in seen["source"]["manifest"]["bookies"]],
    )


def test_two_dumps_without_a_common_bookie(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The summary says that nothing could be compared, and the page which bookies each has."""
    ledger = {LedgerId.of(1): {0: (0, 1, 2), 1: (0, 1, 99)}}
    for name in ("old", "new"):
        write_dump(DumpWorld(held={f"{name}-1": ledger}), tmp_path / name)
    command = ["analyze", f"{tmp_path}/old", "--other", f"{tmp_path}/new", "--format", "jsonl"]
    code = main([*command, "--report", f"{tmp_path}/r.html"])
    rows = _summary(capsys.readouterr().out)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")

    assert 0 == code
    assert "the two dumps have no bookie in common" in rows["comparison"]["result"]
    assert "the first has old-1; the second has new-1." in page
    same = [*command[:3], f"{tmp_path}/old", *command[4:]]
    assert 0 == main(same)
    result = _summary(capsys.readouterr().out)["comparison"]["result"]
    assert result == "entries: 2 common, 0 added, 0 removed"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "holse"], "no analysis 'holse'"),
        (["--only", "violations"], "violations needs ledger metadata"),
        (["--only", "comparison"], "comparison needs a second dump"),
        (["--by", "holes"], "--by requires --top and one --only"),
        (["--only", "holes", "--top", "1", "--by", "stripe"], "no column 'stripe'"),
        (["--only", "holes", "--format", "parquet"], "give --out DIR"),
        (["--top", "0"], "top must be a whole number, 1 or more"),
        (["--pinned", "7"], "pinned must be a number of 0 to 1"),
        (["--master", "local[2]"], "--master requires --engine spark"),
        (["--out", "DUMP/new"], "which is only read"),
        (["--report", "DUMP/r.html"], "which is only read"),
        (["--out", "DUMP"], "is also an input"),
        (["--metadata", "nowhere"], "nowhere"),
        (["--other", "nowhere"], "nowhere: no such directory"),
    ],
)
def test_what_is_refused(
    words: list[str], said: str, made: tuple[DumpWorld, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """One clear line, exit code 2, and the dump is as it was."""
    dump = made[1] / "dump"
    before = sorted(dump.rglob("*"))
    code = main(["analyze", str(dump), *(word.replace("DUMP", str(dump)) for word in words)])
    err = capsys.readouterr().err

    assert (2, 1) == (code, len(err.splitlines()))
    assert said in err
    assert before == sorted(dump.rglob("*"))


def test_the_help_has_the_catalogue() -> None:
    """The names and the default that `--help` shows, which loads no analysis, are theirs."""
    assert tuple(ANALYSES) == _ANALYSES
    assert PINNED_OCCUPANCY == _PINNED_THRESHOLD


def test_neither_engine(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without DuckDB and Spark, one line has the command for all that is missing, at once."""
    for name in ("duckdb", "pyspark", "matplotlib"):
        monkeypatch.setitem(sys.modules, name, None)
    codes = [main(["analyze", "no such dump"]), main(["analyze", "x", "--report", "page.html"])]
    command = "pip install 'duckdb>=1.4' 'pyarrow>=18'"

    assert [2, 2] == codes
    assert [
        f"bkstore: analyze needs duckdb: {command}",
        f"bkstore: analyze needs duckdb and matplotlib: {command} 'jinja2>=3.1' 'matplotlib>=3.9'",
    ] == capsys.readouterr().err.splitlines()
