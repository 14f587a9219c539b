"""Availability against BP-34's text: a sequential, pure-Python reference is the other side.

Over 500 lines because it is one family: encoding, decoding and set algebra share one reference
and one set of strategies.
"""

from __future__ import annotations

import copy
import pickle
import struct
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bkstore import schedule
from bkstore.availability import Availability, from_entries
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.testing import generators

INT32_MAX = 2**31 - 1
TOP = 2**63 - 2
BLOCK = from_entries.BLOCK

Row = tuple[int, int, int, int]


# -- the reference, written from sections 5.1 and 5.2 of the storage notes


def runs_of(ids: Iterable[int]) -> list[tuple[int, int]]:
    """Return the maximal runs of consecutive ids as (start, size)."""
    runs: list[tuple[int, int]] = []
    for entry in sorted(set(ids)):
        if runs and runs[-1][0] + runs[-1][1] == entry:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((entry, 1))
    return runs


def greedy(runs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Group sequences as BP-34 says: equal sizes, and equal distances once there are two."""
    groups: list[list[int]] = []
    current = [0, 0, 0, 0]  # first, last, size, period; of size 0 nothing is taken
    for start, size in runs:
        first, last, group_size, period = current
        distance = start - last
        fits = size == group_size and size <= INT32_MAX and distance <= INT32_MAX
        if fits and (first == last or distance == period):
            current[1], current[3] = start, distance
        else:
            current = [start, start, size, 0]
            groups.append(current)
    return groups


def packed(groups: Iterable[Iterable[int]], version: int = 0, count: int | None = None) -> bytes:
    """Return header and groups as bytes."""
    rows = [struct.pack(">qqii", *group) for group in groups]
    number = len(rows) if count is None else count
    return struct.pack(">ii56x", version, number) + b"".join(rows)


def check_equal(ids: Iterable[int], answer: Availability) -> None:
    """Assert that an answer says exactly `ids`, in the form of the reference."""
    distinct = sorted(set(ids))
    runs = runs_of(distinct)

    assert greedy(runs) == answer.groups.tolist()
    assert distinct == answer.entries().tolist()
    assert distinct == list(answer)
    assert len(distinct) == len(answer)
    assert bool(distinct) == bool(answer)
    assert [[start, start + size - 1] for start, size in runs] == answer.ranges().tolist()
    assert (distinct[0] if distinct else None) == answer.first_entry
    assert (distinct[-1] if distinct else None) == answer.last_entry


def check_large(ids: np.ndarray, answer: Availability) -> None:
    """Assert the same of many ids: the runs come from numpy, the groups from the reference."""
    distinct = np.unique(ids)
    opens = np.concatenate(([0], np.flatnonzero(np.diff(distinct) != 1) + 1))
    sizes = np.diff(np.concatenate((opens, [distinct.size])))
    runs = list(zip(distinct[opens].tolist(), sizes.tolist()))

    assert np.array_equal(distinct, answer.entries())
    assert distinct.size == len(answer)
    assert greedy(runs) == answer.groups.tolist()
    assert np.array_equal(distinct[opens], answer.ranges()[:, 0])
    assert np.array_equal(distinct[opens] + sizes - 1, answer.ranges()[:, 1])


# -- ledger-shaped ids


@st.composite
def stripes(draw: st.DrawFn) -> list[int]:
    """Return a bookie's share of a ledger, perhaps cut, with holes or with something more."""
    ensemble = draw(st.integers(1, 7))
    quorum = draw(st.integers(1, ensemble))
    bookie = draw(st.integers(0, ensemble - 1))
    first = draw(st.integers(0, 40))
    last = first + draw(st.integers(0, 90))
    ids = [e for e in range(first, last + 1) if (bookie - e) % ensemble < quorum]
    lost = draw(st.sets(st.integers(0, 130), max_size=3))
    more = draw(st.lists(st.integers(0, 130), max_size=3))
    return [e for e in ids if e not in lost] + more


@st.composite
def spaced_runs(draw: st.DrawFn) -> list[int]:
    """Return runs of few sizes at few distances, so that groups open and close."""
    ids: list[int] = []
    at = draw(st.integers(0, 5))
    for size, gap in draw(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=12)):
        ids.extend(range(at, at + size))
        at += size + gap
    return ids


