"""List the files below a directory that this process has open: what a test did not close.

Linux lists them in /proc/self/fd, macOS returns the path of a descriptor. On other systems the
check raises an error, rather than report no leaks.
"""

from __future__ import annotations

import fcntl
import gc
import os
import sys

_IS_MACOS = sys.platform == "darwin"
_DESCRIPTOR_DIR = "/dev/fd" if _IS_MACOS else "/proc/self/fd"

_F_GETPATH = 50  # fcntl.F_GETPATH, which the module defines on macOS only

CAN_LIST_OPEN_FILES = sys.platform in ("linux", "darwin")
"""Whether open files can be listed on this system."""


def open_files(directory: str | os.PathLike[str]) -> list[str]:
    """Return the paths at or below `directory` that this process has open, sorted.

    One path for each descriptor; removed files too, marked " (deleted)" on Linux. If there are any,
    collects garbage and looks again, so unreachable file objects do not count. Raises
    `UnsupportedLayout` if the system cannot list them. Cost: a system call for each descriptor.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as top, open(f"{top}/a", "w") as file:
    ...     [os.path.basename(path) for path in open_files(top)]
    ['a']
    """
    if not CAN_LIST_OPEN_FILES:
        from bkstore.errors import UnsupportedLayout

        raise UnsupportedLayout(f"open files cannot be listed on {sys.platform}")
    top = os.path.realpath(directory)
    paths = _list_open_files(top)
    if paths:
        gc.collect()
        paths = _list_open_files(top)
    return paths


def _list_open_files(top: str) -> list[str]:
    """Return the paths at or below `top` of this process's descriptors, sorted."""
    paths = []
    for fd in os.listdir(_DESCRIPTOR_DIR):
        try:
            path = _descriptor_path(int(fd))
        except OSError:  # the descriptor of this listing, closed since
            continue
        if path == top or path.startswith(top + os.sep):
            paths.append(path)
    return sorted(paths)


def _descriptor_path(fd: int) -> str:
    if _IS_MACOS:
        return os.fsdecode(fcntl.fcntl(fd, _F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return os.readlink(f"{_DESCRIPTOR_DIR}/{fd}")


def assert_no_leaks(directory: str | os.PathLike[str]) -> None:
    """Raise `AssertionError` with every file below `directory` that is still open.

    Call it after closing the storage, the bookie or the index. Raises as `open_files`.
    """
    leaked = open_files(directory)
    if leaked:
        lines = "\n  ".join(leaked)
        raise AssertionError(f"{len(leaked)} files are still open below {directory}:\n  {lines}")
