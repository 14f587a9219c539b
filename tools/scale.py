"""Every analysis of a synthetic cluster, measured: `python -m tools.scale CLUSTER`.

    python -m tools.synthesize cluster --bookies 1000 --entries 50000
    python -m tools.scale cluster --engine spark --memory 512m --json spark.json

CLUSTER is what `tools.synthesize` wrote. Runs each analysis once, in one process (and one Spark
session), and says: rows of the answer, seconds, seconds of the driver's CPU, and with Spark tasks,
bytes that were shuffled and seconds of all tasks; at the end the highest resident sizes of the
driver's processes, and whether the planted numbers were found (exit code 1 if not). JSON first, the
table is made of it.
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


def found(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return what analyses say of the numbers that `tools.synthesize` plants, under its names."""
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


def resident(pid: int | str = "self") -> float:
    """Return the highest resident size that a process has had, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def measured(top: Path, engine: Any, costs: Callable[[], dict[str, float]]) -> dict[str, Any]:
    """Return seconds and costs of each analysis, and what is not as planted.

    `costs` says what has been spent so far, by name.
    """
    started = time.perf_counter(), time.process_time()
    inputs = open_inputs(top / "dump", top / "metadata.json", top / "dump")
    rows = [_row("(opening)", inputs.metadata.table.num_rows if inputs.metadata else 0, started)]
    tables = {}
    for name, analysis in ANALYSES.items():
        before, started = costs(), (time.perf_counter(), time.process_time())
        tables[name] = engine.run(analysis, inputs)
        spent = {key: round(value - before[key], 1) for key, value in costs().items()}
        rows.append(_row(name, tables[name].num_rows, started) | spent)
    highest = round(resident())  # what is counted below is this tool's own
    planted = json.loads((top / "planted.json").read_text(encoding="utf-8"))
    here = found(tables)
    odd = {name: [planted[name], here[name]] for name in planted if planted[name] != here[name]}
    return {"analyses": rows, "python_mib": highest, "not_as_planted": odd}


def _row(name: str, rows: int, started: tuple[float, float]) -> dict[str, Any]:
    seconds, cpu = time.perf_counter() - started[0], time.process_time() - started[1]
    return {"analysis": name, "rows": rows, "seconds": round(seconds, 1), "cpu": round(cpu, 1)}


def _stages(spark: Any) -> dict[str, float]:
    """Return tasks, shuffled MiB and seconds of tasks of a session so far, as Spark counts them."""
    context = spark.sparkContext
    no_quantiles = context._gateway.new_array(context._jvm.double, 0)
    store = context._jsc.sc().statusStore()
    stages = store.stageList(None, False, False, no_quantiles, None)
    totals = {"tasks": 0.0, "shuffled": 0.0, "task_seconds": 0.0}
    for at in range(stages.size()):
        stage = stages.apply(at)
        totals["tasks"] += stage.numCompleteTasks()
        totals["shuffled"] += stage.shuffleWriteBytes() / _MIB
        totals["task_seconds"] += stage.executorRunTime() / 1000
    return totals


@contextmanager
def _by_spark(memory: str, cores: int) -> Iterator[Any]:
    from bkstore.spark import start_session

    kept = {"spark.ui.retainedStages": "100000", "spark.ui.retainedJobs": "100000"}
    spark = start_session("bkstore scale", f"local[{cores}]", memory, kept)
    try:
        yield spark
    finally:
        spark.stop()


def _measure(args: argparse.Namespace) -> dict[str, Any]:
    if args.engine == "local":
        return measured(args.cluster, LocalEngine(threads=args.cores), dict)
    from bkstore.spark.analysis import SparkEngine

    with _by_spark(args.memory, args.cores) as spark:
        made = measured(args.cluster, SparkEngine(spark), lambda: _stages(spark))
        java = resident(spark.sparkContext._gateway.proc.pid)
        return made | {"java_mib": round(java)}


def _table(document: Mapping[str, Any]) -> Iterator[str]:
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
    """Run the command; return its exit code: 0, or 1 where a planted number was not found."""
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
    print("\n".join(_table(document)))
    return 1 if document["not_as_planted"] else 0


if __name__ == "__main__":
    sys.exit(main())
