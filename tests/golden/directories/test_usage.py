"""Usage of directories written by the real BookKeeper: its own log metadata, log by log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bkstore import BookieDir, LedgerId
from bkstore.offline.diff import DirectorySide, diff
from bkstore.offline.usage import Usage
from tests.golden.data import GoldenTree, expand_runs

MAIN = [f"bookkeeper/{storage}_main" for storage in ("interleaved", "sorted", "db")]


def test_logs(tree: Any) -> None:
    """Bytes by ledger by log, totals, usage and file size are what the real logger says."""
    told = [log for log in tree.last.get("entry_logs", []) if "ledgers_map" in log]
    if not told:
        pytest.skip("the bookie told nothing of its logs")
    with BookieDir(tree.root) as bookie:
        usage = Usage(bookie)
        logs = list(usage.logs())
        ledgers = {each.ledger.ledger: each for each in usage.ledgers()}
    sums: dict[int, int] = defaultdict(int)
    for log in told:
        # Index files: log ids are one sequence over the directories, which are not told.
        at, log_id = log.get("dir_index"), log["log_id"]
        (found,) = [
            each for each in logs if each.log.log_id == log_id and at in (None, each.log.dir_index)
        ]

        assert log["ledgers_map"] == sorted([n.ledger, s] for n, s in found.ledgers.items())
        assert (log["total_size"], log["file_size"]) == (found.record_bytes, found.log.bytes)
        assert log["has_ledgers_map"] in (None, found.source == "map")
        for ledger, size in log["ledgers_map"]:
            sums[ledger] += size

    assert [] == usage.findings
    assert len(told) == len(logs) == usage.totals.logs
    assert sums == {n: each.bytes for n, each in ledgers.items() if each.logs}
    assert sum(sums.values()) == usage.totals.record_bytes
    assert sorted(tree.last["active_ledgers"]) == [n for n, e in ledgers.items() if e.live]
    assert sum(s for n, s in sums.items() if n in tree.last["active_ledgers"]) == (
        usage.totals.live_bytes
    )


def test_index_rows(tree: Any) -> None:
    """The index has a row for each entry that the bookie listed, and no file is left out."""
    with BookieDir(tree.root) as bookie:
        parts = Usage(bookie).index()
    listed = sum(len(expand_runs(answer["entries"])) for answer in tree.known)
    places = [part for part in parts if part.part in ("idx", "locations")]

    assert listed == sum(part.rows or 0 for part in places)
    assert all(part.file_bytes > 0 for part in places if part.rows)


@pytest.mark.parametrize(("one", "other"), [(0, 1), (1, 2), (2, 0)])
def test_differences(unpack: Callable[[str], tuple[Path, Any]], one: int, other: int) -> None:
    """Two trees differ by what the real classes' answers about them do."""
    trees = [GoldenTree(*unpack(MAIN[at])) for at in (one, other)]
    held = [{a["ledger"]: set(expand_runs(a["entries"])) for a in tree.known} for tree in trees]
    a, b = held
    expected: list[tuple[str, int, str, set[int]]] = []
    for ledger in sorted(a.keys() | b.keys()):
        if ledger not in a or ledger not in b:
            expected.append(
                ("ledger", ledger, "a" if ledger in a else "b", {*held[ledger in b][ledger]})
            )
            continue
        for where, only in (("a", a[ledger] - b[ledger]), ("b", b[ledger] - a[ledger])):
            if only:
                expected.append(("entries", ledger, where, only))
    with BookieDir(trees[0].root) as left, BookieDir(trees[1].root) as right:
        found = list(diff(DirectorySide(left), DirectorySide(right), []))

    assert expected == [
        (each.kind, each.ledger.ledger, each.only_in, set(each.entries or ()))
        for each in found
        if each.kind in ("ledger", "entries")
    ]


def test_a_deleted_ledger_is_told(unpack: Callable[[str], tuple[Path, Any]]) -> None:
    """Side by side, a tree and itself are alike; another tree's ledgers are all told."""
    a = unpack("bookkeeper/db_compacted")[0]
    b = unpack("bookkeeper/interleaved_deleted")[0]
    with BookieDir(a / "db_compacted") as left, BookieDir(b / "interleaved_deleted") as right:
        sides = DirectorySide(left), DirectorySide(right)
        known = [set(bookie.index.ledgers()) for bookie in (left, right)]
        found = {each.ledger: each.only_in for each in diff(*sides, [])}

        assert [] == list(diff(sides[0], sides[0], []))
    assert {
        **dict.fromkeys(known[0] - known[1], "a"),
        **dict.fromkeys(known[1] - known[0], "b"),
    } == {ledger: where for ledger, where in found.items() if where is not None}
    assert LedgerId.of(40) in found
