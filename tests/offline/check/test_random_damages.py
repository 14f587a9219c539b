"""Random damages: those that change any answer are found, the others harm nobody."""

from __future__ import annotations

import resource
import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bkstore import BkstoreError, BookieDir
from bkstore.offline.check import Check
from tests.offline.check.random_damages import damage
from tests.offline.check.small_trees import DIGEST, KINDS, LEDGERS, PASSWORD, answers, make_tree

MOST_MEMORY, SLACK = 512 << 20, 64 << 20
"""Of the process; and beyond what the tests before took, where that is as much already."""


def _found(top: Path, live: range | tuple[()] = ()) -> tuple[list[str], list[str]]:
    """Return what a check of a directory finds, and what it only notes."""
    try:
        with BookieDir(top, needs_index=False) as bookie:
            found = list(Check(bookie, DIGEST, PASSWORD, live_ledgers=live))
    except BkstoreError as error:  # it is refused as a whole
        return [str(error)], []
    told = [str(each) for each in found if each.severity != "note"]
    return told, [str(each) for each in found if each.severity == "note"]


def _run(tmp_path: Path, seeds: range) -> Counter[str]:
    """Damage trees, one way a seed; return how many changed an answer, and were found."""
    before = _peak()
    for kind in KINDS:
        make_tree(tmp_path / kind, kind)
    sound = {kind: answers(tmp_path / kind) for kind in KINDS}
    counts: Counter[str] = Counter()
    for kind in KINDS:
        assert ([], []) == _found(tmp_path / kind)
    for seed in seeds:
        kind, random = KINDS[seed % len(KINDS)], np.random.default_rng(seed)
        work = tmp_path / "work"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(tmp_path / kind, work)
        told = damage(work, random)
        bytes_before = _bytes(work)
        found, noted = _found(work)

        assert bytes_before == _bytes(work), told
        if answers(work) == sound[kind]:
            counts["harmless"] += 1
            continue
        counts["harmful"] += 1
        if not found and noted:  # an index file that is gone: only the metadata know
            counts["noted"] += 1
            found, _ = _found(work, LEDGERS)
        counts["found" if found else f"missed: {seed} {told}"] += 1

    assert _peak() <= max(before + SLACK, MOST_MEMORY)
    return counts


def _peak() -> int:
    """Return the most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def _bytes(top: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def _judge(counts: Counter[str]) -> None:
    missed = [told for told in counts if told.startswith("missed")]

    assert counts["harmful"] > 2 * counts["harmless"]  # else this test says little
    assert 95 * counts["harmful"] <= 100 * counts["found"], missed
    assert 90 * counts["harmful"] <= 100 * (counts["found"] - counts["noted"])


def test_a_hundred_damages(tmp_path: Path) -> None:
    """At least 95 of 100 damages that change an answer are found, given which ledgers there are;
    without that, lost index files are noted. The damaged files stay as they are."""
    _judge(_run(tmp_path, range(100)))


@pytest.mark.long
def test_a_thousand_damages(tmp_path: Path) -> None:
    """The same with a thousand other damages."""
    _judge(_run(tmp_path, range(1000, 2000)))
