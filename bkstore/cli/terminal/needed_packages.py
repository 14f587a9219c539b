"""Checks for the optional packages that a command needs.

Before long work, a command reports all missing packages in one message.
"""

from __future__ import annotations

from importlib.util import find_spec

from bkstore.errors import MissingDependency

_EXTRAS = {
    "aiohttp": "serve",
    "duckdb": "local",
    "jinja2": "report",
    "kazoo": "zookeeper",
    "matplotlib": "report",
    "pandas": "spark",
    "prometheus_client": "serve",
    "pyarrow": "arrow",
    "pyspark": "spark",
}


def missing_packages(*packages: str) -> list[str]:
    """Return those packages that are not installed, without importing any.

    >>> missing_packages()
    []
    """
    return [package for package in packages if find_spec(package) is None]


def require_packages(purpose: str, *packages: str) -> None:
    """Raise `MissingDependency` with one install command for all missing packages."""
    missing = missing_packages(*packages)
    if missing:
        raise MissingDependency.of_all([(name, _EXTRAS[name]) for name in missing], purpose)


def require_java() -> None:
    """Raise `MissingDependency` if Spark would find no Java; runs `java -version`."""
    from bkstore.files.scratch import scratch_directory
    from bkstore.spark.java import find_java_home

    with scratch_directory("java") as scratch:
        find_java_home(scratch)
