"""Answers that say more in 88 bytes than memory holds: told in groups, lazily, or refused.

Oracles: Python sets over small ids, the arithmetic of a group's row over huge ones, and the
look-up and the walk of the real class as the reference words them.
"""

from __future__ import annotations

import pickle
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bkstore import BookieDir, LedgerStorage, open_index, schedule
from bkstore.availability import Availability, codec, sequence_groups, set_operations
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.rocks import RocksIndex

Row = tuple[int, int, int, int]

TOP = 2**63 - 2
INT32_MAX = 2**31 - 1


def packed(rows: list[Row]) -> bytes:
    """Return encoded rows, whatever they say."""
    return struct.pack(">ii56x", 0, len(rows)) + b"".join(struct.pack(">qqii", *r) for r in rows)


def stripe(first: int, below: int, size: int, period: int) -> Availability:
    """Return the set of one group whose sequences begin below `below`."""
    last = first + (below - 1 - first) // period * period
    return Availability.from_bytes(packed([(first, last, size, period)]))


def holds(rows: list[Row], entry: int) -> bool:
    """Whether one of the rows holds the entry, by the meaning of its four numbers."""
    return any(
        first <= entry < last + size and (entry - first) % (period or 2**63) < size
        for first, last, size, period in rows
    )


HUGE = stripe(0, 2**62, 1, 2)
"""2^61 sequences in one group."""


class TestOneHugeStripe:
    """What can be said in groups is, the rest is lazy or refused; memory is never asked for."""

    @pytest.fixture(autouse=True)
    def little_memory(self) -> Iterator[None]:
        """No test here may take 2 MiB."""
        tracemalloc.start()
        try:
            yield
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert 2 << 20 > peak

    def test_what_it_is(self) -> None:
        """Counts, ends, membership, hash, equality, pickling and the short form cost groups."""
        again = pickle.loads(pickle.dumps(HUGE))

        assert 2**61 == len(HUGE) == HUGE.range_count
        assert (0, 2**62 - 2) == (HUGE.first_entry, HUGE.last_entry)
        assert [True, False, True] == HUGE.contains_many([2**61, 2**61 + 1, 2**62 - 2]).tolist()
        assert HUGE == again == Availability.from_groups(HUGE.groups)
        assert hash(HUGE) == hash(again)
        assert not again.columns.first.flags.writeable
        assert f"<Availability: {2**61} entries in 0..{2**62 - 2}, 1 sequence group>" == repr(HUGE)
        assert packed([(0, 2**62 - 2, 1, 2)]) == HUGE.to_bytes()
        assert HUGE == Availability.from_entries(range(0, 2**62, 2))
        assert HUGE == Availability.from_entries(range(2**62 - 2, -1, -2))

    def test_first_elements_at_once(self) -> None:
        """Iteration begins without taking the set apart; so does a limited look at the ranges."""
        assert [0, 2, 4] == list(islice(HUGE, 3))
        assert [(0, 0), (2, 2)] == list(islice(HUGE.iter_ranges(), 2))
        assert [[0, 0], [2, 2], [4, 4]] == HUGE.ranges(limit=3).tolist()
        assert [] == HUGE.ranges(limit=0).tolist()
        some = Availability.from_bytes(packed([(0, 6, 1, 3), (10, 2**62 + 10, 2, 4)]))
        assert [[0, 0], [3, 3], [6, 6], [10, 11], [14, 15]] == some.ranges(limit=5).tolist()
        assert [[0, 0], [3, 3]] == some.ranges(limit=2).tolist()
        with pytest.raises(InvalidArgument, match="limit"):
            HUGE.ranges(limit=-1)

    @pytest.mark.parametrize(
        ("name", "ask", "says"),
        [
            ("ranges", HUGE.ranges, "iter_ranges"),
            ("limit", lambda: HUGE.ranges(limit=2**24 + 2), "16777216"),
            ("entries", HUGE.entries, "268435456"),
            ("bytes", lambda: HUGE.to_bytes("bookkeeper"), "89478482"),
            ("walk", lambda: HUGE.missing(HUGE, compat="bookkeeper"), "16777216"),
            ("two in six", lambda: stripe(0, 2**62, 1, 6) | stripe(2, 2**62, 1, 6), "16777216"),
            ("4 less 6", lambda: stripe(0, 2**62, 1, 4) - stripe(0, 2**62, 1, 6), "16777216"),
            (
                "periods that never meet",
                lambda: stripe(0, 2**62, 1, INT32_MAX) & stripe(0, 2**62, 1, INT32_MAX - 1),
                "16777216",
            ),
            ("a far period", lambda: Availability.from_entries(range(0, TOP, 2**33)), "16777216"),
            ("ids", lambda: HUGE.contains_many(range(2**62)), "268435456"),
            ("compat ids", lambda: Availability.from_entries(range(2**62), "bookkeeper"), "2684"),
            ("a long run", lambda: Availability.from_ranges([(0, TOP)]).to_bytes(), "89478482"),
        ],
    )
    def test_refused(self, name: str, ask: Callable[[], object], says: str) -> None:
        """What has to be written one by one is counted first; the refusal names the bound."""
        with pytest.raises(InvalidArgument, match=says):
            ask()

    def test_algebra_of_two(self) -> None:
        """Stripes of one period, or of periods that fit, make stripes of any length."""
        below = 3 * 2**60
        thirds = [stripe(at, below, 1, 3) for at in range(3)]
        whole = Availability.from_ranges([(0, below - 1)])

        assert whole == thirds[0] | thirds[1] | thirds[2]
        assert thirds[2] == whole - thirds[0] - thirds[1]
        assert Availability() == thirds[0] & thirds[1]
        assert thirds[0] == stripe(0, below, 1, 6) | stripe(3, below, 1, 6)
        assert stripe(3, below, 1, 6) == thirds[0] - stripe(0, below, 1, 6)
        assert stripe(0, below, 1, 12) == stripe(0, below, 1, 4) & stripe(0, below, 1, 6)
        assert stripe(9, below, 1, 12) == stripe(1, below, 1, 4) & stripe(3, below, 1, 6)
        assert Availability() == stripe(0, below, 1, 4) & stripe(1, below, 1, 6)
        assert stripe(0, below, 1, 4) == stripe(0, below, 1, 4) | stripe(0, below, 1, 8)
        assert whole == stripe(0, below, 2, 3) | stripe(2, below, 1, 3)
        assert whole == stripe(0, below, 3, 4) | stripe(1, below, 5, 6) | stripe(0, below, 11, 12)
        assert stripe(2, below, 1, 6) == stripe(2, below, 2, 6) - thirds[0]

    def test_schedule_and_missing(self) -> None:
        """What a bookie should have of a ledger without end, and has not, is told in groups."""
        due = schedule.expected(0, TOP, 1, 3, 2)
        here = due - Availability.from_entries([6, 2**61 + 1])
        lost = [entry for entry in (6, 2**61 + 1) if entry % 3 < 2]

        assert lost == here.missing(due).entries().tolist()
        assert lost[:1] == list(here.missing(due, last=2**40))
        assert lost[1:] == list(here.missing(due, first=2**40))


