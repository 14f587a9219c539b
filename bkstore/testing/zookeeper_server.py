"""ZooKeeperServer: a real ZooKeeper on loopback, from the jars that come with pyspark.

For tests and trials: one server, one directory, a Java of 17 or newer. `docs/zookeeper.md` shows
it.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from bkstore.errors import IllegalOperation, MetadataUnavailable, MissingDependency
from bkstore.spark.java import find_java_home

_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
# Without snappy-java the process lives and never serves; with log4j-core it prints nothing.
_JARS = (
    "zookeeper-[0-9]*.jar",
    "zookeeper-jute-*.jar",
    "slf4j-api-*.jar",
    "snappy-java-*.jar",
    "metrics-core-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
)
_READY = b"Mode:"
_TRIES = 3
_PAUSE = 0.02  # seconds
_AGAIN = 1.0  # seconds: as a client's connection may last that waits for this server


class ZooKeeperServer:
    """One server over a directory, which it may be started on again. A context manager.

    `tick` is its unit of time in milliseconds: sessions last 2 to 20 ticks. Without `sync` the
    server does not wait for the disk. `port` 0 takes a free one. `spawn` starts the process of a
    command line. Raises `MissingDependency` without pyspark's jars or without Java.
    """

    def __init__(
        self,
        path: Path,
        *,
        tick: int = 500,
        sync: bool = False,
        port: int = 0,
        spawn: Callable[[list[str]], subprocess.Popen[bytes]] | None = None,
    ) -> None:
        self.path = Path(path)
        self.port = port
        self._spawn = spawn or _quietly
        self._tick = tick
        self._sync = sync
        self._jars = _class_path()
        self.path.mkdir(parents=True, exist_ok=True)
        self._java = find_java_home(self.path, "ZooKeeper") / "bin" / "java"
        self._process: subprocess.Popen[bytes] | None = None
        self._served = False

    @property
    def address(self) -> str:
        """Host and port, as a service URI names them."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """The number of its process; None if it does not run."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def uri(self, root: str = "/ledgers", manager: str = "hierarchical") -> str:
        """Return the service URI of a cluster below `root`."""
        return f"zk+{manager}://{self.address}{root}"

    def start(self, timeout: float = 60.0) -> ZooKeeperServer:
        """Start it and return when it serves; on the same port if it ran before.

        Raises `MetadataUnavailable` if it does not serve in time, or another thread ends it
        meanwhile; `IllegalOperation` if it runs. A port that it had before may be some
        connection's own for a moment: it tries again then.
        """
        if self._process is not None:
            raise IllegalOperation(f"ZooKeeper in {self.path} is running")
        until = time.monotonic() + timeout
        tries = _TRIES if self.port == 0 or self._served else 1
        for left in reversed(range(tries)):
            port = self.port or _free_port()
            process = self._process = self._spawn(self._command(port))
            if self._serves(process, port, until):
                self.port, self._served = port, True
                return self
            if self._process is not process:
                raise MetadataUnavailable(f"ZooKeeper in {self.path} was ended while it started")
            self.kill()
            if time.monotonic() > until or not left:
                break
            if self._served:
                time.sleep(_AGAIN)
        raise MetadataUnavailable(f"ZooKeeper in {self.path} does not serve")

    def _command(self, port: int) -> list[str]:
        config = self.path / "zookeeper.cfg"
        config.write_text(
            f"tickTime={self._tick}\ndataDir={self.path / 'data'}\nclientPort={port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n",
            encoding="utf-8",
        )
        options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        options += [] if self._sync else ["-Dzookeeper.forceSync=no"]
        return [str(self._java), *options, "-cp", self._jars, _MAIN, str(config)]

    def _serves(self, process: subprocess.Popen[bytes], port: int, until: float) -> bool:
        """Wait until it answers; False if its process ends. The port accepts before it serves."""
        while process.poll() is None and time.monotonic() < until:
            if _READY in _asked(port):
                return True
            time.sleep(_PAUSE)
        return False

    def stop(self) -> None:
        """Ask it to end, and wait for that."""
        self._end(subprocess.Popen.terminate)

    def kill(self) -> None:
        """End it at once, as a power loss would."""
        self._end(subprocess.Popen.kill)

    def _end(self, how: Callable[[subprocess.Popen[bytes]], None]) -> None:
        process, self._process = self._process, None
        if process is not None:
            how(process)
            process.wait()

    def __enter__(self) -> ZooKeeperServer:
        return self if self._process is not None else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _quietly(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )


def _class_path() -> str:
    spec = find_spec("pyspark")
    places = [] if spec is None else spec.submodule_search_locations or []
    for place in places:
        found = [sorted((Path(place) / "jars").glob(name)) for name in _JARS]
        if all(found):
            return ":".join(str(jars[0]) for jars in found)
    raise MissingDependency.of("pyspark", "spark", "a ZooKeeper server of its jars")


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _asked(port: int) -> bytes:
    """Return the answer to the four-letter command `srvr`, empty while there is none."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while part := connection.recv(4096):
                answer += part
    except OSError:
        return b""
    return answer
