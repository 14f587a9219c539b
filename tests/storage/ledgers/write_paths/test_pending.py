"""What waits in memory for a flush, against dicts: single puts and batches, mixed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bkstore.errors import InvalidArgument, TooManyRequests
from bkstore.formats.entry import RecordBatch
from bkstore.ids import LedgerId
from bkstore.storage.ledgers.write_paths import write_cache
from bkstore.storage.ledgers.write_paths.pending_values import MIN_RUN_ENTRIES, PendingLocations
from bkstore.storage.ledgers.write_paths.write_cache import ENTRY_OVERHEAD, WriteCache
from tests.worlds.batches import SHAPES, shaped

NAMES = [LedgerId(0, 7), LedgerId(1, 7), LedgerId(2**64 - 1, 2**63)]
HIGHEST = 2**63 - 2

Put = tuple[LedgerId, list[int]]
"""Ids of one ledger in the order in which they come."""


@st.composite
def _stretches(draw: Any) -> list[int]:
    """Return ids: dense or sparse, ascending, descending or mixed, some twice."""
    step = draw(st.sampled_from([1, 1, 1, 2, 3, 1000]))
    first = draw(st.integers(0, 80) | st.just(HIGHEST - 60 * step))
    count = draw(
        st.integers(1, 12)
        | st.integers(MIN_RUN_ENTRIES - 1, MIN_RUN_ENTRIES + 1)
        | st.integers(1, 60)
    )
    ids = [first + step * at for at in range(count)]
    order = draw(st.sampled_from(["ascending"] * 4 + ["descending", "mixed", "twice", "gaps"]))
    if order == "descending":
        ids.reverse()
    elif order == "mixed":
        random.Random(count).shuffle(ids)
    elif order == "twice":
        ids += ids[count // 2 :]
    elif order == "gaps":
        ids = [entry for at, entry in enumerate(ids) if at % 5 or at == 0]
    return ids


_puts = st.lists(
    st.tuples(
        st.sampled_from(["batch", "batch", "single", "drop"]), st.sampled_from(NAMES)
    ).flatmap(lambda what: st.tuples(st.just(what[0]), st.just(what[1]), _stretches())),
    min_size=1,
    max_size=8,
)


class Model:
    """Values by ledger and entry, and what they count."""

    def __init__(self, rule: Literal["first", "last"]) -> None:
        self.rule = rule
        self.ledgers: dict[LedgerId, dict[int, Any]] = {}
        self.size = 0

    def put(self, name: LedgerId, entry: int, value: Any, size: int = 0) -> None:
        """Take one value."""
        there = self.ledgers.setdefault(name, {})
        if entry in there and self.rule == "first":
            return
        there[entry] = value
        self.size += size

    def drop(self, name: LedgerId, size_of: Callable[[Any], int]) -> None:
        """Forget a ledger; what was replaced counts until nothing is here."""
        self.size -= sum(map(size_of, self.ledgers.pop(name, {}).values()))
        if not any(self.ledgers.values()):
            self.size = 0


def _agree(model: Model, pending: Any, data: Any) -> None:
    """Assert that everything both kinds answer is what the dicts say."""
    assert sum(map(len, model.ledgers.values())) == pending.count == len(pending)
    assert sorted(name for name, there in model.ledgers.items() if there) == pending.ledgers()
    for name in NAMES:
        there = model.ledgers.get(name, {})
        ids = sorted(there)
        edge = st.integers(0, 100) | st.sampled_from([0, *ids[:1], *ids[-1:], HIGHEST])
        first, last = data.draw(edge), data.draw(edge)
        within = [entry for entry in ids if first <= entry <= last]

        assert ids == pending.entries(name).tolist()
        assert within == pending.entries(name, first, last).tolist()
        assert (ids[-1] if ids else None) == pending.last_entry(name)
        for entry in [first, last, *ids[:3], *ids[-3:]]:
            assert there.get(entry) == pending.get(name, entry)
        near = min(last, first + 2000)
        nearest = next((entry for entry in within if entry <= near), None)
        assert nearest == pending.find_first(name, first, near)


# -- locations


@given(puts=_puts, data=st.data())
def test_locations(puts: list[tuple[str, LedgerId, list[int]]], data: Any) -> None:
    """Ids, locations, ranges, counts and tables are those of dicts; the last put stays."""
    model, pending, number = Model("last"), PendingLocations(), 1000
    for what, name, ids in puts:
        number += 100
        places = [number + at for at in range(len(ids))]
        if what == "drop":
            model.drop(name, lambda _: 0)
            pending.drop(name)
        elif what == "single":
            for entry, place in zip(ids, places, strict=True):
                new = entry not in model.ledgers.get(name, {})
                model.put(name, entry, place)

                assert new == pending.put(name, entry, place)
        else:
            pending.put_many(name, np.array(ids), np.array(places))
            for entry, place in zip(ids, places, strict=True):
                model.put(name, entry, place)
        _agree(model, pending, data)
        _same_locations(model, pending, data)


def _same_locations(model: Model, pending: PendingLocations, data: Any) -> None:
    tables = [
        (name, sorted(there), [there[entry] for entry in sorted(there)])
        for name, there in sorted(model.ledgers.items())
    ]
    found = [(name, ids.tolist(), places.tolist()) for name, ids, places in pending.by_ledger()]
    assert tables == found
    for name in NAMES:
        there = model.ledgers.get(name, {})
        first = data.draw(st.integers(0, 100) | st.sampled_from([0, *there]))
        last = data.draw(st.none() | st.integers(0, 200) | st.just(HIGHEST))
        within = sorted(
            entry for entry in there if entry >= first and (last is None or entry <= last)
        )
        wanted = [first, *within[:9], HIGHEST, 5]
        ids, places = pending.items(name, first, last)

        assert within == ids.tolist()
        assert [there[entry] for entry in within] == places.tolist()
        assert [there.get(entry, 0) for entry in wanted] == pending.get_many(
            name, np.array(wanted)
        ).tolist()


# -- records


def _size(value: bytes) -> int:
    return len(value) + ENTRY_OVERHEAD


@pytest.mark.parametrize("rule", ["first", "last"])
@given(puts=_puts, data=st.data(), shape=st.sampled_from(sorted(SHAPES)))
def test_records(
    rule: Literal["first", "last"],
    puts: list[tuple[str, LedgerId, list[int]]],
    shape: str,
    data: Any,
) -> None:
    """Records, runs of them, batches for the log, counts and bytes are those of dicts."""
    model, cache = Model(rule), WriteCache(rule, 1 << 40)
    for number, (what, name, ids) in enumerate(puts):
        values = [bytes([65 + number]) * ((entry * 7 + at) % 11) for at, entry in enumerate(ids)]
        if data.draw(st.booleans()):
            values = [value.ljust(11, b".") for value in values]
        if what == "drop":
            model.drop(name, _size)
            cache.drop(name)
        elif what == "single":
            for entry, value in zip(ids, values, strict=True):
                new = entry not in model.ledgers.get(name, {})
                model.put(name, entry, value, _size(value))

                assert new == cache.put(name, entry, value)
        else:
            cache.put_batch(name, shaped(shape, values, ids).framed())
            for entry, value in zip(ids, values, strict=True):
                model.put(name, entry, value, _size(value))
        assert model.size == cache.size
        _agree(model, cache, data)
        _same_records(model, cache, data)


def _same_records(model: Model, cache: WriteCache, data: Any) -> None:
    for name in NAMES:
        there = model.ledgers.get(name, {})
        start = data.draw(st.integers(0, 100) | st.sampled_from([0, *there]))
        count = data.draw(st.integers(1, 70) | st.just(1 << 20))

        run, at = [], start
        while at in there and len(run) < count:
            run.append(there[at])
            at += 1
        assert run == _whole_run(cache, name, start, count)
        if name in cache.list_ledger_ids():
            batches = list(cache.batches(name))
            assert sorted(there) == [e for batch in batches for e in batch.entries.tolist()]
            assert [there[e] for e in sorted(there)] == [r for b in batches for r in b.records()]
            for batch in batches:
                assert batch is batch.framed()  # one write each


def _whole_run(cache: WriteCache, name: LedgerId, start: int, count: int) -> list[bytes]:
    """Return what `get_run` gives, asked again for what follows."""
    found: list[bytes] = []
    while len(found) < count:
        batch = cache.get_run(name, start + len(found), count - len(found))
        assert list(range(start + len(found), start + len(found) + len(batch))) == (
            batch.entries.tolist()
        )
        assert len(batch) <= count - len(found)
        if not len(batch):
            break
        found += batch.records()
    return found


@pytest.mark.parametrize(("most", "enough"), [(1, 1), (3, 60), (4096, 200)])
def test_batches_for_the_log_in_pieces(
    most: int, enough: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However small the pieces are that are written at once: each record once, in order."""
    monkeypatch.setattr(write_cache, "_MAX_BATCH_RECORDS", most)
    monkeypatch.setattr(write_cache, "_JOINED_BYTES", enough)
    cache, name = WriteCache("last", 1 << 30), NAMES[0]
    model = {}
    stretches = [range(20), range(40, 60), range(100, 160, 3)]
    singles = [5, 25, 26, 45, 101, 103, 200, 201, 202, 203]
    for ids in stretches:
        values = [b"run %d" % entry for entry in ids]
        cache.put_batch(name, RecordBatch.of(values, ids))
        model |= dict(zip(ids, values, strict=True))
    for entry in singles:
        cache.put(name, entry, b"single %d" % entry)
        model[entry] = b"single %d" % entry
    batches = list(cache.batches(name))

    assert sorted(model) == [entry for batch in batches for entry in batch.entries.tolist()]
    assert [model[e] for e in sorted(model)] == [r for batch in batches for r in batch.records()]
    assert all(len(batch.buffer) - len(batch[-1]) < enough + 20 * 20 for batch in batches)


