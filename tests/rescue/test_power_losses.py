"""Power losses during a rescue: what a checkpoint states is on the disk; the next run goes on."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.rescue import RescueJob, WantedLedgers, open_source, staged_output
from bkstore.rescue.outputs import FolderOutput, ParquetOutput
from bkstore.testing.crash import CrashFiles, PowerLoss
from tests.rescue.killed_rescues import small_batches
from tests.rescue.rescue_runs import fingerprints
from tests.rescue.rescue_worlds import RescueWorld

FORMS = {"folders": FolderOutput, "parquet": ParquetOutput}


def _rescue(world: RescueWorld, out: Path, form: str, files: Files = OS_FILES) -> None:
    metadata = {ledger_id: ledger.metadata for ledger_id, ledger in world.ledgers.items()}
    with ExitStack() as stack:
        sources = [
            stack.enter_context(open_source(world.path(bookie), bookie)) for bookie in world.bookies
        ]
        job = RescueJob(sources, WantedLedgers(metadata), jobs=1, files=files)
        staging = stack.enter_context(staged_output(out, files))
        job.survey(staging.surveys, staging.work)
        with FORMS[form](staging.data, files) as output:
            job.write_to(output, staging.checkpoints)
        staging.finish()


def _read(out: Path) -> dict[str, str]:
    return {str(Path(path).relative_to(out)): digest for path, digest in fingerprints(out).items()}


@pytest.mark.parametrize("form", FORMS)
def test_power_losses(tmp_path: Path, form: str) -> None:
    """Wherever the power goes, OUT is not there, or whole; the next run ends as an undisturbed
    one."""
    world = RescueWorld(tmp_path / "world", seed=1)
    with small_batches():
        files = CrashFiles()
        _rescue(world, tmp_path / "whole" / "out", form, files)
        expected = _read(tmp_path / "whole" / "out")
        rng = random.Random(form)
        first = files.calls // 3
        for stop in sorted(rng.sample(range(first, files.calls), 10)):
            top = tmp_path / str(stop)
            files = CrashFiles()
            files.stop_after(stop)
            with pytest.raises(PowerLoss):
                _rescue(world, top / "out", form, files)
            left = files.crash(top, tmp_path / f"left-{stop}", rng=rng)
            if not (left / "out").exists():
                _rescue(world, left / "out", form)
            assert _read(left / "out") == expected, f"power loss after call {stop}"
