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
from bkstore.spark.errors import convert_spark_errors
from bkstore.spark.java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG4J_CONFIG = """rootLogger.level = error
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

_LOCAL_MASTER = re.compile(r"local(\[|-cluster\[|$)")
_LOOPBACK_MASTER = re.compile(r"spark://(localhost|127(\.\d+){3})(:|$)")
"""Masters whose executors all run on this machine."""

_FAST_START_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
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
    """Return the running Spark session, whichever thread started it, or a new one.

    Logs errors only. Scratch files go to a temp directory that is removed at exit. `config`
    overrides any setting. Takes about 5 s. With `fast_start` all JVMs use only the fast compiler:
    good for work of seconds, slower for work of minutes. A `master` on another machine has to reach
    this one, by its host name or SPARK_LOCAL_IP. Raises `MissingDependency` without pyspark or
    Java, `BkstoreError` if Spark does not start (after a minute if a standalone master is silent).
    """
    running = _running_session()
    if running is not None:
        return running
    from pyspark.sql import SparkSession

    stack = ExitStack()
    scratch = stack.enter_context(scratch_directory("spark"))
    atexit.register(stack.close)
    settings = {**_write_settings(scratch, driver_memory, fast_start), **(config or {})}
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    # Python workers that are killed leave scratch files: put them in the session's directory.
    worker_scratch = scratch / "workers"
    worker_scratch.mkdir()
    java_home = str(find_java_home(scratch))
    with (
        convert_spark_errors(f"starting Spark on {master}"),
        _set_environment(master, JAVA_HOME=java_home, TMPDIR=str(worker_scratch)),
    ):
        return _start_or_clean_up(builder)


def _start_or_clean_up(builder: SparkSession.Builder) -> SparkSession:
    """Start and return the session; if that fails, stop the context that may have been created."""
    from pyspark import SparkContext

    try:
        return builder.getOrCreate()
    except Exception:
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
        raise


def _running_session() -> SparkSession | None:
    """Return the session of this process, or None. Spark's own "active session" is per thread."""
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
    """Yield a session; stop it afterwards, unless some thread had started it before."""
    was_running = _running_session() is not None
    spark = start_session(app_name, master, fast_start=fast_start)
    try:
        yield spark
    finally:
        if not was_running:
            spark.stop()


def _write_settings(scratch: Path, driver_memory: str, fast_start: bool) -> dict[str, str]:
    """Write the logging configuration to `scratch`, and return the settings of a session."""
    log_config = scratch / "log4j2.properties"
    log_config.write_text(_LOG4J_CONFIG, encoding="utf-8")
    driver_options = f"-Dlog4j2.configurationFile=file:{log_config} -Dderby.system.home={scratch}"
    executor_settings = {}
    if fast_start:
        driver_options += f" {_FAST_START_OPTIONS}"
        executor_settings["spark.executor.extraJavaOptions"] = _FAST_START_OPTIONS
    return {
        **executor_settings,
        "spark.driver.memory": driver_memory,
        "spark.driver.extraJavaOptions": driver_options,
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
def _set_environment(master: str, **values: str) -> Iterator[None]:
    """Set environment variables for the launcher and the Python workers; restore them at the end.

    Without PYSPARK_PYTHON the workers would run the `python3` of PATH. For a cluster one that is
    set is kept, as its workers may have their own. Only local workers reach a driver on loopback.
    """
    python_variables = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if not _LOCAL_MASTER.match(master):
        python_variables |= {key: os.environ[key] for key in python_variables if key in os.environ}
    if _LOCAL_MASTER.match(master) or _LOOPBACK_MASTER.match(master):
        values["SPARK_LOCAL_IP"] = "127.0.0.1"
    values = {**python_variables, **values}
    saved = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, old_value in saved.items():
            if old_value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = old_value
