"""Bookies of an ensemble that another process runs: their processes, their faults."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from bkstore.errors import IllegalOperation, InvalidArgument
from bkstore.files.lock_files import is_locked, open_lock_file
from bkstore.testing.ensemble.faults import (
    add_fault,
    check_fault,
    faults_path,
    read_faults,
    remove_faults,
)
from bkstore.testing.ensemble.process_table import continue_process, read_process, stop_process
from bkstore.testing.ensemble.state_file import BookieState, process_namespace
from bkstore.testing.ensemble.stop_and_remove import EnsembleStatus, read_status

_BOOKIE_LOCK = Path("ledgers", "bkstore.lock")


class BookieCondition(NamedTuple):
    """What is known of a bookie without ZooKeeper. `process` is "unknown" if it may run in another
    PID namespace or machine; `pid` is None if no process of the ensemble runs it."""

    process: Literal["running", "frozen", "ended", "unknown"]
    pid: int | None
    faults: dict[str, float]


def inspect_bookie(status: EnsembleStatus, bookie: BookieState) -> BookieCondition:
    """Return the condition of a bookie's process at this moment, and its faults.

    A process counts as the bookie's if its parent is the ensemble's process. Without one, the
    bookie is running if its directory is locked: somebody else has started it.
    """
    faults = read_faults(faults_path(status.path, bookie.id))
    if status.running and status.state.namespace != process_namespace():
        return BookieCondition("unknown", bookie.pid, faults)
    pid = bookie.pid if status.running else None
    process = None if pid is None else read_process(pid)
    if process is None or process.parent != status.state.pid:
        is_served = _is_locked(status.path / bookie.id / _BOOKIE_LOCK)
        return BookieCondition("running" if is_served else "ended", None, faults)
    if process.is_stopped:
        return BookieCondition("frozen", pid, faults | {"frozen": 0.0})
    return BookieCondition("running", pid, faults)


def _is_locked(path: Path) -> bool:
    """Return whether a bookie holds this lock file."""
    if not path.exists():  # it has never run
        return False
    fd = open_lock_file(path, 0)
    try:
        return is_locked(fd)
    finally:
        os.close(fd)


def set_fault(path: Path, bookie_id: str, fault: str, seconds: float | None = None) -> None:
    """Give a bookie of the ensemble in a directory a fault. Raises `InvalidArgument` for an unknown
    bookie or fault, `IllegalOperation` for "frozen" if its process is not running here."""
    status = read_status(path)
    bookie = _find_bookie(status, bookie_id)
    checked_seconds = check_fault(fault, seconds)
    if fault != "frozen":
        add_fault(faults_path(status.path, bookie.id), fault, checked_seconds)
    elif not _change_process(status, bookie, stop_process):
        raise IllegalOperation(f"bookie {bookie.id} is not running as a process of the ensemble")


def heal(path: Path, bookie_id: str | None = None, fault: str | None = None) -> None:
    """End one fault, or all of them, of one bookie or all bookies of the ensemble in a directory.
    Raises `InvalidArgument` for an unknown bookie or fault."""
    status = read_status(path)
    if fault is not None:
        check_fault(fault, None)
    bookies = status.state.bookies if bookie_id is None else [_find_bookie(status, bookie_id)]
    for bookie in bookies:
        remove_faults(faults_path(status.path, bookie.id), fault)
        if fault in (None, "frozen"):
            _change_process(status, bookie, continue_process)


def _find_bookie(status: EnsembleStatus, bookie_id: str) -> BookieState:
    for bookie in status.state.bookies:
        if bookie.id == bookie_id:
            return bookie
    known = ", ".join(bookie.id for bookie in status.state.bookies)
    raise InvalidArgument(f"{status.path}: no bookie {bookie_id!r:.60}: there are {known}")


def _change_process(
    status: EnsembleStatus, bookie: BookieState, change: Callable[[int], None]
) -> bool:
    """Call `change` with the id of the bookie's process; return False if it is not running. The
    process is one whose parent is the ensemble's: another one that has its id is left alone."""
    pid = inspect_bookie(status, bookie).pid
    if pid is None or status.state.namespace != process_namespace():
        return False
    change(pid)
    return True