@given(
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=30),
    limit=st.integers(1, 3000),
    before=st.integers(0, 2000),
)
def test_room(sizes: list[int], limit: int, before: int) -> None:
    """A batch has room as far as single records would, the first always."""
    cache = WriteCache("last", limit)
    cache.put(NAMES[0], 0, bytes(before))
    expected, filled = 0, cache.size
    for size in sizes:
        filled += size + ENTRY_OVERHEAD
        if filled > limit:
            break
        expected += 1
    batch = RecordBatch.of([bytes(size) for size in sizes], range(len(sizes)))

    assert max(expected, 1) == cache.count_fitting(batch)
    assert cache.fits(sizes[0]) == (expected > 0)

    for count in range(1, len(sizes) + 1):  # just at the limit, and a byte below it
        cache.limit = cache.size + sum(sizes[:count]) + count * ENTRY_OVERHEAD
        assert count == cache.count_fitting(batch)
        cache.limit -= 1
        assert max(count - 1, 1) == cache.count_fitting(batch)


@pytest.mark.parametrize("rule", ["first", "last"])
@pytest.mark.parametrize("first", [0, 18, 19, 20, 21])
@pytest.mark.parametrize("alone", [False, True])
def test_batches_that_meet(rule: Literal["first", "last"], first: int, alone: bool) -> None:
    """A batch that begins just below, at or behind the highest id: records and bytes of dicts."""
    model, cache = Model(rule), WriteCache(rule, 1 << 20)
    places, pending = Model("last"), PendingLocations()
    for number, ids in enumerate([range(20), range(first, first + 20)]):
        values = [b"%d" % number * (entry % 9) for entry in ids]
        if alone and not number:
            for entry, value in zip(ids, values, strict=True):
                cache.put(NAMES[0], entry, value)
        else:
            cache.put_batch(NAMES[0], RecordBatch.of(values, ids))
        pending.put_many(NAMES[0], np.array(ids), np.array(ids) + 1000 * number)
        for entry, value in zip(ids, values, strict=True):
            model.put(NAMES[0], entry, value, _size(value))
            places.put(NAMES[0], entry, entry + 1000 * number)
    there = model.ledgers[NAMES[0]]

    assert model.size == cache.size
    assert len(there) == cache.count == pending.count
    assert there == {entry: cache.get(NAMES[0], entry) for entry in there}
    assert sorted(there) == cache.entries(NAMES[0]).tolist()
    assert places.ledgers[NAMES[0]] == {entry: pending.get(NAMES[0], entry) for entry in there}


