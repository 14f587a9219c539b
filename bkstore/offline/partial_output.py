"""Where something grows before it has its name: ``OUT.partial``, and the lock that stands in it.

Dumps and loads grow there, and get their name by one rename, so that what has the name is whole,
whatever ended the making.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

from bkstore.errors import InvalidArgument, WriteFailed
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.lock_files import let_go, lock_file, take_lock
from bkstore.files.os_errors import writing

_log = logging.getLogger(__name__)

LOCK = "lock"
MARK = "BKSTORE-PARTIAL"


def partial_path(out: Path) -> Path:
    """Return where `out` grows."""
    place = Path(os.path.abspath(out))
    return place.with_name(place.name + ".partial")


def check_target(out: Path) -> None:
    """Raise `InvalidArgument` unless `out` is a name for something new, or an empty folder."""
    if os.path.lexists(out) and (out.is_symlink() or not out.is_dir() or any(out.iterdir())):
        raise InvalidArgument(f"{out}: is there and not an empty folder")
    if os.path.ismount(out):  # a mount cannot be renamed over
        raise InvalidArgument(f"{out}: is a mount point; name a folder in it")


def locked(top: Path, what: str, files: Files) -> ExitStack:
    """Make `top` and lock it; closing the answer lets it go.

    Its lock file says what it is: a folder that is there and does not say that a `what` grows
    in it is none of ours, and is refused as it is (`InvalidArgument`), but for an empty one.
    Raises `DirectoryInUse` where another process makes its `what` there.
    """
    path = top / LOCK
    while True:
        fd = _lock_of(top, what, files)
        with ExitStack() as stack:
            stack.callback(let_go, fd)
            take_lock(fd, path, f"{top}: another {what} is being made here")
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.lstat(path)):
                    try:
                        _say(fd, top, what)
                    except WriteFailed:
                        remove_growing(top, ())
                        raise
                    return stack.pop_all()  # else one that ended has just removed it


def _lock_of(top: Path, what: str, files: Files) -> int:
    """Open the lock file, made where `top` is new or empty; nothing is made in another's."""
    files.makedirs(top.parent)
    if top.is_symlink():
        raise InvalidArgument(f"{top}: is a link, where no {what} of ours can have begun")
    files.makedirs(top)
    there = os.listdir(top)
    if there and LOCK not in there:
        raise _foreign(top, what)
    return lock_file(top / LOCK)


def _say(fd: int, top: Path, what: str) -> None:
    """Let the lock file say what grows here; check it, if it does already."""
    said = f"{MARK}\t{what}\n".encode("ascii")
    found = os.pread(fd, len(said) + 1, 0)
    if found == said:
        return
    # One that was killed here had made nothing else yet.
    if not said.startswith(found) or os.listdir(top) != [LOCK]:
        raise _foreign(top, what)
    with writing(top / LOCK):
        OS_FILES.pwrite(fd, said, 0)
        OS_FILES.fsync(fd)


def _foreign(top: Path, what: str) -> InvalidArgument:
    return InvalidArgument(
        f"{top}: is there and not the folder of a {what} that was interrupted: "
        "nothing is written or removed in it"
    )


def publish(grown: Path, out: Path, files: Files) -> None:
    """Let the folder `grown` be `out`, durably; after an error it is not.

    Raises `WriteFailed` where the system refuses. A rename whose directories cannot be synced is
    taken back; where even that is refused, the error says that `out` is there.
    """
    with writing(out):
        files.replace(grown, out)
        try:
            files.sync_dir(out.parent)
            files.sync_dir(grown.parent)
        except OSError as error:
            _take_back(grown, out, files, error)
            raise


def _take_back(grown: Path, out: Path, files: Files, error: OSError) -> None:
    try:
        files.replace(out, grown)
    except OSError:
        reason = f"{error.strerror}; it is there and whole, but a crash may take its name away"
        raise WriteFailed(out, OSError(error.errno, reason)) from error


def discard_growing(top: Path, made: Iterable[str]) -> None:
    """Remove what a finished or given up run made; what the system lets nobody remove stays.

    It says so in the log, and the next run there removes it.
    """
    try:
        remove_growing(top, made)
    except OSError as error:
        _log.warning("%s: cannot be removed: %s", error.filename or top, error.strerror)


def remove_growing(top: Path, made: Iterable[str]) -> None:
    """Remove what was made in a locked folder, by name or pattern, and the folder.

    What others put there stays, and the lock file beside it.
    """
    for pattern in made:
        for path in top.glob(pattern):
            OS_FILES.remove_tree(path)
    if os.listdir(top) == [LOCK]:
        OS_FILES.unlink(top / LOCK)
        OS_FILES.rmdir(top)
