"""`python -m tools.pipeline` measures what it says: every step, in a process of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from bkstore import open_index
from bkstore.lab import main
from bkstore.schedule import expected
from tools.pipeline.experiment import EXPERIMENT, choose_steps
from tools.pipeline.steps import KERNELS, SQL_ANALYSES, STEPS
from tools.pipeline.world import BOOKIES


def test_a_small_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each step of the engines has seconds, rows and memory, in JSON and in the table."""
    pytest.importorskip("duckdb")
    target = tmp_path / "out.json"
    words = ["3000", "--ledgers", "6", "--rounds", "2", "--engines", "duckdb,write batch"]
    words += ["--world", str(tmp_path / "world")]
    code = main(EXPERIMENT, [*words, "--json", str(target)])
    steps = {(row["engine"], row["step"]): row for row in json.loads(target.read_bytes())["rows"]}

    assert 0 == code
    assert {
        ("duckdb", "sequences"),
        ("duckdb", "comparison"),
        ("duckdb", "violations"),
        ("duckdb", "fragmentation"),
        ("write batch", "load to rocksdb"),
    } == set(steps)
    # A round may take less CPU than the system counts in, a hundredth of a second; not all do.
    assert 0 < sum(sum(row["samples"]["cpu"]) for row in steps.values())
    for row in steps.values():
        first, second = row["samples"]["seconds"]

        assert (3000, first, second) == (row["entries"], row["first"], row["seconds"])
        assert 0 <= row["cpu"] == row["samples"]["cpu"][1]
        assert row["rows"] > 0
        assert 20 < row["peak"]
        assert 0 <= row["below"] < row["peak"]
        assert (row["engine"] == "duckdb") is (row["asked"] is not None)
    load, common = steps["write batch", "load to rocksdb"], steps["duckdb", "comparison"]

    assert 6 * 3 == common["rows"] == steps["duckdb", "fragmentation"]["rows"]
    assert missing_stretches(tmp_path / "world") == steps["duckdb", "violations"]["rows"]
    assert 900 < load["rows"] <= 1000
    assert load["rate"] == pytest.approx(load["rows"] / load["seconds"] / 1e6)
    assert 2800 < common["rate"] * common["seconds"] * 1e6 <= 3000
    assert re.search(r"^load to rocksdb +[\d.]+$", capsys.readouterr().out, re.M)
    assert {"sequences", "violations", "comparison"} <= {*KERNELS, *SQL_ANALYSES}


def missing_stretches(world: Path) -> int:
    """Return how many stretches of its due entries bookies lack, taken entry by entry."""
    found = 0
    for at, bookie in enumerate(BOOKIES):
        with open_index(world / bookie) as index:
            for ledger in index.ledgers():
                due = expected(0, 3000 // 6 // 2 - 1, at, 3, 2).entries()
                lost = ~np.isin(due, index.entries(ledger))
                found += int(lost[0]) + int((lost[1:] & ~lost[:-1]).sum())
    return found


def test_only_what_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--only` names the steps; a world that is there is not made again; no other is known."""
    asked: list[tuple[str, str]] = []

    def done(engine: str, step: str, *_: object) -> dict[str, str]:
        asked.append((engine, step))
        return {"engine": engine, "step": step, "error": "not run"}

    monkeypatch.setattr("tools.pipeline.experiment.run_in_process", done)
    words = ["600", "--ledgers", "2", "--world", str(tmp_path / "world")]
    words += ["--engines", "local,two executors", "--only", "violations,holes"]
    made = []
    for _ in range(2):
        assert 1 == main(EXPERIMENT, words)
        made.append((tmp_path / "world/metadata.json").stat().st_mtime_ns)

    steps = [(engine, s) for engine in ("local", "two executors") for s in ("violations", "holes")]

    assert 2 * steps == asked
    assert made[0] == made[1]
    with pytest.raises(SystemExit):
        main(EXPERIMENT, [*words[:-1], "violence"])
    assert "no 'violence'; there are dump, load to rocksdb" in capsys.readouterr().err
    assert set(STEPS["duckdb"]) == {step for _, step in choose_steps(["duckdb"])}


def test_a_step_that_fails_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error of a step is in the table, and in the exit code."""
    monkeypatch.setattr(
        "tools.pipeline.experiment.choose_steps", lambda *_: [("duckdb", "nothing")]
    )
    code = main(EXPERIMENT, ["600", "--ledgers", "2", "--rounds", "1"])
    out = capsys.readouterr().out

    assert 1 == code
    assert "StopIteration" in next(line for line in out.splitlines() if "nothing" in line)
    assert "- nothing, duckdb: StopIteration" in out
