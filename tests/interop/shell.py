"""The real bookie shell on a directory that no bookie runs on, a JVM a command."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.interop.class_path import java

LOGGING = Path(__file__).parent / "java" / "shell-log4j2.xml"


def shell(classes: Path, conf: Mapping[str, str], folder: Path, *command: str) -> list[str]:
    """Return the lines that a command of the shell prints; fail where it does.

    Its messages alone are printed, without the prefixes of a log.
    """
    path = folder / "bk_server.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in conf.items()))
    line = java(classes, "org.apache.bookkeeper.bookie.BookieShell", "-conf", str(path), *command)
    line.insert(1, f"-Dlog4j.configurationFile={LOGGING}")
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)

    assert 0 == done.returncode, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout.splitlines()
