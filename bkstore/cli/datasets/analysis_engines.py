"""The engine that runs a command's analyses, DuckDB or Spark, and the progress of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bkstore.cli.terminal.needed_packages import missing_packages, require_java, require_packages
from bkstore.cli.terminal.progress import work_progress
from bkstore.offline.analyses import Analysis, Engine, Inputs, LocalEngine

if TYPE_CHECKING:
    import pyarrow as pa

ENGINES = {"local": "DuckDB and kernels, on one machine", "spark": "Spark"}
"""Name of an engine -> its description in a report."""

LOCAL_MASTER = "local[*]"
"""Spark on this machine."""


def choose_engine(purpose: str, requested: str, *, report: bool) -> str:
    """Return "local" or "spark"; "auto" is Spark only if that is installed and DuckDB is not.

    Raises one `MissingDependency` for all packages that the engine, and a `report`, lack.
    """
    needed = ["pyarrow", "matplotlib", "jinja2"] if report else ["pyarrow"]
    if requested == "auto":
        only_spark = missing_packages("duckdb") and not missing_packages("pyspark")
        requested = "spark" if only_spark else "local"
    if requested == "local":
        require_packages(purpose, "duckdb", *needed)
        return "local"
    require_packages(f"{purpose} with Spark", "pyspark", "pandas", *needed)
    require_java()
    return "spark"


@contextmanager
def start_engine(purpose: str, engine_name: str, master: str = LOCAL_MASTER) -> Iterator[Engine]:
    """Yield the engine; Spark runs as an application called `purpose`, until the block's end."""
    if engine_name == "local":
        yield LocalEngine()
        return
    from bkstore.spark.analysis import SparkEngine
    from bkstore.spark.session import local_session

    # Of Spark on this machine, a quick start is better than faster code after some minutes.
    fast_start = master == "local" or master.startswith("local[")
    with local_session(purpose, master, fast_start=fast_start) as spark:
        spark.sparkContext.setLogLevel("FATAL")  # failures are reported in one line
        yield SparkEngine(spark)


def run_each(engine: Engine, runs: Iterable[tuple[Analysis, Inputs]]) -> dict[str, pa.Table]:
    """Return the table of each analysis by its name; a bar shows the progress."""
    runs = list(runs)
    tables: dict[str, pa.Table] = {}
    with work_progress("row") as show_progress:
        for index, (analysis, inputs) in enumerate(runs):
            if show_progress is not None:
                rows = sum(table.num_rows for table in tables.values())
                show_progress(analysis.name, index, len(runs), rows)
            tables[analysis.name] = engine.run(analysis, inputs)
    return tables
