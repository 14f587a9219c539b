"""Ledger metadata against sorted group files: tasks by ranges of ledgers, over all bookies."""

from __future__ import annotations

import pickle
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from bkstore.availability import Availability
from bkstore.availability.sequence_groups import Groups
from bkstore.durability.violations import find_worst_shortage
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, Segment
from bkstore.offline import analyses
from bkstore.offline.analyses import ANALYSES, Inputs, LocalEngine, metadata_tasks
from bkstore.offline.analyses.catalog import KernelJob
from bkstore.offline.analyses.kernels.groups_by_owner import GroupsByOwner, fold_many
from bkstore.offline.analyses.kernels.ledger_verdicts import shortage_layers, worst_shortages
from bkstore.offline.analyses.metadata_tasks import JudgeTask, SortedGroupScan
from tests.models.analyses import Expected, rows_of
from tests.models.sequence_groups import groups_of
from tests.worlds.loads import edit_manifest
from tests.worlds.random_dumps import DumpWorld, random_dump, write_dump

pytest.importorskip("duckdb")

JUDGED = ("violations", "homeless", "ledger_health", "surplus")
LIES = ("apart", "woven", "torn", "mixed", "unsorted")
ENGINE = LocalEngine(threads=1)


def _few(top: Path, rows: int) -> None:
    """Cut the group files of a dump into row groups of a few rows."""
    import pyarrow.parquet as pq

    for path in (top / "groups").iterdir():
        pq.write_table(pq.read_table(path), path, row_group_size=rows)


def _tear(top: Path) -> None:
    """Have two files instead of each file of groups, which take turns with its rows."""
    import pyarrow.parquet as pq

    def said(manifest: Any) -> None:
        files = manifest["tables"]["groups"]["files"]
        for file in list(files):
            rows = pq.read_table(top / file["path"])
            for part in range(2):
                half = rows.take(np.arange(part, len(rows), 2))
                path = file["path"].replace(".parquet", f"-{part}.parquet")
                pq.write_table(half, top / path)
                files.append({**file, "path": path, "rows": len(half)})
            files.remove(file)

    edit_manifest(top, said)


def _forget(top: Path, chance: random.Random, share: float) -> None:
    """Have the manifest say nothing of the order of some files of groups."""

    def said(manifest: Any) -> None:
        for file in manifest["tables"]["groups"]["files"]:
            if chance.random() < share:
                for name in ("sorted_by", "first_ledger", "last_ledger"):
                    file.pop(name, None)

    edit_manifest(top, said)


