"""Where a real BookKeeper is, if there is one, and our Java programs compiled against it."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

JAVA_SOURCES = sorted((Path(__file__).parent / "java").glob("*.java"))

JVM_FLAGS = [
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("java.nio", "java.lang", "java.io", "sun.nio.ch", "jdk.internal.misc")
    ),
    "-Djava.net.preferIPv4Stack=true",  # an IPv6 loopback makes bookie ids that are not valid
    "-Dzookeeper.forceSync=no",
    "-Xmx1g",
    "-XX:+UseSerialGC",
]


@cache
def missing() -> str | None:
    """Return why there is nothing to test against, None where there is."""
    if not os.environ.get("BOOKKEEPER_CLASSPATH") and not os.environ.get("BOOKKEEPER_HOME"):
        return "no real BookKeeper: set BOOKKEEPER_CLASSPATH or BOOKKEEPER_HOME (docs/interop.md)"
    if tool("javac") is None:
        return "no JDK: set JAVA_HOME, or put javac on the PATH (docs/interop.md)"
    return None


def tool(name: str) -> str | None:
    """Return the path of a program of the JDK: below JAVA_HOME, else on the PATH."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(name, path=str(Path(home, "bin"))) if home else shutil.which(name)


@cache
def class_path() -> str:
    """Return BookKeeper's class path: as it is named, out of a file, or a distribution's jars."""
    named = os.environ.get("BOOKKEEPER_CLASSPATH", "")
    if named:
        is_file = os.pathsep not in named and not named.endswith(".jar") and Path(named).is_file()
        return Path(named).read_text(encoding="utf-8").strip() if is_file else named
    home = Path(os.environ["BOOKKEEPER_HOME"])
    jars = sorted(map(str, home.glob("lib/*.jar")))
    if not jars:
        raise FileNotFoundError(f"{home}: no lib/*.jar; BOOKKEEPER_HOME names a distribution")
    return os.pathsep.join(jars)


def compiled(target: Path) -> Path:
    """Compile our Java programs into a folder and return it; some seconds."""
    target.mkdir(parents=True)
    command = [tool("javac"), "-nowarn", "-proc:none", "-d", target, "-cp", class_path()]
    done = subprocess.run(
        [*map(str, command), *map(str, JAVA_SOURCES)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"javac: {done.stderr[-4000:]}")
    return target


def java(classes: Path, main: str, *arguments: str) -> list[str]:
    """Return the command that runs a main class, ours or BookKeeper's."""
    path = f"{classes}{os.pathsep}{class_path()}"
    return [str(tool("java")), *JVM_FLAGS, "-cp", path, main, *arguments]
