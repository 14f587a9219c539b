"""Every analysis of a synthetic cluster, measured: `python -m tools.scale CLUSTER`.

    python -m tools.synthesize cluster --bookies 1000 --entries 50000
    python -m tools.scale cluster --engine spark --memory 512m --json spark.json

CLUSTER is a directory that `tools.synthesize` wrote. Runs each analysis once, in one process (and
one Spark session), and reports the rows of the result, seconds, CPU seconds of the driver, and for
Spark the number of tasks, shuffled MiB and seconds of all tasks; then the peak resident sizes of
the driver's processes, and planted numbers that were not found (exit code 1 if there are any).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bkstore.offline.analyses import ANALYSES, LocalEngine, open_inputs

_MIB = 1 << 20
_COLUMNS = ("analysis", "rows", "seconds", "cpu", "tasks", "shuffled", "task_seconds")


def collect_found(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers that `tools.synthesize` plants, as found in the tables, by its names."""
    rows = {name: table.to_pylist() for name, table in tables.items() if name != "sequences"}
    missing: Counter[str] = Counter()
    for row in rows["violations"]:
        missing[row["category"]] += row["missing_entries"]
    return {
        "violations": dict(Counter(row["category"] for row in rows["violations"])),
        "missing_entries": dict(missing),
        "homeless": len(rows["homeless"]),
        "surplus": len(rows["surplus"]),
        "surplus_entries": sum(row["surplus_entries"] for row in rows["surplus"]),
        "orphans": len(rows["orphans"]),
        "orphan_ledgers": len({row["qualified_name"] for row in rows["orphans"]}),
        "not_judged": sum(row["not_judged"] is not None for row in rows["ledger_health"]),
        "ledgers": len(rows["ledger_health"]),
        "bookies": len(rows["bytes_by_bookie"]),
        "sequences": tables["sequences"].num_rows,
        "entries": sum(row["entries"] for row in rows["bytes_by_bookie"]),
    }


def peak_resident_mib(pid: int | str = "self") -> float:
    """Return the peak resident size of a process, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def run_analyses(
    cluster_dir: Path, engine: Any, read_costs: Callable[[], dict[str, float]]
) -> dict[str, Any]:
    """Return seconds and costs of each analysis, and the numbers that differ from the planted ones.
    `read_costs` returns the engine's own totals so far, by name."""
    started = time.perf_counter(), time.process_time()
    inputs = open_inputs(cluster_dir / "dump", cluster_dir / "metadata.json", cluster_dir / "dump")
    row_count = inputs.metadata.table.num_rows if inputs.metadata else 0
    rows = [_analysis_row("(opening)", row_count, started)]
    tables = {}
    possible = {n: each for n, each in ANALYSES.items() if each.missing_input(inputs) is None}
    for name, analysis in possible.items():
        costs_before, started = read_costs(), (time.perf_counter(), time.process_time())
        tables[name] = engine.run(analysis, inputs)
        own_costs = {key: round(cost - costs_before[key], 1) for key, cost in read_costs().items()}
        rows.append(_analysis_row(name, tables[name].num_rows, started) | own_costs)
    python_mib = round(peak_resident_mib())  # read before the tool itself uses memory below
    planted = json.loads((cluster_dir / "planted.json").read_text(encoding="utf-8"))
    found_numbers = collect_found(tables)
    deviations = {
        name: [planted[name], found_numbers[name]]
        for name in planted
        if planted[name] != found_numbers[name]
    }
    return {"analyses": rows, "python_mib": python_mib, "not_as_planted": deviations}


def _analysis_row(name: str, rows: int, started: tuple[float, float]) -> dict[str, Any]:
    seconds, cpu = time.perf_counter() - started[0], time.process_time() - started[1]
    return {"analysis": name, "rows": rows, "seconds": round(seconds, 1), "cpu": round(cpu, 1)}


def _spark_totals(spark: Any) -> dict[str, float]:
    """Return a session's totals so far, as Spark counts them: tasks, shuffled MiB, task seconds."""
    context = spark.sparkContext
    no_quantiles = context._gateway.new_array(context._jvm.double, 0)
    # Through Py4J, as PySpark does not show its statistics: all stages, without their tasks.
    store = context._jsc.sc().statusStore()
    stages = store.stageList(None, False, False, no_quantiles, None)
    totals = {"tasks": 0.0, "shuffled": 0.0, "task_seconds": 0.0}
    for i in range(stages.size()):
        stage = stages.apply(i)
        totals["tasks"] += stage.numCompleteTasks()
        totals["shuffled"] += stage.shuffleWriteBytes() / _MIB
        totals["task_seconds"] += stage.executorRunTime() / 1000
    return totals


@contextmanager
def _spark_session(memory: str, cores: int) -> Iterator[Any]:
    """Yield a Spark session of one JVM, which is stopped at the end."""
    from bkstore.spark import start_session

    # `_spark_totals` adds up all stages: Spark must not forget the first ones.
    settings = {"spark.ui.retainedStages": "100000", "spark.ui.retainedJobs": "100000"}
    spark = start_session("bkstore scale", f"local[{cores}]", driver_memory=memory, config=settings)
    try:
        yield spark
    finally:
        spark.stop()


def _measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run the analyses by the engine that was chosen; return the figures as a document."""
    if args.engine == "local":  # which has no costs of its own: `dict` returns none
        return run_analyses(args.cluster, LocalEngine(threads=args.cores), read_costs=dict)
    from bkstore.spark.analysis import SparkEngine

    with _spark_session(args.memory, args.cores) as spark:
        document = run_analyses(args.cluster, SparkEngine(spark), lambda: _spark_totals(spark))
        java_mib = peak_resident_mib(spark.sparkContext._gateway.proc.pid)
        return document | {"java_mib": round(java_mib)}


def _table_lines(document: Mapping[str, Any]) -> Iterator[str]:
    rows = document["analyses"]
    columns = [name for name in _COLUMNS if any(name in row for row in rows)]
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield "| " + " | ".join(str(row.get(name, "")) for name in columns) + " |"
    for name in ("python_mib", "java_mib", "not_as_planted"):
        if name in document:
            yield f"{name}: {document[name]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 1 if a planted number was not found."""
    parser = argparse.ArgumentParser(prog="python -m tools.scale", description=__doc__)
    parser.add_argument("cluster", type=Path, help="what tools.synthesize wrote")
    parser.add_argument("--engine", choices=("local", "spark"), default="local")
    parser.add_argument("--memory", default="512m", help="Java's heap (default 512m)")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    args = parser.parse_args(arguments)
    document = _measure(args)
    if args.json is not None:
        args.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print("\n".join(_table_lines(document)))
    return 1 if document["not_as_planted"] else 0


if __name__ == "__main__":
    sys.exit(main())
