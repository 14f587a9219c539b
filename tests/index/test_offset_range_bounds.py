"""OffsetRangeIndex: life time, bounds, wrong use, threads."""

from __future__ import annotations

import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest

from bkstore.errors import InvalidArgument
from bkstore.index.offset_range import OffsetRangeIndex
from tests.index.offset_range_model import HIGHEST, Clock, ids

# -- life time


def test_life_counts_from_the_first_write() -> None:
    """Neither reads nor later writes lengthen it; it ends at the second it is over."""
    clock = Clock()
    index = OffsetRangeIndex(clock=clock)
    index.put(1, 1, 0, 5)
    for clock.now in (300.0, 599.0):
        index.put(1, 1, int(clock.now), 6)

        assert None is not index.floor(1, 1, 0)

    clock.now = 600.0

    assert None is index.floor(1, 1, 10**6)
    assert {"age": 1, "items": 0, "entries": 0} == index.evictions


@pytest.mark.parametrize("use", ["floor", "put", "put_object"])
def test_life_from_the_last_use(use: str) -> None:
    """With expire_after="use" look-ups and writes lengthen it."""
    clock = Clock()
    index = OffsetRangeIndex(ttl=10, expire_after="use", clock=clock)
    index.put(1, 1, 0, 5)
    index.put(2, 1, 0, 5)
    clock.now = 9.0
    if use == "floor":
        index.floor(1, 1, 0)
    elif use == "put":
        index.put(1, 1, 7, 6)
    else:
        index.put_object(1, 6, ids(1), ids(7))
    clock.now = 18.0

    assert (0, 5) == index.floor(1, 1, 0)
    assert None is index.floor(2, 1, 0)


def test_a_refilled_item_is_not_evicted_by_the_old_due_time() -> None:
    """Expired, not yet let go, and written again: the new generation lives its own time."""
    clock = Clock()
    index = OffsetRangeIndex(ttl=10, clock=clock)
    count = 9000  # more than a call lets go
    for stream in range(count):
        index.put(stream, 1, 0, 5)
    clock.now = 10.0
    index.put(count - 1, 1, 3, 8)  # behind thousands that are due and still there
    for _ in range(20):
        index.floor(0, 1, 0)

    assert (3, 8) == index.floor(count - 1, 1, 99)
    assert None is index.floor(count - 1, 1, 2)
    assert (1, 1) == (index.items, index.entries)
    assert {"age": count, "items": 0, "entries": 0} == index.evictions

    clock.now = 19.9

    assert (3, 8) == index.floor(count - 1, 1, 99)

    clock.now = 20.0

    assert None is index.floor(count - 1, 1, 99)


def test_a_due_item_is_never_answered_from() -> None:
    """However many are due before it, an expired item is not used."""
    clock = Clock()
    index = OffsetRangeIndex(ttl=10, clock=clock)
    for stream in range(9000):
        index.put(stream, 1, 0, 5)
    clock.now = 10.0

    assert None is index.floor(8999, 1, 0)
    assert not index.remove(8998, 1, 0, 5)
    assert 0 == index.items


def test_clear_clears_everything() -> None:
    """After a clear nothing is known, and what is put lives its whole time."""
    clock = Clock()
    index = OffsetRangeIndex(ttl=10, clock=clock)
    index.put_object(1, 5, ids(1, 2), ids(0, 0))
    clock.now = 6.0
    index.clear()

    assert (0, 0, 0) == (index.items, index.entries, index.nbytes)
    assert None is index.floor(1, 1, 0)

    index.put_object(1, 5, ids(1, 2), ids(0, 0))
    clock.now = 15.0  # the first generation would have ended at 10

    assert (0, 5) == index.floor(1, 1, 0)
    assert (2, 2) == (index.items, index.entries)
    assert {"age": 0, "items": 0, "entries": 0} == index.evictions


# -- bounds


def test_too_many_items() -> None:
    """The item first written goes, whole, whatever was added to it since."""
    index = OffsetRangeIndex(max_items=2)
    for stream, start in ((1, 0), (2, 0), (1, 50), (3, 0)):
        index.put(stream, 1, start, 5)

    assert [None, (0, 5), (0, 5)] == [index.floor(stream, 1, 99) for stream in (1, 2, 3)]
    assert (2, 2) == (index.items, index.entries)
    assert {"age": 0, "items": 1, "entries": 0} == index.evictions


