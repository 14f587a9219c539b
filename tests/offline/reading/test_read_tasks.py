"""Tasks over files: each row is read once, ledgers stay whole, order is looked at."""

from __future__ import annotations

import pickle
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bkstore import CorruptionError, InvalidArgument
from bkstore.errors import MissingDependency, UnsupportedLayout
from bkstore.ids import LedgerId
from bkstore.offline.reading import (
    DumpFile,
    FileRead,
    LedgerRange,
    ReadTask,
    file_locations,
    read_rows,
)
from bkstore.offline.reading.disjoint_files import split_disjoint
from bkstore.offline.reading.dump_file import row_groups
from bkstore.offline.reading.file_parts import FilePart, locate_part
from bkstore.offline.reading.ledger_ranges import SORTED_BY
from bkstore.offline.reading.merged_streams import merge_sorted_streams
from bkstore.offline.reading.read_tasks import plan_read, plan_sorted_tasks, plan_unsorted_tasks

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

KEYS = SORTED_BY["entries"]
SCOPES = (0, 1, 2**63 - 1, 2**63, 2**64 - 1)
Row = tuple[LedgerId, int]


def random_rows(chance: random.Random, ledgers: int = 30) -> list[Row]:
    """Return sorted rows of ledgers of few entries and of many, with ids of either sign."""
    ids = set()
    for _ in range(ledgers):
        scope = chance.choice(SCOPES)
        top = 2**63 - 1 if scope == 0 else 2**64 - 1
        ids.add(LedgerId(scope, chance.choice([chance.randint(0, 20), chance.randint(0, top)])))
    return [(n, e) for n in sorted(ids) for e in range(chance.choice([1, 1, 3, 40]))]


def written(path: Path, rows: list[Row], group: int, ordered: bool = True) -> DumpFile:
    """Write rows in row groups of `group`, and return the file as a dump's."""
    columns = [[row[0].signed[at] for row in rows] for at in (0, 1)] + [[row[1] for row in rows]]
    arrays = [pa.array(["b"] * len(rows)), *(pa.array(each, pa.int64()) for each in columns)]
    table = pa.Table.from_arrays(arrays, ["bookie", *KEYS])
    pq.write_table(table, path, row_group_size=group)
    names = [row[0] for row in rows]
    ledgers = LedgerRange(min(names), max(names)) if ordered and rows else None
    return DumpFile(str(path), "entries", "b", len(rows), True, ledgers)


def cut(chance: random.Random, rows: list[Row], parts: int) -> list[list[Row]]:
    """Return the rows in stretches cut between ledgers."""
    names = sorted({row[0] for row in rows})
    stops = sorted(chance.sample(names[1:], min(parts - 1, len(names) - 1)))
    bounds = [LedgerId(0, 0), *stops, None]
    return [
        [row for row in rows if lo <= row[0] and (hi is None or row[0] < hi)]  # type: ignore[operator]
        for lo, hi in pairwise(bounds)
    ]


def rows_of(batches: Iterator[Any]) -> list[Row]:
    """Return what was read as ids and entries."""
    columns = [batch.select(list(KEYS)).to_pydict().values() for batch in batches]
    return [
        (LedgerId.from_signed(scope, ledger), entry)
        for each in columns
        for scope, ledger, entry in zip(*each)
    ]


def read(task: ReadTask, side: int = 0, batch: int = 1 << 18) -> list[Row]:
    """Return the rows of one side of a task, which has travelled."""
    reads = pickle.loads(pickle.dumps(task)).reads_per_dump[side]
    return [row for each in reads for row in rows_of(read_rows(each, KEYS, KEYS, batch_rows=batch))]


@pytest.mark.parametrize("seed", range(25))
def test_tasks_have_every_row_once_and_ledgers_whole(seed: int, tmp_path: Path) -> None:
    """Of sorted files in any row groups, tasks of any size have all rows, in order, once; no
    ledger is in two tasks, of one side or another.
    """
    chance = random.Random(seed)
    group, size, batch = chance.randint(1, 60), chance.randint(1, 150), chance.randint(1, 90)
    sides, expected = [], []
    for side in range(2):
        rows = random_rows(chance)
        parts = cut(chance, rows, chance.randint(1, 5))
        files = [written(tmp_path / f"{side}-{n}", p, group) for n, p in enumerate(parts) if p]
        chance.shuffle(files)
        alone, others = split_disjoint(files)

        assert [] == others
        sides.append(alone)
        expected.append(rows)
    tasks = plan_sorted_tasks(sides, size)
    found = [[read(task, side, batch) for task in tasks] for side in (0, 1)]

    assert expected == [[row for part in parts for row in part] for parts in found]
    held = [{row[0] for parts in found for row in parts[at]} for at in range(len(tasks))]

    assert sum(map(len, held)) == len(set().union(*held))


