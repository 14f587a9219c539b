"""The range index of stream look-ups: answers, life times, bounds, threads.

The oracle is a model that knows nothing of sorted arrays, sweeps and marks. The defects of an
earlier prototype have a test each: clear, the dead entry, the key, the life time, the mark.
"""

from __future__ import annotations

import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bkstore.errors import InvalidArgument
from bkstore.index.offset_range import OffsetRangeIndex

LOWEST, HIGHEST = -(2**63), 2**63 - 1


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def _ids(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


class Model:
    """The rules, the slow way: everything is looked through at every call."""

    def __init__(self, ttl: float, by_use: bool, max_items: int, max_entries: int) -> None:
        self.ttl, self.by_use = ttl, by_use
        self.max_items, self.max_entries = max_items, max_entries
        self.items: dict[tuple[int, int], dict[int, int]] = {}
        self.since: dict[tuple[int, int], tuple[float, int]] = {}
        self.turn = 0
        self.evictions = {"age": 0, "items": 0, "entries": 0}

    @property
    def entries(self) -> int:
        """Entries of all items."""
        return sum(map(len, self.items.values()))

    def _evict(self, key: tuple[int, int], reason: str) -> None:
        del self.items[key], self.since[key]
        self.evictions[reason] += 1

    def begin(self, now: float) -> None:
        """Let go what is due."""
        self.turn += 1
        for key in [key for key, (since, _) in self.since.items() if now - since >= self.ttl]:
            self._evict(key, "age")

    def touch(self, key: tuple[int, int], now: float) -> None:
        """Begin a life, or by use begin it anew."""
        if key in self.items and (self.by_use or key not in self.since):
            self.since[key] = (now, self.turn)

    def put(self, key: tuple[int, int], start: int, object_id: int, now: float) -> None:
        """Put, then evict the oldest while there is too much."""
        self.items.setdefault(key, {})[start] = object_id
        self.touch(key, now)
        while len(self.items) > self.max_items or self.entries > self.max_entries:
            reason = "items" if len(self.items) > self.max_items else "entries"
            self._evict(min(self.since, key=lambda k: self.since[k]), reason)

    def floor(self, key: tuple[int, int], offset: int, now: float) -> tuple[int, int] | None:
        """The greatest start <= offset."""
        self.touch(key, now)
        known = self.items.get(key, {})
        starts = [start for start in known if start <= offset]
        return (max(starts), known[max(starts)]) if starts else None

    def remove(self, key: tuple[int, int], start: int, object_id: int, now: float) -> bool:
        """Remove an entry that names that object."""
        self.touch(key, now)
        known = self.items.get(key, {})
        if known.get(start) != object_id:
            return False
        del known[start]
        if not known:
            del self.items[key], self.since[key]
        return True


_NUMBER = st.integers(0, 3)
_START = st.one_of(st.integers(-4, 12), st.sampled_from([LOWEST, HIGHEST]))
_CALL = st.tuples(
    st.sampled_from(["put", "put", "put", "floor", "floor", "remove"]),
    _NUMBER,
    st.integers(1, 2),
    _START,
    _NUMBER,
    st.sampled_from([0, 0, 1, 2, 5]),
)


@given(st.lists(_CALL, max_size=60), st.booleans(), st.integers(1, 6), st.integers(1, 12))
def test_agrees_with_the_model(
    calls: list[Any], by_use: bool, max_items: int, max_entries: int
) -> None:
    """Answers, counts and evictions are the model's after every call."""
    clock, model = Clock(), Model(10, by_use, max_items, max_entries)
    index = OffsetRangeIndex(
        ttl=10,
        expire_after="use" if by_use else "write",
        max_items=max_items,
        max_entries=max_entries,
        clock=clock,
    )
    for what, stream, node, start, object_id, passed in calls:
        clock.now += passed
        model.begin(clock.now)
        key = (stream, node)
        if what == "put":
            model.put(key, start, object_id, clock.now)
            index.put(stream, node, start, object_id)
        elif what == "floor":
            assert model.floor(key, start, clock.now) == index.floor(stream, node, start)
        else:
            removed = model.remove(key, start, object_id, clock.now)

            assert removed == index.remove(stream, node, start, object_id)

        assert len(model.items) == index.items
        assert model.entries == index.entries
        assert model.evictions == index.evictions


# -- answers


def test_floor_is_a_lower_bound() -> None:
    """The greatest start at or below the offset, in any order of puts; any int64 is a start."""
    index = OffsetRangeIndex()
    for start, object_id in ((686, 14), (HIGHEST, 9), (0, 0), (LOWEST, 7), (1033, 22)):
        index.put(420000, 4, start, object_id)
    asked = (LOWEST, -1, 0, 685, 686, 1000, 1033, HIGHEST - 1, HIGHEST)
    answers = [index.floor(420000, 4, offset) for offset in asked]

    assert [7, 7, 0, 0, 14, 14, 22, 22, 9] == [found[1] for found in answers if found]
    assert (686, 14) == answers[5]


def test_nothing_known() -> None:
    """None for an unknown stream, and below the lowest known start."""
    index = OffsetRangeIndex()
    index.put(1, 1, 100, 5)

    assert None is index.floor(2, 1, 100)
    assert None is index.floor(1, 1, 99)


def test_nodes_are_apart() -> None:
    """A stream that moved has entries for each node, and each is asked for its own."""
    index = OffsetRangeIndex()
    index.put(420000, 4, 0, 10)
    index.put(420000, 5, 500, 11)

    assert (0, 10) == index.floor(420000, 4, 900)
    assert (500, 11) == index.floor(420000, 5, 900)
    assert None is index.floor(420000, 5, 400)
    assert 2 == index.items


def test_last_put_of_a_start_wins() -> None:
    """A compacted object takes the start of the first object it replaced."""
    index = OffsetRangeIndex()
    index.put(1, 1, 0, 10)
    index.put(1, 1, 0, 99)

    assert (0, 99) == index.floor(1, 1, 5)
    assert 1 == index.entries


# -- dead entries


def test_the_entry_that_was_found_is_removed() -> None:
    """Asked for 1000, found at 686 and dead: the entry at 686 goes, and the next lower answers."""
    index = OffsetRangeIndex()
    index.put(1, 1, 394, 7)
    index.put(1, 1, 686, 14)
    start, object_id = index.floor(1, 1, 1000) or (0, 0)

    assert index.remove(1, 1, start, object_id)
    assert (394, 7) == index.floor(1, 1, 1000)
    assert 1 == index.entries


def test_only_the_dead_object_is_removed() -> None:
    """An entry that names another object by now stays, and so does what is not there."""
    index = OffsetRangeIndex()
    index.put(1, 1, 686, 14)

    assert not index.remove(1, 1, 686, 13)
    assert not index.remove(1, 1, 685, 14)
    assert not index.remove(1, 2, 686, 14)
    assert (686, 14) == index.floor(1, 1, 700)


def test_an_item_without_entries_is_gone() -> None:
    """Removing the last entry removes the item; that is no eviction."""
    index = OffsetRangeIndex()
    index.put(1, 1, 0, 5)

    assert index.remove(1, 1, 0, 5)
    assert (0, 0, 0) == (index.items, index.entries, index.nbytes)
    assert {"age": 0, "items": 0, "entries": 0} == index.evictions


# -- loaded objects


def test_an_object_brings_all_its_streams() -> None:
    """One load makes all streams of the object known on its node."""
    index = OffsetRangeIndex()
    index.put_object(4, 14, _ids(1, 2, -3), _ids(10, 20, 30))

    assert [(10, 14), (20, 14), (30, 14)] == [index.floor(s, 4, 50) for s in (1, 2, -3)]
    assert None is index.floor(1, 5, 50)


def _put_again_works(index: OffsetRangeIndex) -> bool:
    """Return whether object 14 is taken in once more; the extra stream 77 tells."""
    index.put_object(4, 14, _ids(1, 2, 77), _ids(10, 20, 0))
    return index.floor(77, 4, 0) == (0, 14)


def test_a_known_object_is_passed_over() -> None:
    """An object all of whose entries are here is not taken in again."""
    index = OffsetRangeIndex()
    index.put_object(4, 14, _ids(1, 2), _ids(10, 20))
    index.put_object(4, 15, _ids(1, 2), _ids(30, 40))

    assert not _put_again_works(index)


def test_the_same_object_of_another_node() -> None:
    """What is known of one node says nothing of another."""
    index = OffsetRangeIndex()
    index.put_object(3, 14, _ids(1), _ids(10))

    assert _put_again_works(index)


@pytest.mark.parametrize("loss", ["age", "items", "removed", "replaced", "forgotten", "cleared"])
def test_an_object_that_lost_an_entry_is_taken_in_again(loss: str) -> None:
    """Eviction of one of its streams, removal, replacement or forgetting undoes the mark."""
    clock = Clock()
    index = OffsetRangeIndex(ttl=10, max_items=3, clock=clock)
    index.put_object(4, 14, _ids(1, 2), _ids(10, 20))
    if loss == "age":
        clock.now = 10
        index.floor(9, 9, 9)
    elif loss == "items":
        index.put_object(4, 15, _ids(5, 6), _ids(0, 0))
    elif loss == "removed":
        index.remove(2, 4, 20, 14)
    elif loss == "replaced":
        index.put(2, 4, 20, 99)
    elif loss == "forgotten":
        index.forget_objects([13, 14])
    else:
        index.clear()

    lost, start = (1, 10) if loss == "items" else (2, 20)

    assert _put_again_works(index)
    assert (start, 14) == index.floor(lost, 4, start)


def test_an_object_whose_items_are_due_is_taken_in_again() -> None:
    """Also where so much is due before them that its items were not let go yet."""
    clock = Clock()
    index = OffsetRangeIndex(ttl=10, clock=clock)
    index.put_object(1, 13, np.arange(100, 9000), np.zeros(8900, np.int64))
    index.put(1, 4, 0, 13)
    clock.now = 1.0
    index.put_object(4, 14, _ids(1, 2), _ids(10, 20))
    clock.now = 10.0  # the item of stream 1 began before the object, and is due

    assert _put_again_works(index)
    assert (10, 14) == index.floor(1, 4, 99)


def test_eviction_of_other_streams_keeps_the_mark() -> None:
    """An object none of whose streams was evicted is still passed over."""
    index = OffsetRangeIndex(max_items=3)
    index.put_object(4, 13, _ids(5, 6), _ids(0, 0))
    index.put_object(4, 14, _ids(1, 2), _ids(10, 20))

    assert {"age": 0, "items": 1, "entries": 0} == index.evictions
    assert not _put_again_works(index)


def test_an_object_larger_than_the_index() -> None:
    """What an object itself pushes out is not remembered as known."""
    index = OffsetRangeIndex(max_items=2)
    index.put_object(4, 14, _ids(1, 2, 3), _ids(10, 20, 30))

    assert 2 == index.items
    assert _put_again_works(index)


def test_an_object_without_streams() -> None:
    """It leaves nothing behind."""
    index = OffsetRangeIndex()
    index.put_object(4, 14, _ids(), _ids())

    assert 0 == index.items
    assert _put_again_works(index)


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
        index.put_object(1, 6, _ids(1), _ids(7))
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
    index.put_object(1, 5, _ids(1, 2), _ids(0, 0))
    clock.now = 6.0
    index.clear()

    assert (0, 0, 0) == (index.items, index.entries, index.nbytes)
    assert None is index.floor(1, 1, 0)

    index.put_object(1, 5, _ids(1, 2), _ids(0, 0))
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
    [(_ids(1, 2), _ids(1)), (np.zeros(1), _ids(1)), (_ids(1), np.array([2**63], np.uint64))],
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
