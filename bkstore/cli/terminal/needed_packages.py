"""The optional packages that a command needs: all that are missing are named at once, first.

A command that makes people wait says so before it begins, and in one message, so that nobody
installs one package to be told of the next.
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
    """Return those of the optional packages that are not installed. Loads none of them.

    >>> missing_packages()
    []
    """
    return [package for package in packages if find_spec(package) is None]


def require_packages(purpose: str, *packages: str) -> None:
    """Raise `MissingDependency` with one command for all of the packages that are missing."""
    missing = missing_packages(*packages)
    if missing:
        raise MissingDependency.of_all([(name, _EXTRAS[name]) for name in missing], purpose)


def require_java() -> None:
    """Raise `MissingDependency` where Spark would find no Java; starts `java -version`."""
    from bkstore.files.scratch import scratch_directory
    from bkstore.spark.java import find_java_home

    with scratch_directory("java") as scratch:
        find_java_home(scratch)