IDS = st.one_of(st.lists(st.integers(0, 60), max_size=50), stripes(), spaced_runs())
ANYWHERE = st.lists(st.one_of(st.integers(0, 20), st.integers(0, TOP)), max_size=20)


class TestWorkedExamples:
    """The examples of BP-34 and of the storage notes, to the byte."""

    @pytest.mark.parametrize(
        ("ids", "groups"),
        [
            ([], []),
            ([0], [[0, 0, 1, 0]]),
            ([1, 2, 4, 5, 7, 8, 10, 11], [[1, 10, 2, 3]]),
            (
                [1, 2, 3, 6, 7, 8, 11, 13, 16, 17, 18, 21, 22],
                [[1, 6, 3, 5], [11, 13, 1, 2], [16, 16, 3, 0], [21, 21, 2, 0]],
            ),
            ([0, 2, 4, 6, 8], [[0, 8, 1, 2]]),
        ],
    )
    def test_grouped(self, ids: list[int], groups: list[list[int]]) -> None:
        """Grouped bytes are a 64-byte header (version, count) and 24 bytes a group."""
        data = Availability.from_entries(ids).to_bytes()

        assert 64 + 24 * len(groups) == len(data)
        assert packed(groups) == data
        assert data == Availability.from_entries(ids).to_bytes("grouped")

    @pytest.mark.parametrize(
        ("ids", "runs", "length"),
        [
            ([], [], 64),
            ([0], [(0, 1)], 88),
            ([1, 2, 4, 5, 7, 8, 10, 11], [(1, 2), (4, 2), (7, 2), (10, 2)], 160),
            (
                [1, 2, 3, 6, 7, 8, 11, 13, 16, 17, 18, 21, 22],
                [(1, 3), (6, 3), (11, 1), (13, 1), (16, 3), (21, 2)],
                208,
            ),
            ([0, 2, 4, 6, 8], [(0, 1), (2, 1), (4, 1), (6, 1), (8, 1)], 184),
        ],
    )
    def test_as_built(self, ids: list[int], runs: list[tuple[int, int]], length: int) -> None:
        """The built encoder writes one group a sequence, period 0; both decode to the same."""
        answer = Availability.from_entries(ids)
        data = answer.to_bytes("bookkeeper")

        assert length == len(data)
        assert packed((start, start, size, 0) for start, size in runs) == data
        assert answer == Availability.from_bytes(data) == Availability.from_bytes(answer.to_bytes())

    def test_first_example_in_hex(self) -> None:
        """One group, every byte written out."""
        header = "00000000" + "00000001" + "00" * 56
        group = "0000000000000001" + "000000000000000a" + "00000002" + "00000003"

        assert (
            header + group == Availability.from_entries([1, 2, 4, 5, 7, 8, 10, 11]).to_bytes().hex()
        )

    def test_million_entry_stripe(self) -> None:
        """A million stored entries of a 2-of-3 stripe take 88 bytes, as built 12,000,064."""
        answer = Availability.from_entries(generators.striped(1_499_999, 1, 3, 2))

        assert 1_000_000 == len(answer)
        assert 88 == len(answer.to_bytes())
        assert 12_000_064 == len(answer.to_bytes("bookkeeper"))

    @pytest.mark.parametrize(
        ("ids", "groups", "total", "lookups"),
        [
            ([0, 0, 1, 1, 2], [[0, 0, 3, 0]], 3, {2: True, 3: False}),
            ([0, 1, 2, 0, 1, 2], [[0, 0, 3, 0]], 3, {0: True, 2: True}),
            ([3, 4, 5, 10, 11, 4], [[3, 3, 3, 0], [4, 4, 1, 0], [10, 10, 2, 0]], 6, {5: False}),
            ([5, 4, 3], [[3, 3, 1, 0], [4, 4, 1, 0], [5, 5, 1, 0]], 3, {3: True, 5: True}),
            ([3, 4, 5, 10, 3], [[3, 3, 1, 0], [10, 10, 1, 0]], 2, {3: True, 4: False}),
            ([-1, 0, 1], [[0, 0, 2, 0]], 2, {-1: False, 1: True}),
        ],
    )
    def test_compat_insertion(
        self, ids: list[int], groups: list[list[int]], total: int, lookups: dict[int, bool]
    ) -> None:
        """Under compat the built encoder's answers to unsorted input are given, wrong ones too."""
        built = Availability.from_entries(ids, compat="bookkeeper")

        assert groups == built.groups.tolist()
        assert total == len(built)
        assert packed(groups) == built.to_bytes()
        assert lookups == {entry: entry in built for entry in lookups}
        assert list(lookups.values()) == built.contains_many(list(lookups)).tolist()

    @pytest.mark.parametrize(
        ("ids", "last", "reported"),
        [
            ([0, 3, 6, 9], 9, [3, 6, 9]),
            ([0, 1, 2, 20, 21, 22], 25, [20, 21, 22]),
            ([0, 2, 4], 6, []),
        ],
    )
    def test_compat_missing(self, ids: list[int], last: int, reported: list[int]) -> None:
        """`getUnavailableEntries` gives up after a hole of two ids; the default does not."""
        answer = Availability.from_entries(ids)

        assert reported == answer.missing(answer, 0, last, compat="bookkeeper").entries().tolist()
        assert [] == answer.missing(answer, 0, last).entries().tolist()


