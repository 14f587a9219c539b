"""The staging directory of a rescue, which an interrupted rescue leaves for the next one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bkstore.errors import CorruptionError
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.opening import read_file
from bkstore.files.os_errors import convert_write_errors
from bkstore.offline.staging_directory import StagingDirectory, check_target, partial_path
from bkstore.rescue.checkpoints import CheckpointLog

_REGISTRATION_FILE = "registration"
_STORE_LIMIT = 1 << 16


class RescueStaging(StagingDirectory):
    """The staging directory of a rescue. If the rescue is not finished, the surveys of files in
    `surveys` stay for the next run, and so does `data` with its `checkpoints`."""

    def __init__(self, out: Path, files: Files = OS_FILES) -> None:
        super().__init__(out, "rescue", files)
        self.surveys = self.staging_path / "surveys"
        self.data = self.staging_path / "data"
        self._checkpoint_folder = self.staging_path / "checkpoints"
        self._log_path = self._checkpoint_folder / "log"
        self.checkpoints = CheckpointLog(self._log_path, self.data, files)

    def _create_directories(self) -> None:
        """Make this run's directories. Those of earlier runs stay, but no link that has their name,
        which would lead writes out of this directory, and no checkpoints without data."""
        for path in (self.surveys, self.data, self._checkpoint_folder):
            if path.is_symlink():
                OS_FILES.unlink(path)
        if not self.data.exists():
            with suppress(FileNotFoundError):
                OS_FILES.unlink(self._log_path)
        super()._create_directories()

    def record_registration(self, store: str) -> None:
        """Record durably that this rescue registers its output in a metadata store, which comes
        before `finish`: see `registers_in`. Raises `WriteFailed`."""
        path = self._checkpoint_folder / _REGISTRATION_FILE
        with convert_write_errors(path):
            self._files.makedirs(path.parent)
            self._files.write_file(path, store.encode(errors="surrogateescape"))

    def finish(self) -> None:
        """Publish the output, and remove what was kept for another run."""
        self.publish()
        self._remove_and_log("checkpoints", "surveys")


def registers_in(out: Path, store: str) -> bool:
    """Return whether an interrupted rescue to `out` has begun to register its output in this store:
    then the store may have some of its ledgers and cookies."""
    path = partial_path(out) / "checkpoints" / _REGISTRATION_FILE
    try:
        return read_file(path, _STORE_LIMIT) == store.encode(errors="surrogateescape")
    except (OSError, CorruptionError):
        return False


@contextmanager
def staged_output(out: Path, files: Files = OS_FILES) -> Iterator[RescueStaging]:
    """Yield the staging directory of a new folder `out`, which the block must `finish`.

    Raises `InvalidArgument` if `out` exists and is not an empty folder.
    """
    check_target(out)
    with RescueStaging(out, files) as staging:
        yield staging
