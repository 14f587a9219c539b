"""Many sets condensed together: each is what it would be alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bkstore.availability import Availability
from bkstore.availability.many_sets import (
    from_ids_of_many,
    from_mask_of_many,
    sets_from_arrays,
    split_by_owner,
)
from bkstore.ids import Int64Array


def _ids(values: list[int]) -> Int64Array:
    return np.array(sorted(set(values)), np.int64)


_STRIPES = st.builds(
    lambda first, step, size, count: [
        first + step * n + at for n in range(count) for at in range(size)
    ],
    *(st.integers(0, 5), st.integers(1, 6), st.integers(1, 4), st.integers(0, 9)),
)
_SETS = st.lists(
    (st.lists(st.integers(0, 60), max_size=25) | _STRIPES).map(_ids), min_size=1, max_size=7
)


@given(_SETS)
def test_ids_of_many(sets: list[Int64Array]) -> None:
    """Sets that lie one behind the other become what `from_entries` makes of each: no group
    reaches over a border, empty sets are among them."""
    owner = np.repeat(np.arange(len(sets)), [ids.size for ids in sets])
    expected = [Availability.from_entries(ids) for ids in sets]

    assert expected == split_by_owner(*from_ids_of_many(np.concatenate(sets), owner), len(sets))
    assert expected == sets_from_arrays(sets)


@given(_SETS, st.integers(0, 3))
def test_mask_of_many(sets: list[Int64Array], before: int) -> None:
    """Sets of a mask, one free place between them, become the same."""
    sizes = [int(ids.max(initial=-1)) + 2 for ids in sets]
    base = before + np.cumsum([0, *sizes[:-1]])
    mask = np.zeros(before + sum(sizes), np.bool_)
    for at, ids in zip(base, sets, strict=True):
        mask[at + ids] = True
    expected = [Availability.from_entries(ids) for ids in sets]

    assert expected == split_by_owner(*from_mask_of_many(mask, base), len(sets))
    assert expected == split_by_owner(*from_mask_of_many(mask[:-1], base), len(sets))


def test_far_and_long() -> None:
    """Distances and runs beyond int32 are not grouped, as in one set; the highest ids fit."""
    top = 2**63 - 2
    sets = [[0, 2**31, 2**32], [0, 2**31 - 1, 2**32 - 2], [top - 1, top], [0, top]]
    arrays = [_ids(each) for each in sets]

    assert [Availability.from_entries(ids) for ids in arrays] == sets_from_arrays(arrays)


@pytest.mark.parametrize("count", [1, 3])
def test_answers_cannot_be_written_to(count: int) -> None:
    """The columns of each set are read-only, with one group or with several."""
    for found in sets_from_arrays([_ids([1, 2, *range(50, 50 * count)])] * 3):
        for column in found.columns:
            with pytest.raises(ValueError, match="read-only"):
                column[0] = 5
