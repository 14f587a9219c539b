"""The range index of stream look-ups: answers, life times, bounds, threads.

The oracle is a model that knows nothing of sorted arrays, sweeps and marks. The defects of an
earlier prototype have a test each: clear, the dead entry, the key, the life time, the mark.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bkstore.index.offset_range import OffsetRangeIndex
from tests.index.offset_range_model import HIGHEST, LOWEST, Clock, Model, ids

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
    index.put_object(4, 14, ids(1, 2, -3), ids(10, 20, 30))

    assert [(10, 14), (20, 14), (30, 14)] == [index.floor(s, 4, 50) for s in (1, 2, -3)]
    assert None is index.floor(1, 5, 50)


def _put_again_works(index: OffsetRangeIndex) -> bool:
    """Return whether object 14 is taken in once more; the extra stream 77 tells."""
    index.put_object(4, 14, ids(1, 2, 77), ids(10, 20, 0))
    return index.floor(77, 4, 0) == (0, 14)


def test_a_known_object_is_passed_over() -> None:
    """An object all of whose entries are here is not taken in again."""
    index = OffsetRangeIndex()
    index.put_object(4, 14, ids(1, 2), ids(10, 20))
    index.put_object(4, 15, ids(1, 2), ids(30, 40))

    assert not _put_again_works(index)


def test_the_same_object_of_another_node() -> None:
    """What is known of one node says nothing of another."""
    index = OffsetRangeIndex()
    index.put_object(3, 14, ids(1), ids(10))

    assert _put_again_works(index)


@pytest.mark.parametrize("loss", ["age", "items", "removed", "replaced", "forgotten", "cleared"])
def test_an_object_that_lost_an_entry_is_taken_in_again(loss: str) -> None:
    """Eviction of one of its streams, removal, replacement or forgetting undoes the mark."""
    clock = Clock()
    index = OffsetRangeIndex(ttl=10, max_items=3, clock=clock)
    index.put_object(4, 14, ids(1, 2), ids(10, 20))
    if loss == "age":
        clock.now = 10
        index.floor(9, 9, 9)
    elif loss == "items":
        index.put_object(4, 15, ids(5, 6), ids(0, 0))
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
    index.put_object(4, 14, ids(1, 2), ids(10, 20))
    clock.now = 10.0  # the item of stream 1 began before the object, and is due

    assert _put_again_works(index)
    assert (10, 14) == index.floor(1, 4, 99)


def test_eviction_of_other_streams_keeps_the_mark() -> None:
    """An object none of whose streams was evicted is still skipped."""
    index = OffsetRangeIndex(max_items=3)
    index.put_object(4, 13, ids(5, 6), ids(0, 0))
    index.put_object(4, 14, ids(1, 2), ids(10, 20))

    assert {"age": 0, "items": 1, "entries": 0} == index.evictions
    assert not _put_again_works(index)


def test_an_object_larger_than_the_index() -> None:
    """What an object itself pushes out is not remembered as known."""
    index = OffsetRangeIndex(max_items=2)
    index.put_object(4, 14, ids(1, 2, 3), ids(10, 20, 30))

    assert 2 == index.items
    assert _put_again_works(index)


def test_an_object_without_streams() -> None:
    """It leaves nothing behind."""
    index = OffsetRangeIndex()
    index.put_object(4, 14, ids(), ids())

    assert 0 == index.items
    assert _put_again_works(index)