class TestAgainstTheReference:
    """Any set, encoded, decoded and combined, gives what the reference gives."""

    @given(IDS)
    @example([])
    @example([0])
    @example([TOP])
    @example([TOP - 1, TOP, 0])
    def test_encode(self, ids: list[int]) -> None:
        """Groups, ranges, entries and bytes are the reference's, for ids in any order."""
        answer = Availability.from_entries(ids)
        runs = runs_of(ids)

        check_equal(ids, answer)
        assert packed(greedy(runs)) == answer.to_bytes()
        assert packed((start, start, size, 0) for start, size in runs) == answer.to_bytes(
            "bookkeeper"
        )

    @given(ANYWHERE)
    def test_encode_anywhere(self, ids: list[int]) -> None:
        """The same for ids far apart: distances beyond int32 are never a period."""
        check_equal(ids, Availability.from_entries(ids))

    @given(IDS, st.sampled_from(["grouped", "bookkeeper"]))
    def test_decode(self, ids: list[int], encoding: str) -> None:
        """What was encoded decodes to the same set, whichever the encoding."""
        answer = Availability.from_entries(ids)
        data = answer.to_bytes(encoding)  # type: ignore[arg-type]

        check_equal(ids, Availability.from_bytes(data))
        assert answer == Availability.from_bytes(bytearray(data))
        assert answer == Availability.from_bytes(memoryview(data + b"behind"))
        assert set(ids) == {
            e for e in range(200) if e in Availability.from_bytes(data, "bookkeeper")
        }

    @given(st.data(), IDS)
    def test_decode_any_grouping(self, data: st.DataObject, ids: list[int]) -> None:
        """However a set is cut into groups, and in whatever order they come, it is the same."""
        rows: list[Row] = []
        for start, size in runs_of(ids):
            cut = data.draw(st.integers(0, size - 1))
            rows += [(start, start, cut, 0)] if cut else []
            rows.append((start + cut, start + cut, size - cut, 0))
        rows = data.draw(st.permutations(rows))

        check_equal(ids, Availability.from_bytes(packed(rows)))
        check_equal(ids, Availability.from_groups(np.array(rows, np.int64).reshape(-1, 4)))

    @given(IDS, IDS)
    def test_algebra(self, left: list[int], right: list[int]) -> None:
        """& | - and `missing` are those of Python's sets."""
        a, b = Availability.from_entries(left), Availability.from_entries(right)

        check_equal(set(left) & set(right), a & b)
        check_equal(set(left) | set(right), a | b)
        check_equal(set(left) - set(right), a - b)
        check_equal(set(right) - set(left), a.missing(b))
        check_equal(left, a)
        check_equal(right, b)

    @given(ANYWHERE, ANYWHERE)
    def test_algebra_anywhere(self, left: list[int], right: list[int]) -> None:
        """The same for ids that lie far apart."""
        a, b = Availability.from_entries(left), Availability.from_entries(right)

        check_equal(set(left) & set(right), a & b)
        check_equal(set(left) | set(right), a | b)
        check_equal(set(left) - set(right), a - b)

    @given(IDS, IDS, st.none() | st.integers(0, 150), st.none() | st.integers(0, 150))
    def test_missing_in_a_range(
        self, here: list[int], wanted: list[int], first: int | None, last: int | None
    ) -> None:
        """`first` and `last` restrict the question to an inclusive range, empty if reversed."""
        asked = {e for e in wanted if (first is None or first <= e) and (last is None or e <= last)}
        answer = Availability.from_entries(here)

        check_equal(
            asked - set(here), answer.missing(Availability.from_entries(wanted), first, last)
        )

    @given(IDS, st.lists(st.one_of(st.integers(0, 150), st.integers(0, TOP))))
    def test_contains(self, ids: list[int], asked: list[int]) -> None:
        """Membership is the set's, one by one and in arrays."""
        answer = Availability.from_entries(ids)

        assert [e in set(ids) for e in asked] == answer.contains_many(asked).tolist()
        assert [e in set(ids) for e in asked] == [e in answer for e in asked]

    @given(st.lists(st.tuples(st.integers(0, 80), st.integers(0, 15)), max_size=15))
    def test_from_ranges(self, pairs: list[tuple[int, int]]) -> None:
        """Ranges may overlap, touch, repeat and come in any order."""
        ranges = [(first, first + length) for first, length in pairs]
        ids = {e for first, last in ranges for e in range(first, last + 1)}

        check_equal(ids, Availability.from_ranges(ranges))
        check_equal(ids, Availability.from_ranges(iter(ranges)))
        check_equal(ids, Availability.from_ranges(np.array(ranges, np.int64).reshape(-1, 2)))
        check_equal(ids, Availability.from_ranges(Availability.from_entries(ids).ranges()))

    @given(IDS)
    def test_equality_is_of_sets(self, ids: list[int]) -> None:
        """Equal sets are equal and hash alike, however they came about; copies too."""
        answer = Availability.from_entries(ids)
        others = [
            Availability.from_entries(list(reversed(ids)) + ids),
            Availability.from_ranges((e, e) for e in ids),
            Availability.from_bytes(answer.to_bytes("bookkeeper")),
            (answer | Availability.from_entries([200])) - Availability.from_entries([200]),
            copy.deepcopy(answer),
            pickle.loads(pickle.dumps(answer)),
        ]

        assert [answer] * len(others) == others
        assert {hash(answer)} == {hash(other) for other in others}
        assert answer != Availability.from_entries([*ids, 500])
        assert answer != ids

    @given(st.lists(st.binary(max_size=24), max_size=4), st.binary(max_size=70))
    def test_any_bytes(self, parts: list[bytes], start: bytes) -> None:
        """Random bytes decode to a set or raise `CorruptionError`, never anything else."""
        for data in (start + b"".join(parts), packed([], count=len(parts)) + b"".join(parts)):
            try:
                answer = Availability.from_bytes(data)
            except CorruptionError as error:
                found: CorruptionError | None = error
            else:
                found = None
                again = Availability.from_bytes(answer.to_bytes())

                assert answer == again
            if found is not None:
                assert found.offset is not None
                assert 0 <= found.offset <= len(data)


