"""What another process does with an ensemble by its directory: look, stop, remove.

No process is meant by its number alone: see `state_file`. Links are not followed, and only what
an ensemble made is removed.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bkstore.errors import DirectoryInUse, IllegalOperation, InvalidArgument
from bkstore.files.disk_changes import StrPath
from bkstore.files.lock_files import held_lock, is_locked, lock_file
from bkstore.testing.ensemble.state_file import (
    LOCK_NAME,
    STATE_NAME,
    EnsembleState,
    StateFile,
    drop_cut_off,
    process_namespace,
)

LOG_NAME = "ensemble.log"
"""What `bkstore ensemble up --detach` prints once it runs."""

_PAUSE = 0.02


class Seen(NamedTuple):
    """An ensemble's directory from outside; `running` says that its process is there."""

    path: Path
    state: EnsembleState
    running: bool


def look(path: StrPath) -> Seen:
    """Return what the directory of an ensemble says.

    Raises `InvalidArgument` for another directory, `CorruptionError` for a damaged state file.
    """
    place = Path(os.path.abspath(path))
    found = StateFile.read(place) if place.is_dir() else None
    if found is None:
        raise InvalidArgument(f"{place}: no ensemble's directory (it has no {STATE_NAME})")
    return Seen(place, *found)


def stop(path: StrPath, timeout: float) -> bool:
    """Let `bkstore ensemble up` end, and wait for that; False if the ensemble does not run.

    Raises `IllegalOperation` for one that another program runs, for one of another PID namespace
    or machine, and if it does not end in time; `DirectoryInUse` for one that just starts; else
    as `look`.
    """
    seen = look(path)
    if not seen.running:
        if _held(seen.path):
            raise DirectoryInUse(f"{seen.path}: its ensemble is starting, or used: try again")
        return False
    pid = seen.state.pid
    if not seen.state.command or pid is None:
        raise IllegalOperation(f"{seen.path}: its ensemble is run by process {pid}: end that")
    if seen.state.namespace != process_namespace():
        raise IllegalOperation(
            f"{seen.path}: its ensemble runs in another container (PID namespace) or on another "
            f"machine, as process {pid} there: end it there"
        )
    _end(pid, seen)
    until = time.monotonic() + timeout
    while _held(seen.path):
        if time.monotonic() > until:
            raise IllegalOperation(f"{seen.path}: process {pid} has not ended in {timeout:g} s")
        time.sleep(_PAUSE)
    return True


def _end(pid: int, seen: Seen) -> None:
    """Send SIGTERM to the process that has the state file, and to no other.

    Where the system has handles of processes, one is taken before the second look: if the state
    is still that process's then, the handle is its own.
    """
    with suppress(ProcessLookupError):  # it has ended
        if not hasattr(os, "pidfd_open"):
            os.kill(pid, signal.SIGTERM)
            return
        process = os.pidfd_open(pid)
        try:
            again = look(seen.path)
            if again.running and again.state.pid == pid:
                signal.pidfd_send_signal(process, signal.SIGTERM)
        finally:
            os.close(process)


def _held(path: Path) -> bool:
    """Return whether the lock of the directory is held."""
    try:
        fd = lock_file(path / LOCK_NAME, 0)
    except OSError:
        return False
    try:
        return is_locked(fd)
    finally:
        os.close(fd)


def remove(path: StrPath) -> list[str]:
    """Remove what an ensemble that does not run made, and the directory if nothing else is in it.

    Return the names of what stays. Raises `DirectoryInUse` if the ensemble runs, else as `look`.
    """
    place, state, _ = look(path)
    fd = held_lock(place / LOCK_NAME, f"{place}: its ensemble is running")
    try:
        names = ["zookeeper", *(bookie.id for bookie in state.bookies)]
        for name in names:
            if not (place / name).is_symlink():
                shutil.rmtree(place / name, ignore_errors=True)
            _unlink(place / f"{name}.log")
        for name in (LOG_NAME, STATE_NAME, LOCK_NAME):
            _unlink(place / name)
        drop_cut_off(place)
        left = sorted(one.name for one in place.iterdir())
        if not left:
            place.rmdir()
        return left
    finally:
        os.close(fd)


def _unlink(path: Path) -> None:
    if path.is_file() or path.is_symlink():
        path.unlink()
