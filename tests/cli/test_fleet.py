"""Commands on many directories: rows in order, whoever reads them, and one that fails."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Generator
from functools import partial
from pathlib import Path

import pytest

from bkstore.cli import fleet as fleet_module
from bkstore.cli.fleet import Fleet, ShowProgress
from bkstore.cli.main import main
from bkstore.errors import BkstoreError, CorruptionError, InvalidArgument, WriteFailed
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.tables import FINDINGS, Table
from tests.patched_modules import patch_module

Capsys = pytest.CaptureFixture[str]
JOBS = (1, 2)
ROWS = 3


def _read(
    kinds: dict[str, str], directory: Path, progress: ShowProgress | None
) -> Generator[Table, None, str]:
    """Yield three tables that name the directory, and return its name; or fail as `kinds` say."""
    kind = kinds.get(directory.name, "")
    if kind == "none":
        return directory.name
    for number in range(ROWS):
        if kind == "fails at the end" and number == ROWS - 1:
            raise CorruptionError(str(directory), 7, "is torn")
        if kind == "fails nameless":
            raise BkstoreError("no digest")
        if kind == "argument":
            raise InvalidArgument("a wrong argument")
        if kind == "refused":
            raise WriteFailed("/scratch", OSError(28, "No space left on device"))
        if kind == "memory":
            raise MemoryError
        if kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if progress is not None:
            progress("reading", number, ROWS, number)
        row = ("oddity", f"{directory.name} {number}", *[None] * (len(FINDINGS.names) - 2))
        yield Table.from_rows(FINDINGS, [row])
    return directory.name


def _fleet(names: str, jobs: int | None, **kinds: str) -> Fleet[str]:
    spaced = {name: kind.replace("_", " ") for name, kind in kinds.items()}
    return Fleet([Path("/in", name) for name in names], partial(_read, spaced), jobs)


def _texts(fleet: Fleet[str]) -> list[str]:
    return [text for table in fleet.tables() for text in table.columns["detail"]]


def _expected(names: str) -> list[str]:
    return [f"{name} {number}" for name in names for number in range(ROWS)]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for temporary files."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    return tmp_path / "scratch"


@pytest.mark.parametrize("jobs", JOBS)
def test_order(scratch: Path, jobs: int) -> None:
    """Tables and outcomes are in the order given; a bookie may have no rows; nothing stays."""
    fleet = _fleet("dbac", jobs, a="none")

    assert _expected("dbc") == _texts(fleet)
    assert [(Path("/in", name), name) for name in "dbac"] == fleet.outcomes
    assert ([], 0, 1) == (fleet.failed, fleet.exit_code(0), fleet.exit_code(1))
    assert [] == list(scratch.iterdir())


FAILURES = {
    "fails_at_the_end": "bkstore: left out: /in/b: offset 7: is torn",
    "fails_nameless": "bkstore: left out: /in/b: no digest",
    "memory": "bkstore: left out: /in/b: memory ran out",
}


@pytest.mark.parametrize(
    ("kind", "jobs"), [*((kind, 1) for kind in FAILURES), ("fails_at_the_end", 2)]
)
def test_one_fails(scratch: Path, kind: str, jobs: int, capsys: Capsys) -> None:
    """None of its rows appears, one line names it, the others have all of theirs; exit code 2."""
    fleet = _fleet("abc", jobs, b=kind)

    assert _expected("ac") == _texts(fleet)
    assert [Path("/in/b")] == fleet.failed
    assert (2, 2) == (fleet.exit_code(0), fleet.exit_code(1))
    lines = capsys.readouterr().err.splitlines()
    assert [str(FAILURES[kind])] == lines
    assert [] == list(scratch.iterdir())


def test_a_killed_process(scratch: Path, capsys: Capsys) -> None:
    """The bookie whose process was killed is left out like any other that fails."""
    fleet = _fleet("abc", 2, a="killed")

    assert _expected("bc") == _texts(fleet)
    assert "bkstore: left out: /in/a: the process that read it was ended by SIGKILL\n" == (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("jobs", JOBS)
@pytest.mark.parametrize(
    ("kind", "error", "reason"),
    [
        ("argument", InvalidArgument, "a wrong argument"),
        ("refused", WriteFailed, "/scratch.*No space left"),
    ],
)
def test_what_concerns_all(
    scratch: Path, kind: str, error: type[BkstoreError], reason: str, jobs: int
) -> None:
    """A wrong argument, or a machine that lacks something, ends the command."""
    with pytest.raises(error, match=reason):
        _texts(_fleet("ab", jobs, b=kind))

    assert [] == list(scratch.iterdir())


def test_all_fail(scratch: Path, capsys: Capsys) -> None:
    """Each is named, then the command fails: an output is not completed."""
    with pytest.raises(BkstoreError, match="none of the 2 directories could be read"):
        _texts(_fleet("ab", 1, a="fails_nameless", b="fails_nameless"))

    assert 2 == len(capsys.readouterr().err.splitlines())


def test_a_single_one(scratch: Path) -> None:
    """Its rows appear as they are read, its progress is shown, and its error is raised."""
    calls: list[tuple[str, int, int, int]] = []
    fleet = _fleet("a", None)
    tables = fleet.tables(lambda *call: calls.append(call))
    next(tables)

    assert [("reading", 0, 3, 0)] == calls
    assert 2 == len(list(tables))
    assert [(Path("/in/a"), "a")] == fleet.outcomes
    with pytest.raises(CorruptionError, match="is torn"):
        _texts(_fleet("a", None, a="fails_at_the_end"))


@pytest.mark.parametrize(
    ("jobs", "last_file_bytes", "processes"), [(None, 252, 1), (None, 253, 3), (2, 0, 2), (9, 0, 4)]
)
def test_how_many_processes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    jobs: int | None,
    last_file_bytes: int,
    processes: int,
) -> None:
    """One per CPU from some bytes on, else none; or as many as asked; at most one a directory."""
    counts: list[int] = []
    monkeypatch.setattr(fleet_module, "_MIN_PARALLEL_BYTES", 1000)
    patch_module(monkeypatch, fleet_module, "os", cpu_count=lambda: 3)
    monkeypatch.setattr(
        Fleet, "_read_in_processes", lambda _, jobs: iter(counts.append(jobs) or ())
    )
    for name in "abcd":
        (tmp_path / name / "below").mkdir(parents=True)
        size = last_file_bytes if name == "d" else 249
        (tmp_path / name / "below" / "file").write_bytes(bytes(size))
    fleet = Fleet([tmp_path / name for name in "abcd"], partial(_read, {}), jobs)
    if processes == 1:
        list(fleet.tables())
    else:
        with pytest.raises(BkstoreError):  # the stand-in reads none
            list(fleet.tables())

    assert ([] if processes == 1 else [processes]) == counts


@pytest.mark.parametrize("jobs", [0, -1, 1.5])
def test_jobs(jobs: float) -> None:
    """A number of processes is whole and positive."""
    with pytest.raises(InvalidArgument, match="jobs"):
        Fleet([Path("a")], partial(_read, {}), jobs)  # type: ignore[arg-type]


# -- the commands


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the paths of three bookies; the second one's directory is not one."""
    monkeypatch.chdir(tmp_path)
    for name, entries in (("one", 3), ("three", 5)):
        with HierarchicalIndex(tmp_path / name, writable=True) as index:
            index.put_many(7, range(entries), range(1028, 1028 + entries))
            index.put_many(8, [0], [2000])
    (tmp_path / "two").mkdir()
    return ["three", "two", "one"]


