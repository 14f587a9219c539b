"""Round-robin distribution against its definition: entry e lies at (e + w) mod E, w < W."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from bkstore import schedule
from bkstore.errors import InvalidArgument
from bkstore.testing import generators

QUORUMS = st.integers(1, 9).flatmap(lambda e: st.tuples(st.just(e), st.integers(1, e)))
TOP = 2**63 - 2


def holders(entry: int, ensemble_size: int, write_quorum: int) -> list[int]:
    """Return the write set by definition."""
    return [(entry + w) % ensemble_size for w in range(write_quorum)]


@given(QUORUMS, st.lists(st.integers(0, TOP), max_size=20))
def test_write_sets(quorum: tuple[int, int], entries: list[int]) -> None:
    """Single and array form give the definition's bookies, in order."""
    expected = [holders(entry, *quorum) for entry in entries]

    assert expected == [schedule.write_set(entry, *quorum) for entry in entries]
    assert expected == schedule.write_sets(entries, *quorum).tolist()
    assert [holders(e, quorum[0], quorum[0]) for e in entries] == [
        schedule.ensemble_set(e, quorum[0]) for e in entries
    ]


@given(QUORUMS, st.integers(0, TOP))
def test_single_forms(quorum: tuple[int, int], entry: int) -> None:
    """`bookie_index` and `has_entry` agree with the write set."""
    expected = holders(entry, *quorum)

    assert expected == [schedule.bookie_index(entry, n, *quorum) for n in range(quorum[1])]
    assert [b in expected for b in range(quorum[0])] == [
        schedule.has_entry(entry, b, *quorum) for b in range(quorum[0])
    ]


@given(
    QUORUMS,
    st.integers(0, 8),
    st.one_of(st.integers(0, 40), st.integers(2**31 - 20, 2**31 + 20), st.just(TOP - 60)),
    st.integers(0, 60),
)
def test_expected(quorum: tuple[int, int], bookie: int, first: int, length: int) -> None:
    """`expected` is the set of entries whose write set has the bookie, in three groups at most."""
    bookie %= quorum[0]
    last = first + length
    brute = [entry for entry in range(first, last + 1) if bookie in holders(entry, *quorum)]
    answer = schedule.expected(first, last, bookie, *quorum)

    assert brute == answer.entries().tolist()
    assert len(brute) == len(answer)
    assert brute == generators.striped(last, bookie, *quorum, first=first).tolist()
    assert len(answer.groups) <= 3


@pytest.mark.parametrize("ensemble", range(2, 12))
def test_expected_at_the_end_of_the_ids(ensemble: int) -> None:
    """A range that ends with the last entry id there is holds nothing beyond it."""
    for write_quorum in range(1, ensemble + 1):
        for bookie in range(ensemble):
            brute = [
                entry
                for entry in range(TOP - 30, TOP + 1)
                if bookie in holders(entry, ensemble, write_quorum)
            ]
            answer = schedule.expected(TOP - 30, TOP, bookie, ensemble, write_quorum)

            assert brute == answer.entries().tolist()
            assert (brute[-1] if brute else None) == answer.last_entry


