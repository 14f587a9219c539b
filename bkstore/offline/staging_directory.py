"""StagingDirectory: where an output grows before it has its name, ``OUT.partial``.

Dumps, loads and rewrites are made there and get their name by one rename. So whatever ends the
making (an error, a killed executor, a kill of the process), what has the name is whole. A lock
file in the directory keeps a second process out, and says what is staged.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from bkstore.errors import InvalidArgument, WriteFailed
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.lock_files import let_go, lock_file, take_lock
from bkstore.files.os_errors import writing

_log = logging.getLogger(__name__)

LOCK = "lock"
MARK = "BKSTORE-PARTIAL"


class StagingDirectory:
    """The staging directory of `out`: a context manager that holds its lock.

    Each run works in a directory of its own: `data` becomes `out`, `work` is for pieces and
    scratch files. Leaving removes both; what a killed run left is removed by the next. `kind` is
    what is staged, "dump" or "load" for instance: a directory of another kind is refused
    (`InvalidArgument`). Entering raises `DirectoryInUse` where another process holds the lock,
    `WriteFailed` where the system refuses.
    """

    def __init__(self, out: Path, kind: str, files: Files = OS_FILES) -> None:
        self.out = Path(os.path.abspath(out))
        self.top = partial_path(out)
        self._kind = kind
        self._files = files
        self._lock = ExitStack()
        run = self._directory_of_run("run")
        self.data, self.work = run / "data", run / "work"

    def _directory_of_run(self, prefix: str) -> Path:
        return self.top / f"{prefix}-{os.getpid()}-{os.urandom(4).hex()}"

    def __enter__(self) -> Self:
        with writing(self.top):
            self._lock = acquire_staging_lock(self.top, self._kind, self._files)
            try:
                self._prepare()
            except BaseException:
                self._leave()
                raise
        return self

    def _prepare(self) -> None:
        """Remove what earlier runs left, and make the directories of this one."""
        for path in self.top.glob("run-*"):
            with suppress(OSError):  # executors of a killed run may still write
                OS_FILES.remove_tree(path)
        self._files.makedirs(self.data)
        self._files.makedirs(self.work)

    def publish(self) -> None:
        """Rename `data` to `out`, durably; after an error `out` is not there.

        Raises `WriteFailed` where the system refuses. A rename whose directories cannot be synced
        is taken back; where even that is refused, the error says that `out` is there.
        """
        with writing(self.out):
            self._files.replace(self.data, self.out)
            try:
                self._files.sync_dir(self.out.parent)
                self._files.sync_dir(self.data.parent)
            except OSError as error:
                self._take_back(error)
                raise

    def _take_back(self, error: OSError) -> None:
        try:
            self._files.replace(self.out, self.data)
        except OSError:
            reason = f"{error.strerror}; it is there and whole, but a crash may take its name away"
            raise WriteFailed(self.out, OSError(error.errno, reason)) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        """Remove what this run made, and release the lock."""
        with self._lock:
            self._discard("run-*")

    def _discard(self, *patterns: str) -> None:
        """Remove what has these names, and the directory; log what cannot be removed.

        The next run there removes that.
        """
        try:
            _remove_staged(self.top, patterns)
        except OSError as error:
            _log.warning("%s: cannot be removed: %s", error.filename or self.top, error.strerror)


def partial_path(out: Path) -> Path:
    """Return the path of the staging directory of `out`."""
    path = Path(os.path.abspath(out))
    return path.with_name(path.name + ".partial")


def check_target(out: Path) -> None:
    """Raise `InvalidArgument` unless `out` is a name for something new, or an empty folder."""
    if os.path.lexists(out) and (out.is_symlink() or not out.is_dir() or any(out.iterdir())):
        raise InvalidArgument(f"{out}: is there and not an empty folder")
    if os.path.ismount(out):  # a mount cannot be renamed over
        raise InvalidArgument(f"{out}: is a mount point; name a folder in it")


# -- the lock


def acquire_staging_lock(top: Path, kind: str, files: Files) -> ExitStack:
    """Make the staging directory `top` and lock it; closing the result releases the lock.

    Its lock file says what is staged. A directory without one that says `kind` is refused as it
    is (`InvalidArgument`), unless it is empty. Raises `DirectoryInUse` where another process
    stages its `kind` there.
    """
    path = top / LOCK
    while True:
        fd = _open_lock_file(top, kind, files)
        with ExitStack() as stack:
            stack.callback(let_go, fd)
            take_lock(fd, path, f"{top}: another {kind} is being made here")
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.lstat(path)):
                    try:
                        _stamp_lock_file(fd, top, kind)
                    except WriteFailed:
                        _remove_staged(top, ())
                        raise
                    return stack.pop_all()  # else one that ended has just removed it


def _open_lock_file(top: Path, kind: str, files: Files) -> int:
    """Open the lock file, made where `top` is new or empty; nothing is made in another's."""
    files.makedirs(top.parent)
    if top.is_symlink():
        raise InvalidArgument(f"{top}: is a link, where no {kind} of ours can have begun")
    files.makedirs(top)
    names = os.listdir(top)
    if names and LOCK not in names:
        raise _foreign(top, kind)
    return lock_file(top / LOCK)


def _stamp_lock_file(fd: int, top: Path, kind: str) -> None:
    """Write into the lock file what is staged; check it, if it is written already."""
    stamp = f"{MARK}\t{kind}\n".encode("ascii")
    written = os.pread(fd, len(stamp) + 1, 0)
    if written == stamp:
        return
    # A run that was killed while it wrote the stamp had made nothing else yet.
    if not stamp.startswith(written) or os.listdir(top) != [LOCK]:
        raise _foreign(top, kind)
    with writing(top / LOCK):
        OS_FILES.pwrite(fd, stamp, 0)
        OS_FILES.fsync(fd)


def _foreign(top: Path, kind: str) -> InvalidArgument:
    return InvalidArgument(
        f"{top}: is there and not the folder of a {kind} that was interrupted: "
        "nothing is written or removed in it"
    )


def _remove_staged(top: Path, patterns: Iterable[str]) -> None:
    """Remove what has these names in a locked directory, and the directory.

    What others put there stays, and the lock file beside it.
    """
    for pattern in patterns:
        for path in top.glob(pattern):
            OS_FILES.remove_tree(path)
    if os.listdir(top) == [LOCK]:
        OS_FILES.unlink(top / LOCK)
        OS_FILES.rmdir(top)
