"""`python -m tools.pipeline` measures what it says: every step, in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bkstore import open_index
from bkstore.schedule import expected
from tools.pipeline import KERNELS, TEXTS, main
from tools.pipeline.run import _side_by_side
from tools.pipeline.world import BOOKIES


def test_a_small_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each step of the engines has seconds, rows and memory, in JSON and in the tables."""
    pytest.importorskip("duckdb")
    target = tmp_path / "out.json"
    words = ["3000", "--ledgers", "6", "--rounds", "2", "--engines", "duckdb,write batch"]
    words += ["--world", str(tmp_path / "world")]
    code = main([*words, "--json", str(target)])
    document = json.loads(target.read_bytes())
    steps = {(each["engine"], each["step"]): each for each in document["steps"]}

    assert 0 == code
    assert {
        ("duckdb", "sequences"),
        ("duckdb", "comparison"),
        ("duckdb", "violations"),
        ("duckdb", "fragmentation"),
        ("write batch", "load to rocksdb"),
    } == set(steps)
    assert 2800 < document["entries"] <= 3000
    # A round may take less CPU than the system counts in, a hundredth of a second; not all do.
    assert 0 < sum(sum(each["cpu"]) for each in steps.values())
    for each in steps.values():
        assert 2 == len(each["seconds"]) == len(each["cpu"])
        assert 0 <= min(each["cpu"])
        assert each["rows"] > 0
        assert each["peak"] > 20 << 20
        assert 0 <= each["below"] < each["peak"]
    assert (
        6 * 3 == steps["duckdb", "comparison"]["rows"] == steps["duckdb", "fragmentation"]["rows"]
    )
    assert missing_stretches(tmp_path / "world") == steps["duckdb", "violations"]["rows"]
    first, second = capsys.readouterr().out.split("\n\n")
    assert 2 + len(steps) == len(first.splitlines())
    assert 2 + len({step for _, step in steps}) == len(second.splitlines())
    assert {"sequences", "violations", "comparison"} <= {*KERNELS, *TEXTS}


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

    monkeypatch.setattr("tools.pipeline.run.in_a_process", done)
    words = ["600", "--ledgers", "2", "--world", str(tmp_path / "world")]
    words += ["--engines", "local,two executors", "--only", "violations,holes"]
    made = []
    for _ in range(2):
        assert 1 == main(words)
        made.append((tmp_path / "world/metadata.json").stat().st_mtime_ns)

    steps = [(engine, s) for engine in ("local", "two executors") for s in ("violations", "holes")]

    assert 2 * steps == asked
    assert made[0] == made[1]
    with pytest.raises(SystemExit):
        main([*words[:-1], "violence"])
    assert "no engine or step 'violence'" in capsys.readouterr().err


def test_a_table_of_what_engines_took() -> None:
    """Ratios are of the best rounds behind the first; memory is that of Spark's processes."""
    took = {"local": [9.0, 2.0], "spark": [9.0, 3.0], "one executor": [9.0, 6.0], "duckdb": [5.0]}
    took["two executors"] = [9.0, 4.0, 5.0]
    found = [
        {"engine": e, "step": "sequences", "seconds": s, "below": len(s) << 20}
        for e, s in took.items()
    ]
    row = _side_by_side(found).splitlines()[-1]
    asked = "runs of ids in entries"

    assert f"| sequences | 2.00 | 3.00 | 1.50 | 6.00 | 4.00 | 1.50 | 5.00 | {asked} | 3 |" == row


def test_a_step_that_fails_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error of a step is in the table, and in the exit code."""
    monkeypatch.setattr("tools.pipeline.run._wanted", lambda *_: [("duckdb", "nothing")])
    code = main(["600", "--ledgers", "2", "--rounds", "1"])

    assert 1 == code
    assert "| nothing | duckdb | StopIteration | | | | |" in capsys.readouterr().out