class TestBlocks:
    """Ids are taken in blocks; nothing may show where one ends."""

    @pytest.mark.parametrize("size", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 1])
    @pytest.mark.parametrize(("ensemble", "quorum"), [(1, 1), (2, 1), (3, 1), (3, 2), (5, 3)])
    def test_regular_stripe(self, size: int, ensemble: int, quorum: int) -> None:
        """A stripe longer than a block is one group, wherever its sequences are cut."""
        for bookie in range(ensemble):
            ids = generators.striped(3 * size * ensemble // quorum, bookie, ensemble, quorum)[:size]

            check_large(ids, Availability.from_entries(ids))

    @pytest.mark.parametrize(
        "at", [BLOCK - 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, 2 * BLOCK]
    )
    @pytest.mark.parametrize("copies", [1, 5])
    def test_duplicate_at_the_border(self, at: int, copies: int) -> None:
        """An id that comes again just before, at or after a border is one id."""
        for step in (1, 2, 3):
            ids = np.arange(2 * BLOCK + 10, dtype=np.int64) * step
            ids = np.insert(ids, at, np.repeat(ids[at], copies))

            check_large(ids, Availability.from_entries(ids))

    def test_block_of_duplicates(self) -> None:
        """A whole block, and more, of one id is one id."""
        ids = np.concatenate((np.arange(10), np.full(3 * BLOCK, 10), np.arange(11, 20)))

        check_equal(range(20), Availability.from_entries(ids))

    @pytest.mark.parametrize("at", [0, 5, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3, -1])
    @pytest.mark.parametrize("step", [1, 2, 7])
    def test_one_id_missing(self, at: int, step: int) -> None:
        """A hole anywhere in a regular run is seen, at borders and ends too."""
        ids = np.delete(np.arange(2 * BLOCK + 9, dtype=np.int64) * step, at)

        check_large(ids, Availability.from_entries(ids))

    @pytest.mark.parametrize("at", [5, BLOCK - 1, BLOCK, BLOCK + 3])
    @pytest.mark.parametrize("shift", [-1, 1])
    def test_one_id_moved(self, at: int, shift: int) -> None:
        """An id one off its place breaks the stripe where it lies, first and last unchanged."""
        ids = np.arange(2 * BLOCK + 9, dtype=np.int64) * 3
        ids[at] += shift

        check_large(ids, Availability.from_entries(ids))

    @pytest.mark.parametrize("order", ["reversed", "shuffled", "late", "rotated", "swapped"])
    def test_unsorted(self, order: str) -> None:
        """Order does not matter, wherever the ids leave it."""
        ids = generators.with_holes(generators.striped(3 * BLOCK, 2, 3, 2), 0.001, 3)
        given_order: dict[str, Callable[[], np.ndarray]] = {
            "reversed": lambda: ids[::-1],
            "shuffled": lambda: np.random.default_rng(1).permutation(ids),
            "late": lambda: generators.late_and_duplicate(ids, seed=2),
            "rotated": lambda: np.roll(ids, 1),
            "swapped": lambda: np.concatenate(
                (ids[:BLOCK], ids[BLOCK + 1 : BLOCK + 2], ids[BLOCK:])
            ),
        }

        check_large(ids, Availability.from_entries(given_order[order]()))

    @pytest.mark.parametrize("at", [0, BLOCK - 2, BLOCK - 1, BLOCK, 2 * BLOCK - 1])
    @pytest.mark.parametrize("hole", [3, BLOCK + 7])
    def test_neighbours_swapped(self, at: int, hole: int) -> None:
        """Two neighbours in the wrong order are noticed where a block ends between them, too."""
        for size, period in ((1, 1), (1, 2), (2, 3)):
            ids = generators.striped(3 * BLOCK * period // size, 0, period, size)[: 2 * BLOCK + 20]
            ids = np.delete(ids, hole)
            ids[[at, at + 1]] = ids[[at + 1, at]]

            check_large(ids, Availability.from_entries(ids))

    @pytest.mark.parametrize("head", [0, 1, 3])
    @pytest.mark.parametrize("tail", [0, 1, 2])
    def test_cut_first_and_last_sequence(self, head: int, tail: int) -> None:
        """A stripe whose ends are cut is three groups at most, longer than a block or not."""
        for count in (3, 40, BLOCK // 4 + 5):
            ids = (np.arange(count)[:, None] * 7 + np.arange(4)).ravel()
            ids = ids[head : ids.size - tail]

            check_large(ids, Availability.from_entries(ids))

    def test_disorder_that_keeps_the_ends(self) -> None:
        """Ids that do not ascend are noticed even if first and last fit a regular run."""
        ids = np.arange(1000)
        ids[[500, 501]] = ids[[501, 500]]

        check_equal(range(1000), Availability.from_entries(ids))

        ids = np.arange(1000)
        ids[1], ids[2] = 2, 1

        check_equal(range(1000), Availability.from_entries(ids))


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


GOOD = (0, 6, 2, 3)

MALFORMED: dict[str, tuple[bytes, int]] = {
    "no bytes": (b"", 0),
    "short header": (bytes(63), 63),
    "version 1": (packed([GOOD], version=1), 0),
    "version 2^31-1": (packed([GOOD], version=INT32_MAX), 0),
    "version -1": (packed([GOOD], version=-1), 0),
    "negative count": (packed([GOOD], count=-1), 4),
    "count without groups": (packed([], count=1), 64),
    "one group too few": (packed([GOOD], count=2), 88),
    "a cut group": (packed([GOOD])[:-1], 64),
    "a cut second group": (packed([GOOD, (20, 20, 1, 0)])[:-20], 88),
    "a huge count": (packed([GOOD], count=INT32_MAX), 88),
    "size 0": (packed([GOOD, (20, 20, 0, 0)]), 64 + 24 + 16),
    "size negative": (packed([(0, 0, -3, 0)]), 64 + 16),
    "size the least": (packed([(0, 0, -(2**31), 0)]), 64 + 16),
    "period 0, two sequences": (packed([(0, 10, 2, 0)]), 64 + 20),
    "period negative, two sequences": (packed([(0, 10, 2, -5)]), 64 + 20),
    "period equals size": (packed([(0, 30, 3, 3)]), 64 + 20),
    "period below size": (packed([(0, 30, 5, 3)]), 64 + 20),
    "last off the period": (packed([GOOD, (20, 27, 1, 3)]), 64 + 24 + 8),
    "last before first": (packed([(9, 3, 1, 3)]), 64 + 8),
    "first negative": (packed([(-1, -1, 2, 0)]), 64),
    "first the least": (packed([(-(2**63), 2**63 - 1, 1, 1)]), 64),
    "ids beyond 2^63-2": (packed([(2**63 - 1, 2**63 - 1, 1, 0)]), 64 + 8),
    "run beyond 2^63-2": (packed([(2**63 - 5, 2**63 - 5, 10, 0)]), 64 + 8),
    "overlap": (packed([(0, 0, 5, 0), (4, 4, 2, 0)]), 64 + 24),
    "the same first": (packed([(5, 5, 5, 0), (5, 50, 1, 3)]), 64 + 24),
    "one inside a stripe": (packed([(0, 60, 1, 3), (10, 10, 5, 0)]), 64 + 24),
    "woven stripes": (packed([(0, 60, 1, 3), (1, 61, 1, 3)]), 64 + 24),
    "overlap, not in order": (packed([(4, 4, 2, 0), (0, 0, 5, 0)]), 64),
}


class TestMalformed:
    """Bytes that cannot be a set are damage, with the offset of the field at fault."""

    @pytest.mark.parametrize("case", MALFORMED)
    def test_refused(self, case: str) -> None:
        """Each kind of damage raises `CorruptionError` with offset and reason."""
        data, offset = MALFORMED[case]
        with pytest.raises(CorruptionError) as caught:
            Availability.from_bytes(data)

        assert offset == caught.value.offset
        assert caught.value.reason
        assert caught.value.file is None

    @pytest.mark.parametrize(
        "case", ["period 0, two sequences", "version 1", "short header", "one group too few"]
    )
    def test_refused_by_the_real_decoder_too(self, case: str) -> None:
        """What makes the real decoder throw is damage under compat as well."""
        with pytest.raises(CorruptionError):
            Availability.from_bytes(MALFORMED[case][0], compat="bookkeeper")

    @pytest.mark.parametrize(
        ("case", "total"),
        [
            ("version -1", 6),
            ("negative count", 0),
            ("period equals size", 33),
            ("period below size", 55),
            ("the same first", 16),
            ("one inside a stripe", 26),
        ],
    )
    def test_taken_by_the_real_decoder(self, case: str, total: int) -> None:
        """Under compat the rest is taken as the real decoder takes it."""
        assert total == len(Availability.from_bytes(MALFORMED[case][0], compat="bookkeeper"))

    def test_what_is_not_checked(self) -> None:
        """Bytes 8..63 and bytes after the last group are ignored; so is a lone group's period."""
        data = bytearray(packed([(7, 7, 3, 99)]) + b"trailing")
        data[8:64] = b"\xff" * 56

        assert [[7, 9]] == Availability.from_bytes(data).ranges().tolist()
        assert [[7, 7, 3, 0]] == Availability.from_bytes(data).groups.tolist()

    def test_touching_groups_are_joined(self) -> None:
        """Groups that touch are no damage; the set has its canonical form at once."""
        answer = Availability.from_bytes(packed([(0, 9, 1, 3), (12, 12, 10, 0), (22, 40, 4, 6)]))
        ids = [0, 3, 6, 9, *range(12, 26), *(e for s in (28, 34, 40) for e in range(s, s + 4))]

        check_equal(ids, answer)


class TestArguments:
    """What callers may not say."""

    @pytest.mark.parametrize("ids", [[-1], [2**63 - 1], [2**63], [2**70], [1.5], ["1"], [[1, 2]]])
    def test_entries(self, ids: list[object]) -> None:
        """Entry ids are integers of 0..2^63-2."""
        with pytest.raises(InvalidArgument):
            Availability.from_entries(ids)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "ranges",
        [[(5, 4)], [(-1, 4)], [(0, 2**63 - 1)], [(0, 2**70)], [(0.5, 2.5)], [(1, 2, 3)], [1, 2]],
    )
    def test_ranges(self, ranges: list[object]) -> None:
        """Ranges are pairs of entry ids, not reversed."""
        with pytest.raises(InvalidArgument):
            Availability.from_ranges(ranges)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "groups",
        [
            [(0, 2**33, 2**31, 2**32)],
            [(0, 0, 1, 2**31)],
            [(0, 2**32, 1, 2**31)],
            [(0, 0, 5 - 2**32, 0)],
            [(0, 6, 1, 3 - 2**32)],
            [(0, 0, 1)],
            [(0, 0, 1.5, 0)],
        ],
    )
    def test_groups(self, groups: list[object]) -> None:
        """Groups are rows of four integers whose size and period fit int32."""
        with pytest.raises(InvalidArgument):
            Availability.from_groups(groups)  # type: ignore[arg-type]

    def test_groups_that_contradict(self) -> None:
        """Groups that overlap or make no sense are damage, as in bytes."""
        for groups in ([(0, 0, 5, 0), (4, 4, 2, 0)], [(0, 10, 2, 0)], [(0, 0, -1, 0)]):
            with pytest.raises(CorruptionError):
                Availability.from_groups(groups)

    @pytest.mark.parametrize("value", [-1, 2**63 - 1, 2**70, 1.0, "1", None])
    def test_contains_anything(self, value: object) -> None:
        """``in`` says no to what is no entry id; only arrays of ids are refused."""
        assert value not in Availability.from_ranges([(0, TOP)])

        with pytest.raises(InvalidArgument):
            Availability().contains_many([value])  # type: ignore[list-item]

    def test_unknown_variants(self) -> None:
        """Encodings and compat names are a closed list."""
        for ask in (
            lambda: Availability().to_bytes("java"),  # type: ignore[arg-type]
            lambda: Availability.from_entries([], compat="java"),  # type: ignore[arg-type]
            lambda: Availability.from_bytes(packed([]), compat="java"),  # type: ignore[arg-type]
            lambda: Availability().missing(Availability(), compat="java"),  # type: ignore[arg-type]
        ):
            with pytest.raises(InvalidArgument):
                ask()

    def test_immutable(self) -> None:
        """What is handed out may be changed without changing the set."""
        answer = Availability.from_entries([1, 2, 4])
        for array in (answer.groups, answer.ranges(), answer.entries()):
            if array.flags.writeable:
                array[:] = 0

        check_equal([1, 2, 4], answer)

    def test_shown(self) -> None:
        """The printable form says how many, from where to where, in how many groups."""
        assert "<Availability: no entries>" == repr(Availability())
        assert "<Availability: 4 entries in 1..5, 1 sequence group>" == repr(
            Availability.from_entries([1, 2, 4, 5])
        )
        assert "<Availability: 3 entries in 1..4, 2 sequence groups>" == repr(
            Availability.from_entries([1, 2, 4])
        )


def test_compat_answer_of_a_long_stripe_stays_condensed() -> None:
    """An answer read under compat costs no memory by entry, contradictory or not."""
    stripe = Availability.from_groups([[0, 3_000_000_000, 2, 3]])
    read = Availability.from_bytes(stripe.to_bytes(), compat="bookkeeper")
    contradictory = Availability.from_bytes(packed([(0, 10**12, 3, 2)]), compat="bookkeeper")

    assert stripe - Availability.from_entries([3]) == read - Availability.from_entries([3])
    # Every remainder by 2 is below 3, and the look-up goes as far as last start + size.
    assert [[0, 10**12 + 3]] == contradictory.ranges().tolist()
