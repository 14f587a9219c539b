"""Faults of the bookies of an ensemble: their names, and the file by which a process has its own.

The file of a bookie is beside its directory, `bookie-1.faults`, while it has a fault. Its process
reads the file before each operation that a fault could affect, so a fault is in force as soon as
the file is there, whoever wrote it, and after a restart too. A frozen process reads nothing: that
fault is the state of the process.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from bkstore.arguments import choice, number
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.files.os_errors import convert_write_errors
from bkstore.formats.syntax.json_text import format_json, parse_json

FaultName = Literal["failing-disk", "frozen", "full-disk", "partitioned", "read-only", "slow-disk"]

FAULTS: Mapping[FaultName, str] = {
    "failing-disk": "each write and sync fails with EIO",
    "frozen": "the process is stopped by SIGSTOP: it keeps its connections and answers nothing",
    "full-disk": "files cannot grow (ENOSPC), and the disk counts as full: the bookie is read-only",
    "partitioned": "registered and running, but no client gets an answer",
    "read-only": "the bookie refuses new entries, and is registered as read-only",
    "slow-disk": "each sync takes longer, by a number of seconds",
}
"""What each fault does, by its name."""

DISK_FAULTS = frozenset({"failing-disk", "full-disk", "slow-disk"})

DEFAULT_SECONDS = 1.0
"""By how many seconds a slow disk delays each sync."""

_check_fault = choice(*FAULTS)
_check_seconds = number(0, 3600, above=True)


def faults_path(top: Path, bookie_id: str) -> Path:
    """Return the path of a bookie's fault file in the directory of its ensemble."""
    return top / f"{bookie_id}.faults"


def read_faults(path: Path) -> dict[str, float]:
    """Return the faults in a fault file by name, each with its seconds (0 if it has none).

    A missing file has none. Raises `CorruptionError` if it is not a fault file.

    >>> read_faults(Path("no such file"))
    {}
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    faults = parse_json(data, path)
    if not isinstance(faults, dict) or not faults.keys() <= FAULTS.keys():
        raise CorruptionError(path, None, "not the faults of a bookie")
    for seconds in faults.values():
        if type(seconds) not in (int, float) or not 0 <= seconds <= 3600:
            raise CorruptionError(path, None, f"{seconds!r:.60} is not a number of seconds")
    return faults


def check_fault(fault: str, seconds: float | None) -> float:
    """Return the seconds of a fault, 0 if it has none. Raises `InvalidArgument` for an unknown
    fault, and for seconds of one that has none."""
    _check_fault("fault", fault)
    if fault == "slow-disk":
        return float(_check_seconds("seconds", DEFAULT_SECONDS if seconds is None else seconds))
    if seconds is not None:
        raise InvalidArgument(f"{fault} has no seconds: only slow-disk has")
    return 0.0


def add_fault(path: Path, fault: str, seconds: float) -> None:
    """Add a fault to a fault file, or change its seconds."""
    with _changing_faults(path) as faults:
        faults[fault] = seconds


def remove_faults(path: Path, fault: str | None = None) -> None:
    """Remove one fault from a fault file, or all of them; a missing fault is ignored."""
    with _changing_faults(path) as faults:
        for present in list(faults):
            if fault in (None, present):
                del faults[present]


@contextmanager
def _changing_faults(path: Path) -> Iterator[dict[str, float]]:
    """Yield the faults in a file, for the ``with`` block to change, then write them back. A lock on
    the folder keeps other processes from changing them meanwhile."""
    with convert_write_errors(path):
        fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            faults = read_faults(path)
            yield faults
            temporary = path.with_name(f"{path.name}.tmp")
            if faults:
                temporary.write_text(format_json(faults) + "\n", encoding="utf-8")
                os.replace(temporary, path)
            else:
                path.unlink(missing_ok=True)
        finally:
            os.close(fd)
