"""BookKeeper's own test classes, run with bookies of bkstore in place of those that they start.

`BOOKKEEPER_PEER` names a folder with these classes compiled, so that a test makes a
`org.apache.bookkeeper.proto.BkstoreServer` where it would start a bookie by configuration: ours, of
`java/`. What a test brings itself, a mock say, stays BookKeeper's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from tests.interop.class_path import tool

__all__ = ["Result", "Storage", "compile_bookie", "control", "listed", "missing", "on_ours"]

Storage = Literal["sorted", "interleaved", "db"]

_HERE = Path(__file__).parent
_OPENED = (
    *("java.nio", "java.lang", "java.io", "sun.nio.ch", "jdk.internal.misc"),
    *("java.util", "java.util.concurrent", "java.net"),
)
_SECONDS = 1200  # for a class


@dataclass(frozen=True, slots=True)
class Result:
    """How one test ended: `status` is JUnit's, or ENDED where the JVM did meanwhile."""

    test: str
    status: str
    detail: str = ""


@cache
def missing() -> str | None:
    """Return why BookKeeper's own tests cannot be run, None where they can."""
    if not os.environ.get("BOOKKEEPER_PEER"):
        return "no test classes of a real BookKeeper: set BOOKKEEPER_PEER (docs/interop.md)"
    return None if tool("javac") else "no JDK: set JAVA_HOME, or put javac on the PATH"


def listed() -> list[str]:
    """Return the names of the classes below ``org.apache.bookkeeper`` that start bookies."""
    return (_HERE / "classes.txt").read_text().split()


def _class_path() -> str:
    peer = Path(os.environ["BOOKKEEPER_PEER"])
    oracle = Path((peer / "ORACLE").read_text().strip())
    jars = [*sorted(oracle.glob("lib/*.jar")), *sorted(peer.glob("lib/*.jar"))]
    return os.pathsep.join(map(str, [peer / "classes", oracle / "classes", *jars]))


@cache
def compile_bookie(folder: Path) -> Path:
    """Compile our bookie into a folder and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    source = _HERE / "java" / "BkstoreServer.java"
    command = [str(tool("javac")), "-nowarn", "-proc:none", "-d", str(folder)]
    subprocess.run([*command, "-cp", _class_path(), str(source)], check=True, capture_output=True)
    return folder


def on_ours(name: str, storage: Storage, folder: Path, bookie: Path) -> list[Result]:
    """Run a class with bookies of ours, compiled into the folder `bookie`.

    What they and the JVM print is kept in `folder`.
    """
    bkstore = Path(sys.executable).with_name("bkstore")
    flags = [f"-Dbkstore.bin={bkstore}", f"-Dbkstore.storage={storage}"]
    return _run(name, flags, str(compile_bookie(bookie)), folder)


def control(name: str, folder: Path) -> list[Result]:
    """Run a class as it is."""
    return _run(name, [], "", folder)


def _run(name: str, flags: list[str], before: str, folder: Path) -> list[Result]:
    folder.mkdir(parents=True, exist_ok=True)
    told = folder / f"{name}.txt"
    told.unlink(missing_ok=True)
    path = os.pathsep.join([before, _class_path()]) if before else _class_path()
    oracle = Path(os.environ["BOOKKEEPER_PEER"], "ORACLE").read_text().strip()
    command = [
        *(str(tool("java")), "-Xmx1200m", "-Djava.net.preferIPv4Stack=true", *flags),
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        "-Dio.netty.tryReflectionSetAccessible=true",
        f"-Dlog4j2.configurationFile={oracle}/log4j2.xml",
        "-Dzookeeper.4lw.commands.whitelist=*",
        "-Dzookeeper.admin.enableServer=false",
        f"-Djava.io.tmpdir={folder}",
        *("-cp", path, "peer.Run", str(told), f"org.apache.bookkeeper.{name}"),
    ]
    with (folder / f"{name}.log").open("wb") as log:
        jvm = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        with suppress(subprocess.TimeoutExpired):  # tests without an end are told below
            jvm.wait(_SECONDS)
        with suppress(ProcessLookupError):  # bookies that a test left running too
            os.killpg(jvm.pid, signal.SIGKILL)
        jvm.wait()
    return _results(told.read_text() if told.exists() else "")


def _results(told: str) -> list[Result]:
    """Return what the lines of a run say, and what was begun and has no end."""
    found, begun = [], {}
    for line in told.splitlines():
        status, test, *rest = line.split("\t")
        if status == "START":
            begun[test] = True
            continue
        begun.pop(test, None)
        detail = " ".join(rest)
        if "TestCouldNotBeSkippedException" in detail:  # aborted, and then its cleanup failed
            status = "ABORTED"
        found.append(Result(test, status, detail))
    return [*found, *(Result(test, "ENDED") for test in begun)]
