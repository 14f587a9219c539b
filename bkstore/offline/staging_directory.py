"""StagingDirectory: the folder ``OUT.partial``, in which an output is built until it is complete.

However a run ends (an error, a killed executor, a kill of the process), the directory under the
final name is complete. A lock file keeps a second process out and records what is staged.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from bkstore.errors import InvalidArgument, WriteFailed
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.lock_files import open_lock_file, release_lock, take_lock
from bkstore.files.os_errors import convert_write_errors

_log = logging.getLogger(__name__)

LOCK_FILE_NAME = "lock"
STAMP_PREFIX = "BKSTORE-PARTIAL"


class StagingDirectory:
    """The staging directory of `out`: a context manager that holds its lock.

    Each run has its own subdirectory: `data` becomes `out`, `work` is for pieces and scratch
    files. Leaving removes both; entering removes what a killed run left. `kind` is what is staged,
    such as "dump" or "load": a directory of another kind is refused (`InvalidArgument`). Entering
    raises `DirectoryInUse` if another process holds the lock, `WriteFailed` if the system refuses.
    """

    def __init__(self, out: Path, kind: str, files: Files = OS_FILES) -> None:
        self.out = Path(os.path.abspath(out))
        self.staging_path = partial_path(out)
        self._kind = kind
        self._files = files
        self._lock = ExitStack()
        run = self._new_run_directory("run")
        self.data, self.work = run / "data", run / "work"

    def _new_run_directory(self, prefix: str) -> Path:
        return self.staging_path / f"{prefix}-{os.getpid()}-{os.urandom(4).hex()}"

    def __enter__(self) -> Self:
        """Lock the staging directory, and make the directories of this run."""
        with convert_write_errors(self.staging_path):
            self._lock = acquire_staging_lock(self.staging_path, self._kind, self._files)
            try:
                self._create_directories()
            except BaseException:
                self._leave()
                raise
        return self

    def _create_directories(self) -> None:
        """Remove what earlier runs left, and create the directories of this run."""
        for path in self.staging_path.glob("run-*"):
            with suppress(OSError):  # executors of a killed run may still write
                OS_FILES.remove_tree(path)
        self._files.makedirs(self.data)
        self._files.makedirs(self.work)

    def publish(self) -> None:
        """Rename `data` to `out`, durably; after an error `out` does not exist.

        Raises `WriteFailed` if the system refuses. A rename whose directories cannot be synced is
        undone; if that fails too, the error says that `out` exists.
        """
        with convert_write_errors(self.out):
            self._files.replace(self.data, self.out)
            try:
                self._files.sync_dir(self.out.parent)
                self._files.sync_dir(self.data.parent)
            except OSError as error:
                self._undo_rename(error)
                raise

    def _undo_rename(self, error: OSError) -> None:
        """Move the data back after a failed sync of the rename; raises if that fails too."""
        try:
            self._files.replace(self.out, self.data)
        except OSError:
            reason = f"{error.strerror}; it is complete, but its name may be lost in a crash"
            raise WriteFailed(self.out, OSError(error.errno, reason)) from error

    def __exit__(self, *exc_info: object) -> None:
        self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._remove_and_log("run-*")

    def _remove_and_log(self, *patterns: str) -> None:
        """Remove matching paths, and an empty directory; logs what cannot be removed."""
        try:
            _remove_staged(self.staging_path, patterns)
        except OSError as error:
            path = error.filename or self.staging_path
            _log.warning("%s: cannot be removed: %s", path, error.strerror)


def partial_path(out: Path) -> Path:
    """Return the path of the staging directory of `out`."""
    path = Path(os.path.abspath(out))
    return path.with_name(path.name + ".partial")


def check_target(out: Path) -> None:
    """Raise `InvalidArgument` unless `out` does not exist or is an empty folder."""
    if os.path.lexists(out) and (out.is_symlink() or not out.is_dir() or any(out.iterdir())):
        raise InvalidArgument(f"{out}: already exists and is not an empty folder")
    if os.path.ismount(out):  # a mount cannot be renamed over
        raise InvalidArgument(f"{out}: is a mount point; choose a folder in it")


# -- the lock


def acquire_staging_lock(staging_path: Path, kind: str, files: Files) -> ExitStack:
    """Create and lock the staging directory `staging_path`; closing the result unlocks it.

    Its lock file records what is staged. Raises `InvalidArgument`, changing nothing, unless the
    directory is empty or of the same kind, `DirectoryInUse` if another process holds the lock.
    """
    path = staging_path / LOCK_FILE_NAME
    while True:
        fd = _open_lock_file(staging_path, kind, files)
        with ExitStack() as stack:
            stack.callback(release_lock, fd)
            take_lock(fd, path, f"{staging_path}: another {kind} is running here")
            # A run that ended may have removed the file before it was locked: then try again.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.lstat(path)):
                    try:
                        _stamp_lock_file(fd, staging_path, kind)
                    except WriteFailed:
                        _remove_staged(staging_path, patterns=())
                        raise
                    return stack.pop_all()


def _open_lock_file(staging_path: Path, kind: str, files: Files) -> int:
    """Open the lock file, which is created only if `staging_path` is new or empty."""
    files.makedirs(staging_path.parent)
    if staging_path.is_symlink():
        raise InvalidArgument(f"{staging_path}: is a link; an interrupted {kind} leaves a folder")
    files.makedirs(staging_path)
    file_names = os.listdir(staging_path)
    if file_names and LOCK_FILE_NAME not in file_names:
        raise _not_ours_error(staging_path, kind)
    return open_lock_file(staging_path / LOCK_FILE_NAME)


def _stamp_lock_file(fd: int, staging_path: Path, kind: str) -> None:
    """Write into the lock file, open as `fd`, which `kind` of output is staged here; raise
    `InvalidArgument` if it says another kind."""
    stamp = f"{STAMP_PREFIX}\t{kind}\n".encode("ascii")
    old_stamp = os.pread(fd, len(stamp) + 1, 0)
    if old_stamp == stamp:
        return
    # A run that was killed while it wrote the stamp had created nothing else yet.
    if not stamp.startswith(old_stamp) or os.listdir(staging_path) != [LOCK_FILE_NAME]:
        raise _not_ours_error(staging_path, kind)
    with convert_write_errors(staging_path / LOCK_FILE_NAME):
        OS_FILES.pwrite(fd, stamp, 0)
        OS_FILES.fsync(fd)


def _not_ours_error(staging_path: Path, kind: str) -> InvalidArgument:
    return InvalidArgument(
        f"{staging_path}: exists, but is not the folder of an interrupted {kind}; it is left "
        "unchanged"
    )


def _remove_staged(staging_path: Path, patterns: Iterable[str]) -> None:
    """Remove matching paths in a locked directory, then the directory unless other files stay."""
    for pattern in patterns:
        for path in staging_path.glob(pattern):
            OS_FILES.remove_tree(path)
    if os.listdir(staging_path) == [LOCK_FILE_NAME]:
        OS_FILES.unlink(staging_path / LOCK_FILE_NAME)
        OS_FILES.rmdir(staging_path)
