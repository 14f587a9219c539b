"""The benchmark runs, and its document has what a reader of it needs. Never a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.bench import main
from tools.bench.rows import ROWS

ROUNDS = 2


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every row at a thousandth of its size."""
    file = tmp_path_factory.mktemp("bench") / "result.json"
    assert main(["--size", "0.001", "--rounds", str(ROUNDS), "--json", str(file)]) == 0
    loaded: dict[str, Any] = json.loads(file.read_text())
    return loaded


def cases(document: dict[str, Any]) -> list[dict[str, Any]]:
    """All cases of all rows."""
    return [case for row in document["rows"] for case in row["cases"]]


def test_document_says_where_and_how(document: dict[str, Any]) -> None:
    """A figure names its command, machine, versions, seed and size."""
    wanted = {"command", "started", "machine", "python", "packages", "seed", "size", "rounds"}

    assert wanted <= document.keys()
    assert {"numpy", "rocksdict", "sortedcontainers", "pyroaring"} <= document["packages"].keys()
    assert document["command"].startswith("python -m tools.bench --size 0.001")


def test_every_row_is_there_with_its_method(document: dict[str, Any]) -> None:
    """Each row says in words what is included on both sides."""
    assert [row.name for row in ROWS] == [row["name"] for row in document["rows"]]
    assert all(row["method"] and row["cases"] for row in document["rows"])


def test_every_sample_is_kept(document: dict[str, Any]) -> None:
    """Ratios can be made again from the samples: one CPU and one wall time a round."""
    for case in cases(document):
        for side in case["sides"]:
            assert ROUNDS == len(side["cpu_seconds"]) == len(side["wall_seconds"])
            assert min(side["wall_seconds"]) > 0


def test_one_baseline_counts(document: dict[str, Any]) -> None:
    """Of several baselines the fastest is the one compared with, and the ratio is theirs."""
    for case in cases(document):
        by_role = {side["role"]: side["cpu_median"] for side in case["sides"]}
        baselines = [side["cpu_median"] for side in case["sides"] if side["role"] != "ours"]
        ours, baseline = by_role["ours"], by_role["baseline"]
        expected = baseline / ours if case["ratio_means"] == "baseline / ours" else ours / baseline

        assert min(baselines) == baseline
        assert pytest.approx(expected) == case["ratio"]


def test_verdict_follows_the_target(document: dict[str, Any]) -> None:
    """`holds` is what target and ratio say; a case without a target has no verdict."""
    for case in cases(document):
        if case["target"] is None:
            assert case["holds"] is None
            continue
        sign, limit = case["target"].split()
        reached = case["ratio"] >= float(limit) if sign == ">=" else case["ratio"] <= float(limit)

        assert reached is case["holds"]


def test_facts_that_are_no_times(document: dict[str, Any]) -> None:
    """A stripe takes 88 bytes at any size; a scope takes 8 bytes more a row in the log."""
    facts = {fact["name"]: fact for case in cases(document) for fact in case["facts"]}

    assert 88 == facts["encoded bytes"]["value"]
    assert facts["peak bytes, missing"]["holds"]
    assert 8 <= facts["write-ahead log, bytes an entry, more for a scope"]["value"] < 8.2


def test_rows_are_chosen_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--row` runs one row, the table goes to stdout, progress to stderr."""
    file = tmp_path / "one.json"
    assert main(["--row", "encoding", "--size", "0.001", "--rounds", "1", "--json", str(file)]) == 0

    printed = capsys.readouterr()
    assert ["encoding"] == [row["name"] for row in json.loads(file.read_text())["rows"]]
    assert "from_entries" in printed.out
    assert "encoding ...\n" == printed.err


def test_markdown_has_a_line_a_case(capsys: pytest.CaptureFixture[str]) -> None:
    """`--markdown` prints the tables of `docs/performance.md`."""
    arguments = ["--row", "encoding", "--size", "0.001", "--rounds", "1", "--markdown"]
    assert main(arguments) == 0

    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| enc")]
    cases_and_facts = 2 + 2
    assert cases_and_facts == len(lines)


def test_list_and_unknown_row(capsys: pytest.CaptureFixture[str]) -> None:
    """`--list` names the rows; an unknown one is a usage error that names them too."""
    assert main(["--list"]) == 0
    assert [row.name for row in ROWS] == [
        line.split()[0] for line in capsys.readouterr().out.splitlines()
    ]
    with pytest.raises(SystemExit) as stopped:
        main(["--row", "no-such-row"])

    assert 2 == stopped.value.code
    assert "idx-availability" in capsys.readouterr().err
