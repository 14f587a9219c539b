"""Availability against BP-34's text: a sequential, pure-Python reference is the other side."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from bkstore.availability import Availability, from_entries
from bkstore.errors import CorruptionError
from bkstore.testing import generators
from tests.availability.reference import (
    ANYWHERE,
    IDS,
    TOP,
    Row,
    check_equal,
    check_large,
    greedy,
    packed,
    runs_of,
)

BLOCK = from_entries.BLOCK_IDS


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
