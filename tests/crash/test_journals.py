"""Journals through power losses: what a sync covered is read again, however it was appended."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from bkstore.formats.entry import RecordBatch
from bkstore.formats.journal import LogMark
from bkstore.storage.journal import JournalWriter, list_journal_files, scan_journal
from bkstore.testing.crash import CrashFiles, PowerLoss

Append = Callable[[JournalWriter, list[bytes]], LogMark]
WAYS: dict[str, Append] = {
    "append_many": lambda writer, records: writer.append_many(records),
    "append_batch": lambda writer, records: writer.append_batch(
        RecordBatch.of(records, range(len(records)))
    ),
}


def _record(rnd: random.Random) -> bytes:
    return rnd.randbytes(rnd.choice((16, 100, 100, 100, 700)))


def _live(current: Path, files: CrashFiles, way: str, rnd: random.Random) -> list[bytes]:
    """Append and sync at random until the power goes; return the records of all that is synced."""
    appended: list[bytes] = []
    synced = 0
    with suppress(PowerLoss):
        writer = JournalWriter(
            current, files=files, preallocate=4096, max_size=12_000, write_buffer=700, first_id=1
        )
        with suppress(PowerLoss), writer:
            for _ in range(60):
                records = [_record(rnd) for _ in range(rnd.choice((1, 3, 20)))]
                WAYS[way](writer, records)
                appended += records
                if rnd.random() < 0.5:
                    writer.sync()
                    synced = len(appended)
            if not files.stopped:
                files.stop_after(1)
    return appended[:synced]


def _lost(top: Path, way: str, seed: int, ignored: str | None = None) -> bool:
    """Return whether a life that ends in a power loss lost anything that was synced."""
    rnd, files = random.Random(seed), CrashFiles()
    if ignored is not None:
        files.ignore_site(ignored)
    files.stop_after(rnd.randint(1, 90))
    current = top / f"{way}-{seed}"
    current.mkdir()
    synced = _live(current, files, way, rnd)
    left = files.crash(current, top / f"{way}-{seed}-left", rnd if seed % 3 else None)
    found = [
        data
        for _, path in list_journal_files(left)
        for _, data in scan_journal(path, skip_invalid=True)
    ]
    return synced != found[: len(synced)]


@pytest.mark.parametrize("way", WAYS)
def test_power_losses(way: str, tmp_path: Path) -> None:
    """What was synced is read again, in order, before anything that was not."""
    assert [] == [seed for seed in range(120) if _lost(tmp_path, way, seed)]


@pytest.mark.parametrize("call", ["_fsync:fsync", "_open_file:sync_dir"])
@pytest.mark.parametrize("way", WAYS)
def test_every_sync_is_needed(way: str, call: str, tmp_path: Path) -> None:
    """Without the sync of the records, or of a file's name, something is lost.

    The sync of a new file's header is for lastMark, which may point behind it: `test_storages`.
    """
    site = f"bkstore.storage.journal.writer:JournalWriter.{call}"

    assert any(_lost(tmp_path, way, seed, site) for seed in range(200))
