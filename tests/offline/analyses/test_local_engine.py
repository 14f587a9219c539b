"""Analyses by the local engine against an oracle of plain sets; kernels fed in any pieces."""

from __future__ import annotations

import random
import re
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore.availability import Availability
from bkstore.availability.sequence_groups import Groups
from bkstore.errors import InvalidArgument, MissingDependency
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata, OwnerFilter, Segment
from bkstore.offline import analyses
from bkstore.offline.analyses import (
    ANALYSES,
    LocalEngine,
    Options,
    local_engine as local_module,
    sorted_files,
)
from bkstore.offline.analyses.catalog import KernelJob
from bkstore.offline.analyses.kernels import batch_blocks, groups_by_owner, metadata_comparison
from bkstore.offline.analyses.kernels.groups_by_owner import GroupsByOwner
from bkstore.offline.analyses.kernels.sequences import Condense
from bkstore.tables import GROUPS, VIOLATIONS
from tests.models.analyses import ALONE, Expected, rows_of, rows_of_owners
from tests.models.sequence_groups import bytes_of, groups_of
from tests.worlds.random_dumps import DumpWorld, later_dump, random_dump, write_dump

pytest.importorskip("duckdb")

WITHOUT_METADATA = [name for name in ALONE if not ANALYSES[name].needs_metadata]
ENGINE = LocalEngine(threads=1)