small_stripes = st.builds(
    lambda first, count, period, part: (
        first,
        first + (count - 1) * period,
        1 + part % (period - 1),
        period,
    ),
    st.integers(0, 12),
    st.integers(2, 40),
    st.sampled_from([2, 3, 4, 6, 8, 12]),
    st.integers(0, 11),
)


@given(small_stripes, small_stripes, st.integers(2, 9))
def test_windows_agree_with_sets(one: Row, two: Row, at_a_time: int) -> None:
    """Windows, repeated or one stripe, and parts taken apart make what Python's sets make."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(set_operations, "_MIN_WINDOW", 3)
        patch.setattr(set_operations, "_CHUNK_SEQUENCES", at_a_time)
        a, b = (Availability.from_groups([row]) for row in (one, two))
        ids_a, ids_b = ({e for e in range(600) if holds([row], e)} for row in (one, two))

        assert Availability.from_entries(sorted(ids_a & ids_b)) == a & b
        assert Availability.from_entries(sorted(ids_a | ids_b)) == a | b
        assert Availability.from_entries(sorted(ids_a - ids_b)) == a - b


@st.composite
def hostile_rows(draw: st.DrawFn) -> list[Row]:
    """Disjoint rows of any first, length, size and period, up to the highest entry id."""
    rows: list[Row] = []
    at = draw(st.sampled_from([0, 1, 5, 2**31, 2**61]))
    for _ in range(draw(st.integers(1, 3))):
        period = draw(st.sampled_from([2, 3, 4, 6, 7, 12, 1000, 2**20, INT32_MAX - 1, INT32_MAX]))
        size = min(draw(st.sampled_from([1, 2, 3, 5, 2**19, INT32_MAX - 2])), period - 1)
        count = draw(st.sampled_from([1, 2, 3, 50, 2**20, 2**30, 2**59]))
        count = min(count, (TOP - at - size) // period)
        if count < 1:
            break
        last = at + (count - 1) * period
        rows.append((at, last, size, period if count > 1 else 0))
        at = last + size + draw(st.sampled_from([0, 1, 2, 1000, 2**40]))
    return rows or [(TOP, TOP, 1, 0)]


def near(rows: list[Row], fraction: float) -> set[int]:
    """Ids about the borders of groups and of sequences inside them."""
    found = set()
    for first, last, size, period in rows:
        step = period or 1
        inner = first + int((last - first) // step * fraction) * step
        for place in (first, inner, inner + step, last):
            found |= {place - 1, place, place + 1, place + size - 1, place + size}
    return {entry for entry in found if 0 <= entry <= TOP}


@given(hostile_rows(), hostile_rows(), st.floats(0, 1))
def test_hostile_sets_are_exact_or_refused(one: list[Row], two: list[Row], fraction: float) -> None:
    """An operation on huge sets says of each id what the operands' rows say, or is refused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequence_groups, "MAX_SEQUENCES", 1 << 12)
        patch.setattr(set_operations, "_MIN_WINDOW", 8)
        a, b = Availability.from_groups(one), Availability.from_groups(two)
        probes = sorted(near(one, fraction) | near(two, fraction))
        in_a = np.array([holds(one, entry) for entry in probes])
        in_b = np.array([holds(two, entry) for entry in probes])
        answers: list[tuple[Callable[[], Availability], np.ndarray]] = [
            (lambda: a & b, in_a & in_b),
            (lambda: a | b, in_a | in_b),
            (lambda: a - b, in_a & ~in_b),
            (lambda: a.missing(b), in_b & ~in_a),
        ]
        assert in_a.tolist() == a.contains_many(probes).tolist()
        for ask, expected in answers:
            found, refused = outcome(ask)
            assert ("4096" in refused) if found is None else (expected.tolist() == found(probes))


