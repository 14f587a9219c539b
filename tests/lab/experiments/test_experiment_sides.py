"""What the sides of experiments do: each what its name says, in turns, the same for the same seed.

Numbers that are known beforehand; no times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore import LedgerId, LedgerStorage
from bkstore.formats.entry import Coder
from bkstore.formats.idxfile import HEADER_SIZE
from bkstore.lab import LabRun
from bkstore.lab.experiment import ResultColumn, columns_of_kind
from bkstore.lab.experiments import batch, cache, deletes, keys, lookups, pages
from bkstore.lab.measuring.latencies_and_costs import (
    QuerySet,
    measure_files,
    measure_latencies_of,
    run_in_turns,
)
from bkstore.lab.measuring.timing import TimedSide
from bkstore.lab.stores.ledger_deletion import ShrinkingRocks
from bkstore.lab.stores.read_cache import ReadCache, read_by_cache, read_singly
from bkstore.testing.stream_worlds import random_queries

Rows = list[dict[str, Any]]


# -- turns


def test_askings_with_queries_of_their_own_take_turns() -> None:
    """Each is asked its own queries in each round, another one first in each."""
    asked: list[str] = []
    ways = {"a": QuerySet(asked.append, ["a1", "a2"]), "b": QuerySet(asked.append, ["b1"])}
    found = measure_latencies_of(ways, 3)

    assert ["a1", "a2", "b1", "b1", "a1", "a2", "a1", "a2", "b1"] == asked
    assert ["a", "b"] == list(found)


def test_work_is_done_in_turns() -> None:
    """Sides run once a round, on fresh arguments; what the last run returned is kept."""
    told: list[str] = []

    def side(name: str) -> TimedSide:
        return TimedSide(
            name,
            lambda number: told.append(f"{name} runs") or number,
            lambda: told.append(f"{name} is made") or len(told),
            lambda number: told.append(f"{name} is gone"),
        )

    first, second = run_in_turns([side("a"), side("b")], 2)
    steps = ("is made", "runs", "is gone")

    assert [f"{name} {step}" for name in "abba" for step in steps] == told
    assert (10, 7) == (first.result, second.result)


Measuring = Callable[[Any, int], Any]


def _watched(plain: Measuring, seen: list[tuple[int, int]]) -> Measuring:
    def measured(sides: Any, rounds: int) -> Any:
        seen.append((len(sides), rounds))
        return plain(sides, rounds)

    return measured


@pytest.mark.parametrize("module", [keys, pages, cache, deletes], ids=lambda one: one.__name__)
def test_sides_take_turns(module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is compared is measured in one go, in as many rounds as are asked for."""
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(deletes, "STEPS", 2)
    monkeypatch.setattr(cache, "READ_AHEAD_ENTRIES", (1, 5))
    monkeypatch.setattr(cache, "LAGS", (10,))
    monkeypatch.setattr(pages, "SHAPES", ("long",))
    for name in ("measure_latencies_of", "run_in_turns"):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, _watched(getattr(module, name), seen))
    rows = list(module.measure(LabRun(tmp_path, 0.001, 1, rounds=2)))

    assert {2} == {rounds for _, rounds in seen}
    assert 1 < min(sides for sides, _ in seen)
    assert rows