def test_too_many_items_by_use() -> None:
    """By use, the item longest not used goes."""
    index = OffsetRangeIndex(max_items=2, expire_after="use")
    index.put(1, 1, 0, 5)
    index.put(2, 1, 0, 5)
    index.floor(1, 1, 0)
    index.put(3, 1, 0, 5)

    assert [(0, 5), None, (0, 5)] == [index.floor(stream, 1, 99) for stream in (1, 2, 3)]


def test_too_many_entries() -> None:
    """Entries of all items count; the oldest item goes with all of its own."""
    index = OffsetRangeIndex(max_entries=5)
    index.put(1, 1, 0, 5)
    index.put(1, 1, 9, 5)
    for start in range(4):
        index.put(2, 1, start, 6)

    assert None is index.floor(1, 1, 99)
    assert (3, 6) == index.floor(2, 1, 99)
    assert 4 == index.entries
    assert {"age": 0, "items": 0, "entries": 1} == index.evictions


def test_bytes_are_about_what_is_taken() -> None:
    """The estimate is within a third of what Python allocates, for short and for long items."""
    for objects in (1, 16):
        index = OffsetRangeIndex()
        streams = np.arange(10**6, 10**6 + 4_000)
        tracemalloc.start()
        try:
            for number in range(objects):
                starts = np.full(streams.size, 10**9 * (number + 1))
                index.put_object(1, 10**6 + number, streams, starts)
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert pytest.approx(taken, rel=1 / 3) == index.nbytes


# -- wrong use, threads


@pytest.mark.parametrize(
    "options", [{"ttl": 0}, {"ttl": -1.0}, {"max_items": 0}, {"max_entries": 0}]
)
def test_refused_options(options: dict[str, Any]) -> None:
    """No time and no room are refused."""
    with pytest.raises(InvalidArgument):
        OffsetRangeIndex(**options)


def test_refused_expiry() -> None:
    """Life counts from a write or a use."""
    with pytest.raises(InvalidArgument, match="'write' or 'use'"):
        OffsetRangeIndex(expire_after="read")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "numbers", [(2**63, 0, 0, 0), (0, 0, -(2**63) - 1, 0), (0, 0, 0, 1.5), (0, "4", 0, 0)]
)
def test_refused_numbers(numbers: Any) -> None:
    """What does not fit int64 is refused before anything is stored."""
    index = OffsetRangeIndex()
    with pytest.raises(InvalidArgument, match="not an integer that fits int64"):
        index.put(*numbers)

    assert 0 == index.items


@pytest.mark.parametrize(
    ("streams", "starts"),
    [(ids(1, 2), ids(1)), (np.zeros(1), ids(1)), (ids(1), np.array([2**63], np.uint64))],
)
def test_refused_arrays(streams: Any, starts: Any) -> None:
    """Streams and starts are int64 arrays of one length."""
    index = OffsetRangeIndex()
    with pytest.raises(InvalidArgument):
        index.put_object(1, 1, streams, starts)

    assert 0 == index.items


def test_threads() -> None:
    """Beside each other, calls keep counts, order and bounds; answers are lower bounds."""
    clock, wrong = Clock(), list[object]()
    index = OffsetRangeIndex(ttl=5, max_items=40, max_entries=600, clock=clock)

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for turn in range(400):
            streams = rng.permutation(60)[:10].astype(np.int64)
            object_id = int(rng.integers(1000))
            index.put_object(1, object_id, streams, np.full(10, object_id, np.int64))
            stream, offset = int(rng.integers(60)), int(rng.integers(1000))
            found = index.floor(stream, 1, offset)
            if found is not None and not found[0] == found[1] <= offset:
                wrong.append(found)
            if found is not None and turn % 7 == 0:
                index.remove(stream, 1, *found)
            if turn % 50 == 0:
                clock.now += 1
            if index.items > 40 or index.entries > 600:
                wrong.append("bounds")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counted = 0
    for stream in range(60):
        at: tuple[int, int] | None = (HIGHEST, 0)
        while at is not None and (at := index.floor(stream, 1, at[0] - 1)) is not None:
            counted += 1

    assert [] == wrong
    assert 0 < counted == index.entries
