"""Random damages to what the real classes wrote: those that change any answer are found."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore import BkstoreError, BookieDir, LedgerId
from bkstore.offline.check import Check
from tests.offline.check.random_damages import damage
from tests.offline.check.small_trees import answers

NAMES = (
    "interleaved_v0_header",
    "db_limbo",
    "sorted_memtable",
    "db_deleted",
    "journal_v6_sorted",
    "journal_v6_db",
    "interleaved_multi_dir",
    "db_compacted",
)
Unpack = Callable[[str], tuple[Path, Any]]


def _found(top: Path, live: Iterable[LedgerId]) -> list[str]:
    """Return damage and oddities that a check finds, given which ledgers there are."""
    try:
        with BookieDir(top, needs_index=False) as bookie:
            found = list(Check(bookie, "CRC32C", "golden", live_ledgers=[*live]))
    except BkstoreError as error:  # it is refused as a whole
        return [str(error)]
    told = [str(each) for each in found if each.severity != "note"]
    return sorted(text.replace(str(top), "") for text in told)


def _judge(unpack: Unpack, work: Path, name: str, seeds: range) -> None:
    folder, document = unpack(f"bookkeeper/{name}")
    top = folder / document["tree"]
    with BookieDir(top) as bookie:
        live = bookie.index.ledgers()
    sound, before = answers(top), _found(top, live)
    harmful, missed = 0, []
    for seed in seeds:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(top, work)
        told = damage(work, np.random.default_rng(seed))
        if answers(work) != sound:
            harmful += 1
            if _found(work, live) == before:
                missed.append(f"{seed}: {told}")

    assert harmful > 0  # a journal or a map is no answer
    assert 100 * len(missed) <= 5 * harmful, missed


@pytest.mark.parametrize("name", NAMES)
def test_damages(unpack: Unpack, tmp_path: Path, name: str) -> None:
    """At least 95 of 100 damages that change an answer are found."""
    _judge(unpack, tmp_path / "work", name, range(12))


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_more_damages(unpack: Unpack, tmp_path: Path, name: str) -> None:
    """The same with 125 others a tree, a thousand in all."""
    _judge(unpack, tmp_path / "work", name, range(100, 225))
