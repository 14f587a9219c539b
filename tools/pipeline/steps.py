"""Steps of our own engines: dump, loads and analyses, by one process or by Spark."""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tools.pipeline.other_programs import OTHERS, Work
from tools.pipeline.world import BOOKIES

KERNELS = ("sequences", "violations", "ledger_health", "surplus", "comparison", "fragmentation")
TEXTS = ("holes", "orphans", "bytes_by_bookie", "bytes_by_ledger")
LOADS = ("load to rocksdb", "load to idx")

SPARKS = {
    "spark": "local[2]",
    "one executor": "local-cluster[1,1,1024]",
    "two executors": "local-cluster[2,1,1024]",
}
"""Where Spark runs, by engine: threads of one JVM, or executors of one core each."""

STEPS = {
    "local": ("dump", *LOADS, *KERNELS, *TEXTS),
    **dict.fromkeys(SPARKS, (*LOADS, *KERNELS, *TEXTS)),
    "write batch": ("load to rocksdb",),
    "duckdb": ("sequences", "comparison", "violations", "fragmentation"),
    "polars": ("sequences", "comparison"),
}
"""By engine: what it is asked."""


def _dump(top: Path) -> Iterator[tuple[str, Work]]:
    from bkstore.offline.dump import dump

    def work() -> int:
        out = top / "again"
        shutil.rmtree(out, ignore_errors=True)
        return dump([top / name for name in BOOKIES], out, jobs=1).rows["entries"]

    yield "dump", work


def _load(top: Path, spark: Any = None) -> Iterator[tuple[str, Work]]:
    from bkstore.offline.load import load as local

    out = top / "loaded"

    def work(to: Any) -> int:
        shutil.rmtree(out, ignore_errors=True)
        if spark is None:
            return local(top / "dump", out, to, bookie="b0", compare=False).rows
        from bkstore.spark.load import load

        return load(spark, top / "dump", out, to, bookie="b0", compare=False).rows

    for to in ("rocksdb", "idx"):
        yield f"load to {to}", partial(work, to)


def _analyses(top: Path, engine: Any) -> Iterator[tuple[str, Work]]:
    from bkstore.offline.analyses import ANALYSES, open_inputs

    inputs = open_inputs(top / "dump", top / "metadata.json", top / "dump")
    for name in (*KERNELS, *TEXTS):
        yield name, partial(_answered, engine, ANALYSES[name], inputs)


def _answered(engine: Any, analysis: Any, inputs: Any) -> int:
    return int(engine.run(analysis, inputs).num_rows)


def _tidied(spark: Any) -> None:
    """Stop Spark, and remove what local-cluster leaves of it in the installed package."""
    import pyspark

    work, mine = Path(pyspark.__file__).parent / "work", spark.sparkContext.applicationId
    spark.stop()
    shutil.rmtree(work / mine, ignore_errors=True)
    with suppress(OSError):  # others run, or there is none
        work.rmdir()


def steps(engine: str, top: Path) -> Iterator[tuple[str, Work]]:
    """Yield an engine's steps over the world at `top`, each with what does it once."""
    if engine == "local":
        from bkstore.offline.analyses import LocalEngine

        yield from _dump(top)
        yield from _load(top)
        yield from _analyses(top, LocalEngine())
    elif engine in SPARKS:
        from bkstore.spark import start_session
        from bkstore.spark.analysis import SparkEngine

        memory = {"spark.executor.memory": "1g"}
        spark = start_session("pipeline", SPARKS[engine], "1g", memory)
        atexit.register(_tidied, spark)
        yield from _load(top, spark)
        yield from _analyses(top, SparkEngine(spark))
    else:
        yield from OTHERS[engine](top)
