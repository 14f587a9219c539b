"""The pages about speed: made of kept results, verdicts computed from them. No times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bkstore.errors import InvalidArgument
from bkstore.lab import LabRun, Row
from bkstore.lab.documents.document import Document, build_document
from bkstore.lab.documents.result_folder import add_to_folder, read_folder
from tests.paths import ROOT
from tools.bench.cli import EXPERIMENT as BENCH
from tools.bench.rows import ROWS
from tools.performance.__main__ import PAGES, main
from tools.performance.curves import PICTURES, RATIO_PANELS, draw_curves
from tools.performance.figures import Figures
from tools.performance.page_tables import list_row_names, replace_tables
from tools.performance.promises import PROMISES, Limit, Promise, judge_promises
from tools.pipeline.experiment import EXPERIMENT as PIPELINE

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def figures() -> Figures:
    """Return the kept results of the repository."""
    return Figures(DOCS / "figures")


def _ratio(row: str, case: str, ratio: float, **more: Any) -> Row:
    return {"row": row, "case": case, "what": "", "ours": "a", "ratio": ratio, **more}


def _fact(row: str, case: str, what: str, value: Any, **more: Any) -> Row:
    return {"row": row, "case": case, "what": what, "value": value, **more}


def _result(rows: list[Row], scale: float = 1.0, when: str = "2026-01-01T00:00:00") -> Document:
    return {**build_document(BENCH, LabRun(Path(), scale), rows, ["--row", "x"], 1.0), "made": when}


# -- the repository's pages


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_those_of_the_results(name: str, figures: Figures) -> None:
    """Tables between the marks are what `python -m tools.performance` makes of docs/figures."""
    text = (DOCS / name).read_text(encoding="utf-8")

    assert replace_tables(text, figures) == text


def test_pages_have_every_row() -> None:
    """Each row of the benchmark has its figures on one of the pages, once."""
    named = [name for page in PAGES for name in list_row_names((DOCS / page).read_text())]

    assert sorted(row.name for row in ROWS) == sorted(named)


def test_the_page_can_be_finished() -> None:
    """The first page stays one that is read to its end; what is long stands on the second."""
    assert 16_000 > len((DOCS / "performance.md").read_bytes())


def test_every_promise_is_measured(figures: Figures) -> None:
    """Each line of what must hold finds its figures among the kept ones."""
    assert [] == [each.promise.path for each in judge_promises(figures) if not each.values]
    assert 30 <= len(PROMISES)


def test_kept_results_say_where_they_are_from(figures: Figures) -> None:
    """Command, time, machine and rounds stand with every figure, and what was not kept."""
    for _, document in figures.bench + figures.pipeline:
        assert document["command"].startswith(("python -m tools.bench", "python -m tools.pipeline"))
        assert {"made", "machine", "python", "rounds", "seed", "scale"} <= document.keys()
        assert document.get("note") or all(
            row["samples"] for row in document["rows"] if row["ours" if "ours" in row else "step"]
        )


@pytest.mark.long
@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_those_of_the_results(name: str, figures: Figures) -> None:
    """The pictures show what the results have."""
    pytest.importorskip("matplotlib")

    assert draw_curves(name, figures) == (DOCS / "images" / f"{name}.svg").read_bytes()


# -- verdicts


@pytest.mark.parametrize(
    ("sign", "values", "measured", "verdict"),
    [
        (">=", [5.0, 7.25], "5 .. 7.25", "yes"),
        (">=", [4.9, 7.25], "4.9 .. 7.25", "**1 of 2**"),
        ("<=", [5.1], "5.1", "**no**"),
        ("<=", [5.0], "5", "yes"),
        ("=", [5, 5], "5", "yes"),
        ("=", [6], "6", "**no**"),
        (">=", [4.9975, 7.25], "4.99 .. 7.25", "**1 of 2**"),
        ("<=", [5.0001], "5.01", "**no**"),
        (">=", [5.0001], "5", "yes"),
        (">=", [], "not measured", ""),
    ],
)
def test_a_verdict_is_of_all_figures(
    sign: Any,
    values: list[float],
    measured: str,
    verdict: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A promise holds if each of its figures is as it must be; some is told as some."""
    promise = Promise("a", "b", Limit(sign, 5), lambda _: {str(n): v for n, v in enumerate(values)})
    monkeypatch.setattr("tools.performance.promises.PROMISES", (promise,))
    (found,) = judge_promises(Figures(tmp_path))

    assert (measured, verdict) == (found.measured, found.verdict)


