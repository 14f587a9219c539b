"""What BookKeeper's own class answers at the ends of Java's numbers, worked out by hand.

A look-up takes the group with the highest first start at or below the id, F: the id is there if
it is at most last start + size, and (id - F) % period < size (of period 0: id - F < size). Sums
are longs that wrap, and a remainder has the sign of the dividend. The total is the sum of
((last - first) / period + 1) * size.
"""

from __future__ import annotations

import pytest

from bkstore.availability import Availability
from bkstore.errors import InvalidArgument
from tests.availability.reference import TOP, Row, packed

LEAST = -(2**63)


def built(*rows: Row) -> Availability:
    """Return the answer for stored groups."""
    return Availability.from_bytes(packed(rows), compat="bookkeeper")


@pytest.mark.parametrize(
    ("row", "total"),
    [
        ((0, 2**62, 8, 1), 8),  # (2^62 + 1) * 8 is 2^65 + 8
        ((LEAST, 2**63 - 1, 3, 2), 3),  # last - first is -1, and -1 / 2 is 0
        ((LEAST, 2**63 - 1, 3, 1), 0),
        ((8, 0, 2, 4), -2),  # (-8 / 4 + 1) * 2
        ((8, 1, 2, 4), 0),  # -7 / 4 is -1
        ((0, 7, 2, 4), 4),
        ((0, 2**62, 2**31 - 1, 1), -(2**62) + 2**31 - 1),
    ],
)
def test_a_total_is_a_long(row: Row, total: int) -> None:
    """The total wraps as a long does; a negative one is no length."""
    if total >= 0:
        assert total == len(built(row))
    else:
        with pytest.raises(InvalidArgument, match=rf"add up to {total} entries: not a length"):
            len(built(row))


@pytest.mark.parametrize(
    ("row", "held"),
    [
        # From -2^63 an id of 0 or more is 2^63 or more away: that wraps below 0, and so is the
        # remainder. 2^63 is 1 above a multiple of 7.
        ((LEAST, 100, 2, 7), {-5: False, -2: False, -1: True, 0: True, 5: True, 102: True}),
        ((LEAST, 100, 2, 7), {103: False, TOP: False, LEAST: True, LEAST + 2: False}),
        ((LEAST, 100, 2, -7), {-2: False, -1: True, 5: True, 102: True, 103: False}),
        ((4, 12, 2, -4), {3: False, 4: True, 5: True, 6: False, 8: True, 13: True, 14: False}),
        ((4, 12, 3, 4), {14: True, 15: False, 16: False}),
        ((4, 12, 3, 2), {4: True, 5: True, 15: True, 16: False}),
        ((4, 4, 3, 0), {3: False, 4: True, 6: True, 7: False}),
        ((4, 4, 3, 3), {6: True, 7: True, 8: False}),  # one past the last is asked about, too
        ((0, 0, 0, 0), {0: False}),
        ((0, 0, 1, 0), {-1: False, 0: True, 1: False}),
    ],
)
def test_a_look_up_computes_as_java_does(row: Row, held: dict[int, bool]) -> None:
    """One by one and in arrays, negative ids included."""
    answer = built(row)

    assert held == {entry: entry in answer for entry in held}
    assert list(held.values()) == answer.contains_many(list(held)).tolist()


@pytest.mark.parametrize(
    ("ids", "expected", "first", "last", "reported"),
    [
        ([0, 1, 2, 3], [2], 2, 2, []),  # a range of a single id
        ([0, 1, 2, 3], [0], 0, 0, []),
        ([0, 1, 2, 3], [3], 3, 3, []),
        ([0, 1, 2, 3], [3, 4], 3, 4, [4]),
        ([0, 1, 2, 3], [4], 4, 4, [4]),
        ([0, 1, 2, 3], [5], 5, 5, [5]),
        ([5, 6], [3, 4, 5, 6, 7], 3, 7, [3, 4, 7]),  # it begins below the first group
        ([5, 6], [3, 4], 3, 4, [3, 4]),
        ([5, 6], [], 0, 9, []),
        ([0, 2, 4], [0, 1, 2, 3, 4, 5], 0, 5, [1, 3, 5]),  # holes of one id
        ([0, 1, 4], [0, 1, 4], 0, 4, [4]),  # two ids are missing: it looks no further
        ([0, 1, 4], [0, 1, 4], 3, 4, [4]),  # 3 is above what the first group is asked about
        ([0, 1, 4], [0, 1, 4], 2, 4, [4]),
        ([0, 1, 4], [4], 4, 4, []),
        ([TOP - 1, TOP], [TOP - 2, TOP - 1, TOP], TOP - 2, 2**63 - 1, [TOP - 2]),
        ([0, 1], [0, 1, TOP], 0, 2**70, [TOP]),
        ([0, 1], [0, 1], -(2**70), 1, []),
        ([0, 1], [0, 1], 1, 0, []),
    ],
)
def test_what_is_reported_missing(
    ids: list[int], expected: list[int], first: int, last: int, reported: list[int]
) -> None:
    """`getUnavailableEntries` asks the group below an id up to one past its last; behind that it
    reports each expected id to the end of the range."""
    answer = Availability.from_entries(ids, compat="bookkeeper")
    due = Availability.from_entries(expected)

    assert reported == answer.missing(due, first, last).entries().tolist()


def test_of_equal_first_starts_the_last_counts() -> None:
    """A group replaces one before it that has the same first start, whatever stands between."""
    rows = [(5, 5, 3, 0), (1, 1, 2, 0), (5, 5, 1, 0), (9, 9, 2, 0), (1, 1, 1, 0)]

    assert [[1, 1, 1, 0], [5, 5, 1, 0], [9, 9, 2, 0]] == built(*rows).groups.tolist()


@pytest.mark.parametrize(
    ("ids", "groups"),
    [
        ([-3, -2, 5], [[-3, -3, 2, 0], [5, 5, 1, 0]]),  # of negative ids only -1 opens no sequence
        ([-2, -1, 0], [[-2, -2, 3, 0]]),
        ([0, 1, 2, 0, 7], [[0, 0, 3, 0], [7, 7, 1, 0]]),  # an id of the sequence is skipped
        ([0, 1, 2, 2, 3], [[0, 0, 4, 0]]),
    ],
)
def test_ids_in_the_order_they_came(ids: list[int], groups: list[list[int]]) -> None:
    """An id inside the open sequence is skipped, the next one lengthens it, any other opens
    one."""
    assert groups == Availability.from_entries(ids, compat="bookkeeper").groups.tolist()