@pytest.mark.parametrize("seed", range(8))
def test_every_analysis_of_a_random_dump(seed: int, tmp_path: Path) -> None:
    """Every analysis gives the oracle's rows, of the declared schema, in the declared order."""
    _check(seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_every_analysis_of_many_dumps(part: int, tmp_path: Path) -> None:
    """The same on 300 more dumps."""
    for seed in range(part * 30 + 1000, part * 30 + 1030):
        _check(seed, tmp_path / str(seed))


def _check(seed: int, folder: Path) -> None:
    world = random_dump(seed)
    dump = write_dump(world, folder / "dump", cut=1 + seed % 5, ordered=seed % 3 > 0)
    inputs = analyses.open_inputs(dump, world.store())
    for name in ALONE:
        table = ENGINE.run(ANALYSES[name], inputs)

        assert ANALYSES[name].schema.to_arrow() == table.schema
        assert getattr(Expected(world), name)() == rows_of(table), name


def test_the_worlds_have_all_that_is_judged() -> None:
    """Together the random dumps give rows of every analysis, category, state and reason."""
    worlds = [Expected(random_dump(seed)) for seed in range(8)]
    rows = {name: [r for each in worlds for r in getattr(each, name)()] for name in ALONE}
    reasons = {str(row[-1]).split(":")[0] for row in rows["ledger_health"]}

    assert set() == {name for name, found in rows.items() if not found}
    assert {"no_replica", "below_ack_quorum", "below_write_quorum"} == {
        row[0] for row in rows["violations"]
    }
    assert {
        *("None", "open", "in_recovery", "underreplicated", "its metadata"),
        *("bookies not in the dump", "could not be read on"),
    } <= reasons
    assert any(row[2] < 0 for row in rows["sequences"])  # ids with the top bit set


@pytest.mark.parametrize("unread", ["", "b1", "b3", "b1 b2 b3"])
def test_homeless_is_what_was_looked_for(unread: str, tmp_path: Path) -> None:
    """A ledger that no bookie has is homeless, unless one of them could not be read.

    Ledgers 1 and 2 have no entry anywhere; 1 could not be read at some bookies.
    """
    names = ("b1", "b2", "b3")
    world = DumpWorld()
    for number in (1, 2, 3):
        segments = (Segment(0, names),)
        closed = {"state": "CLOSED", "last_entry_id": 5, "length": 9}
        world.metadata.append(LedgerMetadata(LedgerId.of(number), 3, 3, 2, segments, **closed))
    lost, whole = LedgerId.of(1), LedgerId.of(3)
    for name in names:
        world.held[name] = {whole: dict.fromkeys(range(6), (0, 1, 99))}
    for name in unread.split():
        world.held[name][lost] = {}
        world.unread.add((name, lost))
    inputs = analyses.open_inputs(write_dump(world, tmp_path / "dump"), world.store())
    found = rows_of(ENGINE.run(ANALYSES["homeless"], inputs))

    assert ([2] if unread else [1, 2]) == [row[1] for row in found]
    assert {("CLOSED", 5, "b1 b2 b3")} == {row[3:] for row in found}


@pytest.mark.parametrize("seed", range(3))
def test_without_metadata_the_index_says_what_lives(seed: int, tmp_path: Path) -> None:
    """Without metadata live is what the bookie's own index knows; what needs them is refused."""
    world = random_dump(seed)
    dump = analyses.open_dump(write_dump(world, tmp_path / "dump"))
    for name in WITHOUT_METADATA:
        expected = getattr(Expected(world, judged=False), name)()

        assert expected == rows_of(analyses.run(name, dump, engine=ENGINE)), name
    for name in set(ALONE) - set(WITHOUT_METADATA):
        with pytest.raises(InvalidArgument, match=f"{name} needs ledger metadata"):
            analyses.run(name, dump, engine=ENGINE)
    with pytest.raises(InvalidArgument, match="comparison needs a second dump"):
        analyses.run("comparison", dump, engine=ENGINE)


@pytest.mark.parametrize("seed", range(6))
def test_two_dumps_side_by_side(seed: int, tmp_path: Path) -> None:
    """What is new, gone, grown, shrunk, changed or the same is what sets say."""
    world = random_dump(seed)
    later = later_dump(world, seed)
    before = write_dump(world, tmp_path / "before")
    after = write_dump(later, tmp_path / "after")
    expected = Expected(world).comparison(Expected(later))
    found = analyses.run("comparison", before, other=after, engine=ENGINE)

    assert {"new", "gone", "grown", "same"} <= {row[-1] for row in expected}
    assert expected == rows_of(found)


def test_pinned_is_below_what_is_asked_for(tmp_path: Path) -> None:
    """A log is pinned if something lives in it, and less than the part that was asked for."""
    world = random_dump(3)
    dump = write_dump(world, tmp_path / "dump")
    for pinned in (0.0, 0.5, 1.0):
        expected = Expected(world, judged=False, pinned=pinned).log_occupancy()
        options = Options(pinned=pinned)

        assert expected == rows_of(
            analyses.run("log_occupancy", dump, options=options, engine=ENGINE)
        )


@pytest.mark.parametrize(
    ("group_by", "pattern"),
    [
        ("topic", {"component": "schema"}),
        ("namespace", {"namespace": "shop/*"}),
        ("tenant", {"component": "managed-*"}),
        ("component", {"namespace": "nowhere/*"}),
    ],
)
def test_ledgers_of_some_owners(group_by: str, pattern: dict[str, str], tmp_path: Path) -> None:
    """A filter leaves the rows of the chosen ledgers, also of the top ones; by any part of a name.

    Without a filter the analyses by owner have rows of the names asked for.
    """
    world = random_dump(3)
    dump = write_dump(world, tmp_path / "dump")
    options = Options(group_by=group_by, owners=OwnerFilter(**pattern))
    inputs = analyses.open_inputs(dump, world.store(), options=options)
    for name in ALONE:
        if ANALYSES[name].chooses_by is None:
            with pytest.raises(InvalidArgument, match=f"{name} cannot be limited to the ledgers"):
                ENGINE.run(ANALYSES[name], inputs)
            continue
        expected = rows_of_owners(world, name, options)

        assert expected == rows_of(ENGINE.run(ANALYSES[name], inputs)), name
        rank = ANALYSES[name].schema.names.index(ANALYSES[name].rank)
        top = replace(inputs, options=replace(options, top=1))
        ranks = [row[rank] for row in expected if row[rank] is not None]
        found = [row[rank] for row in rows_of(ENGINE.run(ANALYSES[name], top))]
        assert found == ([max(ranks)] if ranks else found[:1] and [None]), name
    by_name = replace(inputs, options=Options(group_by=group_by))
    for name in ("bytes_by_owner", "violations_by_owner"):
        expected = getattr(Expected(world), name)(group_by)

        assert expected == rows_of(ENGINE.run(ANALYSES[name], by_name)), name


def test_filters_need_metadata(tmp_path: Path) -> None:
    """Without metadata nobody knows whose a ledger is, also for analyses that need none."""
    dump = write_dump(random_dump(1), tmp_path / "dump")
    options = Options(owners=OwnerFilter(topic="*"))
    with pytest.raises(InvalidArgument, match="holes needs ledger metadata"):
        analyses.run("holes", dump, options=options, engine=ENGINE)


def test_numbers_of_damaged_metadata(tmp_path: Path) -> None:
    """Sums of ledgers that claim 2^63 entries each are as large as a column can tell."""
    world, last = DumpWorld(held={"b": {}}), 2**63 - 2
    for number in (1, 2):
        ends: Any = {"state": "CLOSED", "last_entry_id": last, "length": 9}
        segments = (Segment(0, ("b",)),)
        world.metadata.append(LedgerMetadata(LedgerId.of(number), 1, 1, 1, segments, **ends))
    inputs = analyses.open_inputs(write_dump(world, tmp_path / "dump"), world.store())
    (size,) = ENGINE.run(ANALYSES["bytes_by_owner"], inputs).to_pylist()
    (loss,) = ENGINE.run(ANALYSES["violations_by_owner"], inputs).to_pylist()

    assert (2, 2**63 - 1, 0) == (size["ledgers"], size["entries"], size["bytes"])
    assert (2, 2, 2**63 - 1) == (loss["ledgers"], loss["no_replica"], loss["lost_entries"])


@pytest.mark.parametrize("name", ALONE)
def test_top_rows(name: str, tmp_path: Path) -> None:
    """The top rows are those with the most in the column, of equal ones the first as declared."""
    world = random_dump(5)
    inputs = analyses.open_inputs(write_dump(world, tmp_path / "dump"), world.store())
    analysis = ANALYSES[name]
    at = analysis.schema.names.index(analysis.rank)
    everything = getattr(Expected(world), name)()
    ordered = sorted(everything, key=lambda row: -1 if row[at] is None else row[at], reverse=True)
    top = analyses.Inputs(inputs.dump, inputs.metadata, options=Options(top=3))

    assert ordered[:3] == rows_of(ENGINE.run(analysis, top))


def test_what_cannot_be_asked(tmp_path: Path) -> None:
    """Unknown names, columns that are no numbers, and senseless options are refused."""
    dump = write_dump(random_dump(1), tmp_path / "dump")
    with pytest.raises(InvalidArgument, match=r"no analysis 'holse': there are violations, "):
        analyses.run("holse", dump)
    with pytest.raises(InvalidArgument, match=r"holes has no column 'stripe' to sort by: \['first"):
        analyses.run("holes", dump, options=Options(top=1, by="stripe"), engine=ENGINE)
    for wrong in ({"top": 0}, {"pinned": 1.5}):
        with pytest.raises(InvalidArgument):
            Options(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="memory must be a whole number, 64 or more"):
        LocalEngine(memory=1)


def test_without_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without DuckDB one line names the extra."""
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    with pytest.raises(
        MissingDependency, match=re.escape("pip install 'duckdb>=1.4' 'pyarrow>=18'")
    ):
        LocalEngine()


# -- kernels, fed in pieces


def _pieces(table: Any, size: int) -> Iterator[Any]:
    for at in range(0, table.num_rows, size):
        yield from table.slice(at, size).combine_chunks().to_batches()


@pytest.mark.parametrize("size", [1, 2, 7, 50])
@pytest.mark.parametrize("name", ["violations", "ledger_health", "surplus", "homeless"])
def test_judging_does_not_mind_where_batches_end(
    name: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches cut anywhere, and blocks of few rows, give the same rows."""
    _feed_in_pieces(name, size, 1 + size % 5, tmp_path, monkeypatch)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("size", [1, 5, 33])
@pytest.mark.parametrize("name", ["sequences", "comparison", "fragmentation"])
def test_kernels_do_not_mind_where_batches_end(
    name: str, size: int, ordered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries and groups cut anywhere give the same rows, of files that are sorted and others."""
    _feed_in_pieces(name, size, 1, tmp_path, monkeypatch, ordered)


def _feed_in_pieces(
    name: str,
    size: int,
    block: int,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    ordered: bool = True,
) -> None:
    world = random_dump(11)
    later = later_dump(world, 11)
    inputs = analyses.open_inputs(
        write_dump(world, folder / "dump", ordered=ordered),
        world.store(),
        write_dump(later, folder / "later", ordered=ordered),
    )
    read = local_module._read_batches

    def in_pieces(con: Any, text: str) -> Iterator[Any]:
        import pyarrow as pa

        batches = list(read(con, text))
        yield from _pieces(pa.Table.from_batches(batches), size) if batches else ()

    for module in (metadata_comparison, batch_blocks):
        whole = module.cut_blocks
        monkeypatch.setattr(module, "cut_blocks", lambda b, k, w=whole: w(b, k, block))
    monkeypatch.setattr(local_module, "_read_batches", in_pieces)
    monkeypatch.setattr(sorted_files, "_BATCH_ROWS", size)
    expected = Expected(world)
    rows = expected.comparison(Expected(later)) if name == "comparison" else None

    assert (rows or getattr(expected, name)()) == rows_of(ENGINE.run(ANALYSES[name], inputs))


def test_condensing_takes_rows_in_any_order() -> None:
    """Rows of ledgers in any order, twice too, are condensed to what they are together."""
    import pyarrow as pa

    chance = random.Random(4)
    held = {LedgerId(0, n): set(chance.sample(range(90), 40)) for n in range(4)}
    rows = [(*ledger.signed, e) for ledger, has in held.items() for e in has] * 2
    chance.shuffle(rows)
    columns = [pa.array(each, pa.int64()) for each in zip(*rows)]
    batch = pa.RecordBatch.from_arrays(columns, ["scope_id", "ledger_id", "entry_id"])
    parts = pa.Table.from_batches(Condense("b")(_pieces(pa.Table.from_batches([batch]), 37)))
    order = [(name, "ascending") for name in GROUPS.names[:4]]
    found = list(
        ANALYSES["sequences"].sql_or_job(None).kernel(iter(parts.sort_by(order).to_batches()))
    )  # type: ignore[arg-type, union-attr]

    assert [bytes_of(groups_of(has)) for _, has in sorted(held.items())] == [
        each.as_py() for batch in found for each in batch.column("availability")
    ]


def test_files_with_a_ledger_in_two_places_are_sorted(tmp_path: Path) -> None:
    """A ledger whose rows lie in two files is still one row, with all its entries."""
    world = DumpWorld(held={"b": {LedgerId.of(n): {n: (0, 1, 9), 4: (0, 1, 70)} for n in (1, 2)}})
    dump = write_dump(world, tmp_path / "dump", cut=1, ordered=False)
    _, second = sorted((dump / "entries").iterdir())
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(second)
    ones = pc.subtract(table.column("ledger_id"), 1)
    pq.write_table(table.set_column(3, table.schema.field(3), ones), second)
    found = rows_of(analyses.run("sequences", dump, engine=ENGINE))

    assert [(1, 3, Availability.from_entries([1, 2, 4]).to_bytes())] == [
        (row[2], row[4], row[-1]) for row in found
    ]


def test_condensed_rows_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of files in any order go to DuckDB as they are condensed: it sorts them, and spills."""
    has = {LedgerId.of(n): dict.fromkeys(range(0, 40, 2), (0, 1, 9)) for n in range(50)}
    dump = write_dump(DumpWorld(held={"b": has}), tmp_path / "dump", 5, ordered=False)
    monkeypatch.setattr(sorted_files, "_BATCH_ROWS", 10)
    answers = sorted_files.SortedFileScan.run_task
    made: list[weakref.ref[Any]] = []
    most = 0

    def watched(self: Any, task: Any, **options: Any) -> Iterator[Any]:
        nonlocal most
        for batch in answers(self, task, **options):
            made.append(weakref.ref(batch))
            most = max(most, sum(each() is not None for each in made))
            yield batch

    monkeypatch.setattr(sorted_files.SortedFileScan, "run_task", watched)

    assert 50 == analyses.run("sequences", dump, engine=ENGINE).num_rows
    assert 100 == len(made)
    assert most < 10


# -- many ledgers on one axis


@pytest.mark.parametrize("seed", range(60))
def test_many_owners_at_once(seed: int) -> None:
    """Groups of many owners, near 2^63 too, are folded and compared as each for itself."""
    chance = random.Random(seed)
    sides = [[_random_set(chance) for _ in range(5)] for _ in range(2)]
    owned = [_owned(sets, chance) for sets in sides]
    folded = [groups_by_owner.fold_many(each) for each in owned]
    counts = [groups_by_owner.count_entries(each, 5).tolist() for each in folded]

    for sets, each in zip(sides, folded):
        for number, has in enumerate(sets):
            rows = np.stack(each.take(each.owner == number).groups, axis=1)

            assert [list(group) for group in groups_of(has)] == rows.tolist()
    assert [[len(has) for has in sets] for sets in sides] == counts
    assert [len(a & b) for a, b in zip(*sides)] == groups_by_owner.count_common(*owned, 5).tolist()


def _random_set(chance: random.Random) -> set[int]:
    base = chance.choice([0, 0, 2**31 - 50, 2**62 - 9, 2**63 - 500])
    period = chance.randint(2, 7)
    size = chance.randint(1, period - 1)
    striped = {base + e for e in range(chance.randint(0, 300)) if e % period < size}
    loose = {base + chance.randint(0, 400) for _ in range(chance.choice([0, 3, 40]))}
    return striped | loose if chance.random() < 0.9 else set()


def _owned(sets: list[set[int]], chance: random.Random) -> GroupsByOwner:
    """Return the sets as groups, cut at random places, some of them said twice."""
    rows = []
    for number, has in enumerate(sets):
        ordered = sorted(has)
        at = 0
        while at < len(ordered):
            step = chance.randint(1, 60)
            part = groups_of(ordered[max(at - chance.choice([0, 0, 5]), 0) : at + step])
            rows += [(number, *group) for group in part]
            at += step
    rows.sort()
    owner, *groups = np.array(rows, np.int64).reshape(-1, 5).T
    return GroupsByOwner(owner, Groups(*groups))


def test_surplus_of_long_ledgers_is_counted_not_listed(tmp_path: Path) -> None:
    """A stripe of 2^40 entries, one of them lost, one bookie holding all: arithmetic says it."""
    last = 2**40
    ledger = LedgerId(7, 2**63 + 7)
    bookies = ["b1", "b2", "b3"]
    said = LedgerMetadata(
        ledger, 3, 2, 2, [(0, bookies)], state="CLOSED", last_entry_id=last, length=1
    )
    import pyarrow as pa

    from bkstore.offline.analyses.kernels.ledger_facts import extract_facts

    # b1 has index 0: entries 0 and 2 mod 3; b3, index 2, 1 and 2 mod 3.
    groups = {
        "b1": [[2, last - 2, 2, 3]],
        "b2": [[0, 0, last + 1, 0]],
        "b3": [[1, last - 3, 2, 3], [last, last, 1, 0]],
    }
    feed = [(*ledger.signed, 0, "", 0, 0, 0, 0, extract_facts(said).to_json())]
    feed += [(*ledger.signed, 2, b, *g, None) for b, its in groups.items() for g in its]
    names = ["scope_id", "ledger_id", "role", "bookie", *GROUPS.names[3:], "facts_json"]
    columns = [pa.array(list(each)) for each in zip(*feed)]
    batch = pa.RecordBatch.from_arrays(columns, names)
    answers = {
        output: [
            r
            for b in metadata_comparison.Judge(output, bookies)(iter([batch]))
            for r in b.to_pylist()
        ]  # type: ignore[arg-type]
        for output in ("violations", "surplus", "ledger_health")
    }
    due = {at: _due(last, at) for at in range(3)}

    assert (last + 1) * 2 == sum(due.values())
    assert {"b2": last + 1 - due[1]} == {
        row["bookie"]: row["surplus_entries"] for row in answers["surplus"]
    }
    assert {"b1": [[0, 0, 1, 0]]} == {
        row["bookie"]: row["missing_groups"] for row in answers["violations"]
    }
    assert (sum(due.values()), 1, 1) == tuple(
        answers["ledger_health"][0][name]
        for name in ("replicas_due", "replicas_missing", "fewest_replicas")
    )


def _due(last: int, index: int) -> int:
    """How many entries of 0..last a bookie of a 2-of-3 stripe gets: those e or e+1 mod 3."""
    return sum((last - r) // 3 + 1 for r in {index % 3, (index - 1) % 3})


def test_the_catalogue_is_whole() -> None:
    """Every analysis orders and ranks by columns that it has; what matters most comes first."""
    for name, analysis in ANALYSES.items():
        assert name == analysis.schema.name
        assert {column.lstrip("-") for column in analysis.order} <= set(analysis.schema.names)
        assert analysis.rank == analysis.rank_column(Options(top=1))
    assert VIOLATIONS.name == next(iter(ANALYSES))
    assert 16 == len(ANALYSES)
    assert isinstance(ANALYSES["sequences"].sql_or_job(None), KernelJob)  # type: ignore[arg-type]