def test_figures_are_found_by_name(tmp_path: Path) -> None:
    """Cases by a pattern of their whole names, each of the largest scale it was measured at."""
    add_to_folder(
        BENCH, _result([_ratio("r", "one", 1.0), _fact("r", "one", "bytes", 88)]), tmp_path
    )
    small = [_ratio("r", "one", 9.0), _ratio("s", "one more", 3.0), _ratio("s", "one", 4.0)]
    add_to_folder(BENCH, _result(small, scale=0.1), tmp_path)
    found = Figures(tmp_path)

    assert {"r, one": 1.0} == found.ratios("r")
    assert {"r, one: bytes": 88} == found.facts("r", "bytes")
    assert {"s, one": 4.0} == found.ratios("s", "one")
    assert {"s, one more": 3.0, "s, one": 4.0} == found.ratios("s", "one.*")
    assert {} == found.ratios("t")


def test_engines_are_compared_where_both_ran(tmp_path: Path) -> None:
    """A step's ratio is of seconds at one size; steps of one engine only have none."""
    steps = [("a", "local", 1, 2.0), ("a", "spark", 1, 6.0), ("b", "local", 1, 1.0)]
    steps += [("b", "spark", 2, 5.0)]
    rows = [
        {"step": step, "engine": engine, "entries": entries, "seconds": seconds, "peak": 1}
        for step, engine, entries, seconds in steps
    ]
    add_to_folder(PIPELINE, build_document(PIPELINE, LabRun(tmp_path), rows, [], 1), tmp_path)

    assert {"pipeline, a": 3.0} == Figures(tmp_path).engines("spark", "local", ["a", "b"], 1)


# -- pages


def test_engines_stand_beside_each_other(tmp_path: Path) -> None:
    """A line a step and size: seconds of each engine, their ratios, memory of Spark's processes."""
    took = {"local": 2.0, "spark": 3.0, "one executor": 6.0, "two executors": 4.0, "duckdb": 5.0}
    rows = [
        {
            "step": "sequences",
            "engine": engine,
            "entries": 10,
            "seconds": seconds,
            "cpu": 2 * seconds if engine == "spark" else seconds,
            "peak": 9,
            "below": int(seconds) + 1,
            "asked": "runs" if engine == "duckdb" else None,
        }
        for engine, seconds in took.items()
    ]
    add_to_folder(PIPELINE, build_document(PIPELINE, LabRun(tmp_path), rows, [], 1), tmp_path)
    mark = "<!-- made by tools.performance: pipeline -->\n<!-- end of it -->"
    lines = replace_tables(mark, Figures(tmp_path)).splitlines()
    head = next(at for at, line in enumerate(lines) if line.startswith("| entries | step | local"))

    assert (
        "spark / local | by CPU | one / two executors | DuckDB was asked | workers and JVM"
        in lines[head]
    )
    assert "| 10 | sequences | 2 | 3 | 6 | 4 | 5 | 1.5 | 3 | 1.5 | runs | 7 |" == lines[head + 2]


