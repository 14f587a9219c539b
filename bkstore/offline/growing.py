"""Where something grows before it has its name: ``OUT.partial``, and the lock that stands in it.

Dumps and loads grow there, and get their name by one rename, so that what has the name is whole,
whatever ended the making.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack, suppress
from pathlib import Path

from bkstore.errors import DirectoryInUse, InvalidArgument
from bkstore.index.files import Files
from bkstore.index.opening import open_regular

__all__ = ["check_target", "locked", "partial_path"]


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

    Raises `DirectoryInUse` where another process makes its `what` there.
    """
    while True:
        files.makedirs(top)
        path = top / "lock"
        fd = open_regular(path, os.O_RDWR | os.O_CREAT)
        with ExitStack() as stack:
            stack.callback(os.close, fd)
            stack.callback(fcntl.flock, fd, fcntl.LOCK_UN)  # a forked child has `fd`, too
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DirectoryInUse(f"{top}: another {what} is being made here") from None
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.stat(path)):
                    return stack.pop_all()  # else one that ended has just removed it
