"""`python -m tools.pipeline` measures what it says: every step, in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.pipeline import KERNELS, TEXTS, main


def test_a_small_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each step of the engines has seconds, rows and memory, in JSON and in the table."""
    pytest.importorskip("duckdb")
    target = tmp_path / "out.json"
    words = ["3000", "--ledgers", "6", "--rounds", "2", "--engines", "duckdb,write batch"]
    code = main([*words, "--json", str(target)])
    document = json.loads(target.read_bytes())
    steps = {(each["engine"], each["step"]): each for each in document["steps"]}

    assert 0 == code
    assert {
        ("duckdb", "sequences"),
        ("duckdb", "comparison"),
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
    assert 6 * 3 == steps["duckdb", "comparison"]["rows"]
    assert 2 + len(steps) == len(capsys.readouterr().out.splitlines())
    assert {"sequences", "violations", "comparison"} <= {*KERNELS, *TEXTS}


def test_a_step_that_fails_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error of a step is in the table, and in the exit code."""
    monkeypatch.setattr("tools.pipeline._wanted", lambda _: [("duckdb", "nothing")])
    code = main(["600", "--ledgers", "2", "--rounds", "1"])

    assert 1 == code
    assert "| nothing | duckdb | StopIteration | | | | |" in capsys.readouterr().out
