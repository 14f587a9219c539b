"""Rules of `EntryIndexSuite` for entries: missing ones, writing, reading, ranges, boundaries."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore.availability import Availability
from bkstore.errors import InvalidArgument, NoSuchLedger
from bkstore.ids import MAX_ENTRY_ID, LedgerId
from bkstore.index.api import EntryIndex, LedgerLike, LedgerState
from bkstore.testing import generators
from bkstore.testing.suites.index.base import LEDGERS, SuiteBase, rows_of, scan_rows

_RANGES: tuple[tuple[int, int | None, list[int]], ...] = (
    (0, None, [0, 5, 6, 1023, 1024, 3000]),
    (5, 6, [5, 6]),
    (1, 4, []),
    (6, 1023, [6, 1023]),
    (1024, 1024, [1024]),
    (1025, None, [3000]),
    (3001, None, []),
    (0, 0, [0]),
    (7, 6, []),
    (3000, 10**6, [3000]),
    (0, MAX_ENTRY_ID, [0, 5, 6, 1023, 1024, 3000]),
    (MAX_ENTRY_ID, MAX_ENTRY_ID, []),
    (-5, 5, [0, 5]),
    (-5, -1, []),
    (2**63, None, []),
    (2**70, 2**71, []),
    (1024, 2**70, [1024, 3000]),
    (-(2**70), 5, [0, 5]),
    (-(2**70), -(2**69), []),
    (0, -(2**70), []),
    (2**63 - 1, 2**63 - 1, []),
)
"""The first and last id of a range, and the ids among 0, 5, 6, 1023, 1024, 3000 in it."""

_INVALID_PUTS: dict[str, tuple[object, object]] = {
    "location 0": ([1], [0]),
    "location negative": ([1], [-1]),
    "location 2^63": ([1], [2**63]),
    "entry -1": ([-1], [5]),
    "entry 2^63-1": ([2**63 - 1], [5]),
    "fewer locations": ([1, 2], [5]),
    "fewer entries": ([1], [5, 6]),
    "no locations": ([1], []),
    "one bad location": ([1, 2, 3], [5, 0, 7]),
    "one bad entry": ([1, -1, 3], [5, 6, 7]),
    "fractions": ([1.5], [5]),
    "text": (["1"], [5]),
    "truth": ([True], [5]),
    "truth among numbers": ([1, True], [5, 6]),
    "truth as a location": ([1], [True]),
    "an array of truths": (np.array([True, False]), [5, 6]),
    "an array of floats": (np.array([1.0, 2.0]), [5, 6]),
    "a float among numbers": ([1, 2.0], [5, 6]),
    "objects": (np.array([1, 2.5], object), [5, 6]),
    "truth among objects": (np.array([1, True], object), [5, 6]),
    "too large an object": (np.array([2**70], object), [5]),
    "unsigned above 2^63": (np.array([2**63 + 5], np.uint64), [5]),
    "too long a range": (range(2**63, 2**63 + 2), [5, 6]),
    "one text": ("12", [5, 6]),
    "bytes": (b"12", [5, 6]),
    "one number": (1, 5),
    "nothing": (None, [5]),
    "uneven rows": ([[1], [2, 3]], [5, 6]),
    "two dimensions": ([[1, 2]], [[5, 6]]),
}

_NON_IDS: tuple[Any, ...] = (True, False, 1.0, 1.5, "1", b"1", None, np.True_, np.float64(1), [1])
"""Values that are no ids, although some are equal to a number."""


class IndexableInteger:
    """An integer type of another library."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


