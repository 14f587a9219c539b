"""A standalone Spark master with two workers on loopback, for tests that ask for one."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

__all__ = ["standalone_master"]


@contextmanager
def standalone_master(tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a standalone master with two workers on loopback."""
    import pyspark

    from bkstore.spark.java import find_java_home

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java_home(tmp_path / "java")),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    url = f"spark://127.0.0.1:{port}"
    common = ["--host", "127.0.0.1", "--webui-port", "0"]
    commands = [["master.Master", "--port", str(port), *common]] + [
        ["worker.Worker", *common, "-c", "1", "-m", "1g", "-d", str(tmp_path / f"w{n}"), url]
        for n in range(2)
    ]
    with ExitStack() as stack:
        for name, *words in commands:
            command = [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{name}", *words]
            process = subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield url
