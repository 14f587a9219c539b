"""The worked examples of BP-34 and of the storage notes, to the byte."""

from __future__ import annotations

import pytest

from bkstore.availability import Availability
from bkstore.testing import generators
from tests.availability.reference import packed


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
