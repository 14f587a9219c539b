"""A bookie that writes while its disk is rescued: nothing is published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bkstore.cli.main import main
from bkstore.errors import DirectoryInUse
from bkstore.formats.entry import RecordBatch
from bkstore.formats.metadata.json_file import ClusterMetadata, encode_file
from bkstore.rescue import RescueJob, WantedLedgers, open_source, rescue_job
from bkstore.rescue.ledger_plans import LedgerPlan
from bkstore.rescue.rescue_job import read_rescued
from tests.rescue.rescue_worlds import RescueWorld


def _write_late(world: RescueWorld) -> None:
    """Create a journal in a bookie's directory, as a running bookie does."""
    bookie = next(iter(world.bookies))
    journal = next(each for each in world.data_files(bookie) if each.suffix == ".txn")
    journal.with_name("fffffff.txn").write_bytes(b"")


@pytest.mark.parametrize("form", ["folders", "parquet", "bookies"])
def test_nothing_is_published(
    tmp_path: Path,
    form: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The change comes while records are written; the command ends with 2 and without output."""
    world = RescueWorld(tmp_path / "world", seed=3)
    ledgers = tuple(ledger.metadata for ledger in world.ledgers.values())
    (tmp_path / "metadata.json").write_bytes(encode_file(ClusterMetadata(ledgers), passwords=True))
    bookies = [f"{bookie}={world.path(bookie)}" for bookie in world.bookies]
    out = tmp_path / "outputs" / "out"
    out.parent.mkdir()

    def read_and_change(*args: Any) -> Iterator[tuple[LedgerPlan, RecordBatch]]:
        yield from read_rescued(*args)
        _write_late(world)

    monkeypatch.setattr(rescue_job, "read_rescued", read_and_change)
    arguments = ["rescue", str(tmp_path / "metadata.json"), *bookies, str(out), "--as", form]
    assert 2 == main(arguments)

    assert "changed while the directory was read" in capsys.readouterr().err
    assert not out.exists()


def test_dry_run_refuses_a_change(tmp_path: Path) -> None:
    """An account of disks that changed meanwhile is not given either."""
    world = RescueWorld(tmp_path / "world", seed=3)
    metadata = {ledger_id: ledger.metadata for ledger_id, ledger in world.ledgers.items()}
    sources = [open_source(world.path(bookie), bookie) for bookie in world.bookies]
    _write_late(world)

    with pytest.raises(DirectoryInUse):
        RescueJob(sources, WantedLedgers(metadata), jobs=1).run_without_output()
    for source in sources:
        source.close()