def test_prose_stays(tmp_path: Path) -> None:
    """Only what stands between marks is made; twice is the same; facts of one kind are a table."""
    rows = [
        _ratio("r", "case", 2.0, target=">= 3", holds=False, samples=["kept only"]),
        _fact("r", "case", "read: CPU s", 1.5),
        _fact("r", "case", "read: MB a s", 70),
        _fact("r", "case", "write: CPU s", 2.5),
    ]
    add_to_folder(BENCH, _result(rows), tmp_path)
    mark = "<!-- made by tools.performance: {} -->\n<!-- end of it -->"
    page = f"a\n\n{mark.format('rows r')}\n\nb\n\n{mark.format('unmet')}\n\nc\n"
    once = replace_tables(page, Figures(tmp_path))

    assert once == replace_tables(once, Figures(tmp_path))
    assert ["r"] == list_row_names(once)
    assert ["a", "b", "c"] == [line for line in once.splitlines() if len(line) == 1]
    assert "- `python -m tools.bench --row x`, 2026-01-01 00:00 UTC, " in once
    assert "| r | case | 2 | >= 3 | NO | a |" in once
    assert "kept only" not in once
    assert "| row | case | of | CPU s | MB a s |" in once
    assert "| r | case | read | 1.5 | 70 |" in once
    assert "| r | case | write | 2.5 |  |" in once
    assert "and 1 more that rows of the benchmark have a target for, 1 are not as" in once
    assert "|  | r, case | 2 | >= 3 |" in once


def test_what_a_promise_misses_is_named(figures: Figures) -> None:
    """Every miss behind the first table stands in the second, with its path and what must be."""
    text = (DOCS / "performance.md").read_text(encoding="utf-8")
    missed = [
        f"| {each.promise.path} | {name} | {each.promise.limit.format_figure(value)} | "
        f"{each.promise.limit} |"
        for each in judge_promises(figures)
        for name, value in each.missed.items()
    ]

    assert [] == [line for line in missed if line not in text]
    assert missed


def test_a_figure_is_judged_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that a promise is about and that has a target of its own is one figure, not two."""
    rows = [
        _ratio("r", "one", 2.0, target=">= 3", holds=False),
        _ratio("r", "two", 2.9999, target=">= 3", holds=False),
        _ratio("r", "free", 0.5),
        _fact("r", "two", "bytes", 7, target="<= 5", holds=False),
        _fact("r", "two", "lines", 5, target="<= 5", holds=True),
    ]
    add_to_folder(BENCH, _result(rows), tmp_path)
    promise = Promise("a path", "b", Limit(">=", 3), lambda of: of.ratios("r", "one|free"))
    monkeypatch.setattr("tools.performance.promises.PROMISES", (promise,))
    mark = "<!-- made by tools.performance: unmet -->\n<!-- end of it -->"
    text = replace_tables(mark, Figures(tmp_path))

    assert "Of 2 figures behind the table above, and 3 more" in text
    assert "for, 4 are not as they must be:" in text
    assert {
        "| a path | r, free | 0.5 | >= 3x |",
        "| a path | r, one | 2 | >= 3x |",
        "|  | r, two | 2.99 | >= 3 |",
        "|  | r, two: bytes | 7 | <= 5 |",
    } == {line for line in text.splitlines() if "| r, " in line}


def test_peers_stand_together(tmp_path: Path) -> None:
    """Cases that are named by a library are on one table, at their largest scale; nothing else."""
    rows = [_ratio("r", case, 2.0) for case in ("fill, lmdb", "fill", "lmdb, fill")]
    add_to_folder(BENCH, _result([*rows, _fact("r", "fill, lmdb", "bytes", 3)]), tmp_path)
    add_to_folder(BENCH, _result([_ratio("r", "fill, lmdb", 9.0)], scale=0.1), tmp_path)
    mark = "<!-- made by tools.performance: peers -->\n<!-- end of it -->"
    lines = replace_tables(mark, Figures(tmp_path)).splitlines()

    assert ["| r | fill, lmdb | 2 | a |"] == [line for line in lines if line.startswith("| r ")]


@pytest.mark.parametrize(("kind", "said"), [("rows r", "no figures of the row 'r'"), ("x", "'x'")])
def test_a_mark_that_cannot_be_filled(kind: str, said: str, tmp_path: Path) -> None:
    """A row without figures, or a kind that there is not, is an error and not an empty table."""
    with pytest.raises(LookupError, match=said):
        replace_tables(
            f"<!-- made by tools.performance: {kind} -->\n<!-- end of it -->", Figures(tmp_path)
        )


def test_a_result_with_other_columns_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A result of before a column was renamed is named, not read as if the column were empty."""
    path = add_to_folder(BENCH, _result([_ratio("r", "one", 1.0)]), tmp_path)
    path.write_text(path.read_text().replace('"ratio"', '"times"'))

    with pytest.raises(InvalidArgument, match="times"):
        Figures(tmp_path)
    assert 2 == main(["--figures", str(tmp_path), "--docs", str(tmp_path)])
    assert 1 == len(capsys.readouterr().err.splitlines())


