"""Sectors that cannot be read: skipped, named, and their entries taken from elsewhere."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from bkstore.errors import ReadFailed
from bkstore.rescue.disks.damaged_media import PatchedLogBytes
from tests.rescue.disks.failing_disks import FailingDisk
from tests.rescue.rescue_runs import rescue
from tests.rescue.rescue_worlds import RescueWorld


def test_unreadable_sectors_are_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole sectors of 4 KiB are zeros, everything around them is read."""
    data = os.urandom(50_000)
    path = tmp_path / "0.log"
    path.write_bytes(data)
    FailingDisk(monkeypatch).bad[str(path)] = [(8192, 16384), (20480, 20481), (49999, 50000)]

    with PatchedLogBytes(path) as log:
        read = log.read(100, 49_900)
        bad = log.bad_ranges
        parts = [log.read(offset, 7) for offset in (8185, 16384)]

    expected = bytearray(data)
    for start, end in [(8192, 16384), (20480, 24576), (49152, 50000)]:
        expected[start:end] = bytes(end - start)
    assert bytes(expected[100:]) == read
    assert bad == [(8192, 16384), (20480, 24576), (49152, 50000)]
    assert parts == [data[8185:8192], data[16384:16391]]


def test_ranges_that_touch_a_bad_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges are half open."""
    path = tmp_path / "0.log"
    path.write_bytes(bytes(40_000))
    FailingDisk(monkeypatch).bad[str(path)] = [(8192, 8193), (20480, 20481)]
    starts = np.array([0, 8191, 8191, 12287, 12288, 20479, 30000])
    ends = np.array([8192, 8192, 8193, 12288, 20480, 20481, 40000])

    with PatchedLogBytes(path) as log:
        log.read(0, 40_000)
        overlaps = log.overlaps_bad(starts, ends)

    assert overlaps.tolist() == [False, False, True, True, False, True, False]


def test_a_lack_of_memory_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error of the machine."""
    path = tmp_path / "0.log"
    path.write_bytes(bytes(10_000))
    FailingDisk(monkeypatch, errno.ENOMEM).bad[str(path)] = [(0, 10_000)]

    with PatchedLogBytes(path) as log, pytest.raises(ReadFailed):
        log.read(0, 10_000)


@pytest.mark.parametrize("seed", [1, 3])
def test_a_failing_disk_loses_only_what_lies_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A sector in every file of one bookie fails: all that lies elsewhere comes back."""
    world = RescueWorld(tmp_path / "world", seed)
    disk = FailingDisk(monkeypatch)
    bookie = world.bookies[0]
    sector = (4096, 8192)
    left = world.copies()
    for path in world.data_files(bookie):
        if path.parent.name != "current":
            continue
        disk.bad[str(path)] = [sector]
    for key in left:
        record = world.ledgers[key[0]].records[key[1]]
        readable = False
        for path in disk.bad:
            data = Path(path).read_bytes()
            data = data[: sector[0]] + bytes(sector[1] - sector[0]) + data[sector[1] :]
            readable |= record in data
        if bookie in left[key] and not readable:
            left[key].discard(bookie)

    job, payloads = rescue(world, tmp_path / "out")

    assert set(payloads) == {key for key, bookies in left.items() if bookies}
    named = [finding for _, finding in job.findings() if "the medium fails" in finding.detail]
    assert {finding.file for finding in named} == {
        path for path in disk.bad if Path(path).stat().st_size > sector[0]
    }
