"""A quiet local Spark session, on whatever Java there is."""

from __future__ import annotations

import atexit
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bkstore.errors import MissingDependency
from bkstore.files.scratch import scratch_directory
from bkstore.spark.errors import spark_errors
from bkstore.spark.java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
# The launcher announces a log level unless its own logger has the root's already.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n%ex
"""

_LOCAL = re.compile(r"local(\[|-cluster\[|$)")
_LOOPBACK = re.compile(r"spark://(localhost|127(\.\d+){3})(:|$)")
"""Masters of which all that runs is on this machine."""

_FAST_START = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""One compiler alone has 48 MiB for its code by default, which a session of many queries fills: its
JVM ends then. 240 MiB, address space until used, are the default of a JVM with both compilers."""


def start_session(
    app_name: str = "bkstore",
    master: str = "local[2]",
    driver_memory: str = "1g",
    config: Mapping[str, str] | None = None,
    *,
    fast_start: bool = True,
) -> SparkSession:
    """Return a new Spark session, or the running one, whichever thread started it.

    Logs errors only. Scratch files go to a temp directory that is removed at exit. `config`
    overrides any setting. Takes about 5 s. With `fast_start` the JVMs, those of executors
    too, compile quickly rather than well: right for work of seconds, slower for that of minutes.
    A `master` of other machines has to reach this one: by its host name, or SPARK_LOCAL_IP.
    Raises `MissingDependency` without pyspark or Java, `BkstoreError` where Spark does not start
    (a standalone master that does not answer: after a minute).
    """
    running = _running()
    if running is not None:
        return running
    from pyspark.sql import SparkSession

    stack = ExitStack()
    scratch = stack.enter_context(scratch_directory("spark"))
    atexit.register(stack.close)
    settings = {**_settings(scratch, driver_memory, fast_start), **(config or {})}
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    # Python workers that are killed leave their scratch where it goes with the session's.
    workers = scratch / "workers"
    workers.mkdir()
    java = str(find_java_home(scratch))
    with (
        spark_errors(f"starting Spark on {master}"),
        _environment(master, JAVA_HOME=java, TMPDIR=str(workers)),
    ):
        return _started(builder)


def _started(builder: SparkSession.Builder) -> SparkSession:
    """Return the session; where there is none, leave no context that looks as if it ran."""
    from pyspark import SparkContext

    try:
        return builder.getOrCreate()
    except Exception:
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
        raise


def _running() -> SparkSession | None:
    """Return the session that the process has: an active one each thread has for itself."""
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingDependency.of("pyspark", "spark", "Spark") from error
    if SparkContext._active_spark_context is None:
        return None
    return SparkSession.builder.getOrCreate()


@contextmanager
def local_session(
    app_name: str = "bkstore", master: str = "local[2]", *, fast_start: bool = True
) -> Iterator[SparkSession]:
    """Yield a session, and stop it afterwards unless it was running before, in any thread."""
    running = _running() is not None
    spark = start_session(app_name, master, fast_start=fast_start)
    try:
        yield spark
    finally:
        if not running:
            spark.stop()


def _settings(scratch: Path, driver_memory: str, fast_start: bool) -> dict[str, str]:
    log = scratch / "log4j2.properties"
    log.write_text(_QUIET, encoding="utf-8")
    driver = f"-Dlog4j2.configurationFile=file:{log} -Dderby.system.home={scratch}"
    executors = {}
    if fast_start:
        driver += f" {_FAST_START}"
        executors["spark.executor.extraJavaOptions"] = _FAST_START
    return {
        **executors,
        "spark.driver.memory": driver_memory,
        "spark.driver.extraJavaOptions": driver,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }


@contextmanager
def _environment(master: str, **values: str) -> Iterator[None]:
    """Set what the launcher and the Python workers inherit, then put it back.

    Without PYSPARK_PYTHON the workers run the `python3` of PATH, which may be another one; those
    of a cluster may have one of their own. They reach a driver only where it is not on loopback.
    """
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if not _LOCAL.match(master):
        python = {key: os.environ.get(key, value) for key, value in python.items()}
    if _LOCAL.match(master) or _LOOPBACK.match(master):
        values["SPARK_LOCAL_IP"] = "127.0.0.1"
    values = {**python, **values}
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = old