def test_tasks_are_cut_and_skip_row_groups(tmp_path: Path) -> None:
    """Where statistics tell ledgers, a file is cut near the rows asked for, and a task opens just
    the row groups that may have its ledgers.
    """
    rows = [(LedgerId(0, n), e) for n in range(40) for e in range(10)]
    file = written(tmp_path / "f", rows, 50)
    tasks = plan_sorted_tasks([[file]], 100)
    groups = row_groups(pq.read_metadata(file.path))
    parts = [locate_part(task.reads_per_dump[0][0], groups) for task in tasks]

    assert [(0, 2), (2, 4), (4, 6), (6, 8)] == [part[:2] for part in parts]
    assert [100] * 4 == [len(read(task)) for task in tasks]
    assert [100] * 4 == [task.rows for task in tasks]


def test_shares_that_a_file_has_no_place_for(tmp_path: Path) -> None:
    """A ledger is not cut: of more shares than a file has places to cut, the last are empty."""
    rows = [(LedgerId(0, n), e) for n in (4, 9) for e in range(60)]
    file = written(tmp_path / "f", rows, 30)
    tasks = plan_sorted_tasks([[file]], 20)
    empty = locate_part(tasks[5].reads_per_dump[0][0], row_groups(pq.read_metadata(file.path)))

    assert [60, 60, 0, 0, 0, 0] == [len(read(task)) for task in tasks]
    assert FilePart(0, 0) == empty


def test_two_sides_are_cut_where_files_end(tmp_path: Path) -> None:
    """Two sides are cut by the manifest alone, at ledgers with which a file of either ends."""
    sides = [
        [
            written(tmp_path / f"{at}-{lo}", [(LedgerId(0, n), 0) for n in range(lo, hi)], 5)
            for lo, hi in spans
        ]
        for at, spans in enumerate(([(0, 20), (20, 40)], [(0, 30), (30, 40)]))
    ]
    tasks = plan_sorted_tasks(sides, 20)
    parts = [[[row[0].ledger for row in read(task, at)] for task in tasks] for at in (0, 1)]

    assert [20, 10, 10] == list(map(len, parts[0]))
    assert parts[0] == parts[1]


@pytest.mark.parametrize("seed", range(5))
def test_side_by_side_is_by_ledger_then_by_stream(seed: int, tmp_path: Path) -> None:
    """Streams come together by ledger, those of a ledger in the order of the streams; no ledger
    is cut by a block.
    """
    chance = random.Random(seed)
    streams, everything = [], []
    for number in range(3):
        rows = random_rows(chance, 12) if number < 2 or seed % 2 else []
        file = written(tmp_path / str(number), rows, 20)
        tasks = plan_sorted_tasks([[file]], 1 << 40) if rows else []
        reads = [each for task in tasks for each in task.reads_per_dump[0]]
        streams.append(chain_of(reads, chance.randint(1, 30)))
        everything += [(name, number, entry) for name, entry in rows]
    found = []
    for block in merge_sorted_streams(streams):
        sides = block.column("side").to_pylist()
        rows = rows_of(iter([block]))
        assert not {name for name, _ in rows} & {name for name, _, _ in found}
        found += [(name, side, entry) for (name, entry), side in zip(rows, sides)]

    assert sorted(everything) == found


def chain_of(reads: list[FileRead], batch: int) -> Iterator[Any]:
    """Yield the batches of reads, one after the other."""
    for each in reads:
        yield from read_rows(each, KEYS, KEYS, batch_rows=batch)


@pytest.mark.parametrize("batch", [1, 3, 1 << 10])
def test_rows_that_are_not_as_declared(batch: int, tmp_path: Path) -> None:
    """A file that is not sorted as its manifest says is damage, wherever batches end; one that
    says nothing is read as it lies.
    """
    rows = [(LedgerId(0, n), e) for n in range(3) for e in range(4)]
    for wrong in ([*rows[1:], rows[0]], [*rows[:4], *rows[3:]], [*rows[:2], rows[3], rows[2]]):
        (task,) = plan_sorted_tasks([[written(tmp_path / "f", wrong, 50)]], 100)
        with pytest.raises(CorruptionError, match=r"says that it is sorted, but \(0, "):
            read(task, batch=batch)
        (task,) = plan_unsorted_tasks([written(tmp_path / "f", wrong, 50, ordered=False)], 100)

        assert wrong == read(task, batch=batch)


