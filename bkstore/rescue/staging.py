"""The staging directory of a rescue, which an interrupted rescue leaves for the next one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.offline.staging_directory import StagingDirectory, check_target
from bkstore.rescue.checkpoints import CheckpointLog


class RescueStaging(StagingDirectory):
    """The staging directory of a rescue. If the rescue is not finished, the surveys of files in
    `surveys` stay for the next run, and so does `data` with its `checkpoints`."""

    def __init__(self, out: Path, files: Files = OS_FILES) -> None:
        super().__init__(out, "rescue", files)
        self.surveys = self.staging_path / "surveys"
        self.data = self.staging_path / "data"
        self._checkpoint_folder = self.staging_path / "checkpoints"
        self.checkpoints = CheckpointLog(self._checkpoint_folder / "log", self.data, files)

    def _create_directories(self) -> None:
        """Make this run's directories. Those of earlier runs stay, but no link that has their name,
        which would lead writes out of this directory, and no checkpoints without data."""
        for path in (self.surveys, self.data, self._checkpoint_folder):
            if path.is_symlink():
                OS_FILES.unlink(path)
        if not self.data.exists() and self._checkpoint_folder.exists():
            OS_FILES.remove_tree(self._checkpoint_folder)
        super()._create_directories()

    def finish(self) -> None:
        """Publish the output, and remove what was kept for another run."""
        self.publish()
        self._remove_and_log("checkpoints", "surveys")


@contextmanager
def staged_output(out: Path, files: Files = OS_FILES) -> Iterator[RescueStaging]:
    """Yield the staging directory of a new folder `out`, which the block must `finish`.

    Raises `InvalidArgument` if `out` exists and is not an empty folder.
    """
    check_target(out)
    with RescueStaging(out, files) as staging:
        yield staging
