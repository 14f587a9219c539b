"""Inspect, stop or remove an ensemble of another process, given its directory.

A process is never identified by its id alone: see `state_file`. Links are not followed, and only
files that an ensemble made are removed.
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
from bkstore.files.lock_files import acquire_lock, is_locked, open_lock_file
from bkstore.testing.ensemble.faults import faults_path
from bkstore.testing.ensemble.state_file import (
    LOCK_NAME,
    STATE_NAME,
    EnsembleState,
    StateFile,
    process_namespace,
    remove_unfinished_states,
)

LOG_NAME = "ensemble.log"
"""The log of `bkstore ensemble up --detach` once it is up."""

_POLL_SECONDS = 0.02


class EnsembleStatus(NamedTuple):
    """An ensemble's directory; `running`: whether the process of the state file is alive."""

    path: Path
    state: EnsembleState
    running: bool


def read_status(path: StrPath) -> EnsembleStatus:
    """Return the state of the ensemble in a directory. Raises `InvalidArgument` for another
    directory, `CorruptionError` for a damaged state file."""
    directory = Path(os.path.abspath(path))
    contents = StateFile.read(directory) if directory.is_dir() else None
    if not directory.exists():
        raise InvalidArgument(f"{directory}: no such directory")
    if contents is None:
        raise InvalidArgument(f"{directory}: not an ensemble's directory (it has no {STATE_NAME})")
    return EnsembleStatus(directory, *contents)


def stop(path: StrPath, timeout: float) -> bool:
    """Send SIGTERM to `bkstore ensemble up` and wait; return False if the ensemble is not running.

    Raises `IllegalOperation` if another program runs it, if it is in another PID namespace or
    machine, or does not end in time; `DirectoryInUse` if it is starting; else as `read_status`.
    """
    status = read_status(path)
    if not status.running:
        if _is_lock_held(status.path):
            raise DirectoryInUse(f"{status.path}: its ensemble is starting or in use; try again")
        return False
    pid = status.state.pid
    if not status.state.command or pid is None:
        raise IllegalOperation(f"{status.path}: its ensemble is run by process {pid}; stop it")
    if status.state.namespace != process_namespace():
        raise IllegalOperation(
            f"{status.path}: its ensemble runs in another container (PID namespace) or on another "
            f"machine, as process {pid} there; stop it there"
        )
    _send_sigterm(pid, status)
    deadline = time.monotonic() + timeout
    while _is_lock_held(status.path):
        if time.monotonic() > deadline:
            raise IllegalOperation(f"{status.path}: process {pid} has not ended in {timeout:g} s")
        time.sleep(_POLL_SECONDS)
    return True


def _send_sigterm(pid: int, status: EnsembleStatus) -> None:
    """Send SIGTERM to the process that holds the state file, and to no other.

    If the system has process handles, opens one before reading the state again: if that process
    holds the state even then, the handle is its own.
    """
    with suppress(ProcessLookupError):  # it has ended
        if not hasattr(os, "pidfd_open"):
            os.kill(pid, signal.SIGTERM)
            return
        handle = os.pidfd_open(pid)
        try:
            current = read_status(status.path)
            if current.running and current.state.pid == pid:
                signal.pidfd_send_signal(handle, signal.SIGTERM)
        finally:
            os.close(handle)


def _is_lock_held(path: Path) -> bool:
    """Return whether a process has the lock of an ensemble's directory."""
    try:
        fd = open_lock_file(path / LOCK_NAME, 0)
    except OSError:
        return False
    try:
        return is_locked(fd)
    finally:
        os.close(fd)


def remove(path: StrPath) -> list[str]:
    """Remove the files of a stopped ensemble, and its directory if that is empty then. Returns the
    names that remain. Raises `DirectoryInUse` if it is running, else as `read_status`."""
    directory, state, _ = read_status(path)
    fd = acquire_lock(directory / LOCK_NAME, f"{directory}: its ensemble is running")
    try:
        names = ["zookeeper", *(bookie.id for bookie in state.bookies)]
        for name in names:
            if not (directory / name).is_symlink():
                shutil.rmtree(directory / name, ignore_errors=True)
            _remove_file(directory / f"{name}.log")
            _remove_file(faults_path(directory, name))
        for name in (LOG_NAME, STATE_NAME, LOCK_NAME):
            _remove_file(directory / name)
        remove_unfinished_states(directory)
        remaining = sorted(child.name for child in directory.iterdir())
        if not remaining:
            directory.rmdir()
        return remaining
    finally:
        os.close(fd)


def _remove_file(path: Path) -> None:
    if path.is_file() or path.is_symlink():
        path.unlink()