def test_the_command_writes_what_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pages and pictures are written where their content is new, and named."""
    pytest.importorskip("matplotlib")
    (tmp_path / "figures").mkdir()
    row = next(iter(RATIO_PANELS))
    case = RATIO_PANELS[row][1]
    for scale, items in ((1.0, 100), (0.1, 10)):
        add_to_folder(
            BENCH, _result([_ratio(row, case, 3.0, items=items)], scale), tmp_path / "figures"
        )
    steps = [
        {"step": "sequences", "engine": "local", "entries": entries, "seconds": entries / 7}
        for entries in (1, 10)
    ]
    add_to_folder(
        PIPELINE, build_document(PIPELINE, LabRun(tmp_path), steps, [], 1), tmp_path / "figures"
    )
    (tmp_path / "images").mkdir()
    for name in PAGES:
        (tmp_path / name).write_text(
            f"<!-- made by tools.performance: rows {row} -->\n<!-- end of it -->\n"
        )
    words = ["--figures", str(tmp_path / "figures"), "--docs", str(tmp_path)]
    assert 0 == main(words)
    said = capsys.readouterr().err.splitlines()
    assert 0 == main(words)
    drawn = (tmp_path / "images" / "performance-ratios.svg").read_text()

    assert [f"{name} is new" for name in (*PAGES, *(f"{name}.svg" for name in PICTURES))] == said
    assert "" == capsys.readouterr().err
    assert f"| {row} | {case} |" in (tmp_path / PAGES[0]).read_text()
    assert RATIO_PANELS[row][0] in drawn
    assert "must be" in drawn


# -- a folder of results


def test_rows_measured_anew_leave_older_files(tmp_path: Path) -> None:
    """What is measured together is replaced as a whole; other scales stay; empty files go."""
    first = [_ratio("r", "one", 1.0), _ratio("r", "gone", 1.0), _ratio("s", "one", 1.0)]
    add_to_folder(BENCH, _result(first), tmp_path)
    add_to_folder(BENCH, _result([_ratio("r", "one", 5.0)], scale=0.1), tmp_path)
    add_to_folder(BENCH, _result([_ratio("r", "one", 2.0)], when="2026-01-02T00:00:00"), tmp_path)

    assert {
        (1.0, "r", "one"): 2.0,
        (1.0, "s", "one"): 1.0,
        (0.1, "r", "one"): 5.0,
    } == _kept_ratios(tmp_path)
    assert 3 == len(list(tmp_path.glob("*.json")))

    add_to_folder(BENCH, _result([_ratio("s", "one", 3.0)], when="2026-01-02T00:00:00"), tmp_path)

    assert 3.0 == _kept_ratios(tmp_path)[1.0, "s", "one"]
    assert 3 == len(list(tmp_path.glob("*.json"))), "the file without rows is gone"
    for path in tmp_path.glob("*.json"):
        document = json.loads(path.read_text())
        assert document["finding"] == BENCH.summarize(document["rows"])


def _kept_ratios(folder: Path) -> dict[tuple[float, str, str], float]:
    return {
        (document["scale"], row["row"], row["case"]): row["ratio"]
        for _, document in read_folder(BENCH, folder)
        for row in document["rows"]
    }
