"""A bookie of Apache BookKeeper on loopback, if an environment variable names its class path."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bkstore.cluster import ZooKeeperStore
from bkstore.storage.options import StorageKind
from bkstore.testing.zookeeper_server import ZooKeeperServer
from bkstore.wire.frames import frame
from bkstore.wire.v2 import ReadRequest
from tools.bench.inputs.wire_load import MeasuredProcess

_OPENED_PACKAGES = ("java.nio", "java.lang", "java.io", "sun.nio.ch", "jdk.internal.misc")
_STORAGE_CLASSES = {
    "sorted": "SortedLedgerStorage",
    "interleaved": "InterleavedLedgerStorage",
    "db": "storage.ldb.DbLedgerStorage",
}
_START_SECONDS = 60


def why_unavailable() -> str | None:
    """Return why no real bookie can be started here, or None if one can."""
    if not os.environ.get("BOOKKEEPER_CLASSPATH"):
        return "BOOKKEEPER_CLASSPATH names no real BookKeeper"
    if not Path("/proc/self/stat").exists():
        return "CPU and memory of another process are read from /proc, which is not here"
    return None if shutil.which("java") else "there is no java on the PATH"


def _read_class_path() -> str:
    class_path = os.environ["BOOKKEEPER_CLASSPATH"]
    return Path(class_path).read_text().strip() if Path(class_path).is_file() else class_path


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@contextmanager
def real_bookie(storage: StorageKind, directory: Path) -> Iterator[MeasuredProcess]:
    """Yield a new real bookie, registered in a ZooKeeper of its own; stop both afterwards."""
    port = _free_port()
    with ZooKeeperServer(directory / "zookeeper") as zookeeper:
        ZooKeeperStore.format(zookeeper.uri(), timeout=60).close()
        conf = directory / "bk_server.conf"
        conf.write_text(
            f"bookiePort={port}\nallowLoopback=true\nadvertisedAddress=127.0.0.1\n"
            f"journalDirectories={directory}/journal\nledgerDirectories={directory}/ledgers\n"
            f"ledgerStorageClass=org.apache.bookkeeper.bookie.{_STORAGE_CLASSES[storage]}\n"
            f"metadataServiceUri={zookeeper.uri()}\n"
        )
        opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED_PACKAGES]
        command = ["java", *opened, "-Djava.net.preferIPv4Stack=true", "-Xmx2g"]
        main = "org.apache.bookkeeper.server.Main"
        with (
            (directory / "bookie.log").open("wb") as log,
            subprocess.Popen(
                [*command, "-cp", _read_class_path(), main, "-c", str(conf)], stdout=log, stderr=log
            ) as process,
        ):
            try:
                _wait_until_answering(port, process, directory / "bookie.log")
                yield MeasuredProcess(("127.0.0.1", port), process.pid)
            finally:
                process.kill()


def _wait_until_answering(port: int, process: subprocess.Popen[bytes], log_path: Path) -> None:
    """Wait until a request is answered: while it starts, a bookie resets its connections."""
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            address = ("127.0.0.1", port)
            with socket.create_connection(address, timeout=_START_SECONDS) as connection:
                connection.sendall(frame(*ReadRequest(1, 0).parts()))
                if connection.recv(1):
                    return
        except OSError:
            pass  # refused, or reset
        time.sleep(0.1)
    raise RuntimeError(f"the real bookie does not answer: {log_path.read_text()[-2000:]}")
