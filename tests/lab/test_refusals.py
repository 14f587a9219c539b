"""What the lab's command line refuses: one line and exit 2, before anything is measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bkstore import LedgerStorage
from bkstore.errors import InvalidArgument, MissingDependency
from bkstore.lab import Experiment, LabRun, Row, main
from bkstore.lab.catalog import load_experiment
from bkstore.lab.documents.document import Document, build_document, save_document
from bkstore.lab.experiments.cache import EXPERIMENT as CACHE
from bkstore.lab.experiments.keys import EXPERIMENT as KEYS
from bkstore.lab.experiments.layouts import EXPERIMENT as LAYOUTS
from bkstore.lab.presentation.picture import draw_picture
from bkstore.lab.workloads.index_loads import read_index_load
from bkstore.testing import workloads
from tests.lab.toys import TOY, measure_toys
from tools.bench.cli import EXPERIMENT as BENCH, main as bench

Change = Callable[[Document], Any]


def _unmeasured(_: LabRun) -> list[Row]:
    raise AssertionError("something was measured")


STILL = replace(TOY, measure=_unmeasured)


def _refused(experiment: Experiment, words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the line that a command says where it measures nothing and exits with 2."""
    assert 2 == main(replace(experiment, measure=_unmeasured), words)
    out, err = capsys.readouterr()

    assert ("", 1) == (out, len(err.splitlines()))
    assert err.startswith(f"{experiment.command_line}: ")
    return err


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Return the file of a result of the toy."""
    run = LabRun(tmp_path)
    save_document(build_document(TOY, run, measure_toys(run), [], 1.0), tmp_path / "toy.json")
    return tmp_path / "toy.json"


# -- data of one's own


@pytest.mark.parametrize(
    ("experiment", "words"),
    [
        (KEYS, ["--dump", "nowhere"]),
        (KEYS, ["--trace", "nowhere"]),
        (LAYOUTS, ["--trace", "nowhere"]),
        (BENCH, ["--dump", "nowhere"]),
    ],
    ids=lambda value: value.name if isinstance(value, Experiment) else value[0],
)
def test_data_that_an_experiment_does_not_take(
    experiment: Experiment, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """They would stand in the record of a result that knows nothing of them."""
    said = _refused(experiment, words, capsys)

    assert f"{words[0]}: {experiment.name} takes none" in said


def test_help_names_the_data_that_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    """`--dump` and `--trace` stand in the help of those that take them."""
    options: dict[str, list[bool]] = {}
    for experiment in (KEYS, LAYOUTS, CACHE):
        with pytest.raises(SystemExit):
            main(experiment, ["--help"])
        said = capsys.readouterr().out
        options[experiment.name] = ["--dump DIR" in said, "--trace FILE" in said]

    assert {"keys": [False, False], "layouts": [True, False], "cache": [True, True]} == options


def test_two_kinds_of_data(capsys: pytest.CaptureFixture[str]) -> None:
    """A dump and a recording each say what the ledgers have."""
    said = _refused(CACHE, ["--dump", "a", "--trace", "b"], capsys)

    assert "--dump and --trace" in said


def test_the_record_says_which_data(tmp_path: Path) -> None:
    """A dump and a recording stand in the document by their names, None without them."""
    took: list[Row] = [{"side": "a", "size": 1}]
    plain = build_document(TOY, LabRun(tmp_path), took, [], 1.0)
    given = build_document(
        TOY, LabRun(tmp_path, dump=tmp_path / "some", trace=Path("reads")), took, [], 1.0
    )

    assert (None, None) == (plain["dump"], plain["trace"])
    assert ("some", "reads") == (given["dump"], given["trace"])


# -- dumps


@pytest.fixture
def empty_dump(tmp_path: Path) -> Path:
    """Return a dump of a bookie without entries."""
    pytest.importorskip("pyarrow")
    from bkstore.offline.dump import dump

    LedgerStorage.open(tmp_path / "empty", "db").close()
    dump([tmp_path / "empty"], tmp_path / "dump")
    return tmp_path / "dump"


def test_a_dump_that_is_none(tmp_path: Path, empty_dump: Path) -> None:
    """A directory that is not there, one that is no dump, one that has no entries."""
    for place, reason in (
        (tmp_path / "nowhere", "no such directory"),
        (tmp_path / "empty", "not a dump"),
        (empty_dump, "no entries"),
    ):
        with pytest.raises(InvalidArgument, match=reason):
            read_index_load(place, 100)


def test_a_dump_is_of_its_first_bookie(tmp_path: Path) -> None:
    """One without entries is none; of the others the first by name counts."""
    pytest.importorskip("pyarrow")
    from bkstore.offline.dump import dump

    for name, count in (("a", 0), ("c", 9), ("b", 4)):
        world = workloads.interleaved(3, count) if count else None
        with LedgerStorage.open(tmp_path / name, "db") as storage:
            if world is not None:
                storage.add_entries(world.records(), master_key=world.master_key)
                storage.flush()
    dump([tmp_path / name for name in "acb"], tmp_path / "dump")

    assert 12 == read_index_load(tmp_path / "dump", 100).entries


def test_a_dump_without_pyarrow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is missing is named, with the command that installs it."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependency, match="pip install"):
        read_index_load(tmp_path, 100)


@pytest.mark.parametrize("name", ["cache", "batch", "pages", "lookups"])
def test_a_foreign_index(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Experiments without sides that are indexes name those that have them; the others take it."""
    experiment = replace(load_experiment(name), measure=_unmeasured)
    message = _refused(experiment, ["--side", "my_module:MyIndex"], capsys)

    assert f"--side: {name} takes no index of yours; layouts, deletes and workload do" in message


