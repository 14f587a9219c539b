"""ZooKeeperServer: a real ZooKeeper on loopback, from a distribution, Debian's package or pyspark.

For tests and trials: one server, one directory, Java 17 or newer. Page: `docs/zookeeper.md`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from bkstore.errors import (
    IllegalOperation,
    InvalidArgument,
    MetadataUnavailable,
    MissingDependency,
)
from bkstore.files.disk_changes import StrPath
from bkstore.files.scratch import scratch_directory
from bkstore.spark.java import find_java_home

# Without snappy-java the process runs but never serves; without a logger of slf4j it prints that.
_NEEDED = ("zookeeper", "zookeeper-jute", "slf4j-api", "snappy-java", "metrics-core")
_LOGGERS = (
    ("log4j-api", "log4j-core", "log4j-slf4j2-impl"),
    ("slf4j-nop",),
    ("logback-classic", "logback-core"),
)
_DEBIAN_FOLDER = Path("/usr/share/java")
_MAIN_CLASS = "org.apache.zookeeper.server.ZooKeeperServerMain"
_SERVING_MARK = b"Mode:"
_MAX_ATTEMPTS = 3
_POLL_SECONDS = 0.02
_RETRY_SECONDS = 1.0  # how long a client that waits for this server may occupy its port


class ZooKeeperServer:
    """One server over a directory, which may have an earlier server's data. A context manager.

    `tick` is its unit of time in milliseconds: sessions last 2 to 20 ticks. Without `sync` the
    server does not wait for the disk. `port` 0 chooses a free one. `jars` is a ZooKeeper's home
    (default: as `find_zookeeper_jars` finds one), and `jars_origin` says whose are used. `spawn`
    starts the process of a command line. Raises `MissingDependency` without jars or without Java,
    `InvalidArgument` for a home without jars.
    """

    def __init__(
        self,
        path: Path,
        *,
        tick: int = 500,
        sync: bool = False,
        port: int = 0,
        jars: StrPath | None = None,
        spawn: Callable[[list[str]], subprocess.Popen[bytes]] | None = None,
    ) -> None:
        """Find the jars and Java, and make the directory; the class has the arguments. Nothing runs
        until `start`."""
        self.path = Path(path)
        self.port = port
        self._spawn = spawn or _spawn_quietly
        self._tick = tick
        self._sync = sync
        self._class_path, self.jars_origin = find_zookeeper_jars(jars)
        self.path.mkdir(parents=True, exist_ok=True)
        self._java = find_java_home(self.path, "ZooKeeper") / "bin" / "java"
        self._process: subprocess.Popen[bytes] | None = None
        self._has_served = False

    @property
    def address(self) -> str:
        """Host and port, as in a service URI."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """The id of its process; None if it is not running."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def uri(self, root: str = "/ledgers", manager: str = "hierarchical") -> str:
        """Return the service URI of a cluster below `root`."""
        return f"zk+{manager}://{self.address}{root}"

    def start(self, timeout: float = 60.0) -> ZooKeeperServer:
        """Start it, on its earlier port if it had one, and return when it serves.

        Raises `MetadataUnavailable` if it does not serve in time, or if another thread ends it
        meanwhile; `IllegalOperation` if it is running. Tries again if the port is taken: the
        earlier port may be the local port of another connection for a moment.
        """
        if self._process is not None:
            raise IllegalOperation(f"ZooKeeper in {self.path} is running")
        deadline = time.monotonic() + timeout
        # A port that the caller chose, and that is taken, stays taken.
        attempts = _MAX_ATTEMPTS if self.port == 0 or self._has_served else 1
        for retries_left in reversed(range(attempts)):
            port = self.port or _find_free_port()
            process = self._process = self._spawn(self._write_configuration(port))
            if self._await_serving(process, port, deadline):
                self.port, self._has_served = port, True
                return self
            if self._process is not process:  # another thread ended it
                raise MetadataUnavailable(f"ZooKeeper in {self.path} was stopped while it started")
            self.kill()
            if time.monotonic() > deadline or not retries_left:
                break
            if self._has_served:  # until a client's connection leaves the earlier port
                time.sleep(_RETRY_SECONDS)
        raise MetadataUnavailable(f"ZooKeeper in {self.path} does not serve")

    def _write_configuration(self, port: int) -> list[str]:
        """Write the configuration file of a server on `port`; return its command line."""
        config = self.path / "zookeeper.cfg"
        config.write_text(
            f"tickTime={self._tick}\ndataDir={self.path / 'data'}\nclientPort={port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n",
            encoding="utf-8",
        )
        # For a process that is small and starts fast. Above, 0 connections stand for no limit.
        options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        options += [] if self._sync else ["-Dzookeeper.forceSync=no"]
        return [str(self._java), *options, "-cp", self._class_path, _MAIN_CLASS, str(config)]

    def _await_serving(self, process: subprocess.Popen[bytes], port: int, deadline: float) -> bool:
        """Return True once it answers (it accepts before that), False if it ends or is late."""
        while process.poll() is None and time.monotonic() < deadline:
            if _SERVING_MARK in _query_status(port):
                return True
            time.sleep(_POLL_SECONDS)
        return False

    def stop(self) -> None:
        """Send SIGTERM and wait until it has ended."""
        self._end_process(subprocess.Popen.terminate)

    def kill(self) -> None:
        """Send SIGKILL, as abrupt as a power loss, and wait until it has ended."""
        self._end_process(subprocess.Popen.kill)

    def _end_process(self, send_signal: Callable[[subprocess.Popen[bytes]], None]) -> None:
        process, self._process = self._process, None
        if process is not None:
            send_signal(process)
            process.wait()

    def __enter__(self) -> ZooKeeperServer:
        return self if self._process is not None else self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()


def _spawn_quietly(command: list[str]) -> subprocess.Popen[bytes]:
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=nowhere, stdout=nowhere)  # noqa: S603


def _find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _query_status(port: int) -> bytes:
    """Return the answer to ZooKeeper's command ``srvr``, b"" if none comes."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return b""
    return answer


# -- jars


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
        "a ZooKeeper server needs ZooKeeper's jars: set ZOOKEEPER_HOME to a distribution, apt-get "
        "install libzookeeper-java, or pip install pyspark; or use a ZooKeeper that runs already, "
        "by its service URI"
    )


def find_missing_dependencies() -> list[str]:
    """Return what an ensemble needs and this machine lacks, a line each with how to install it:
    kazoo, a ZooKeeper's jars, Java. Imports kazoo, and runs ``java -version``."""
    missing = []
    with scratch_directory("java") as scratch:
        for search in (
            _import_kazoo,
            find_zookeeper_jars,
            partial(find_java_home, scratch, "ZooKeeper"),
        ):
            try:
                search()
            except MissingDependency as error:
                missing.append(str(error))
    return missing


def _import_kazoo() -> None:
    import_module("bkstore.cluster.store.zookeeper.kazoo_client")


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