@pytest.mark.parametrize("count", [MIN_RUN_ENTRIES - 1, MIN_RUN_ENTRIES, 3 * MIN_RUN_ENTRIES])
def test_nobody_changes_what_waits(count: int) -> None:
    """Arrays and bytes that came in, or were given out, can be changed without any effect."""
    ids, values = list(range(count)), [b"%5d" % at for at in range(count)]
    cache, pending = WriteCache("first", 1 << 20), PendingLocations()
    batch = shaped("changeable", values, ids)
    cache.put_batch(NAMES[0], batch)
    pending.put_many(NAMES[0], np.arange(count), np.arange(1000, 1000 + count))
    given_out = [cache.entries(NAMES[0]), pending.entries(NAMES[0])]
    run, items = cache.get_run(NAMES[0], 0, count), pending.items(NAMES[0], 0, None)
    for array in (batch.entries, batch.offsets, batch.sizes, *given_out, *items):
        array += 3
    for array in (run.entries, run.offsets, run.sizes):
        array += 3
    np.frombuffer(batch.buffer, np.uint8)[:] = 0  # type: ignore[call-overload]

    assert ids == cache.entries(NAMES[0]).tolist() == pending.entries(NAMES[0]).tolist()
    assert values == [cache.get(NAMES[0], entry) for entry in ids]
    assert values == cache.get_run(NAMES[0], 0, count).records()
    assert values == [record for made in cache.batches(NAMES[0]) for record in made.records()]
    assert list(range(1000, 1000 + count)) == pending.items(NAMES[0], 0, None)[1].tolist()


@pytest.mark.parametrize("auto_flush", [True, False])
def test_room_for_a_record_as_large_as_the_cache(auto_flush: bool) -> None:
    """A record as large as the cache fits into an empty one and waits for a flush behind another;
    a larger one never fits."""
    empty, used = WriteCache("first", ENTRY_OVERHEAD + 10), WriteCache("first", ENTRY_OVERHEAD + 10)
    used.put(NAMES[0], 0, b"x")

    assert empty.has_room(10, auto_flush)
    for cache in (empty, used):
        with pytest.raises(InvalidArgument, match="record of 11 bytes"):
            cache.has_room(11, auto_flush)
    if auto_flush:
        assert not used.has_room(10, auto_flush)
    else:
        with pytest.raises(TooManyRequests, match="flush first"):
            used.has_room(10, auto_flush)