@settings(max_examples=max(2, settings.default.max_examples // 20))
@given(
    seed=st.integers(0, 10_000),
    cut=st.integers(1, 5),
    groups=st.integers(1, 9),
    size=st.integers(1, 40),
    lies=st.sampled_from(LIES),
)
@example(seed=3, cut=2, groups=3, size=9, lies="apart")
@example(seed=7, cut=1, groups=1, size=1 << 20, lies="woven")
@example(seed=7, cut=50, groups=2, size=1 << 20, lies="torn")
@example(seed=11, cut=50, groups=2, size=4, lies="torn")
def test_every_file_order_gives_the_oracles_rows(
    seed: int, cut: int, groups: int, size: int, lies: str
) -> None:
    """Files that are sorted, whose ledgers take turns, that share every ledger, that say nothing,
    or some of each: in tasks and row groups of any size, all that is judged is the oracle's.
    """
    world = random_dump(seed)
    del world.metadata[:: 2 + seed % 4]  # ledgers in the middle that nothing is said of
    with tempfile.TemporaryDirectory() as top, pytest.MonkeyPatch.context() as patch:
        dump = write_dump(world, Path(top) / "dump", cut, woven=lies == "woven")
        if lies == "torn":
            _tear(dump)
        _few(dump, groups)
        _forget(dump, random.Random(seed), {"mixed": 0.3, "unsorted": 1.0}.get(lies, 0))
        for name, value in (
            ("_MAX_GROUPS", size),
            ("_MIN_GROUPS_PER_FILE", 0),
            ("_LEDGER_COST", 1),
        ):
            patch.setattr(metadata_tasks, name, value)
        inputs = analyses.open_inputs(dump, world.store())
        for name in JUDGED:
            assert getattr(Expected(world), name)() == rows_of(ENGINE.run(ANALYSES[name], inputs))


def _planned(inputs: Inputs, rows: int) -> tuple[SortedGroupScan, list[JudgeTask]]:
    made = ANALYSES["violations"].sql_or_job(inputs)
    assert isinstance(made, KernelJob)
    assert isinstance(made.sorted_reader, SortedGroupScan)
    planned = made.sorted_reader.plan(inputs.dump, None, inputs.metadata, rows)
    assert planned is not None
    return made.sorted_reader, planned.tasks


def _simple(ledgers: int, bookies: int) -> DumpWorld:
    """A world of ledgers 1.., each on two bookies side by side, nothing missing."""
    world = DumpWorld()
    for at in range(bookies):
        world.held[f"b{at}"] = {}
    for number in range(1, ledgers + 1):
        at = number * (bookies - 1) // (ledgers + 1)
        names = (f"b{at}", f"b{at + 1}")
        closed = {"state": "CLOSED", "last_entry_id": 5, "length": 9}
        ledger = LedgerId.of(number)
        world.metadata.append(LedgerMetadata(ledger, 2, 2, 2, (Segment(0, names),), **closed))
        for name in names:
            world.held[name][ledger] = dict.fromkeys(range(6), (0, 1, 99))
    return world


def test_each_ledgers_metadata_go_to_one_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks share out the metadata and who could not read a ledger, and read only files
    that may have groups of theirs. What executors are sent beside has none of it.
    """
    import pyarrow as pa

    monkeypatch.setattr(metadata_tasks, "_MIN_GROUPS_PER_FILE", 0)
    world = _simple(400, 9)
    world.unread = {("b0", LedgerId.of(1)), ("b8", LedgerId.of(400)), ("b0", LedgerId.of(2))}
    dump = write_dump(world, tmp_path / "dump", cut=1000)
    _few(dump, 10)
    inputs = analyses.open_inputs(dump, world.store())
    direct, tasks = _planned(inputs, 700)
    said = [pa.ipc.open_stream(task.facts).read_all().to_pylist() for task in tasks]
    rows = [row for each in said for row in each]

    assert 8 < len(tasks) < 20
    assert list(range(1, 401)) == [row["ledger_id"] for row in rows if row["role"] == 0]
    assert [("b0", 1), ("b0", 2), ("b8", 400)] == [
        (row["bookie"], row["ledger_id"]) for row in rows if row["role"] == 1
    ]
    assert 4 > max(len(task.reads) for task in tasks)  # of nine files
    assert len(pickle.dumps(direct)) < 1000 < len(pickle.dumps(tasks))


def test_tasks_do_not_grow_small_with_files(tmp_path: Path) -> None:
    """A task has some thousand groups of each file, as it opens all of them."""
    world = _simple(300, 5)
    dump = write_dump(world, tmp_path / "dump", cut=1000)
    _, tasks = _planned(analyses.open_inputs(dump, world.store()), 1)

    assert 1 == len(tasks)


def test_metadata_without_groups(tmp_path: Path) -> None:
    """Ledgers that no file has are judged too; no metadata, no tasks."""
    world = _simple(4, 3)
    for has in world.held.values():
        has.clear()
    dump = write_dump(world, tmp_path / "dump")
    inputs = analyses.open_inputs(dump, world.store())

    assert 4 == ENGINE.run(ANALYSES["homeless"], inputs).num_rows
    nothing = analyses.open_inputs(dump, DumpWorld().store())

    assert [] == _planned(nothing, 10)[1]
    assert 0 == ENGINE.run(ANALYSES["homeless"], nothing).num_rows


@pytest.mark.parametrize("seed", range(8))
def test_the_worst_of_many_ledgers(seed: int) -> None:
    """The worst entry of each ledger is that of the ledger by itself, over segments and places."""
    chance = random.Random(seed)
    ledger, place, sets = [], [], []
    for number in range(chance.randint(1, 6)):
        base = chance.choice([0, 2**40, 2**63 - 4000])
        for _ in range(chance.randint(1, 3)):
            for at in range(4):
                if chance.random() < 0.7:
                    step = chance.choice([1, 1, 3])
                    span = range(base, base + chance.randint(1, 200), step)
                    ledger.append(number)
                    place.append(at)
                    sets.append({e for e in span if chance.random() < chance.choice([0.1, 1])})
            base += 300
    rows = [(n, *group) for n, has in enumerate(sets) for group in groups_of(has)]
    owner, *groups = np.array(rows, np.int64).reshape(-1, 5).T
    lacks = fold_many(GroupsByOwner(owner, Groups(*groups)))
    columns = (np.array(ledger, np.int64), np.array(place, np.int64))
    found = worst_shortages(shortage_layers(*columns, lacks))
    expected = {}
    for number in set(ledger):
        mine = [sorted(has) for has, name in zip(sets, ledger) if name == number]
        worst = find_worst_shortage(Availability.from_entries(each) for each in mine)
        if worst is not None:
            expected[number] = worst

    assert expected == found
