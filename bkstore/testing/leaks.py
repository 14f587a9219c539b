"""Which files below a directory this process has open: what a test left behind.

Linux lists them in /proc/self/fd, macOS tells the path of a descriptor. Elsewhere there is no
way to ask, and that is said; nobody is told that there are no leaks where nobody looked.
"""

from __future__ import annotations

import fcntl
import gc
import os
import sys

_MAC = sys.platform == "darwin"
_DESCRIPTORS = "/dev/fd" if _MAC else "/proc/self/fd"

_F_GETPATH = 50  # of macOS; the module has its name there only

CAN_CHECK = sys.platform in ("linux", "darwin")
"""Whether open files can be told on this system."""


def open_files(directory: str | os.PathLike[str]) -> list[str]:
    """Return the paths at or below `directory` that this process has open, sorted.

    One path for each descriptor; removed files too, marked " (deleted)" on Linux. Files that
    were opened and dropped, but not collected yet, are collected first. `UnsupportedLayout`
    where the system cannot tell. Cost: a system call for each descriptor.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as top, open(f"{top}/a", "w") as file:
    ...     [os.path.basename(path) for path in open_files(top)]
    ['a']
    """
    if not CAN_CHECK:
        from bkstore.errors import UnsupportedLayout

        raise UnsupportedLayout(f"open files cannot be told on {sys.platform}")
    top = os.path.realpath(directory)
    found = _below(top)
    if found:
        gc.collect()
        found = _below(top)
    return found


def _below(top: str) -> list[str]:
    found = []
    for name in os.listdir(_DESCRIPTORS):
        try:
            path = _path_of(int(name))
        except OSError:  # closed since: the descriptor of this very listing
            continue
        if path == top or path.startswith(top + os.sep):
            found.append(path)
    return sorted(found)


def _path_of(fd: int) -> str:
    if _MAC:
        return os.fsdecode(fcntl.fcntl(fd, _F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return os.readlink(f"{_DESCRIPTORS}/{fd}")


def assert_no_leaks(directory: str | os.PathLike[str]) -> None:
    """Raise `AssertionError` that names every file below `directory` which is still open.

    Call it after the storage, the bookie or the index was closed. `UnsupportedLayout` where the
    system cannot tell.
    """
    left = open_files(directory)
    if left:
        names = "\n  ".join(left)
        raise AssertionError(f"{len(left)} files are still open below {directory}:\n  {names}")