def test_expected_of_a_huge_ledger() -> None:
    """A ledger of 2^62 entries is expected in O(1): one stripe and at most two cut sequences."""
    answer = schedule.expected(0, 2**62 - 1, 1, 3, 2)

    assert [[0, 2**62 - 4, 2, 3], [2**62 - 1, 2**62 - 1, 1, 0]] == answer.groups.tolist()
    assert (2**62 // 3) * 2 + 1 == len(answer)


def test_expected_of_all_bookies() -> None:
    """Together the bookies of an ensemble hold each entry W times."""
    for ensemble in range(1, 8):
        for write_quorum in range(1, ensemble + 1):
            answers = [
                schedule.expected(3, 1002, b, ensemble, write_quorum) for b in range(ensemble)
            ]

            assert 1000 * write_quorum == sum(map(len, answers))


@pytest.mark.parametrize(
    ("first", "last", "bookie", "ensemble", "write_quorum"),
    [
        (0, 5, -1, 3, 2),
        (0, 5, 3, 3, 2),
        (5, 4, 0, 3, 2),
        (-1, 5, 0, 3, 2),
        (0, -1, 0, 3, 2),
        (0, 2**63 - 1, 0, 3, 2),
        (0, 5, 0, 3, 0),
        (0, 5, 0, 3, 4),
        (0, 5, 0, 0, 0),
    ],
)
def test_expected_refuses(
    first: int, last: int, bookie: int, ensemble: int, write_quorum: int
) -> None:
    """Reversed or negative ranges, foreign bookies and impossible quorums are refused."""
    with pytest.raises(InvalidArgument):
        schedule.expected(first, last, bookie, ensemble, write_quorum)


@pytest.mark.parametrize(("ensemble", "write_quorum"), [(3, 0), (3, 4), (0, 1), (-1, 1)])
def test_quorums_are_checked(ensemble: int, write_quorum: int) -> None:
    """The write quorum is 1..E in every question."""
    for ask in (
        lambda: schedule.write_set(0, ensemble, write_quorum),
        lambda: schedule.write_sets([0], ensemble, write_quorum),
        lambda: schedule.bookie_index(0, 0, ensemble, write_quorum),
        lambda: schedule.is_covered([True] * max(ensemble, 0), write_quorum, 1),
    ):
        with pytest.raises(InvalidArgument):
            ask()


@pytest.mark.parametrize("nth", [-1, 2])
def test_write_set_index_is_checked(nth: int) -> None:
    """The place in a write set is 0..W-1."""
    with pytest.raises(InvalidArgument):
        schedule.bookie_index(0, nth, 3, 2)


def test_entry_ids_are_checked() -> None:
    """Entries outside 0..2^63-2 have no write set."""
    for entry in (-1, 2**63 - 1):
        with pytest.raises(InvalidArgument):
            schedule.write_set(entry, 3, 2)
        with pytest.raises(InvalidArgument):
            schedule.has_entry(entry, 0, 3, 2)
        with pytest.raises(InvalidArgument):
            schedule.write_sets([0, entry], 3, 2)


@pytest.mark.parametrize(
    ("entry", "nth", "ensemble", "write_quorum", "expected"),
    [
        (2**31 - 1, 0, 3, 2, 1),  # the last one that fits
        (2**31 - 1, 1, 3, 2, -2),  # -2^31 rem 3
        (2**31, 0, 3, 2, -2),
        (2**32, 0, 3, 2, 0),  # the cast leaves 0; (2^32 mod 3) would be 1
        (2**32 + 5, 1, 4, 3, 2),
    ],
)
def test_32_bit_slip(entry: int, nth: int, ensemble: int, write_quorum: int, expected: int) -> None:
    """Under compat the sum is cast to 32 bits before a Java remainder, as the real form does."""
    assert expected == schedule.bookie_index(
        entry, nth, ensemble, write_quorum, compat="bookkeeper"
    )
    assert (entry + nth) % ensemble == schedule.bookie_index(entry, nth, ensemble, write_quorum)


@given(
    QUORUMS.flatmap(
        lambda q: st.tuples(
            st.just(q), st.lists(st.booleans(), min_size=q[0], max_size=q[0]), st.integers(1, q[1])
        )
    )
)
def test_is_covered(case: tuple[tuple[int, int], list[bool], int]) -> None:
    """Covered: every write set that can occur has fewer than A bookies without an answer."""
    (ensemble, write_quorum), answered, ack_quorum = case
    silent = [
        sum(not answered[b] for b in holders(entry, ensemble, write_quorum))
        for entry in range(ensemble)
    ]

    assert (max(silent) < ack_quorum) == schedule.is_covered(answered, write_quorum, ack_quorum)


@pytest.mark.parametrize("compat", ["java", "BookKeeper", ""])
def test_unknown_compat(compat: str) -> None:
    """Only "bookkeeper" is a known variant."""
    with pytest.raises(InvalidArgument):
        schedule.bookie_index(0, 0, 3, 2, compat=compat)  # type: ignore[arg-type]
