"""Where ZooKeeper's jars come from: a distribution, Debian's package, or those in pyspark."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from bkstore.errors import InvalidArgument, MissingDependency, pip_install_command

# Without snappy-java the process runs but never serves; without a logger of slf4j it prints that.
_NEEDED = ("zookeeper", "zookeeper-jute", "slf4j-api", "snappy-java", "metrics-core")
_LOGGERS = (
    ("log4j-api", "log4j-core", "log4j-slf4j2-impl"),
    ("slf4j-nop",),
    ("logback-classic", "logback-core"),
)
_DEBIAN_FOLDER = Path("/usr/share/java")


class ZooKeeperJars(NamedTuple):
    """A class path, and where it is from, as a message says it."""

    class_path: str
    origin: str


def find_zookeeper_jars(home: str | os.PathLike[str] | None = None) -> ZooKeeperJars:
    """Return the jars of a ZooKeeper: of `home` if it is given, else of the first place that has
    them of `ZOOKEEPER_HOME`, Debian's package libzookeeper-java, and pyspark.

    A home is a distribution of ZooKeeper, with its jars in ``lib``, or a folder of jars. Raises
    `InvalidArgument` for a home without them, `MissingDependency` if there are none at all.

    >>> find_zookeeper_jars("no such folder")
    Traceback (most recent call last):
    bkstore.errors.InvalidArgument: no such folder: no jars of ZooKeeper, here or in lib
    """
    if home is not None:
        return _jars_of_home(Path(home), str(home))
    if os.environ.get("ZOOKEEPER_HOME"):
        home = os.environ["ZOOKEEPER_HOME"]
        return _jars_of_home(Path(home), f"ZOOKEEPER_HOME, {home}")
    for folder, origin in ((_DEBIAN_FOLDER, "libzookeeper-java"), (_pyspark_folder(), "pyspark")):
        class_path = None if folder is None else _class_path(folder)
        if class_path is not None:
            return ZooKeeperJars(class_path, origin)
    raise MissingDependency(
        "a ZooKeeper server needs ZooKeeper's jars: set ZOOKEEPER_HOME to a ZooKeeper, apt-get "
        f"install libzookeeper-java, or {pip_install_command([('pyspark', 'spark')])}; or use one "
        "that runs, by its service URI"
    )


def _jars_of_home(home: Path, origin: str) -> ZooKeeperJars:
    for folder in (home / "lib", home):
        class_path = _class_path(folder)
        if class_path is not None:
            return ZooKeeperJars(class_path, origin)
    raise InvalidArgument(f"{origin}: no jars of ZooKeeper, here or in lib")


def _class_path(folder: Path) -> str | None:
    """Return the class path of a server with the jars of a folder; None if one is missing."""
    needed = [_find_jar(folder, name) for name in _NEEDED]
    if None in needed:
        return None
    for names in _LOGGERS:
        logger = [_find_jar(folder, name) for name in names]
        if None not in logger:
            needed += logger
            break
    return os.pathsep.join(map(str, needed))


def _find_jar(folder: Path, name: str) -> Path | None:
    """Return the jar of this name, with or without a version."""
    jars = [*folder.glob(f"{name}.jar"), *sorted(folder.glob(f"{name}-[0-9]*.jar"))]
    return jars[0] if jars else None


def _pyspark_folder() -> Path | None:
    spec = find_spec("pyspark")
    locations = [] if spec is None else spec.submodule_search_locations or []
    return next((Path(location) / "jars" for location in locations), None)
