"""Availability at the ends of what it can hold: long periods, huge runs, all ids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bkstore import schedule
from bkstore.availability import Availability, codec
from bkstore.availability.sequence_groups import (
    Groups,
    count_sequences,
    list_entry_ids,
    take_first_sequences,
)
from bkstore.errors import CorruptionError, InvalidArgument
from tests.availability.reference import INT32_MAX, TOP, greedy, packed


class TestLimits:
    """Sizes and periods are int32 on disk, ids int64; sets that no list could hold."""

    def test_period_at_int32(self) -> None:
        """A distance of 2^31-1 is a period, one more is not."""
        for distance in (INT32_MAX - 1, INT32_MAX):
            pair = Availability.from_entries([5, 5 + distance, 5 + 2 * distance])

            assert [[5, 5 + 2 * distance, 1, distance]] == pair.groups.tolist()

        pair = Availability.from_entries([5, 5 + 2**31])

        assert [[5, 5, 1, 0], [5 + 2**31, 5 + 2**31, 1, 0]] == pair.groups.tolist()

    @given(
        st.lists(
            st.tuples(
                st.sampled_from([1, 2, INT32_MAX - 1, INT32_MAX, 2**31, 2**32 + 3]),
                st.sampled_from([1, INT32_MAX - 1, INT32_MAX, 2**31, 2**33]),
            ),
            max_size=8,
        )
    )
    def test_huge_runs(self, steps: list[tuple[int, int]]) -> None:
        """Runs and gaps around int32 group as the reference says, and come back from bytes."""
        runs, at = [], 3
        for size, gap in steps:
            runs.append((at, size))
            at += size + gap
        ranges = [[start, start + size - 1] for start, size in runs]
        answer = Availability.from_ranges(ranges)

        assert greedy(runs) == answer.groups.tolist()
        assert ranges == answer.ranges().tolist()
        assert sum(size for _, size in runs) == len(answer)
        assert answer == Availability.from_bytes(answer.to_bytes())
        assert answer == Availability.from_bytes(answer.to_bytes("bookkeeper"))

    def test_run_beyond_int32_is_cut_on_disk(self) -> None:
        """A run longer than 2^31-1 is written as groups that touch, whose sizes fit the field."""
        answer = Availability.from_ranges([(10, 10 + 2**32)])
        expected = packed(
            [
                (10, 10, INT32_MAX, 0),
                (10 + INT32_MAX, 10 + INT32_MAX, INT32_MAX, 0),
                (10 + 2 * INT32_MAX, 10 + 2 * INT32_MAX, 3, 0),
            ]
        )

        assert 2**32 + 1 == len(answer)
        assert expected == answer.to_bytes() == answer.to_bytes("bookkeeper")
        assert [[10, 10 + 2**32]] == Availability.from_bytes(expected).ranges().tolist()

    @pytest.mark.parametrize("times", [1, 2, 3])
    def test_run_of_just_so_many(self, times: int) -> None:
        """A run of a multiple of 2^31-1 ids is written as so many groups, none of them empty."""
        answer = Availability.from_ranges([(10, 10 + times * INT32_MAX - 1)])
        starts = [10 + at * INT32_MAX for at in range(times)]
        expected = packed((start, start, INT32_MAX, 0) for start in starts)

        assert expected == answer.to_bytes() == answer.to_bytes("bookkeeper")

    def test_as_many_groups_as_an_array_holds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """64 bytes, and 24 a group, are at most 2^31-1: 89,478,482 groups are written, no more."""

        def begin(count: int) -> bytes:
            raise InterruptedError(f"{count} groups are written")

        monkeypatch.setattr(codec, "_pack_header", begin)
        ids = 89_478_482 * INT32_MAX
        with pytest.raises(InterruptedError, match=r"^89478482 groups"):
            Availability.from_ranges([(0, ids - 1)]).to_bytes()
        with pytest.raises(InvalidArgument, match=r"^89478483 sequence groups"):
            Availability.from_ranges([(0, ids)]).to_bytes()

    def test_written_a_part_at_a_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However long a stripe or a run is, few sequences of it are in memory at one time."""
        monkeypatch.setattr(codec, "_CHUNK_ROWS", 4)
        monkeypatch.setattr(codec, "_MAX_PART_IDS", 4 * INT32_MAX)
        stripe = Groups(*np.array([[0], [147], [2], [3]]))
        run = Groups(*np.array([[5], [5], [100 * INT32_MAX], [0]]))
        parts = list(codec._split_into_chunks(stripe, one_row_per_sequence=True))
        pieces = list(codec._split_into_chunks(run, one_row_per_sequence=False))

        assert 50 == sum(map(count_sequences, parts))
        assert all(count_sequences(part) <= 8 for part in parts)
        assert 100 * INT32_MAX == sum(int(piece.size.sum()) for piece in pieces)
        assert all(int(piece.size.sum()) <= 4 * INT32_MAX for piece in pieces)

    def test_too_many_groups(self) -> None:
        """A set that needs more groups than the i32 count can say is refused, not tried."""
        with pytest.raises(InvalidArgument):
            Availability.from_ranges([(0, TOP)]).to_bytes()

    def test_everything(self) -> None:
        """The set of all entry ids has 2^63-1 members and answers at both ends."""
        answer = Availability.from_ranges([(0, TOP)])

        assert 2**63 - 1 == len(answer)
        assert [[0, TOP]] == answer.ranges().tolist()
        assert [True, True, True] == answer.contains_many([0, 2**62, TOP]).tolist()
        assert Availability() == answer - answer
        assert [[0, 4], [6, TOP]] == (answer - Availability.from_entries([5])).ranges().tolist()
        assert [[0, TOP - 1]] == (answer - Availability.from_entries([TOP])).ranges().tolist()
        assert answer == answer | Availability.from_entries([7])
        assert [[TOP, TOP]] == (answer & Availability.from_entries([TOP])).ranges().tolist()

    @pytest.mark.parametrize("last", [10**12, 2**40 + 1, TOP])
    def test_stripes_without_their_entries(self, last: int) -> None:
        """Set operations on stripes of any length cost groups: the three bookies of E3W2."""
        bookies = [schedule.expected(0, last, b, 3, 2) for b in range(3)]
        whole = Availability.from_ranges([(0, last)])

        assert whole == bookies[0] | bookies[1]
        assert whole == bookies[1] | bookies[2] | bookies[0]
        assert 2 * len(whole) == sum(map(len, bookies))
        assert Availability() == bookies[0] & bookies[1] & bookies[2]
        assert schedule.expected(0, last, 2, 3, 1) == bookies[0] & bookies[2]
        assert schedule.expected(0, last, 1, 3, 1) == whole - bookies[0]

    def test_missing_of_a_huge_ledger(self) -> None:
        """Three lost entries among 10^13 are found without visiting the others."""
        wanted = schedule.expected(0, 10**13, 1, 3, 2)
        lost = [3, 10**9 + 2 - (10**9 + 2) % 3, 10**13 - (10**13 % 3)]
        here = wanted - Availability.from_entries(lost)

        assert lost == here.missing(wanted).entries().tolist()
        assert len(wanted) - 3 == len(here)
        assert [10**13 - (10**13 % 3)] == here.missing(wanted, first=10**10).entries().tolist()

    @pytest.mark.parametrize("distance", [10**9 + 1, INT32_MAX])
    def test_long_period_meets_a_stripe(self, distance: int) -> None:
        """Two far ids are a group of a long period; beside a stripe only that is taken apart."""
        stripe = schedule.expected(0, 10**13, 0, 3, 2)  # 0, 2, 3, 5, 6, 8, ...
        ids = [4, 4 + distance, 4 + 2 * distance]
        few = Availability.from_entries(ids)
        inside = [entry for entry in ids if entry % 3 != 1]
        outside = [entry for entry in ids if entry % 3 == 1]

        assert [[4, 4 + 2 * distance, 1, distance]] == few.groups.tolist()
        assert inside == (few & stripe).entries().tolist() == (stripe & few).entries().tolist()
        assert outside == (few - stripe).entries().tolist()
        assert len(stripe) - len(inside) == len(stripe - few)
        assert len(stripe) + len(outside) == len(few | stripe)
        assert (few | stripe) == (stripe | few)

    def test_groups_in_bytes_at_the_top(self) -> None:
        """A group may end with the highest entry id, and no later."""
        top = Availability.from_bytes(packed([(TOP - 9, TOP - 1, 2, 4)]))

        assert TOP == top.last_entry
        assert [[TOP - 9, TOP - 1, 2, 4]] == top.groups.tolist()
        assert [TOP] == (top - Availability.from_ranges([(0, TOP - 1)])).entries().tolist()
        with pytest.raises(CorruptionError):
            Availability.from_bytes(packed([(TOP - 9, TOP - 1, 3, 4)]))


def test_compat_answer_of_a_long_stripe_stays_condensed() -> None:
    """An answer read under compat costs no memory by entry, contradictory or not."""
    stripe = Availability.from_groups([[0, 3_000_000_000, 2, 3]])
    read = Availability.from_bytes(stripe.to_bytes(), compat="bookkeeper")
    contradictory = Availability.from_bytes(packed([(0, 10**12, 3, 2)]), compat="bookkeeper")

    assert stripe - Availability.from_entries([3]) == read - Availability.from_entries([3])
    # Every remainder by 2 is below 3, and the look-up goes as far as last start + size.
    assert [[0, 10**12 + 3]] == contradictory.ranges().tolist()


@pytest.mark.parametrize("limit", range(7))
def test_the_first_sequences(limit: int) -> None:
    """The lowest sequences are cut off anywhere: in a group, and just where one ends."""
    groups = Groups(*np.array([[0, 10], [3, 20], [1, 2], [3, 5]]))
    runs = [[0], [3], [10, 11], [15, 16], [20, 21]]
    found = take_first_sequences(groups, limit)

    assert [entry for run in runs[:limit] for entry in run] == list_entry_ids(found).tolist()
    assert min(limit, 5) == count_sequences(found)
    assert all(found.counts > 0)