def test_files_that_share_a_ledger_are_told(tmp_path: Path) -> None:
    """Files with a common ledger, and all where one does not say its order, are the others."""
    spans = {"a": (0, 4), "b": (4, 6), "c": (5, 9), "d": (10, 11), "e": (20, 30)}
    files = {}
    for name, span in spans.items():
        files[name] = written(tmp_path / name, [(LedgerId(0, n), 0) for n in span], 5)
    alone, others = split_disjoint(files.values())
    unsaid = written(tmp_path / "x", [(LedgerId(0, 99), 0)], 5, ordered=False)

    assert [files[n] for n in "de"] == alone
    assert [files[n] for n in "abc"] == others
    assert ([], [*files.values(), unsaid]) == split_disjoint([*files.values(), unsaid])


def test_loose_tasks_have_every_row_once(tmp_path: Path) -> None:
    """Files in any order are cut at row groups, near the rows asked for."""
    rows = [(LedgerId(0, n % 7), n) for n in range(100)]
    tasks = plan_unsorted_tasks([written(tmp_path / "f", rows, 10, ordered=False)], 25)

    assert [25, 25, 25, 25] == [task.rows for task in tasks]
    assert [20, 30, 20, 30] == [len(read(task)) for task in tasks]
    assert rows == [row for task in tasks for row in read(task)]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"last_ledger": "0" * 32}, "from 1 to 0 are not a range"),
        ({"last_ledger": "x" * 32}, "ledger"),
        ({"last_ledger": None}, "None is not a ledger id of 32 hex digits"),
        ({"first_ledger": 7}, "7 is not a ledger id"),
    ],
)
def test_ranges_that_are_none(said: dict[str, Any], reason: str) -> None:
    """What a manifest says of a file's ledgers is a range; another order is not made use of."""
    whole = {"sorted_by": list(KEYS), **LedgerRange(LedgerId(0, 1), LedgerId(0, 9)).to_json()}
    with pytest.raises(InvalidArgument, match=reason):
        LedgerRange.from_json({**whole, **said}, "entries")

    assert LedgerRange(LedgerId(0, 1), LedgerId(0, 9)) == LedgerRange.from_json(whole, "entries")
    assert LedgerRange.from_json({**whole, "sorted_by": ["position"]}, "entries") is None


# -- files that are not as the manifest says


def test_rows_of_another_bookie(tmp_path: Path) -> None:
    """A file with rows of another bookie than the manifest says is damage, told by statistics or
    by the rows; one that says nothing of its bookie is read as it is.
    """
    file = written(tmp_path / "f", [(LedgerId(0, n), 0) for n in range(9)], 5)
    table = pq.read_table(file.path)
    mixed = pa.array(["b"] * 8 + ["c"])
    for statistics in (True, False):
        pq.write_table(table, file.path, write_statistics=statistics)
        (task,) = plan_sorted_tasks([[file]], 100)

        assert 9 == len(read(task))
        pq.write_table(table.set_column(0, "bookie", mixed), file.path, write_statistics=statistics)
        with pytest.raises(CorruptionError, match="of bookie c, the manifest says that all are of"):
            read(task)
        (task,) = plan_unsorted_tasks([replace(file, has_one_bookie=False)], 100)

        assert 9 == len(read(task))


def test_other_rows_and_columns(tmp_path: Path) -> None:
    """A file of other rows than the manifest says, or without a column that is read, is refused
    where it is read.
    """
    file = written(tmp_path / "f", [(LedgerId(0, n), 0) for n in range(9)], 5)
    (task,) = plan_sorted_tasks([[replace(file, rows=8)]], 100)
    with pytest.raises(CorruptionError, match="has 9 rows, the manifest says 8"):
        read(task)
    (task,) = plan_sorted_tasks([[file]], 100)
    table = pq.read_table(file.path)
    pq.write_table(table.drop(["entry_id"]), file.path)
    with pytest.raises(UnsupportedLayout, match="not the table entries of a dump: no column entry"):
        read(task)
    pq.write_table(table.set_column(3, "entry_id", pa.array(["x"] * 9)), file.path)
    with pytest.raises(UnsupportedLayout, match="entry_id is string, not int64"):
        read(task)