# -- results that are none


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda document: document.clear(), "no 'experiment'"),
        (lambda document: document.pop("machine"), "no 'machine'"),
        (lambda document: document.update(machine={}), "machine: no 'system'"),
        (lambda document: document["machine"].update(load_average=["a"]), "'load_average' has 'a'"),
        (lambda document: document.update(seconds="1"), "'seconds' is '1'"),
        (lambda document: document.update(finding=[1]), "'finding' has 1"),
        (lambda document: document.update(columns=[7]), "column 0: 7 is no object"),
        (lambda document: document["columns"][0].pop("unit"), "column 0: no 'unit'"),
        (lambda document: document["columns"].pop(0), "no column 'side'"),
        (lambda document: document["rows"].append(7), "row 7: 7 is no object"),
        (lambda document: document["rows"][2].pop("time"), "row 2: no 'time'"),
        (lambda document: document["rows"][2].update(side=[]), r"row 2: 'side' is []"),
        (lambda document: document["rows"].append(document["rows"][0]), "two rows of one name"),
    ],
)
def test_a_result_that_is_not_whole(
    change: Change, said: str, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is wrong is named, whatever the result was to be read for."""
    document = json.loads(saved.read_text())
    change(document)
    saved.write_text(json.dumps({**document, "format": "bkstore-lab/1"}))

    for words in (["--from"], ["--compare"], ["--into"]):
        place = saved.parent if words == ["--into"] else saved
        line = _refused(TOY, [*words, str(place)], capsys)
        assert f"{saved}: no whole result: " in line
        assert said in line


def test_a_result_of_before_a_column(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A column that came later is empty in an older result, which can be shown and compared."""
    document = json.loads(saved.read_text())
    document["columns"] = [each for each in document["columns"] if each["name"] != "bytes"]
    for row in document["rows"]:
        del row["bytes"]
    saved.write_text(json.dumps(document))

    assert 0 == main(STILL, ["--from", str(saved)])
    assert 0 == main(TOY, ["--compare", str(saved)])
    assert "room, bytes absent then, 10 now" in capsys.readouterr().out


def test_a_broken_file_beside_the_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder of results with one that cannot be read takes no other."""
    (tmp_path / "broken.json").write_text("{")

    assert "broken.json" in _refused(TOY, ["--into", str(tmp_path)], capsys)


# -- words and numbers, pictures


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seed", "-1"], "-1: below 0"),
        (["--seed", "x"], "x: not a whole number"),
        (["--scale", "abc"], "abc: not a number"),
        (["--scale", "nan"], "nan: not above 0"),
        (["--rounds", "1.5"], "1.5: not a whole number"),
    ],
    ids=" ".join,
)
def test_numbers_that_are_none(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason is in words of the user's, not in those of the code."""
    with pytest.raises(SystemExit) as stopped:
        main(STILL, words)

    assert 2 == stopped.value.code
    assert said in capsys.readouterr().err


def test_a_picture_without_matplotlib(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is asked for before the hour of measuring, not behind it."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    assert "matplotlib" in _refused(TOY, ["--picture", str(tmp_path / "a.svg")], capsys)


def test_a_picture_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row of the benchmark without ratios cannot be drawn; its figures are printed and kept."""
    pytest.importorskip("matplotlib")
    row = {"row": "start", "case": "a", "what": "b", "value": 4711}
    save_document(build_document(BENCH, LabRun(tmp_path), [row], [], 1.0), tmp_path / "start.json")
    words = ["--from", str(tmp_path / "start.json"), "--picture", str(tmp_path / "start.svg")]

    assert 2 == bench(words)
    out, err = capsys.readouterr()
    assert "4,711" in out
    assert ["python -m tools.bench: no rows of this result stand in a panel of bench"] == (
        err.splitlines()
    )
    assert not (tmp_path / "start.svg").exists()
    with pytest.raises(InvalidArgument):
        draw_picture(BENCH, {"rows": []}, "svg")
