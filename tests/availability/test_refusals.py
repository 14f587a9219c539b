"""What is no availability: malformed bytes, wrong arguments; and what is let pass."""

from __future__ import annotations

import pytest

from bkstore.availability import Availability
from bkstore.errors import CorruptionError, InvalidArgument
from tests.availability.reference import INT32_MAX, TOP, check_equal, packed

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
