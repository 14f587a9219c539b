"""Power losses during and after a rewrite: under the name stands nothing, or all of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkstore.errors import BkstoreError
from bkstore.offline.rewrite import convert, salvage
from bkstore.storage.directories.layout import Layout
from bkstore.testing.crash import CrashFiles, PowerLoss
from tests.worlds.bookies import Made, directory_answers, make_bookie, tree_bytes
from tests.worlds.salvages import logs_of

WAYS: dict[str, Callable[..., Any]] = {"convert": convert, "salvage": salvage}


@pytest.fixture(scope="module")
def bookie(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Return a bookie of two directories, one of its logs damaged where no record is lost."""
    made = make_bookie(tmp_path_factory.mktemp("world") / "b", "interleaved", directories=2)
    path = logs_of(made.root)[0]
    path.write_bytes(b"XXXX" + path.read_bytes()[4:])
    return made


def _files_of(top: Path) -> dict[str, str]:
    """Return the digests of what is no index."""
    return {name: digest for name, digest in tree_bytes(top).items() if name.count("/") == 2}


def _whole(left: Path, expected: Path) -> bool:
    """Return whether what a power loss left is what was made."""
    try:
        same = directory_answers(left) == directory_answers(expected)
    except (BkstoreError, OSError):
        return False
    return same and _files_of(left) == _files_of(expected)


@pytest.mark.parametrize("layout", ["idx", "rocksdb"])
@pytest.mark.parametrize("way", WAYS)
def test_a_finished_rewrite_is_durable(
    way: str, layout: Layout, bookie: Made, tmp_path: Path
) -> None:
    """What has been made is there after a power loss; without any one sync of ours it is not.

    Making a folder syncs the one above it, which several steps do, one for all.
    """
    files = CrashFiles()
    WAYS[way](bookie.root, tmp_path / "one" / "out", layout, files=files)
    left = files.crash(tmp_path / "one", tmp_path / "left")
    assert _whole(left / "out", tmp_path / "one" / "out")

    ours = [
        site
        for site in files.sync_sites
        if site.startswith(("bkstore.offline.", "bkstore.files.copies"))
    ]
    ours = [site for site in ours if "makedirs" not in site]
    assert 3 + (way == "salvage") <= len(ours)
    for number, site in enumerate(ours):
        files = CrashFiles()
        files.ignore_site(site)
        top = tmp_path / f"without-{number}"
        WAYS[way](bookie.root, top / "out", layout, files=files)
        left = files.crash(top, tmp_path / f"left-{number}")

        assert not _whole(left / "out", top / "out"), site


@pytest.mark.parametrize("layout", ["idx", "rocksdb"])
@pytest.mark.parametrize("way", WAYS)
def test_a_power_loss_on_the_way(way: str, layout: Layout, bookie: Made, tmp_path: Path) -> None:
    """Wherever the power goes, the target is not there, or whole; the next run is as any."""
    files = CrashFiles()
    WAYS[way](bookie.root, tmp_path / "all" / "out", layout, files=files)
    rng = random.Random(7)
    chosen = rng.sample(range(1, files.calls), 12 if layout == "idx" else 5)
    for stop in [*sorted(chosen), files.calls]:
        top = tmp_path / str(stop)
        files = CrashFiles()
        files.stop_after(stop)
        with pytest.raises(PowerLoss):
            WAYS[way](bookie.root, top / "out", layout, files=files)
        left = files.crash(top, tmp_path / f"left-{stop}", rng=rng)
        if (left / "out").exists():
            assert _whole(left / "out", tmp_path / "all" / "out"), stop
        else:
            WAYS[way](bookie.root, left / "out", layout)
            assert _whole(left / "out", tmp_path / "all" / "out"), stop
