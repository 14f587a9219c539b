"""Files with passwords, or digests of them, are private while they are written, too."""

from __future__ import annotations

import os
from pathlib import Path

from bkstore.files.disk_changes import Files, StrPath
from bkstore.rescue import RescueJob, WantedLedgers, open_source, staged_output
from bkstore.rescue.outputs import FolderOutput
from tests.rescue.rescue_worlds import RescueWorld


class ModesOfWrites(Files):
    """Records the permissions that each file has when it is written to."""

    def __init__(self) -> None:
        self.modes: dict[str, set[int]] = {}

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write, and record the mode under the file's final name."""
        path: StrPath = os.readlink(f"/proc/self/fd/{fd}")
        mode = os.fstat(fd).st_mode & 0o777
        self.modes.setdefault(Path(path).name.removesuffix(".tmp"), set()).add(mode)
        super().pwrite(fd, data, offset)


def test_secrets_are_private_from_the_first_byte(tmp_path: Path) -> None:
    """The metadata have passwords, the surveys of journals master keys, the log their digest."""
    world = RescueWorld(tmp_path / "world", seed=1)
    files = ModesOfWrites()
    sources = [open_source(world.path(bookie), bookie) for bookie in world.bookies]
    metadata = {ledger_id: ledger.metadata for ledger_id, ledger in world.ledgers.items()}
    job = RescueJob(sources, WantedLedgers(metadata), jobs=1, files=files)
    with staged_output(tmp_path / "out", files) as staging:
        job.survey(staging.surveys, staging.work)
        with FolderOutput(staging.data, files) as output:
            job.write_to(output, staging.checkpoints)
        staging.finish()
    for source in sources:
        source.close()

    surveys = {name for name in files.modes if name.endswith(".json")}
    assert len(surveys) > 2
    assert {mode for name in {*surveys, "log"} for mode in files.modes[name]} == {0o600}
