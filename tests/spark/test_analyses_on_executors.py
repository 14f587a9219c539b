"""Analyses on executors of their own: what is pickled, and the command on a cluster."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from bkstore.offline import analyses
from tests.models.analyses import ALONE, Expected
from tests.spark.standalone_master import standalone_master
from tests.worlds.random_dumps import random_dump, write_dump

pytestmark = [pytest.mark.spark, pytest.mark.long]
pytest.importorskip("pyspark")

LOCAL_CLUSTER = "local-cluster[2,1,1024]"


@pytest.mark.parametrize("kind", ["local-cluster", "standalone"])
def test_two_executors(kind: str, tmp_path: Path) -> None:
    """On executors of their own, to which kernels are pickled, every table is the same."""
    import pyspark

    world = random_dump(6)
    dump = write_dump(world, tmp_path / "dump")
    script = tmp_path / "job.py"
    script.write_text(
        "import sys\n"
        "from bkstore.offline import analyses\n"
        "from bkstore.spark import start_session\n"
        "from bkstore.spark.analysis import SparkEngine\n"
        "import pickle\n"
        "spark = start_session('x', sys.argv[3], config={'spark.executor.memory': '1g'})\n"
        "inputs = pickle.loads(open(sys.argv[1], 'rb').read())\n"
        "inputs = analyses.open_inputs(*inputs)\n"
        "engine = SparkEngine(spark)\n"
        "known = analyses.ANALYSES.values()\n"
        "possible = [each for each in known if each.missing_input(inputs) is None]\n"
        "tables = {each.name: engine.run(each, inputs).to_pydict() for each in possible}\n"
        "open(sys.argv[2], 'wb').write(pickle.dumps(tables))\n"
        "spark.stop()\n"
    )
    given = analyses.read_metadata(world.store())
    (tmp_path / "in").write_bytes(pickle.dumps((str(dump), given)))
    command = [sys.executable, str(script), str(tmp_path / "in"), str(tmp_path / "made")]
    master = standalone_master(tmp_path) if kind == "standalone" else nullcontext(LOCAL_CLUSTER)
    try:
        with master as url:
            done = subprocess.run(
                [*command, url], capture_output=True, text=True, timeout=240, check=False
            )
    finally:
        shutil.rmtree(Path(pyspark.__file__).parent / "work", ignore_errors=True)

    assert 0 == done.returncode, done.stderr[-2000:]
    made = pickle.loads((tmp_path / "made").read_bytes())

    assert set(ALONE) == set(made)
    for name, columns in made.items():
        rows = list(zip(*columns.values()))

        assert getattr(Expected(world), name)() == rows


def test_the_command_on_a_cluster(tmp_path: Path) -> None:
    """`bkstore analyze --master` has executors elsewhere answer as this process does."""
    write_dump(random_dump(6), tmp_path / "dump")
    command = [sys.executable, "-m", "bkstore", "analyze", str(tmp_path / "dump")]
    command += ["--only", "sequences", "--top", "5", "--format", "jsonl", "--engine"]
    with standalone_master(tmp_path) as url:
        here, there = (
            subprocess.run(
                [*command, *words], capture_output=True, text=True, timeout=240, check=False
            )
            for words in (["local"], ["spark", "--master", url])
        )

    assert here.returncode == there.returncode, there.stderr[-2000:]
    assert 5 == len(there.stdout.splitlines())
    assert here.stdout == there.stdout