@pytest.mark.parametrize("jobs", JOBS)
@pytest.mark.parametrize("command", ["ledgers", "usage"])
def test_commands(command: str, jobs: int, copies: list[str], capsys: Capsys) -> None:
    """Rows of the bookies in the order of the arguments; the other is named, and code 2."""
    code = main([command, *copies, "--jobs", str(jobs), "--format", "jsonl"])
    captured = capsys.readouterr()
    rows = [json.loads(line) for line in captured.out.splitlines()]
    expected = {
        "ledgers": [("three", 5), ("three", 1), ("one", 3), ("one", 1)],
        "usage": [("three", 6), ("one", 4)],
    }

    assert 2 == code
    assert expected[command] == [(row["bookie"], row["entries"]) for row in rows]
    assert captured.err.startswith("bkstore: left out: two: not a bookie directory")
    assert 1 == captured.err.count("\n")


@pytest.mark.parametrize("command", ["ledgers", "usage"])
def test_findings_name_the_directory(command: str, copies: list[str], capsys: Capsys) -> None:
    """Of several directories, a finding is printed with its directory; the exit code is 1."""
    next(Path("one").rglob("8.idx")).write_bytes(b"torn")

    assert 1 == main([command, "three", "one"])
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert all(line.startswith("one: damage: ") for line in lines)