def test_signed_order_is_not_ours(tmp_path: Path) -> None:
    """A file that another program sorted by signed ids is damage in each share of it: none passes
    over row groups that no other share has.
    """
    names = [*range(2**63 + 1, 2**63 + 9), *range(1, 9)]
    rows = [(LedgerId(7, n), e) for n in names for e in range(25)]
    file = written(tmp_path / "f", rows, 100)
    for shares in (1, 2, 3, 4):
        tasks = plan_sorted_tasks([[file]], 400 // shares)
        for task in tasks:
            with pytest.raises(
                CorruptionError, match=r"f: .*row group 2 begins with ledger 0{15}7"
            ):
                read(task)


@pytest.mark.parametrize("seed", range(60))
def test_no_share_loses_what_is_out_of_order(seed: int, tmp_path: Path) -> None:
    """Of rows or stretches in any place, in row groups with statistics or without, shares have all
    rows, or one of them raises.
    """
    chance = random.Random(seed)
    ids = [LedgerId(7, n + chance.choice([0, 2**63])) for n in chance.sample(range(60), 24)]
    rows = [(n, e) for n in sorted(ids) for e in range(chance.choice([1, 2, 9]))]
    lo, mid, hi = sorted(chance.sample(range(len(rows) + 1), 3))
    wrong = [*rows[:lo], *rows[mid:hi], *rows[lo:mid], *rows[hi:]]
    file = written(tmp_path / "f", wrong, chance.randint(1, 30))
    if seed % 5 == 0:
        pq.write_table(pq.read_table(file.path), file.path, write_statistics=False)
    batch = chance.randint(1, 20)
    tasks = plan_sorted_tasks([[file]], chance.randint(1, 40))
    with pytest.raises(CorruptionError, match="says that it is sorted"):
        [read(task, batch=batch) for task in tasks]
    above, upto = sorted(chance.sample(ids, 2))
    found: list[Row] | None = None
    try:
        part = plan_read(file, above, upto)
        found = rows_of(read_rows(part, KEYS, KEYS, batch_rows=batch))
    except CorruptionError:
        pass

    assert found in (None, [row for row in rows if above < row[0] <= upto])


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("wrong", [(4, 39), (0, 20), (50, 60)])
def test_other_ledgers_than_the_manifest_says(
    wrong: tuple[int, int], statistics: bool, tmp_path: Path
) -> None:
    """A file with ledgers outside the range that its manifest says is damage: plans trust it.

    Statistics tell each share, else the rows tell; in files that are read in any order too.
    """
    file = written(tmp_path / "f", [(LedgerId(3, n), 0) for n in range(40)], 10)
    pq.write_table(
        pq.read_table(file.path), file.path, row_group_size=10, write_statistics=statistics
    )
    whole = LedgerRange(LedgerId(3, 0), LedgerId(4, 2**63))

    assert 40 == sum(
        len(read(task)) for task in plan_sorted_tasks([[replace(file, ledger_range=whole)]], 9)
    )
    said = replace(file, ledger_range=LedgerRange(*(LedgerId(3, n) for n in wrong)))
    for tasks in (plan_sorted_tasks([[said]], 10), plan_unsorted_tasks([said], 10)):
        failed = [task for task in tasks if _is_refused(task, r"f: has ledger 0{15}3.* are 0{15}3")]

        assert failed == tasks if statistics else failed


def _is_refused(task: ReadTask, reason: str) -> bool:
    try:
        read(task)
    except CorruptionError as error:
        return re.search(reason, str(error)) is not None
    return False


# -- other file systems


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path, a file: URI and a URI of another file system give the same rows.

    The other file system is pyarrow's, of a folder that has a scheme of its own.
    """
    from pyarrow import fs

    folder = tmp_path / "with space"
    folder.mkdir()
    rows = [(LedgerId(0, n), 0) for n in range(9)]
    (task,) = plan_unsorted_tasks([written(folder / "f", rows, 5)], 100)
    uris: list[str] = []

    def from_uri(uri: str) -> tuple[Any, str]:
        uris.append(uri)
        return fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "with space/f"

    monkeypatch.setattr(fs, "FileSystem", type("FileSystem", (), {"from_uri": from_uri}))
    (local,) = task.reads_per_dump[0]
    for place in (local.path, folder.joinpath("f").as_uri(), "s3a://bucket/f"):
        assert rows == rows_of(read_rows(local._replace(path=place), KEYS))
    assert ["s3://bucket/f"] == uris


def test_places_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another host's file, a scheme that nobody knows, and what is no Parquet are one line."""
    (tmp_path / "f").write_bytes(b"PAR1" + bytes(20) + b"PAR1")
    monkeypatch.setitem(__import__("sys").modules, "fsspec.core", None)
    for place, kind, reason in (
        ("file://elsewhere/f", InvalidArgument, "names another host"),
        ("no-such-scheme://x/f", MissingDependency, "need fsspec: pip install fsspec"),
        ((tmp_path / "f").as_uri(), CorruptionError, "cannot be read as Parquet"),
    ):
        with pytest.raises(kind, match=reason), file_locations.opened_parquet(place):
            pass
