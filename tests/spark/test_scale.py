"""A thousand bookies, and a dump of a file system that only fsspec knows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.synthesize.shape import ClusterShape
from tools.synthesize.writing import write_cluster

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(2400)]
pytest.importorskip("pyspark")

SHAPE = ClusterShape(bookies=1000, entries=5000, ledgers=10_000)
"""The stated size of `docs/scale.md`: 5 million entries in 6,000 files."""


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the cluster."""
    top = tmp_path_factory.mktemp("scale") / "cluster"
    write_cluster(SHAPE, top, jobs=2)
    return top


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_thousand_bookies(engine: str, thousand: Path, tmp_path: Path) -> None:
    """Every analysis ends with exactly what is planted, and the driver's processes together stay
    below 1 GiB: with Spark's `local[2]` its tasks in Java are among that.
    """
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "tools.scale", str(thousand), "--engine", engine]
    done = subprocess.run(
        [*command, "--json", str(out)], capture_output=True, text=True, timeout=2300, check=False
    )

    assert 0 == done.returncode, done.stdout[-2000:] + done.stderr[-2000:]
    document: dict[str, Any] = json.loads(out.read_text())

    assert {} == document["not_as_planted"]
    assert document["python_mib"] + document.get("java_mib", 0) < 1024


SHELF = """
import fsspec
from fsspec.implementations.local import LocalFileSystem

class Shelf(LocalFileSystem):
    protocol = "shelf"

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(str(path).removeprefix("shelf://"))

fsspec.register_implementation("shelf", Shelf)
"""
JOB = """
import sys
from bkstore.offline.analyses import find_analysis, open_inputs
from bkstore.spark import start_session
from bkstore.spark.analysis import SparkEngine

inputs = open_inputs(sys.argv[1], sys.argv[2])
engine = SparkEngine(start_session())
for name in ("violations", "orphans", "sequences"):
    print(name, engine.run(find_analysis(name), inputs).num_rows)
"""


def test_workers_read_what_fsspec_knows(tmp_path: Path) -> None:
    """Python workers of Spark find the file system by its scheme, of which Java knows nothing."""
    pytest.importorskip("fsspec")
    (tmp_path / "sitecustomize.py").write_text(SHELF)  # as each worker has its own imports
    planted = write_cluster(
        ClusterShape(bookies=9, entries=5000, ledgers=300), tmp_path / "cluster"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", ""), os.getcwd()])
    top = tmp_path / "cluster"
    done = subprocess.run(
        [sys.executable, "-c", JOB, f"shelf://{top}/dump", str(top / "metadata.json")],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    rows = {"violations": sum(planted["violations"].values())}
    rows |= {name: planted[name] for name in ("orphans", "sequences")}

    assert 0 == done.returncode, done.stderr[-2000:]
    assert rows == {name: int(n) for name, n in map(str.split, done.stdout.splitlines())}
