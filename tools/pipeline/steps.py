"""The steps of our own engines: dump, loads and analyses, in one process or by Spark."""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tools.pipeline.other_programs import OTHER_STEPS, Work
from tools.pipeline.world import BOOKIES

KERNELS = ("sequences", "violations", "ledger_health", "surplus", "comparison", "fragmentation")
SQL_ANALYSES = ("holes", "orphans", "bytes_by_bookie", "bytes_by_ledger")
LOADS = ("load to rocksdb", "load to idx")

SPARK_MASTERS = {
    "spark": "local[2]",
    "one executor": "local-cluster[1,1,1024]",
    "two executors": "local-cluster[2,1,1024]",
}
"""The Spark master of each engine: threads of one JVM, or executors of one core each."""

STEPS = {
    "local": ("dump", *LOADS, *KERNELS, *SQL_ANALYSES),
    **dict.fromkeys(SPARK_MASTERS, (*LOADS, *KERNELS, *SQL_ANALYSES)),
    "write batch": ("load to rocksdb",),
    "duckdb": ("sequences", "comparison", "violations", "fragmentation"),
    "polars": ("sequences", "comparison"),
}
"""The steps of each engine."""


def _dump_steps(directory: Path) -> Iterator[tuple[str, Work]]:
    from bkstore.offline.dump import dump

    def run_dump() -> int:
        target = directory / "again"
        shutil.rmtree(target, ignore_errors=True)
        return dump([directory / name for name in BOOKIES], target, jobs=1).rows["entries"]

    yield "dump", run_dump


def _load_steps(directory: Path, spark: Any = None) -> Iterator[tuple[str, Work]]:
    """Yield the loads of one bookie's dump, in this process unless a Spark session is given."""
    from bkstore.offline.load import load as load_locally

    target = directory / "loaded"

    def run_load(layout: Any) -> int:
        shutil.rmtree(target, ignore_errors=True)
        if spark is None:
            return load_locally(directory / "dump", target, layout, bookie="b0", compare=False).rows
        from bkstore.spark.load import load

        return load(spark, directory / "dump", target, layout, bookie="b0", compare=False).rows

    for layout in ("rocksdb", "idx"):
        yield f"load to {layout}", partial(run_load, layout)


def _analysis_steps(directory: Path, engine: Any) -> Iterator[tuple[str, Work]]:
    from bkstore.offline.analyses import ANALYSES, open_inputs

    inputs = open_inputs(directory / "dump", directory / "metadata.json", directory / "dump")
    for name in (*KERNELS, *SQL_ANALYSES):
        yield name, partial(_run_analysis, engine, ANALYSES[name], inputs)


def _run_analysis(engine: Any, analysis: Any, inputs: Any) -> int:
    return int(engine.run(analysis, inputs).num_rows)


def _stop_spark(spark: Any) -> None:
    """Stop Spark, and delete the files that local-cluster leaves in the installed package."""
    import pyspark

    work, application_id = Path(pyspark.__file__).parent / "work", spark.sparkContext.applicationId
    spark.stop()
    shutil.rmtree(work / application_id, ignore_errors=True)
    with suppress(OSError):  # other applications use it, or it does not exist
        work.rmdir()


def engine_steps(engine: str, directory: Path) -> Iterator[tuple[str, Work]]:
    """Yield an engine's steps, by name, with the function that runs the step once on the data of
    `prepare_world` in `directory`."""
    if engine == "local":
        from bkstore.offline.analyses import LocalEngine

        yield from _dump_steps(directory)
        yield from _load_steps(directory)
        yield from _analysis_steps(directory, LocalEngine())
    elif engine in SPARK_MASTERS:
        from bkstore.spark import start_session
        from bkstore.spark.analysis import SparkEngine

        master, executor_memory = SPARK_MASTERS[engine], {"spark.executor.memory": "1g"}
        spark = start_session("pipeline", master, driver_memory="1g", config=executor_memory)
        atexit.register(_stop_spark, spark)
        yield from _load_steps(directory, spark)
        yield from _analysis_steps(directory, SparkEngine(spark))
    else:
        yield from OTHER_STEPS[engine](directory)