class EntryRules(SuiteBase):
    """Rules for the entries of a ledger."""

    def test_fresh_index_is_empty(self, index: EntryIndex) -> None:
        """A new index has no ledgers, no rows and no findings."""
        assert [] == index.ledgers()
        assert [] == index.ledgers(0)
        assert [] == index.ledgers(1)
        assert [] == scan_rows(index.scan())
        assert [] == index.findings()

    @pytest.mark.parametrize("ledger", LEDGERS, ids=str)
    def test_unknown_ledger_lists_as_empty(self, index: EntryIndex, ledger: LedgerLike) -> None:
        """Every listing of an unknown ledger is empty, and does not make it known."""
        entries, locations = index.items(ledger)

        assert [] == index.entries(ledger).tolist() == entries.tolist() == locations.tolist()
        assert index.entries(ledger).dtype == entries.dtype == locations.dtype == np.int64
        assert [] == index.entries(ledger, 3, 9).tolist()
        assert [0, 0, 0] == index.get_many(ledger, [0, 5, MAX_ENTRY_ID]).tolist()
        assert index.get(ledger, 0) is None
        assert index.last_entry(ledger) is None
        assert Availability() == index.availability(ledger)
        assert [] == index.ledgers()

    @pytest.mark.parametrize("ledger", LEDGERS, ids=str)
    def test_state_of_unknown_ledger(self, index: EntryIndex, ledger: LedgerLike) -> None:
        """`state` raises `NoSuchLedger` for an unknown ledger."""
        with pytest.raises(NoSuchLedger):
            index.state(ledger)

    @pytest.mark.parametrize("ledger", LEDGERS, ids=str)
    def test_put_one(self, index: EntryIndex, ledger: LedgerLike) -> None:
        """Every read returns the location written by `put`, for its entry only."""
        index.put(ledger, 3, 1028)

        assert 1028 == index.get(ledger, 3)
        assert index.get(ledger, 2) is None
        assert index.get(ledger, 4) is None
        assert [3] == index.entries(ledger).tolist()
        assert {3: 1028} == rows_of(index, ledger)
        assert 3 == index.last_entry(ledger)
        assert [LedgerId.of(ledger)] == index.ledgers()

    @pytest.mark.parametrize("ledger", LEDGERS, ids=str)
    def test_put_many_unsorted(self, index: EntryIndex, ledger: LedgerLike) -> None:
        """Entries may be put in any order; they are listed ascending, with their locations."""
        index.put_many(ledger, [9, 0, 4, 1, 368], [90, 1, 40, 10, 400])

        assert {0: 1, 1: 10, 4: 40, 9: 90, 368: 400} == rows_of(index, ledger)
        assert [0, 1, 4, 9, 368] == index.entries(ledger).tolist()

    @pytest.mark.parametrize("ledger", LEDGERS, ids=str)
    def test_get_many_in_the_order_asked(self, index: EntryIndex, ledger: LedgerLike) -> None:
        """`get_many` returns a location per id, in order, 0 for a missing entry; ids may repeat."""
        index.put_many(ledger, [0, 2, 3000], [5, 6, 7])

        assert [7, 0, 5, 6, 5, 0] == index.get_many(ledger, [3000, 1, 0, 2, 0, 2999]).tolist()
        assert [5, 0, 6] == index.get_many(ledger, range(3)).tolist()
        assert [0, 0] == index.get_many(ledger, [MAX_ENTRY_ID, 2**40]).tolist()
        assert [] == index.get_many(ledger, []).tolist()
        assert np.int64 == index.get_many(ledger, [0]).dtype

    def test_bounds_are_inclusive(self, index: EntryIndex) -> None:
        """`entries` and `items` take an inclusive range; None as its last is the end."""
        rows = {0: 1, 5: 2, 6: 3, 1023: 4, 1024: 5, 3000: 6}
        for ledger in LEDGERS:
            index.put_many(ledger, list(rows), list(rows.values()))
            for first, last, expected in _RANGES:
                entries, locations = index.items(ledger, first, last)

                assert expected == index.entries(ledger, first, last).tolist(), (first, last)
                assert expected == entries.tolist(), (first, last)
                assert [rows[entry] for entry in expected] == locations.tolist()

    def test_duplicates_within_a_batch(self, index: EntryIndex) -> None:
        """Of equal entries in one `put_many`, the one given by `duplicates` is kept."""
        for ledger in LEDGERS:
            index.put_many(ledger, [4, 2, 4, 2, 4], [10, 20, 30, 40, 50])

            expected = {"first": {2: 20, 4: 10}, "last": {2: 40, 4: 50}}
            assert expected[index.duplicates] == rows_of(index, ledger)

    def test_duplicates_across_puts(self, index: EntryIndex) -> None:
        """`duplicates` also holds across `put` and `put_many`, in either order."""
        for ledger in LEDGERS:
            index.put(ledger, 1, 10)
            index.put_many(ledger, [1, 2], [20, 30])
            index.put(ledger, 2, 40)
            index.put_many(ledger, [3, 1], [50, 60])
            index.put(ledger, 3, 70)

            expected = {"first": {1: 10, 2: 30, 3: 50}, "last": {1: 60, 2: 40, 3: 70}}
            assert expected[index.duplicates] == rows_of(index, ledger)

    def test_duplicates_after_a_read(self, index: EntryIndex) -> None:
        """A read between two puts does not change which one is kept."""
        index.put(7, 1, 10)

        assert 10 == index.get(7, 1)

        index.put(7, 1, 20)

        assert {"first": 10, "last": 20}[index.duplicates] == index.get(7, 1)

    @pytest.mark.parametrize(
        "shape",
        [
            list,
            tuple,
            iter,
            lambda values: np.array(values, np.int64),
            lambda values: np.array(values, np.int32),
            lambda values: np.array(values, np.uint64),
            lambda values: np.array(values * 2, ">i8")[: len(values)],
            lambda values: np.repeat(np.array(values, np.int64), 2)[::2],
        ],
        ids=["list", "tuple", "iterator", "int64", "int32", "uint64", "big-endian", "strided"],
    )
    def test_any_integers_are_accepted(self, index: EntryIndex, shape: Any) -> None:
        """Entries and locations may be any iterable or array of integers."""
        index.put_many(7, shape([5, 0, 1]), shape([50, 1, 10]))

        assert {0: 1, 1: 10, 5: 50} == rows_of(index, 7)
        assert [10, 0, 50] == index.get_many(7, shape([1, 2, 5])).tolist()

    def test_arguments_may_change_afterwards(self, index: EntryIndex) -> None:
        """Array arguments are not changed, and may be changed afterwards."""
        entries, locations = np.array([3, 1, 2]), np.array([30, 10, 20])
        index.put_many(7, entries, locations)

        assert [3, 1, 2] == entries.tolist()
        assert [30, 10, 20] == locations.tolist()

        entries[:], locations[:] = 9, 99

        assert {1: 10, 2: 20, 3: 30} == rows_of(index, 7)

    def test_returned_arrays_do_not_change(self, index: EntryIndex) -> None:
        """A returned array does not change with later writes."""
        index.put_many(7, [1, 2], [10, 20])
        entries, (_, locations) = index.entries(7), index.items(7)
        index.put_many(7, [0, 3], [5, 30])
        index.delete(7)

        assert [1, 2] == entries.tolist()
        assert [10, 20] == locations.tolist()

    def test_empty_put_makes_known(self, index: EntryIndex) -> None:
        """`put_many` without entries makes the ledger known."""
        for ledger in LEDGERS:
            index.put_many(ledger, [], [])

            assert LedgerId.of(ledger) in index.ledgers()
            assert LedgerState() == index.state(ledger)
            assert {} == rows_of(index, ledger)

    def test_put_makes_known_without_a_key(self, index: EntryIndex) -> None:
        """A ledger made known by a put has an empty master key and is open."""
        for ledger in LEDGERS:
            index.put(ledger, 0, 5)

            assert LedgerState() == index.state(ledger)

    def test_invalid_put_stores_nothing(self, index: EntryIndex) -> None:
        """`put_many` refuses invalid arguments, and stores nothing and makes no ledger known."""
        index.put(8, 1, 10)
        for case, (entries, locations) in _INVALID_PUTS.items():
            for ledger in (7, 8, LedgerId(1, 7)):
                with pytest.raises(InvalidArgument):
                    index.put_many(ledger, entries, locations)  # type: ignore[arg-type]

            assert [LedgerId(0, 8)] == index.ledgers(), case
            assert {1: 10} == rows_of(index, 8), case
            assert {} == rows_of(index, 7), case

    def test_invalid_single_put(self, index: EntryIndex) -> None:
        """`put` refuses the same values as `put_many`, and stores nothing."""
        pairs = [(1, 0), (1, -1), (1, 2**63), (-1, 5), (2**63 - 1, 5), (2**64, 5)]
        for invalid in _NON_IDS:
            pairs += [(invalid, 5), (1, invalid)]
        for ledger in (7, LedgerId(1, 7)):
            for entry, location in pairs:
                with pytest.raises(InvalidArgument):
                    index.put(ledger, entry, location)

        assert [] == index.ledgers()

    def test_invalid_lookups(self, index: EntryIndex) -> None:
        """Reads refuse entry ids outside of 0..2^63-2."""
        index.put(7, 0, 5)
        for ledger in (7, 8):
            for entry in (-1, 2**63 - 1, *_NON_IDS):
                with pytest.raises(InvalidArgument):
                    index.get(ledger, entry)
                with pytest.raises(InvalidArgument):
                    index.get_many(ledger, [0, entry])

    def test_invalid_ledgers(self, index: EntryIndex) -> None:
        """Scope 0 has the ledgers 0..2^63-1; other values are no ledger ids."""
        calls: list[Callable[[LedgerLike], object]] = [index.entries, index.items, index.state]
        calls += [index.availability, index.last_entry, index.delete]
        calls += [
            lambda ledger_id: index.get(ledger_id, 0),
            lambda ledger_id: index.get_many(ledger_id, [0]),
            lambda ledger_id: index.put(ledger_id, 0, 5),
            lambda ledger_id: index.put_many(ledger_id, [0], [5]),
            lambda ledger_id: index.set_state(ledger_id, LedgerState()),
        ]
        index.put(1, 0, 5)  # equal to True and 1.0
        for ledger in (-1, 2**63, 2**64, -(2**63), "7", 7.0, (0, 7), *_NON_IDS):
            for call in calls:
                with pytest.raises(InvalidArgument):
                    call(ledger)

        assert [LedgerId(0, 1)] == index.ledgers()
        assert {0: 5} == rows_of(index, 1)

    def test_invalid_scopes_and_bounds(self, index: EntryIndex) -> None:
        """A scope is an unsigned 64-bit integer; the ends of a range are any integers."""
        index.put(1, 1, 5)
        for invalid in (2**64, -(2**63) - 1, *_NON_IDS):
            if invalid is not None:  # which means all scopes
                with pytest.raises(InvalidArgument):
                    index.ledgers(invalid)
        for invalid in _NON_IDS:
            # As the end of a range, None is valid.
            bounds = [(invalid,)] if invalid is None else [(invalid,), (0, invalid)]
            for call, ledger, ends in product((index.entries, index.items), (1, 2), bounds):
                with pytest.raises(InvalidArgument):
                    call(ledger, *ends)

    @pytest.mark.parametrize(
        "kind", [np.int64, np.uint8, IndexableInteger], ids=lambda kind: kind.__name__
    )
    def test_integers_of_other_kinds(self, index: EntryIndex, kind: Any) -> None:
        """numpy integers, and other types with ``__index__``, are valid ids."""
        index.put(kind(7), kind(3), kind(9))
        index.put_many(kind(7), [kind(4), 5], [kind(10), 11])
        index.put_many(LedgerId(kind(1), kind(7)), [kind(0)], [kind(12)])

        assert {3: 9, 4: 10, 5: 11} == rows_of(index, 7)
        assert 9 == index.get(kind(7), kind(3))
        assert [9, 10] == index.get_many(kind(7), [kind(3), kind(4)]).tolist()
        assert [4, 5] == index.entries(kind(7), kind(4), kind(9)).tolist()
        assert [LedgerId(1, 7)] == index.ledgers(kind(1))
        assert [LedgerId(0, 7), LedgerId(1, 7)] == index.ledgers()

    def test_last_entry(self, index: EntryIndex) -> None:
        """`last_entry` is the highest id, in whatever order entries were put."""
        for ledger in LEDGERS:
            highest = -1
            for entry in (1024, 3, 2047, 2048, 0, 5000, 4999):
                index.put(ledger, entry, 5)
                highest = max(highest, entry)

                assert highest == index.last_entry(ledger)

    @pytest.mark.parametrize("shape", sorted(generators.SHAPES))
    def test_availability(self, index: EntryIndex, shape: str) -> None:
        """`availability` is the set of entries put, in the canonical form of `from_entries`."""
        ids = generators.ids_of_shape(shape, 5000, seed=11)
        locations = generators.locations(ids.size, seed=11)
        distinct = sorted(set(ids.tolist()))
        for ledger in LEDGERS:
            index.put_many(ledger, ids, locations)
            availability = index.availability(ledger)

            assert distinct == index.entries(ledger).tolist()
            assert distinct == availability.entries().tolist()
            assert Availability.from_entries(index.entries(ledger)) == availability
            assert Availability.from_entries(distinct).to_bytes() == availability.to_bytes()

    def test_many_entries(self, index: EntryIndex) -> None:
        """Reads are right beyond the sizes at which a backend reads and writes in chunks."""
        ids = generators.striped(300_000, bookie_index=1, ensemble_size=3, write_quorum=2)
        ids = ids[(ids < 100_000) | (ids > 260_000)]  # with a gap of many pages
        locations = generators.locations(ids.size, log_bytes=1 << 22)
        order = np.random.default_rng(5).permutation(ids.size)
        index.put_many(7, ids[order], locations[order])
        sample = np.random.default_rng(6).integers(0, 310_000, 1000).tolist()
        model = dict(zip(ids.tolist(), locations.tolist()))
        from_65530 = ids[(ids >= 65_530) & (ids <= 65_540)]

        assert ids.tolist() == index.entries(7).tolist()
        assert locations.tolist() == index.items(7)[1].tolist()
        assert Availability.from_entries(ids) == index.availability(7)
        assert [model.get(entry, 0) for entry in sample] == index.get_many(7, sample).tolist()
        assert locations[::7].tolist() == index.get_many(7, ids[::7]).tolist()
        assert int(ids[-1]) == index.last_entry(7)
        assert from_65530.tolist() == index.entries(7, 65_530, 65_540).tolist()

    @pytest.mark.parametrize("entry", [0, 511, 1022, 1023, 1024, 1025, 65535, 65536])
    def test_page_edges(self, index: EntryIndex, entry: int) -> None:
        """An entry at the edge of a page is found, alone or with its neighbors."""
        for ledger in LEDGERS:
            index.put(ledger, entry, entry + 1)

            assert [entry] == index.entries(ledger).tolist()
            assert entry == index.last_entry(ledger)
            assert [[entry, entry]] == index.availability(ledger).ranges().tolist()

            index.put_many(ledger, [entry + 1, entry + 2], [1, 2])

            assert {entry: entry + 1, entry + 1: 1, entry + 2: 2} == rows_of(index, ledger)
            assert [[entry, entry + 2]] == index.availability(ledger).ranges().tolist()

    @pytest.mark.parametrize("count", [1023, 1024, 1025, 65536, 65537])
    def test_full_pages(self, index: EntryIndex, count: int) -> None:
        """A ledger that just fills or just misses a page or block lists all its entries."""
        index.put_many(7, range(count), range(1, count + 1))

        assert count - 1 == index.last_entry(7)
        assert list(range(count)) == index.entries(7).tolist()
        assert [[0, count - 1]] == index.availability(7).ranges().tolist()
        assert index.get(7, count) is None
        assert count == index.get(7, count - 1)

    @pytest.mark.parametrize("location", [1, 2**31, 2**32 + 1028, 2**63 - 1])
    def test_location_range(self, index: EntryIndex, location: int) -> None:
        """Locations up to 2^63-1 are stored exactly."""
        for ledger in LEDGERS:
            index.put(ledger, 0, location)

            assert location == index.get(ledger, 0)
            assert [location] == index.get_many(ledger, [0]).tolist()
            assert {0: location} == rows_of(index, ledger)

    def test_highest_entry(self, index: EntryIndex, path: Path) -> None:
        """The backend's highest entry id works in all calls; higher ones are refused."""
        top = self.highest_entry
        for ledger in LEDGERS:
            index.put_many(ledger, [top, 0, top - 1], [7, 5, 6])

            assert {0: 5, top - 1: 6, top: 7} == rows_of(index, ledger)
            assert [top - 1, top] == index.entries(ledger, top - 1).tolist()
            assert [top] == index.entries(ledger, top, top).tolist()
            assert [7, 5, 0] == index.get_many(ledger, [top, 0, 1]).tolist()
            assert 7 == index.get(ledger, top)
            assert top == index.last_entry(ledger)
            assert [[0, 0], [top - 1, top]] == index.availability(ledger).ranges().tolist()

        with pytest.raises(InvalidArgument):
            index.put_many(8, [0, top + 1], [5, 6])
        with pytest.raises(InvalidArgument):
            index.put(8, top + 1, 5)

        assert LedgerId(0, 8) not in index.ledgers()

        with self.reopen_or_skip(index, path) as reopened:
            for ledger in LEDGERS:
                assert {0: 5, top - 1: 6, top: 7} == rows_of(reopened, ledger)
