"""`bkstore lab`: experiments by name and by file, what is refused, what is kept of a failed run."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from bkstore.cli.main import main as bkstore
from bkstore.errors import InvalidArgument
from bkstore.lab import Experiment, LabRun, Row, main
from bkstore.lab.catalog import QUESTIONS, load_experiment
from bkstore.lab.command import make_parser
from tests.docs.page_blocks import PAGES, blocks
from tests.lab.toys import TOY, measure_toys

MINE = """
from bkstore.lab import Experiment, Panel, ResultColumn
from beside import FACTOR

def measure(run):
    run.expect_steps(2)
    for size in (1, 2):
        run.report_progress(f"size {size}")
        yield {"size": size, "cost": size * FACTOR}

EXPERIMENT = Experiment(
    name="mine", question="How much?", method="By hand.", data="None.",
    columns=(ResultColumn("size", "size", kind="given"), ResultColumn("cost", "cost", "us")),
    panels=(Panel("Cost", "size", "cost"),),
    measure=measure,
    summarize=lambda rows: [f"It costs {rows[-1]['cost']}."],
)
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file with an experiment that imports a module beside it."""
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    (tmp_path / "beside.py").write_text("FACTOR = 21\n")
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


def test_experiments_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a name there is a line for each, with its question."""
    assert 0 == bkstore(["lab"])
    lines = capsys.readouterr().out.splitlines()[:-2]

    assert list(QUESTIONS.items()) == [
        (name, question.strip()) for name, _, question in (line.partition(" ") for line in lines)
    ]


def test_an_experiment_in_a_file(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file is run with what is beside it; its result names the file, not where it is."""
    target = mine.with_suffix(".json")
    assert 0 == bkstore(["lab", str(mine), "--json", str(target)])
    out, err = capsys.readouterr()
    document = json.loads(target.read_text())

    assert "- It costs 42." in out
    assert ["size 1 ...", "size 2 ..."] == [line.rpartition(": ")[2] for line in err.splitlines()]
    assert "bkstore lab mine.py --json mine.json" == document["command"]


def test_help_is_the_experiments_own(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`bkstore lab NAME --help` has the question and the options of that experiment."""
    for name, question, option in (
        (str(mine), "How much?", "--scale"),
        ("layouts", QUESTIONS["layouts"], "--rocks"),
    ):
        with pytest.raises(SystemExit):
            bkstore(["lab", name, "--help"])
        out = " ".join(capsys.readouterr().out.split())

        assert question in out
        assert option in out


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("nothing", None, "no experiment 'nothing'; there are layouts, deletes, pages, keys"),
        ("./gone.py", None, "gone.py: no such file"),
        ("./mine.txt", "x = 1", "mine.txt: not a Python file"),
        ("./empty.py", "x = 1", "empty.py: it has no EXPERIMENT"),
        ("./other.py", "EXPERIMENT = 1", "other.py: it has no EXPERIMENT"),
    ],
)
def test_no_experiment(
    name: str,
    text: str | None,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is no experiment is refused in one line."""
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / name).write_text(text)

    assert 2 == bkstore(["lab", name])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("bkstore: ")
    assert message in line
    with pytest.raises(InvalidArgument):
        load_experiment(name)


def test_errors_of_a_file_are_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of the user's code is not hidden: its traceback says where it is."""
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    (tmp_path / "wrong.py").write_text("1 / 0\n")

    with pytest.raises(ZeroDivisionError):
        bkstore(["lab", str(tmp_path / "wrong.py")])


# -- rows of a run that ends early


def _ends_early(error: BaseException, rows_before: int) -> Experiment:
    def measure(run: LabRun) -> object:
        for number, row in enumerate(measure_toys(run)):
            if number == rows_before:
                raise error
            yield row

    return replace(TOY, measure=measure)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [ValueError("a fault"), KeyboardInterrupt(), SystemExit(1)])
@pytest.mark.parametrize("named", [True, False])
def test_rows_before_a_failure_are_kept(
    error: BaseException,
    named: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They are in a file that can be read again, and the failure goes on."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    words = ["--json", str(tmp_path / "kept.json")] if named else []
    with pytest.raises(type(error)):
        main(_ends_early(error, 2), words)
    (kept,) = tmp_path.glob("*.json")
    rows: list[Row] = json.loads(kept.read_text())["rows"]

    assert f"the rows are in {kept}: " in capsys.readouterr().err
    assert [10, 100] == [row["size"] for row in rows]
    assert 0 == main(TOY, ["--from", str(kept)])
    assert f"- The measurement ended early, by {type(error).__name__}." in capsys.readouterr().out


def test_no_rows_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ends before its first row leaves no file behind."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ValueError, match="a fault"):
        main(_ends_early(ValueError("a fault"), 0), ["--json", str(tmp_path / "kept.json")])

    assert [] == list(tmp_path.iterdir())


# -- pages


def test_command_lines_of_pages_parse() -> None:
    """Every `bkstore lab NAME` on a page has the options that the experiment has."""
    parsed = 0
    for page in PAGES:
        for block in blocks(page):
            for line in block.text.replace("\\\n", " ").splitlines():
                words = shlex.split(line.removeprefix("$ "), comments=True) if "lab" in line else []
                if words[:2] == ["bkstore", "lab"] and len(words) > 2 and words[2] in QUESTIONS:
                    make_parser(load_experiment(words[2])).parse_args(_without_sides(words[3:]))
                    parsed += 1

    assert parsed > 3


def _without_sides(words: list[str]) -> list[str]:
    """Return the words without --side, whose classes only the page's reader has."""
    return [word for before, word in zip(["", *words], words) if "--side" not in (before, word)]
