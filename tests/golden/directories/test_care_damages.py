"""Random damages to what the real classes wrote: salvage, usage and diff get to their ends."""

from __future__ import annotations

import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore import BkstoreError, BookieDir
from bkstore.index.api import Finding
from bkstore.offline.diff import Difference, DirectorySide, diff
from bkstore.offline.usage import Usage
from tests.offline.check.random_damages import damage
from tests.worlds.bookies import tree_bytes
from tests.worlds.salvages import check_salvage, entries_of

NAMES = ("interleaved_multi_dir", "journal_v6_sorted", "db_limbo", "db_compacted")
MOST_MEMORY, SLACK = 512 << 20, 64 << 20
"""Of the process; and beyond what the tests before took, where that is as much already."""

Unpack = Callable[[str], tuple[Path, Any]]


def _peak() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _differences(a: Path, b: Path) -> tuple[list[Difference], list[Finding]]:
    findings: list[Finding] = []
    with BookieDir(a) as one, BookieDir(b) as other:
        return [*diff(DirectorySide(one), DirectorySide(other), findings)], findings


def _listed(top: Path) -> dict[object, object]:
    """Return what an index says: of each ledger its entries, one by one, and its state."""
    with BookieDir(top) as bookie:
        index = bookie.index
        return {name: (index.entries(name).tolist(), index.state(name)) for name in index.ledgers()}


def _answered(ask: Callable[..., Any], *words: Path) -> Any:
    try:
        return ask(*words)
    except BkstoreError as error:
        return error


def _judge_diff(sound: Path, work: Path, told: str) -> None:
    """A directory whose index says something else, or nothing, is not like the sound one."""
    listed = _answered(_listed, work)
    found = _answered(_differences, sound, work)
    if isinstance(found, BkstoreError):  # a side that cannot be opened, or listed
        assert isinstance(listed, BkstoreError), (told, found)
        return

    differences, findings = found
    if _listed(sound) == listed:
        assert ([], []) == (differences, findings), told
    else:
        assert differences or findings, told


def _judge_usage(work: Path, told: str) -> None:
    """What the logs are is counted, each once, whatever is wrong with them."""
    try:
        bookie = BookieDir(work)
    except BkstoreError:
        return
    with bookie:
        try:
            usage = Usage(bookie)
        except BkstoreError:  # ledgers that cannot be listed: nothing can be said
            return
        counted = [(one.log.dir_index, one.log.log_id) for one in usage.logs()]
        files = sum(path.stat().st_size for path in work.rglob("current/*.log"))

        assert sorted(set(counted)) == counted, told
        assert usage.totals.file_bytes <= files, told
        assert 0 <= usage.totals.live_bytes <= usage.totals.record_bytes, told


def _judge(unpack: Unpack, tmp_path: Path, name: str, seeds: range) -> None:
    folder, document = unpack(f"bookkeeper/{name}")
    top, before = folder / document["tree"], _peak()
    kept = entries_of(top)
    for seed in seeds:
        work = tmp_path / "work"
        shutil.copytree(top, work)
        told = f"{seed}: {damage(work, np.random.default_rng(seed))}"
        left = tree_bytes(work)
        _judge_usage(work, told)
        _judge_diff(top, work, told)

        assert left == tree_bytes(work), told
        check_salvage(work, kept, tmp_path / "out", told)
        shutil.rmtree(work)
        shutil.rmtree(tmp_path / "out")

    assert _peak() <= max(before + SLACK, MOST_MEMORY)


@pytest.mark.parametrize("name", NAMES)
def test_damages(unpack: Unpack, tmp_path: Path, name: str) -> None:
    """No entry with a sound frame is lost by a salvage, an index that says something else differs
    from the sound one, bytes are counted once; what is read stays as it is."""
    _judge(unpack, tmp_path, name, range(200, 208))


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", NAMES)
def test_more_damages(unpack: Unpack, tmp_path: Path, name: str) -> None:
    """The same with 250 others a tree, a thousand in all."""
    _judge(unpack, tmp_path, name, range(1000, 1250))