def test_slow_lookups_are_asked_in_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once to warm up, then once a round, strategies in turns; other series are asked twice."""
    plain, seen = lookups._run_turns, []

    def watched(*words: Any) -> Iterator[Any]:
        for strategy, turns, size in plain(*words):
            seen.append((words[3].load_ms > 0, len(turns)))
            yield strategy, turns, size

    monkeypatch.setattr(lookups, "_run_turns", watched)
    list(lookups.measure(LabRun(Path(), 0.001, 1, rounds=3)))

    assert {(False, 2), (True, 4)} == set(seen)


def test_strategies_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """All strategies have a turn of all queries before any has the next one."""
    asked: list[str] = []

    class Watched(lookups.StreamLookup):
        def get_objects(self, *words: Any, **named: Any) -> Any:
            asked.append(self.strategy)
            return super().get_objects(*words, **named)

    monkeypatch.setattr(lookups, "StreamLookup", Watched)
    point = lookups.WorldPoint(20, 15)
    image = lookups._make_world(point, 1)
    queries = random_queries(image, 2, 1)
    found = list(lookups._run_turns(image, ("index", "bloom"), queries, point, 2))

    assert [
        name for name in ("index", "bloom", "bloom", "index", "index", "bloom") for _ in "12"
    ] == asked
    assert [("index", 3), ("bloom", 3)] == [(name, len(turns)) for name, turns, _ in found]


# -- deletes


def _ledger(number: int) -> LedgerId:
    return LedgerId(0, number)


class _Calls:
    """A store that remembers what is done with it."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def put(self, ledger: LedgerId, seed: int) -> None:
        """Remember."""
        self.calls.append(("put", ledger.ledger))

    def settle(self) -> None:
        """Remember."""
        self.calls.append("settle")

    def delete(self, ledger: LedgerId) -> None:
        """Remember."""
        self.calls.append(("delete", ledger.ledger))

    def repair(self) -> None:
        """Remember."""
        self.calls.append("repair")


def test_steps_of_a_life() -> None:
    """As the page says: a step writes ledgers, deletes the oldest so that two steps' stay, and
    repairs every fourth; the last writes none, leaves two ledgers, and repairs."""
    store = _Calls()
    life = deletes.DatabaseRun(store, [], _Calls.delete, _Calls.repair)  # type: ignore[arg-type]
    found = []
    for step in range(1, deletes.STEPS + 2):
        life.advance(step, 3, 1)
        found.append((len(life.live), store.calls))
        store.calls = []

    assert [3, *[6] * (deletes.STEPS - 1), 2] == [live for live, _ in found]
    assert [4, 8, 12, 13] == [at for at, (_, calls) in enumerate(found, 1) if "repair" in calls]
    assert {"settle"} == {calls[-1] for _, calls in found}
    for step, (_, calls) in enumerate(found[2:-1], 3):
        written = [("put", 3 * step + at) for at in range(3)]
        assert [*written, *(("delete", 3 * step - 6 + at) for at in range(3))] == [
            call for call in calls if isinstance(call, tuple)
        ]
    oldest = 3 * (deletes.STEPS - 1)
    assert [*(("delete", oldest + at) for at in range(4)), "repair", "settle"] == found[-1][1]
    assert [life.live[1], life.live[0]] * 25 == life.newest_ledgers()


def test_a_range_is_one_tombstone(tmp_path: Path) -> None:
    """Of ledgers deleted by range as many tombstones are left as ledgers, before a compaction."""
    store = ShrinkingRocks(tmp_path / "a", 50, 500)
    for number in range(20):
        store.put(_ledger(number), 1)
    for number in (3, 4, 9):
        store.delete_by_range(_ledger(number))
    store.flush()

    assert (3, 17 * 50) == (store.tombstones(), store.scan())
    store.compact()
    assert (0, 17 * 50) == (store.tombstones(), store.scan())
    store.close()


def test_a_row_is_one_tombstone(tmp_path: Path) -> None:
    """Of ledgers deleted row by row as many are left as rows, those of ranges beside them."""
    store = ShrinkingRocks(tmp_path / "a", 50, 500)
    for number in range(20):
        store.put(_ledger(number), 1)
    store.flush()
    for number in (3, 4):
        store.delete_by_row(_ledger(number))
    store.delete_by_range(_ledger(5))
    store.flush()

    assert (2 * 50 + 1, 17 * 50) == (store.tombstones(), store.scan())
    store.close()


def test_tables_have_as_many_rows_as_are_buffered(tmp_path: Path) -> None:
    """A flush comes after so many rows, and nothing else changes the files before `settle`."""
    store = ShrinkingRocks(tmp_path / "a", 50, 100)
    for number in range(21):
        store.put(_ledger(number), 1)

    assert 10 == _tables(store, 0)
    store.flush()
    assert 11 == _tables(store, 0)
    assert store.table_bytes() == measure_files(store.top, (".sst",)).bytes
    store.settle()
    assert 4 > _tables(store, 0), "RocksDB compacts from four tables on"
    assert 21 * 50 == store.scan()
    store.close()