@pytest.mark.parametrize("command", ["ledgers", "usage"])
def test_no_output_if_none_is_read(command: str, copies: list[str], capsys: Capsys) -> None:
    """An existing output is kept."""
    Path("out.csv").write_text("earlier")

    assert 2 == main([command, "two", "gone", "-o", "out.csv"])
    assert "earlier" == Path("out.csv").read_text()
    assert "none of the 2 directories could be read" in capsys.readouterr().err


def test_totals_and_units(tmp_path: Path, capsys: Capsys) -> None:
    """A row a bookie and their total, sizes in binary units; --bytes has them exactly, --detail one
    bookie's numbers a line each; other formats have no total."""
    paths = []
    for name, size in (("one", 2 << 20), ("two", 1 << 20)):
        with HierarchicalIndex(tmp_path / name, writable=True) as index:
            index.put_many(7, [0, 1], [1028, 1100])
        (tmp_path / name / "current" / "0.log").write_bytes(b"BKLO" + bytes(size - 4))
        paths.append(str(tmp_path / name))

    def cells(*words: str) -> list[list[str]]:
        main(["usage", *paths, *words])
        return [line.split() for line in capsys.readouterr().out.splitlines()]

    columns = ["--columns", "bookie,entries,log_file_bytes"]
    assert [
        ["one", "2", "2.00", "MiB"],
        ["two", "2", "1.00", "MiB"],
        ["total", "4", "3.00", "MiB"],
    ] == cells(*columns)[2:]
    exact = [["one", "2", "2097152"], ["two", "2", "1048576"], ["total", "4", "3145728"]]
    assert exact == cells(*columns, "--bytes")[2:]
    assert ["bookie,entries,log_file_bytes", "one,2,2097152", "two,2,1048576"] == [
        "".join(line) for line in cells(*columns, "--format", "csv")
    ]
    details = cells("--detail")
    assert 2 == details.count(["entries", "2"])
    assert ["log_file_bytes", "2.00", "MiB"] in details
    assert not any("total" in line for line in details)
    paths.pop()
    assert [["one", "2", "2097152"]] == cells(*columns, "--bytes")[2:]


def test_an_unknown_part_of_a_total(tmp_path: Path, capsys: Capsys) -> None:
    """The total of a column that is unknown for one bookie is unknown."""
    for name in ("one", "two"):
        with HierarchicalIndex(tmp_path / name, writable=True) as index:
            index.put_many(7, [0, 1], [1028, 1100])
    next((tmp_path / "one").rglob("7.idx")).write_bytes(b"torn")
    main(
        [
            "usage",
            str(tmp_path / "one"),
            str(tmp_path / "two"),
            "--columns",
            "bookie,index_row_bytes",
        ]
    )
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]

    assert [["one", "-"], ["two", "16", "B"], ["total", "-"]] == lines[2:]


@pytest.mark.parametrize("words", [["--by", "log"], ["--columns", "bookie"]])
def test_detail_is_of_bookies(words: list[str], copies: list[str], capsys: Capsys) -> None:
    """--detail is for the table of bookies, and for all of its columns."""
    with pytest.raises(SystemExit) as caught:
        main(["usage", "one", "--detail", *words])

    assert 2 == caught.value.code
    assert "--detail" in capsys.readouterr().err
