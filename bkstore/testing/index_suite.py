"""EntryIndexSuite: the contract of `bkstore.index.api` as tests that any backend can run.

Subclass it in a test module, say how an index is made, and pytest collects the rest:

    class TestMine(EntryIndexSuite):
        def make_index(self, path):
            return MyIndex(path, writable=True)

        def reopen(self, path):
            return MyIndex(path)

What it is not: a test of formats. It goes through the contract only, so a backend needs tests
of its own bytes as well. Longer than other modules because it is one flat list of rules.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from bkstore.availability import Availability
from bkstore.errors import InvalidArgument, NoSuchLedger, ReadOnlyError, UnsupportedLayout
from bkstore.ids import MAX_ENTRY_ID, LedgerId
from bkstore.index.api import EntryIndex, IndexBatch, LedgerLike, LedgerState
from bkstore.testing import generators

__all__ = ["EntryIndexSuite"]

LEDGERS: tuple[LedgerLike, ...] = (7, LedgerId(1, 7), LedgerId(2**64 - 1, 2**63 + 5))
"""One ledger of scope 0, one of a small scope, one with the top bit set in both halves."""

BOUNDARIES = (0, 1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32, 2**63 - 1)
"""Ledger numbers at which a path, a byte or a sign changes."""

WIDE_BOUNDARIES = (*BOUNDARIES, 2**63, 2**64 - 1)

EXPLICIT_LAC = struct.pack(">qq", 7, 41) + bytes.fromhex("0badcafe")
"""An explicit LAC body: ledger, LAC, CRC32C digest."""

STATES = (
    LedgerState(),
    LedgerState(bytes(range(20))),
    LedgerState(b"k" * 20, fenced=True),
    LedgerState(b"k" * 20, explicit_lac=EXPLICIT_LAC),
    LedgerState(b"\0" * 20, fenced=True, explicit_lac=EXPLICIT_LAC + bytes(16)),
)

INVALID_PUTS: dict[str, tuple[object, object]] = {
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
    "two dimensions": ([[1, 2]], [[5, 6]]),
}


def _rows(index: EntryIndex, ledger: LedgerLike) -> dict[int, int]:
    entries, locations = index.items(ledger)
    return dict(zip(entries.tolist(), locations.tolist(), strict=True))


def _scanned(batches: Iterator[IndexBatch]) -> list[tuple[int, int, int, int, int]]:
    """Return (dir_index, scope, ledger, entry, location) rows, ids unsigned, in scan order."""
    found = []
    for batch in batches:
        columns = [column.tolist() for column in batch]
        for at, scope, ledger, entry, location in zip(*columns, strict=True):
            found.append((at, scope % 2**64, ledger % 2**64, entry, location))
    return found


class EntryIndexSuite:
    """The index contract; a backend passes by subclassing it with `make_index` and `reopen`.

    `highest_entry` is the highest entry id that the backend takes; one more must then be
    refused. Tests get a fresh index from the fixture `index`; those about durability are
    skipped where `reopen` returns None.
    """

    highest_entry: int = MAX_ENTRY_ID

    def make_index(self, path: Path) -> EntryIndex:
        """Return a writable index kept in directory `path`.

        Called with a path that does not exist, and again, after a close, with the same path:
        a durable backend then finds its data.
        """
        raise NotImplementedError

    def reopen(self, path: Path) -> EntryIndex | None:
        """Return a read-only index of what is kept in `path`, None if nothing is kept."""
        return None

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """Return the directory of the test's index."""
        return tmp_path / "index"

    @pytest.fixture
    def index(self, path: Path) -> Iterator[EntryIndex]:
        """Yield a fresh index and close it."""
        with self.make_index(path) as index:
            yield index

    def again(self, index: EntryIndex, path: Path) -> EntryIndex:
        """Close `index` and return it reopened for reading; skip where nothing is kept."""
        index.close()
        reopened = self.reopen(path)
        if reopened is None:
            pytest.skip("the backend is not durable")
        return reopened

    # -- what is not there

    def test_fresh_index_is_empty(self, index: EntryIndex) -> None:
        """A new index knows no ledger, has no row and nothing to complain about."""
        assert [] == index.ledgers()
        assert [] == index.ledgers(0)
        assert [] == index.ledgers(1)
        assert [] == _scanned(index.scan())
        assert [] == index.findings()

    @pytest.mark.parametrize("ledger", LEDGERS, ids=str)
    def test_unknown_ledger_lists_as_empty(self, index: EntryIndex, ledger: LedgerLike) -> None:
        """Every listing of an unknown ledger is empty, and asking does not make it known."""
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
        """Asking for the state of an unknown ledger raises `NoSuchLedger`."""
        with pytest.raises(NoSuchLedger):
            index.state(ledger)

    # -- putting and reading

    @pytest.mark.parametrize("ledger", LEDGERS, ids=str)
    def test_put_one(self, index: EntryIndex, ledger: LedgerLike) -> None:
        """A location put by `put` is what every read answers, and only for its entry."""
        index.put(ledger, 3, 1028)

        assert 1028 == index.get(ledger, 3)
        assert index.get(ledger, 2) is None
        assert index.get(ledger, 4) is None
        assert [3] == index.entries(ledger).tolist()
        assert {3: 1028} == _rows(index, ledger)
        assert 3 == index.last_entry(ledger)
        assert [LedgerId.of(ledger)] == index.ledgers()

    @pytest.mark.parametrize("ledger", LEDGERS, ids=str)
    def test_put_many_unsorted(self, index: EntryIndex, ledger: LedgerLike) -> None:
        """Entries may be put in any order; they are listed ascending, with their locations."""
        index.put_many(ledger, [9, 0, 4, 1, 70_000 % 4096], [90, 1, 40, 10, 400])

        assert {0: 1, 1: 10, 4: 40, 9: 90, 368: 400} == _rows(index, ledger)
        assert [0, 1, 4, 9, 368] == index.entries(ledger).tolist()

    @pytest.mark.parametrize("ledger", LEDGERS, ids=str)
    def test_get_many_answers_in_the_order_asked(
        self, index: EntryIndex, ledger: LedgerLike
    ) -> None:
        """`get_many` gives a location an id asked for, 0 where absent, repeats repeated."""
        index.put_many(ledger, [0, 2, 3000], [5, 6, 7])

        assert [7, 0, 5, 6, 5, 0] == index.get_many(ledger, [3000, 1, 0, 2, 0, 2999]).tolist()
        assert [5, 0, 6] == index.get_many(ledger, range(3)).tolist()
        assert [0, 0] == index.get_many(ledger, [MAX_ENTRY_ID, 2**40]).tolist()
        assert [] == index.get_many(ledger, []).tolist()
        assert np.int64 == index.get_many(ledger, [0]).dtype

    @pytest.mark.parametrize(
        ("first", "last", "expected"),
        [
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
        ],
    )
    def test_bounds_are_inclusive(
        self, index: EntryIndex, first: int, last: int | None, expected: list[int]
    ) -> None:
        """`entries` and `items` take an inclusive range; None means to the end."""
        for ledger in LEDGERS:
            index.put_many(ledger, [0, 5, 6, 1023, 1024, 3000], [1, 2, 3, 4, 5, 6])

            assert expected == index.entries(ledger, first, last).tolist()
            assert expected == index.items(ledger, first, last)[0].tolist()
            assert index.items(ledger, first, last)[1].tolist() == [
                location for entry, location in _rows(index, ledger).items() if entry in expected
            ]

    def test_duplicates_within_a_batch(self, index: EntryIndex) -> None:
        """Of equal entries in one `put_many`, the one that `duplicates` names stays."""
        for ledger in LEDGERS:
            index.put_many(ledger, [4, 2, 4, 2, 4], [10, 20, 30, 40, 50])

            kept = {"first": {2: 20, 4: 10}, "last": {2: 40, 4: 50}}
            assert kept[index.duplicates] == _rows(index, ledger)

    def test_duplicates_across_puts(self, index: EntryIndex) -> None:
        """The same rule holds between `put` and `put_many`, in either order."""
        for ledger in LEDGERS:
            index.put(ledger, 1, 10)
            index.put_many(ledger, [1, 2], [20, 30])
            index.put(ledger, 2, 40)
            index.put_many(ledger, [3, 1], [50, 60])
            index.put(ledger, 3, 70)

            kept = {"first": {1: 10, 2: 30, 3: 50}, "last": {1: 60, 2: 40, 3: 70}}
            assert kept[index.duplicates] == _rows(index, ledger)

    def test_duplicates_after_a_read(self, index: EntryIndex) -> None:
        """Reading in between does not change who wins."""
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
    def test_any_integers_are_taken(
        self, index: EntryIndex, shape: Callable[[list[int]], object]
    ) -> None:
        """Entries and locations may be any iterable or array of integers."""
        index.put_many(7, shape([5, 0, 1]), shape([50, 1, 10]))  # type: ignore[arg-type]

        assert {0: 1, 1: 10, 5: 50} == _rows(index, 7)
        assert [10, 0, 50] == index.get_many(7, shape([1, 2, 5])).tolist()  # type: ignore[arg-type]

    def test_arguments_are_not_kept(self, index: EntryIndex) -> None:
        """Arrays handed in may be changed afterwards, and are left as they were."""
        entries, locations = np.array([3, 1, 2]), np.array([30, 10, 20])
        index.put_many(7, entries, locations)

        assert [3, 1, 2] == entries.tolist()
        assert [30, 10, 20] == locations.tolist()

        entries[:], locations[:] = 9, 99

        assert {1: 10, 2: 20, 3: 30} == _rows(index, 7)

    def test_answers_do_not_change_later(self, index: EntryIndex) -> None:
        """An array answered stays as it is when the index goes on."""
        index.put_many(7, [1, 2], [10, 20])
        entries, (_, locations) = index.entries(7), index.items(7)
        index.put_many(7, [0, 3], [5, 30])
        index.delete(7)

        assert [1, 2] == entries.tolist()
        assert [10, 20] == locations.tolist()

    def test_empty_put_makes_known(self, index: EntryIndex) -> None:
        """`put_many` of nothing still makes the ledger known."""
        for ledger in LEDGERS:
            index.put_many(ledger, [], [])

            assert LedgerId.of(ledger) in index.ledgers()
            assert LedgerState() == index.state(ledger)
            assert {} == _rows(index, ledger)

    def test_put_makes_known_without_a_key(self, index: EntryIndex) -> None:
        """A ledger made known by a put has an empty master key and is open."""
        for ledger in LEDGERS:
            index.put(ledger, 0, 5)

            assert LedgerState() == index.state(ledger)

    @pytest.mark.parametrize("case", INVALID_PUTS)
    def test_invalid_put_stores_nothing(self, index: EntryIndex, case: str) -> None:
        """`put_many` refuses what it cannot take before anything is stored or made known."""
        entries, locations = INVALID_PUTS[case]
        index.put(8, 1, 10)
        for ledger in (7, 8, LedgerId(1, 7)):
            with pytest.raises(InvalidArgument):
                index.put_many(ledger, entries, locations)  # type: ignore[arg-type]

        assert [LedgerId(0, 8)] == index.ledgers()
        assert {1: 10} == _rows(index, 8)
        assert {} == _rows(index, 7)

    @pytest.mark.parametrize(
        ("entry", "location"), [(1, 0), (1, -1), (1, 2**63), (-1, 5), (2**63 - 1, 5), (2**64, 5)]
    )
    def test_invalid_single_put(self, index: EntryIndex, entry: int, location: int) -> None:
        """`put` refuses the same values as `put_many`, and stores nothing."""
        for ledger in (7, LedgerId(1, 7)):
            with pytest.raises(InvalidArgument):
                index.put(ledger, entry, location)

        assert [] == index.ledgers()

    def test_invalid_questions(self, index: EntryIndex) -> None:
        """Entry ids outside 0..2^63-2 cannot be asked for."""
        index.put(7, 0, 5)
        for ledger in (7, 8):
            for entry in (-1, 2**63 - 1):
                with pytest.raises(InvalidArgument):
                    index.get(ledger, entry)
                with pytest.raises(InvalidArgument):
                    index.get_many(ledger, [0, entry])

    @pytest.mark.parametrize("ledger", [-1, 2**63, 2**64, -(2**63), "7", None, 7.0])
    def test_invalid_ledgers(self, index: EntryIndex, ledger: object) -> None:
        """Scope 0 holds ledgers 0..2^63-1; anything else is no ledger id."""
        calls: list[Callable[[LedgerLike], object]] = [
            index.entries,
            index.items,
            index.availability,
            index.last_entry,
            index.state,
            index.delete,
            lambda name: index.get(name, 0),
            lambda name: index.get_many(name, [0]),
            lambda name: index.put(name, 0, 5),
            lambda name: index.put_many(name, [0], [5]),
            lambda name: index.set_state(name, LedgerState()),
        ]
        for call in calls:
            with pytest.raises(InvalidArgument):
                call(ledger)  # type: ignore[arg-type]

        assert [] == index.ledgers()

    # -- state

    @pytest.mark.parametrize("state", STATES, ids=range(len(STATES)))
    def test_state_round_trip(self, index: EntryIndex, path: Path, state: LedgerState) -> None:
        """Master key, fenced flag and explicit LAC come back, and after a reopen too."""
        for ledger in LEDGERS:
            index.set_state(ledger, state)

            assert state == index.state(ledger)
            assert LedgerId.of(ledger) in index.ledgers()
            assert {} == _rows(index, ledger)

        with self.again(index, path) as reopened:
            assert [state] * len(LEDGERS) == [reopened.state(ledger) for ledger in LEDGERS]

    def test_state_is_replaced(self, index: EntryIndex) -> None:
        """`set_state` replaces the whole state: what the new one lacks is gone."""
        for ledger in LEDGERS:
            for state in (*reversed(STATES), *STATES):
                index.set_state(ledger, state)

                assert state == index.state(ledger)

    def test_state_and_entries_are_apart(self, index: EntryIndex) -> None:
        """Setting the state keeps the entries, putting entries keeps the state."""
        for ledger in LEDGERS:
            index.put_many(ledger, [0, 2000], [5, 6])
            index.set_state(ledger, STATES[-1])
            index.put(ledger, 1, 7)

            assert {0: 5, 1: 7, 2000: 6} == _rows(index, ledger)
            assert STATES[-1] == index.state(ledger)

    def test_limbo(self, index: EntryIndex, path: Path) -> None:
        """Limbo is kept where `supports_limbo`; else it is refused and nothing is stored."""
        limbo = LedgerState(b"k" * 20, limbo=True)
        for ledger in LEDGERS:
            if index.supports_limbo:
                index.set_state(ledger, limbo)

                assert limbo == index.state(ledger)
            else:
                with pytest.raises(UnsupportedLayout):
                    index.set_state(ledger, limbo)

        if not index.supports_limbo:
            assert [] == index.ledgers()
        else:
            index.set_state(8, limbo)
            index.set_state(8, limbo._replace(limbo=False, fenced=True))

            assert LedgerState(b"k" * 20, fenced=True) == index.state(8)

            with self.again(index, path) as reopened:
                assert limbo == reopened.state(7)

    # -- deleting

    @pytest.mark.parametrize("ledger", LEDGERS, ids=str)
    def test_delete_forgets(self, index: EntryIndex, ledger: LedgerLike) -> None:
        """After `delete` the ledger is as unknown as if it had never been."""
        index.put_many(ledger, [0, 1, 5000], [5, 6, 7])
        index.set_state(ledger, STATES[-1])
        index.delete(ledger)

        assert [] == index.ledgers()
        assert {} == _rows(index, ledger)
        assert [0, 0] == index.get_many(ledger, [0, 5000]).tolist()
        assert index.get(ledger, 1) is None
        assert index.last_entry(ledger) is None
        assert Availability() == index.availability(ledger)
        assert [] == _scanned(index.scan())
        with pytest.raises(NoSuchLedger):
            index.state(ledger)

    def test_delete_takes_one_ledger_only(self, index: EntryIndex) -> None:
        """Neighbours in number and in scope stay when a ledger goes."""
        ledgers = [
            LedgerId(scope, number)
            for scope in (0, 1, 2, 2**64 - 1)
            for number in (6, 7, 8, 7 + 256, 7 << 8)
        ]
        for at, ledger in enumerate(ledgers):
            index.put_many(ledger, [0, 1, 1024], [at + 1, at + 2, at + 3])
        for gone in (LedgerId(0, 7), LedgerId(1, 7), LedgerId(2**64 - 1, 8)):
            index.delete(gone)

        for at, ledger in enumerate(ledgers):
            deleted = ledger in {(0, 7), (1, 7), (2**64 - 1, 8)}
            expected = {} if deleted else {0: at + 1, 1: at + 2, 1024: at + 3}
            assert expected == _rows(index, ledger)
            assert deleted == (ledger not in index.ledgers())

    def test_delete_of_unknown_ledger(self, index: EntryIndex) -> None:
        """Deleting an unknown ledger does nothing, twice too."""
        index.put(8, 0, 5)
        for ledger in LEDGERS:
            index.delete(ledger)
            index.delete(ledger)

        assert [LedgerId(0, 8)] == index.ledgers()
        assert {0: 5} == _rows(index, 8)

    def test_adding_again_after_delete(self, index: EntryIndex, path: Path) -> None:
        """A ledger added again begins empty: no entry, key or flag of its first life is left."""
        for ledger in LEDGERS:
            index.put_many(ledger, range(2000), range(1, 2001))
            index.set_state(ledger, STATES[-1])
            index.flush()
            index.delete(ledger)
            index.put_many(ledger, [3, 1500], [77, 88])

            assert {3: 77, 1500: 88} == _rows(index, ledger)
            assert LedgerState() == index.state(ledger)

        with self.again(index, path) as reopened:
            for ledger in LEDGERS:
                assert {3: 77, 1500: 88} == _rows(reopened, ledger)
                assert LedgerState() == reopened.state(ledger)

    def test_delete_is_kept(self, index: EntryIndex, path: Path) -> None:
        """A delete after a flush holds after a reopen."""
        for ledger in LEDGERS:
            index.put_many(ledger, [0, 1], [5, 6])
        index.flush()
        for ledger in LEDGERS:
            index.delete(ledger)
        with self.again(index, path) as reopened:
            assert [] == reopened.ledgers()
            assert [] == _scanned(reopened.scan())

    # -- derived answers

    def test_last_entry(self, index: EntryIndex) -> None:
        """`last_entry` is the highest id, in whatever order the entries came."""
        for ledger in LEDGERS:
            highest = -1
            for entry in (1024, 3, 2047, 2048, 0, 5000, 4999):
                index.put(ledger, entry, 5)
                highest = max(highest, entry)

                assert highest == index.last_entry(ledger)

    @pytest.mark.parametrize("shape", sorted(generators.SHAPES))
    def test_availability(self, index: EntryIndex, shape: str) -> None:
        """`availability` says the set that was put, in the form `from_entries` gives it."""
        ids = generators.shaped(shape, 5000, seed=11)
        places = generators.locations(ids.size, seed=11)
        distinct = sorted(set(ids.tolist()))
        for ledger in LEDGERS:
            index.put_many(ledger, ids, places)
            answer = index.availability(ledger)

            assert distinct == index.entries(ledger).tolist()
            assert distinct == answer.entries().tolist()
            assert Availability.from_entries(index.entries(ledger)) == answer
            assert Availability.from_entries(distinct).to_bytes() == answer.to_bytes()

    def test_many_entries(self, index: EntryIndex) -> None:
        """Answers hold past the sizes at which a backend reads and writes in pieces."""
        ids = generators.striped(300_000, 1, 3, 2)
        ids = ids[(ids < 100_000) | (ids > 260_000)]
        places = generators.locations(ids.size, log_bytes=1 << 22)
        order = np.random.default_rng(5).permutation(ids.size)
        index.put_many(7, ids[order], places[order])
        rng = np.random.default_rng(6)
        asked = rng.integers(0, 310_000, 1000)
        model = dict(zip(ids.tolist(), places.tolist()))

        assert ids.tolist() == index.entries(7).tolist()
        assert places.tolist() == index.items(7)[1].tolist()
        assert Availability.from_entries(ids) == index.availability(7)
        assert [model.get(entry, 0) for entry in asked.tolist()] == index.get_many(
            7, asked
        ).tolist()
        assert places[::7].tolist() == index.get_many(7, ids[::7]).tolist()
        assert int(ids[-1]) == index.last_entry(7)
        assert [e for e in ids.tolist() if 65_530 <= e <= 65_540] == index.entries(
            7, 65_530, 65_540
        ).tolist()

    # -- scan

    @pytest.mark.parametrize("batch", [1, 3, 1000, 1 << 18])
    def test_scan(self, index: EntryIndex, batch: int) -> None:
        """A scan yields every row once, by directory, ledger and entry, in batches that fit.

        The batch size is a wish; but none is empty, and all five columns are equally long.
        """
        expected = {}
        for number, ledger in enumerate((*LEDGERS, 8, 9, 300, LedgerId(1, 2**63), LedgerId(2, 0))):
            ids = generators.sparse(40, 3000, number)
            places = generators.locations(ids.size, number)
            index.put_many(ledger, ids, places)
            name = LedgerId.of(ledger)
            for entry, location in zip(ids.tolist(), places.tolist()):
                expected[name.scope, name.ledger, entry] = location
        index.set_state(10, LedgerState(b"k"))
        batches = list(index.scan(batch))
        rows = _scanned(iter(batches))

        assert sorted(rows) == rows
        assert expected == {row[1:4]: row[4] for row in rows}
        assert len(expected) == len(rows)
        assert 0 < min(part.entry_id.size for part in batches)
        assert {np.dtype(np.int64)} == {column.dtype for part in batches for column in part}
        assert len({row[:3] for row in rows}) == len({row[1:3] for row in rows})

    def test_scan_sums(self, index: EntryIndex) -> None:
        """A scan has as many rows, and the same sums, as the ledgers' items together."""
        for number, shape in enumerate(sorted(generators.SHAPES)):
            ids = generators.shaped(shape, 2000, seed=number)
            for scope in (0, 3):
                index.put_many(LedgerId(scope, number), ids, ids + 1)
        parts = [index.items(ledger) for ledger in index.ledgers()]
        scanned = list(index.scan(500))

        assert sum(part[0].size for part in parts) == sum(b.entry_id.size for b in scanned)
        assert sum(int(part[0].sum()) for part in parts) == sum(
            int(b.entry_id.sum()) for b in scanned
        )
        assert sum(int(part[1].sum()) for part in parts) == sum(
            int(b.location.sum()) for b in scanned
        )

    def test_scan_names_the_ledger(self, index: EntryIndex) -> None:
        """`by_ledger` of a batch gives ledger ids back, the top bits of both halves too."""
        for at, ledger in enumerate(LEDGERS):
            index.put_many(ledger, [at, at + 5], [1, 2])
        found = {
            ledger: entries.tolist()
            for batch in index.scan()
            for ledger, entries, _ in batch.by_ledger()
        }

        assert {LedgerId.of(name): [at, at + 5] for at, name in enumerate(LEDGERS)} == found

    # -- listing ledgers

    def test_ledgers_in_unsigned_order(self, index: EntryIndex) -> None:
        """Ledgers are listed by scope, then number, both unsigned; equal ids stay apart."""
        ledgers = [LedgerId(0, number) for number in BOUNDARIES]
        ledgers += [LedgerId(s, n) for s in (1, 2**63, 2**64 - 1) for n in WIDE_BOUNDARIES]
        for at in np.random.default_rng(3).permutation(len(ledgers)).tolist():
            index.put(ledgers[at], at, at + 1)

        assert ledgers == index.ledgers()
        for at, ledger in enumerate(ledgers):
            assert {at: at + 1} == _rows(index, ledger)

    def test_ledgers_of_one_scope(self, index: EntryIndex) -> None:
        """`ledgers(scope)` lists the ledgers of that scope only."""
        ledgers = [LedgerId(s, n) for s in (0, 1, 2**63, 2**64 - 1) for n in (0, 7, 2**63 - 1)]
        for ledger in ledgers:
            index.set_state(ledger, LedgerState())
        for scope in (0, 1, 2, 2**63, 2**64 - 1):
            assert [name for name in ledgers if name.scope == scope] == index.ledgers(scope)

    def test_random_uuids(self, index: EntryIndex, path: Path) -> None:
        """Ledgers named by random UUIDs, half of them with the top bit set, work throughout."""
        rng = np.random.default_rng(17)
        names = [uuid.UUID(bytes=rng.bytes(16)) for _ in range(40)]
        expected = {}
        for at, name in enumerate(names):
            ledger = LedgerId.from_uuid(name)
            ids = generators.sparse(30, 2000, at)
            expected[ledger] = dict(zip(ids.tolist(), (ids + 1 + at).tolist()))
            index.put_many(ledger, ids, ids + 1 + at)
            index.set_state(ledger, LedgerState(name.bytes, fenced=at % 2 == 0))

        assert sorted(names, key=lambda name: name.int) == [name.uuid for name in index.ledgers()]

        with self.again(index, path) as reopened:
            assert sorted(expected) == reopened.ledgers()
            for ledger, rows in expected.items():
                assert rows == _rows(reopened, ledger)
                assert ledger.uuid.bytes == reopened.state(ledger).master_key

    def test_scopes_do_not_mix(self, index: EntryIndex) -> None:
        """The same number in several scopes is several ledgers, in every question."""
        scopes = (0, 1, 2**63, 2**64 - 1)
        for at, scope in enumerate(scopes):
            index.put_many(LedgerId(scope, 7), [at, 10 + at], [at + 1, at + 2])
            index.set_state(LedgerId(scope, 7), LedgerState(bytes([at])))
        for at, scope in enumerate(scopes):
            ledger = LedgerId(scope, 7)

            assert {at: at + 1, 10 + at: at + 2} == _rows(index, ledger)
            assert bytes([at]) == index.state(ledger).master_key
            assert 10 + at == index.last_entry(ledger)
            assert [0] == index.get_many(ledger, [at + 1]).tolist()

    # -- boundaries

    @pytest.mark.parametrize("entry", [0, 511, 1022, 1023, 1024, 1025, 2047, 2048, 65535, 65536])
    def test_page_edges(self, index: EntryIndex, entry: int) -> None:
        """An entry at the edge of a page, alone or with its neighbours, is found as itself."""
        for ledger in LEDGERS:
            index.put(ledger, entry, entry + 1)

            assert [entry] == index.entries(ledger).tolist()
            assert entry == index.last_entry(ledger)
            assert [[entry, entry]] == index.availability(ledger).ranges().tolist()

            index.put_many(ledger, [entry + 1, entry + 2], [1, 2])

            assert {entry: entry + 1, entry + 1: 1, entry + 2: 2} == _rows(index, ledger)
            assert [[entry, entry + 2]] == index.availability(ledger).ranges().tolist()

    @pytest.mark.parametrize("count", [1023, 1024, 1025, 65536, 65537])
    def test_full_pages(self, index: EntryIndex, count: int) -> None:
        """A ledger that just fills, or just misses, a page or a block lists all its entries."""
        index.put_many(7, range(count), range(1, count + 1))

        assert count - 1 == index.last_entry(7)
        assert list(range(count)) == index.entries(7).tolist()
        assert [[0, count - 1]] == index.availability(7).ranges().tolist()
        assert index.get(7, count) is None
        assert count == index.get(7, count - 1)

    @pytest.mark.parametrize("location", [1, 2**31, 2**32 + 1028, 2**63 - 1])
    def test_location_range(self, index: EntryIndex, location: int) -> None:
        """Locations are kept whole up to 2^63-1."""
        for ledger in LEDGERS:
            index.put(ledger, 0, location)

            assert location == index.get(ledger, 0)
            assert [location] == index.get_many(ledger, [0]).tolist()
            assert {0: location} == _rows(index, ledger)

    def test_highest_entry(self, index: EntryIndex, path: Path) -> None:
        """The highest entry id works everywhere; where a backend has a limit, it says so."""
        top = self.highest_entry
        for ledger in LEDGERS:
            index.put_many(ledger, [top, 0, top - 1], [7, 5, 6])

            assert {0: 5, top - 1: 6, top: 7} == _rows(index, ledger)
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

        with self.again(index, path) as reopened:
            for ledger in LEDGERS:
                assert {0: 5, top - 1: 6, top: 7} == _rows(reopened, ledger)

    # -- durability and life cycle

    def test_capabilities(self, index: EntryIndex, path: Path) -> None:
        """A backend says what it is and can do, and a durable one can be reopened."""
        assert index.writable
        assert index.layout in {"idx", "rocksdb", "memtable"}
        assert index.duplicates in {"first", "last"}
        index.close()
        reopened = self.reopen(path)

        assert index.durable == (reopened is not None)

        if reopened is not None:
            with reopened:
                assert not reopened.writable
                assert index.layout == reopened.layout

    def test_close_keeps_everything(self, index: EntryIndex, path: Path) -> None:
        """What was put is there after a close without a flush: rows, states, scopes."""
        states, rows = {}, {}
        names = [
            *LEDGERS,
            *BOUNDARIES,
            *(LedgerId(1, number) for number in WIDE_BOUNDARIES if number != 7),
        ]
        for at, ledger in enumerate(map(LedgerId.of, names)):
            ids = generators.sparse(20, 3000, at)
            rows[ledger] = dict(zip(ids.tolist(), (ids + at + 1).tolist()))
            states[ledger] = STATES[at % len(STATES)]
            index.put_many(ledger, ids, ids + at + 1)
            index.set_state(ledger, states[ledger])
        with self.again(index, path) as reopened:
            assert sorted(rows) == reopened.ledgers()
            assert [] == reopened.findings()
            for ledger in rows:
                assert rows[ledger] == _rows(reopened, ledger)
                assert states[ledger] == reopened.state(ledger)
                assert max(rows[ledger]) == reopened.last_entry(ledger)
                assert Availability.from_entries(list(rows[ledger])) == reopened.availability(
                    ledger
                )
            assert sum(map(len, rows.values())) == len(_scanned(reopened.scan()))

    def test_write_after_reopen(self, index: EntryIndex, path: Path) -> None:
        """A second writing session goes on where the first ended."""
        for ledger in LEDGERS:
            index.put_many(ledger, [0, 1024], [5, 6])
            index.set_state(ledger, STATES[2])
        index.flush()
        self.again(index, path).close()
        with self.make_index(path) as second:
            for ledger in LEDGERS:
                second.put_many(ledger, [1, 1024, 5000], [7, 8, 9])

                assert {0: 5, 1: 7, 1024: 8, 5000: 9} == _rows(second, ledger)
                assert STATES[2] == second.state(ledger)
            second.delete(LEDGERS[0])
            third = self.again(second, path)
        with third:
            assert sorted(map(LedgerId.of, LEDGERS[1:])) == third.ledgers()
            assert {0: 5, 1: 7, 1024: 8, 5000: 9} == _rows(third, LEDGERS[1])

    def test_read_only(self, index: EntryIndex, path: Path) -> None:
        """An index reopened for reading refuses every write and stays as it is."""
        for ledger in LEDGERS:
            index.put(ledger, 0, 5)
        with self.again(index, path) as reopened:
            for ledger in (*LEDGERS, 99, LedgerId(5, 99)):
                with pytest.raises(ReadOnlyError):
                    reopened.put(ledger, 1, 6)
                with pytest.raises(ReadOnlyError):
                    reopened.put_many(ledger, [1], [6])
                with pytest.raises(ReadOnlyError):
                    reopened.set_state(ledger, LedgerState(b"k"))
                with pytest.raises(ReadOnlyError):
                    reopened.delete(ledger)

            assert sorted(map(LedgerId.of, LEDGERS)) == reopened.ledgers()
            assert [{0: 5}] * len(LEDGERS) == [_rows(reopened, ledger) for ledger in LEDGERS]

    def test_reading_writes_nothing(self, index: EntryIndex, path: Path) -> None:
        """Reading an index changes no file and makes none."""
        for ledger in LEDGERS:
            index.put_many(ledger, [0, 2000], [5, 6])
        reopened = self.again(index, path)
        before = _files(path)
        with reopened:
            for ledger in (*LEDGERS, 99, LedgerId(5, 99)):
                reopened.availability(ledger)
                reopened.get(ledger, 1)
            list(reopened.scan())
            reopened.flush()

        assert before == _files(path)

    def test_flush_twice(self, index: EntryIndex) -> None:
        """`flush` may be called at any time, on an empty index and twice as well."""
        index.flush()
        index.put(7, 0, 5)
        index.flush()
        index.flush()
        index.put(7, 1, 6)

        assert {0: 5, 1: 6} == _rows(index, 7)

    def test_close_twice(self, path: Path) -> None:
        """`close` is idempotent, also after the context manager has closed."""
        with self.make_index(path) as index:
            index.put(7, 0, 5)
            index.close()
        index.close()
        index.close()

    def test_context_manager(self, path: Path) -> None:
        """Entering gives the index itself; an exception passes, and the index is closed."""
        index = self.make_index(path)

        def fail() -> None:
            with index as entered:
                assert index is entered

                index.put(7, 0, 5)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        with self.again(index, path) as reopened:
            assert {0: 5} == _rows(reopened, 7)


def _files(path: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for file in sorted(path.rglob("*")):
        info = file.stat()
        found[str(file)] = (info.st_size if file.is_file() else -1, info.st_mtime_ns)
    return found