def _tables(store: ShrinkingRocks, level: int) -> int:
    return int(store.database.property(f"num-files-at-level{level}"))


def _counts(columns: tuple[ResultColumn, ...], rows: Rows) -> list[list[Any]]:
    return [
        [row.get(one.name) for one in columns_of_kind(columns, "given", "count")] for row in rows
    ]


def test_lives_of_one_seed_are_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes and tombstones are counts: what is left does not depend on who was faster."""
    columns, both = deletes.EXPERIMENT.columns, []
    some = {name: deletes.STRATEGIES[name] for name in ("deleteRange", "point deletes")}
    monkeypatch.setattr(deletes, "STRATEGIES", some)
    monkeypatch.setattr(deletes, "STEPS", 8)
    for name in ("first", "again"):
        (tmp_path / name).mkdir()
        both.append(list(deletes.measure(LabRun(tmp_path / name, 0.1, 7, rounds=1))))

    assert {"tombstones", "kib"} < {column.name for column in columns_of_kind(columns, "count")}
    assert _counts(columns, both[0]) == _counts(columns, both[1])
    assert 2 * 9 == len(both[0])


# -- pages


def test_a_pool_has_room_for_a_page(tmp_path: Path) -> None:
    """A pool holds the pages that fit into its share; one that holds none is left out."""
    rows = list(pages.measure(LabRun(tmp_path, 0.02, 1, rounds=1)))
    sizes = {
        row["page"]: row["bytes_per_entry"] * row["entries"]
        for row in rows
        if row["shape"] == "long" and not row["trace"]
    }
    known = {
        (page, share * 100): int(size * share) // (page << 10)
        for page, size in sizes.items()
        for share in pages.POOL_SHARES
    }

    assert 0 in known.values()
    assert {key: most for key, most in known.items() if most} == {
        (row["page"], row["pool"]): row["held"] for row in rows if row["trace"]
    }
    assert sizes[1] > 3 * HEADER_SIZE


@pytest.mark.parametrize(
    ("pools", "said"),
    [
        ({1: (1.0, 10.0), 8: (30.0,)}, "A pool of 30 % "),
        ({1: (1.0, 10.0), 8: (10.0, 30.0)}, "A pool of 10 % "),
        ({1: (1.0, 10.0)}, "No pool that was tried has room for a page of 8 KiB."),
    ],
    ids=["the next", "usual", "none"],
)
def test_a_finding_is_of_pools_that_are_there(
    pools: dict[int, tuple[float, ...]], said: str
) -> None:
    """The finding names the pool that it is about."""
    sizes = [
        {"shape": shape, "page": page, "trace": "", "pool": 0.0, "disk_per_entry": 9.0}
        for shape in pages.SHAPES
        for page in (1, 8)
    ]
    rows = [
        {"shape": "long", "page": page, "trace": name, "pool": share, "hit_ratio": 0.5}
        for page, shares in {**pools, 1: (*pools[1], 30.0)}.items()
        for share in shares
        for name in ("zipf", "sequential")
    ]

    assert pages.summarize(sizes + rows)[-1].startswith(said)


# -- cache


class Calls:
    """A storage whose reading calls are noted."""

    def __init__(self, storage: LedgerStorage) -> None:
        self.storage, self.seen = storage, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.seen.add(name)
        return getattr(self.storage, name)


def test_without_read_ahead_one_entry_is_read(tmp_path: Path) -> None:
    """One at a time is `read_entry`, more are `read_entries`; both answer alike."""
    queries = [(_ledger(7), entry) for entry in (3, 4, 3, 90)]
    with LedgerStorage.open(tmp_path, "db") as storage:
        made = Coder("CRC32C").encode_batch(7, np.arange(100), [bytes(64)] * 100)
        storage.add_batch(made, master_key=b"k")
        size = int(made.sizes[0])
        found = {}
        for count in (1, 5):
            calls: Any = Calls(storage)
            served = read_by_cache(queries, ReadCache(calls, 1 << 20, count))
            found[count] = (calls.seen, served)
        singly = read_singly(queries, storage)

    assert ({"read_entry"}, (1, 3, 3 * size, 4 * size)) == found[1]
    assert ({"read_entries"}, (2, 2, 10 * size, 4 * size)) == found[5]
    assert (0, 4, 4 * size, 4 * size) == singly


def _from_write_cache(room: int, lag: int, total: int) -> float:
    """Return the share of reads so far behind that a half of `room // 2` records answers.

    Records come by tens. One that finds the half full begins with an empty one, and what was in
    the full one is flushed meanwhile.
    """
    half, hits, reads = room // 2, 0, 0
    for written in range(10, total + 1, 10):
        begin = half * ((written - 1) // half)
        for record in range(max(written - 10 - lag, 0), max(written - lag, 0)):
            reads, hits = reads + 1, hits + (record >= begin)
    return hits / reads


def test_the_write_cache_has_the_room_that_is_said(tmp_path: Path) -> None:
    """Hits of the tail are those of two halves which together have that share of the records."""
    total = 20 * 60
    for percent in (2, 10, 50):
        tail = {
            row["ahead"]: row
            for row in cache._measure_tail(LabRun(tmp_path, 0.001, 1), percent / 100)
        }
        for lag in (10, 100):
            expected = _from_write_cache(total * percent // 100, lag, total)
            assert (percent, expected) == (tail[lag]["room"], tail[lag]["hit_ratio"])


def test_cpu_is_said_as_times_that_of_read_entry() -> None:
    """Ratios below 1 read as such; the cheapest may be no read-ahead."""
    key = {"hit_ratio": 0.5, "amplification": 2.0, "reads": 10}
    rows = [
        {"series": "no cache", "trace": order, "room": 0, "ahead": 1, "us": 4.0, **key}
        for order in ("zipf", "sequential")
    ] + [
        {"series": "entries", "trace": order, "room": 10.0, "ahead": count, "us": us, **key}
        for order in ("zipf", "sequential")
        for count, us in zip(cache.READ_AHEAD_ENTRIES, (3.0, 6.0, 8.0, 10.0, 20.0))
    ]
    rows += [
        {"series": "tail", "trace": "tail", "room": 10.0, "ahead": lag, **key} for lag in cache.LAGS
    ]
    said = cache.summarize(rows)

    assert "a read takes 2.5 times the CPU of read_entry without a cache." in said[0]
    assert said[3] == (
        "For reads by Zipf's law, cheapest in 10 % is no read-ahead: 50% are hits, at 0.75 times "
        "the CPU of read_entry without a cache."
    )
    rows[3]["us"] = 2.0
    assert cache.summarize(rows)[3] == (
        "For reads by Zipf's law, cheapest in 10 % is to read 5 entries at a time: 50% are hits, "
        "at 0.5 times the CPU of read_entry without a cache; without read-ahead 50%, at 0.75 times."
    )


# -- batch


def test_no_batch_is_larger_than_the_ledger() -> None:
    """Sizes above what is read or added would be one call under several names."""
    source: Any = None
    reads, adds = batch._read_sides(source, 7, 40), batch._add_sides(source, lambda: source, 10)

    assert ["0", "1", "2", "5", "10", "20"] == [side.name for side in reads]
    assert ["0", "1", "2", "5", "10"] == [side.name for side in adds]
    assert 1000 == max(int(side.name) for side in batch._read_sides(source, 7, 1000))


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ({0: 100.0, 1: 90.0, 10: 1000.0, 100: 700.0, 200: 900.0}, "are batches of 200."),
        (
            {0: 100.0, 1: 90.0, 10: 60.0},
            "90k in batches of 1, 90 % as many; no other size comes within",
        ),
        ({0: 100.0, 1: 90.0, 10: 85.0}, "90 % as many; within a fifth of that are batches"),
    ],
    ids=["a gap", "none", "slower than single ones"],
)
def test_a_finding_names_the_batches_that_are_near(rates: dict[int, float], said: str) -> None:
    """Only those that are; and ratios below 1 are said."""
    rows = [
        {"what": "reads", "where": "in process", "payload": 100, "batch": size, "rate": rate}
        for size, rate in rates.items()
    ]

    assert said in batch.summarize(rows)[0]
