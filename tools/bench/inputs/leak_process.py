"""Leaked ledgers of a synthetic cluster in a process of its own, which prints its cost as JSON.

    python -m tools.bench.inputs.leak_process make FILE LEDGERS TOPICS
    python -m tools.bench.inputs.leak_process search FILE
    python -m tools.bench.inputs.leak_process analyze DIRECTORY LEDGERS TOPICS ENGINE

`make` writes a metadata file, and `search` runs `bkstore leaks` on it. `analyze` runs the analysis
`leaked_ledgers` by an engine, `local` or `spark`: it writes a dump to a new directory, and makes
the metadata as columns in memory. Peak memory is that of all processes of the engine, and of this
one alone (`own_peak`); CPU seconds are those of both steps: `tables`, of what Pulsar refers to, in
this process, and `query`.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from tools.bench.inputs.own_memory import peak_memory
from tools.bench.inputs.process_tree import tree_cpu_seconds, tree_peak_bytes

_SPARK_HEAP = "4g"
_CORES = 2


@contextmanager
def _measure(figures: dict[str, float], step: str) -> Iterator[None]:
    """Add the wall and CPU seconds of a step, over all processes."""
    started, cpu_before = time.perf_counter(), tree_cpu_seconds()
    yield
    figures[f"{step}_seconds"] = time.perf_counter() - started
    figures[f"{step}_cpu"] = tree_cpu_seconds() - cpu_before


def search(file: Path) -> dict[str, Any]:
    """Run the command; return its message about the classes, and its cost."""
    from bkstore.cli.main import main as run_command

    figures: dict[str, float] = {}
    messages = io.StringIO()
    with _measure(figures, "search"), redirect_stdout(io.StringIO()), redirect_stderr(messages):
        run_command(["leaks", str(file)])
    return {**figures, "peak": peak_memory(), "classes": messages.getvalue().splitlines()[-1]}


def analyze(directory: Path, ledgers: int, topics: int, engine_name: str) -> dict[str, Any]:
    """Run the analysis; return the number of ledgers and their bytes by class, and its cost."""
    from bkstore.offline.analyses import ANALYSES, PulsarMetadata, open_inputs
    from bkstore.pulsar import MemoryNodes
    from tools.bench.inputs.pulsar_cluster import make_metadata, pulsar_nodes, write_dump

    write_dump(directory, ledgers)
    metadata = make_metadata(ledgers, topics)
    nodes = MemoryNodes(dict(pulsar_nodes(ledgers, topics)), read_at=1_790_000_000_000)
    figures: dict[str, float] = {"made_peak": peak_memory()}
    pulsar = PulsarMetadata(nodes)
    inputs = open_inputs(directory, metadata, None, None, pulsar)
    with _measure(figures, "tables"):
        pulsar.tables(metadata)
    with _opened_engine(engine_name) as engine, _measure(figures, "query"):
        table = engine.run(ANALYSES["leaked_ledgers"], inputs)
        own_peak, peak = peak_memory(), tree_peak_bytes()
    counts = Counter(table.column("class").to_pylist())
    sizes = {"bytes": sum(table.column("bytes").to_pylist())}
    return {**figures, "own_peak": own_peak, "peak": peak, "classes": counts, **sizes}


@contextmanager
def _opened_engine(engine_name: str) -> Iterator[Any]:
    if engine_name == "local":
        from bkstore.offline.analyses import LocalEngine

        yield LocalEngine(threads=_CORES)
        return
    from bkstore.spark import start_session
    from bkstore.spark.analysis import SparkEngine

    session = start_session("leaked ledgers", f"local[{_CORES}]", driver_memory=_SPARK_HEAP)
    try:
        yield SparkEngine(session)
    finally:
        session.stop()


def main(arguments: list[str]) -> None:
    """Do what the arguments ask for, and print the cost."""
    task, path, *operands = arguments
    if task == "make":
        from tools.bench.inputs.pulsar_cluster import write_metadata_file

        write_metadata_file(Path(path), *map(int, operands))
    elif task == "search":
        print(json.dumps(search(Path(path))))
    else:
        ledgers, topics = map(int, operands[:2])
        print(json.dumps(analyze(Path(path), ledgers, topics, operands[2])))


if __name__ == "__main__":
    main(sys.argv[1:])