def outcome(
    ask: Callable[[], Availability],
) -> tuple[Callable[[list[int]], list[bool]] | None, str]:
    """Return how to look ids up in what came of it, or why it was refused."""
    try:
        found = ask()
    except InvalidArgument as refusal:
        return None, str(refusal)
    return lambda ids: found.contains_many(ids).tolist(), ""


class TestLongForm:
    """`to_bytes("bookkeeper")` and long runs are written piece by piece."""

    @given(st.lists(small_stripes, max_size=3), st.integers(1, 5))
    def test_pieces(self, rows: list[Row], at_a_time: int) -> None:
        """Wherever the pieces end, there is one group for each maximal run."""
        ids = [entry for entry in range(600) if holds(rows, entry)]
        runs: list[Row] = []
        for entry in ids:
            if runs and runs[-1][0] + runs[-1][2] == entry:
                runs[-1] = (runs[-1][0], runs[-1][0], runs[-1][2] + 1, 0)
            else:
                runs.append((entry, entry, 1, 0))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(codec, "_CHUNK_ROWS", at_a_time)

            assert packed(runs) == Availability.from_entries(ids).to_bytes("bookkeeper")

    def test_long_runs_in_pieces(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A run of several pieces' length is cut each 2^31-1 ids, beside stripes or alone."""
        monkeypatch.setattr(codec, "_CHUNK_ROWS", 2)
        monkeypatch.setattr(codec, "_MAX_PART_IDS", 2 * INT32_MAX)
        cut = [(0, 10, 1, 5)]
        cut += [(20 + n * INT32_MAX, 20 + n * INT32_MAX, INT32_MAX, 0) for n in range(5)]
        cut += [(20 + 5 * INT32_MAX, 20 + 5 * INT32_MAX, 7, 0)]
        run = Availability.from_ranges([(20, 20 + 5 * INT32_MAX + 6)])
        answer = Availability.from_entries([0, 5, 10]) | run

        assert packed(cut) == answer.to_bytes()
        singles = [(0, 0, 1, 0), (5, 5, 1, 0), (10, 10, 1, 0)]
        assert packed(singles + cut[1:]) == answer.to_bytes("bookkeeper")
        assert answer == Availability.from_bytes(answer.to_bytes())


def built_holds(rows: list[Row], entry: int) -> bool:
    """`isEntryAvailable` as the reference words it: only the group at or below is asked."""
    below = [row for row in rows if row[0] <= entry]
    if not below:
        return False
    first, last, size, period = max(below, key=lambda row: row[0])
    if entry > last + size:
        return False
    return (entry - first if period == 0 else (entry - first) % abs(period)) < size


def built_missing(rows: list[Row], lo: int, hi: int, wanted: set[int]) -> list[int]:
    """`getUnavailableEntries` as the reference words it, an id at a time."""
    reported, current, none_left = [], None, False
    for entry in range(lo, hi + 1):
        report = False
        if none_left:
            report = True
        elif current is None or entry > current[1] + current[2]:
            below = [row for row in rows if row[0] <= entry]
            current = max(below, key=lambda row: row[0]) if below else None
            if current is None:
                report, none_left = True, not [row for row in rows if row[0] >= entry]
            elif entry > current[1] + current[2]:
                report = none_left = True
        if not report and current is not None:
            report = not built_holds([current], entry)
        if report and entry in wanted:
            reported.append(entry)
    return reported


odd_rows = st.lists(
    st.tuples(
        st.integers(-5, 40), st.integers(-6, 60), st.integers(-2, 9), st.sampled_from([1, 2, 3, 5])
    ),
    max_size=5,
    unique_by=lambda row: row[0],
).map(
    lambda rows: [
        (first, first + span if way else first, size, period * (way or 1) if way else 0)
        for (first, span, size, period), way in zip(rows, (1, -1, 0, 1, 0))
    ]
)


class TestAsBuilt:
    """Under compat any rows are taken; look-ups, walks and sets of them cost groups."""

    @given(odd_rows, st.integers(-6, 110), st.integers(0, 60), st.sets(st.integers(0, 120)))
    def test_agrees_with_the_rule(
        self, rows: list[Row], lo: int, length: int, wanted: set[int]
    ) -> None:
        """Rows that overlap or contradict themselves answer as the words of the rule do."""
        answer = Availability.from_bytes(packed(rows), compat="bookkeeper")
        held = [entry for entry in range(140) if built_holds(rows, entry)]
        due = Availability.from_entries(sorted(wanted))
        hi = lo + length

        probes = range(-8, 140)
        assert [built_holds(rows, e) for e in probes] == answer.contains_many(probes).tolist()
        assert Availability.from_entries(held) == answer | Availability()
        reported = answer.missing(due, lo, hi, compat="bookkeeper")
        assert built_missing(rows, lo, hi, wanted) == list(reported)
        assert sorted(map(list, rows)) == answer.groups.tolist()

    @pytest.mark.parametrize(
        ("row", "held"),
        [
            ((0, 2**62, 0, 1), []),
            ((0, 2**62, -5, 1), []),
            ((0, 2**62, 1, 1), [(0, 2**62 + 1)]),
            ((5, 2**62, 3, -2), [(5, 2**62 + 3)]),
            ((7, 7, 3, 0), [(7, 9)]),
            ((TOP, TOP, 5, 0), []),
        ],
    )
    def test_hostile_row(self, row: Row, held: list[tuple[int, int]]) -> None:
        """One row that asks for 2^62 steps is answered from its four numbers."""
        answer = Availability.from_bytes(packed([row]), compat="bookkeeper")

        assert Availability.from_ranges(held) == answer & Availability.from_ranges([(0, TOP)])
        assert bool(held) == bool(answer)
        assert repr(answer).startswith("<Availability as built: ")
        wanted = Availability.from_ranges([(0, 2**62 + 100)])
        first_held = held[0][0] if held else 2**62 + 50
        reported = answer.missing(wanted, compat="bookkeeper")
        assert [2**62 + 50] == list(reported & Availability.from_entries([first_held, 2**62 + 50]))

    def test_length(self) -> None:
        """Stored groups count as the real class counts; what is no length is refused by name."""
        shrunk = Availability.from_bytes(packed([(0, 8, 2, -4)]), compat="bookkeeper")

        with pytest.raises(InvalidArgument, match="add up to -2 entries"):
            len(shrunk)
        assert "<Availability as built: -2 entries in 1 stored group>" == repr(shrunk)

    def test_pickled(self) -> None:
        """A copy through pickle has the same groups and answers."""
        answer = Availability.from_bytes(packed([(0, 60, 1, 3), (10, 10, 5, 0)]), "bookkeeper")
        again = pickle.loads(pickle.dumps(answer))

        assert answer.groups.tolist() == again.groups.tolist()
        assert (12 in answer, 15 in answer) == (12 in again, 15 in again) == (True, False)


ODD: list[Any] = [
    None, 5, 1.5, "abc", b"\0\1", [None], ["1"], [1.5], [float("nan")], [[1], [1, 2]], ...,
    [True], [-1], [2**63 - 1], [2**63], [2**70], np.array([1.0]), np.array([[1, 2]]),
    np.array([2**64 - 1], np.uint64), np.array([...]), np.array(5), [np.float64("nan")],
    {"a": 1}, np.array(["2020-01-01"], "datetime64[s]"), range(-5, 5), range(2**63, 2**63 + 2),
]  # fmt: skip


class TestOddArguments:
    """What is no set of entries is `InvalidArgument`, whatever it is."""

    @pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:30])
    def test_entries(self, odd: Any) -> None:
        """`from_entries` and `contains_many` refuse it alike."""
        for ask in (Availability.from_entries, Availability().contains_many):
            with pytest.raises(InvalidArgument):
                ask(odd)

    @pytest.mark.parametrize("odd", ODD[:12], ids=lambda odd: repr(odd)[:30])
    def test_entries_as_built(self, odd: Any) -> None:
        """So do they under compat, where no float is cut; negative ids are taken there."""
        with pytest.raises(InvalidArgument):
            Availability.from_entries(odd, compat="bookkeeper")
        with pytest.raises(InvalidArgument):
            Availability.from_entries([], compat="bookkeeper").contains_many(odd)

    @pytest.mark.parametrize(
        "odd", [*ODD, [(1, 2), (3,)], [("1", "2")], [(1, None)], [(2**70, 2**71)]],
        ids=lambda odd: repr(odd)[:30],
    )  # fmt: skip
    def test_ranges_and_groups(self, odd: Any) -> None:
        """Rows that are not integers, of one length, are refused."""
        if isinstance(odd, np.ndarray) and odd.shape == (1, 2):
            odd = odd.astype(float)
        for ask in (Availability.from_ranges, Availability.from_groups):
            with pytest.raises(InvalidArgument):
                ask(odd)

    @pytest.mark.parametrize("odd", [None, 5, "abc", [1, 2], ..., 1.5])
    def test_bytes(self, odd: Any) -> None:
        """An answer is bytes."""
        for compat in (None, "bookkeeper"):
            with pytest.raises(InvalidArgument):
                Availability.from_bytes(odd, compat=compat)  # type: ignore[arg-type]

    def test_bytes_of_any_kind(self) -> None:
        """Bytes may lie in any buffer, with gaps too."""
        data = packed([(0, 6, 2, 3)])
        spread = memoryview(np.repeat(np.frombuffer(data, np.uint8), 2).tobytes())[::2]
        expected = Availability.from_entries([0, 1, 3, 4, 6, 7])

        for given_as in (
            data,
            bytearray(data),
            memoryview(data),
            spread,
            np.frombuffer(data, ">i4"),
        ):
            assert expected == Availability.from_bytes(given_as)  # type: ignore[arg-type]
        with pytest.raises(CorruptionError):
            Availability.from_bytes(memoryview(np.empty(0, np.int64)))

    @pytest.mark.parametrize("odd", [None, 5, 1.5, True, ..., "a\0b", b"a\0b", [None]], ids=repr)
    def test_paths(self, odd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is no path is refused by all that open one, before anything is made."""
        monkeypatch.chdir(tmp_path)
        for ask in (open_index, BookieDir, HierarchicalIndex, RocksIndex, LedgerStorage.open):
            with pytest.raises(InvalidArgument):
                ask(odd)
        assert [] == list(tmp_path.iterdir())

    def test_path_of_bytes(self, tmp_path: Path) -> None:
        """A path may be bytes, as everywhere in Python."""
        with HierarchicalIndex(bytes(tmp_path), writable=True) as index:
            index.put_many(7, [0, 1], [1028, 1100])
        with open_index(bytes(tmp_path)) as index:  # type: ignore[arg-type]
            assert [0, 1] == index.entries(7).tolist()

    @pytest.mark.parametrize("odd", [None, 5, [1]])
    def test_missing(self, odd: Any) -> None:
        """`missing` asks for a set, and for integers as its limits."""
        with pytest.raises(InvalidArgument):
            Availability().missing(odd)
        for limits in ({"first": "1"}, {"last": 1.5}, {"first": -1}, {"last": 2**70}):
            with pytest.raises(InvalidArgument):
                HUGE.missing(HUGE, **limits)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "ids", [[], [5], [0, 1, 3, 4, 9], range(0, 2**40, 7), [0, 2**40]], ids=repr
    )
    def test_groups_come_back(self, ids: Any) -> None:
        """`from_groups` takes what `groups` gives: none, long runs, and those read under compat."""
        for answer in (Availability.from_entries(ids), Availability.from_ranges([(3, 2**40)])):
            read = Availability.from_bytes(answer.to_bytes(), compat="bookkeeper")

            assert answer == Availability.from_groups(answer.groups)
            assert answer == Availability.from_groups(read.groups)
        odd = Availability.from_bytes(packed([(0, 60, 1, 3), (10, 10, 5, 0)]), compat="bookkeeper")
        again = Availability.from_groups(odd.groups, compat="bookkeeper")
        assert odd.groups.tolist() == again.groups.tolist()
        assert odd == again
