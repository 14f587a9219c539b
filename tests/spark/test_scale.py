"""A thousand bookies: every analysis ends, finds what is planted, and the driver stays small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.synthesize.shape import Shape
from tools.synthesize.writing import write

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(2400)]
pytest.importorskip("pyspark")

SHAPE = Shape(bookies=1000, entries=5000, ledgers=10_000)
"""The stated size of `docs/scale.md`: 5 million entries in 6,000 files."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the cluster."""
    top = tmp_path_factory.mktemp("scale") / "cluster"
    write(SHAPE, top, jobs=2)
    return top


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_thousand_bookies(engine: str, cluster: Path, tmp_path: Path) -> None:
    """Every analysis ends with exactly what is planted, and the driver's processes together stay
    below 1 GiB: with Spark's `local[2]` its tasks in Java are among that.
    """
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "tools.scale", str(cluster), "--engine", engine]
    done = subprocess.run(
        [*command, "--json", str(out)], capture_output=True, text=True, timeout=2300, check=False
    )

    assert 0 == done.returncode, done.stdout[-2000:] + done.stderr[-2000:]
    document: dict[str, Any] = json.loads(out.read_text())

    assert {} == document["not_as_planted"]
    assert document["python_mib"] + document.get("java_mib", 0) < 1024
