"""What a query's filters spare, without Spark: exact ranges of ledgers, worked out by hand.

Ids are signed in a filter and unsigned in an index: of a scope -1 comes behind 2^63-1. In the
tables here a ledger is (scope, ledger), unsigned, and a range goes from the first that is read to
before the second; None is the end of the index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bkstore import LedgerId
from bkstore.offline.dump.plan import DumpPiece
from bkstore.spark.source.filters import Bounds, Interval, passing_intervals

LEAST, MOST = -(2**63), 2**63 - 1
TOP = 2**64 - 1
ALL = [(LEAST, MOST)]
Pair = tuple[int, int]
Range = tuple[Pair, Pair | None]


def rocks_piece(first: Pair = (0, 0), stop: Pair | None = None, place: Pair = (0, 1)) -> DumpPiece:
    """Return a piece of a RocksDB index; `place` is the directory, and of how many it is one."""
    return DumpPiece(
        "b",
        "index",
        0,
        0,
        False,
        False,
        (),
        "rocksdb",
        (Path("x"),),
        *place,
        LedgerId(*first),
        None if stop is None else LedgerId(*stop),
    )


def read(scopes: Iterable[Interval], ledgers: Iterable[Interval], piece: DumpPiece) -> list[Range]:
    """Return the ranges that are read, those that touch joined; no ledger may be read twice."""
    cut = (
        Bounds()
        .with_id_filter("scope_id", scopes)
        .with_id_filter("ledger_id", ledgers)
        .narrow_piece(piece)
    )
    joined: list[Range] = []
    for one in cut:
        stop = None if one.stop_ledger is None else tuple(one.stop_ledger)
        if joined:
            assert joined[-1][1] is not None
            assert joined[-1][1] <= tuple(one.first_ledger)
        if joined and joined[-1][1] == tuple(one.first_ledger):
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((tuple(one.first_ledger), stop))
    return joined


RANGES: dict[str, tuple[list[Interval], list[Interval], list[Range]]] = {
    "scope 0, two ledgers": (
        [(0, 0)],
        [(3, 3), (7, 7)],
        [((0, 3), (0, 4)), ((0, 7), (0, 8))],
    ),
    "scope 0": ([(0, 0)], ALL, [((0, 0), (1, 0))]),
    "scope 0, its last ledger": ([(0, 0)], [(MOST, MOST)], [((0, MOST), (1, 0))]),
    "scope 0 has no ledger below 0": ([(0, 0)], [(LEAST, -1)], []),
    "scope 0, ledgers about 0": ([(0, 0)], [(-5, 5)], [((0, 0), (0, 6))]),
    "scope 3, ledgers about 0": (
        [(3, 3)],
        [(-5, 5)],
        [((3, 0), (3, 6)), ((3, TOP - 4), (4, 0))],
    ),
    "scope 3, ledgers below -4": ([(3, 3)], [(LEAST, -5)], [((3, 2**63), (3, TOP - 3))]),
    "scope 3, the highest signed ledger": ([(3, 3)], [(MOST, MOST)], [((3, MOST), (3, 2**63))]),
    "scope 1, a ledger": ([(1, 1)], [(9, 9)], [((1, 9), (1, 10))]),
    "scopes 0 and 1, a ledger": (
        [(0, 1)],
        [(9, 9)],
        [((0, 9), (0, 10)), ((1, 9), (1, 10))],
    ),
    "scopes 0 to 2, a ledger": (
        [(0, 2)],
        [(9, 9)],
        [((0, 9), (0, 10)), ((1, 0), (3, 0))],
    ),
    "scopes 2 to 4, a ledger": ([(2, 4)], [(9, 9)], [((2, 0), (5, 0))]),
    "scopes above 0": ([(1, MOST)], ALL, [((1, 0), (2**63, 0))]),
    "scopes below 0": ([(LEAST, -1)], ALL, [((2**63, 0), None)]),
    "scopes -4 and -3": ([(-4, -3)], ALL, [((TOP - 3, 0), (TOP - 1, 0))]),
    "scope -2, a ledger": ([(-2, -2)], [(9, 9)], [((TOP - 1, 9), (TOP - 1, 10))]),
    "scope -1": ([(-1, -1)], ALL, [((TOP, 0), None)]),
    "scope -1, ledger -1": ([(-1, -1)], [(-1, -1)], [((TOP, TOP), None)]),
    "scope -1, ledger -2": ([(-1, -1)], [(-2, -2)], [((TOP, TOP - 1), (TOP, TOP))]),
    "scopes -1 and 0, a ledger": (
        [(-1, 0)],
        [(9, 9)],
        [((0, 9), (0, 10)), ((TOP, 9), (TOP, 10))],
    ),
    "scopes -2 to 1, a ledger": (
        [(-2, 1)],
        [(9, 9)],
        [((0, 9), (0, 10)), ((1, 9), (1, 10)), ((TOP - 1, 0), None)],
    ),
    "all scopes but 0, a ledger": ([(LEAST, -1), (1, MOST)], [(9, 9)], [((1, 0), None)]),
    "a ledger": (ALL, [(9, 9)], [((0, 9), (0, 10)), ((1, 0), None)]),
    "ledgers below 0": (ALL, [(LEAST, -1)], [((1, 0), None)]),
    "no scope": ([], ALL, []),
    "no ledger": (ALL, [], []),
    "no ledger of scope 3": ([(3, 3)], [], []),
    "no ledger of scope 0": ([(0, 0)], [], []),
}


@pytest.mark.parametrize("case", RANGES)
def test_ranges_by_hand(case: str) -> None:
    """Of single scopes only the ledgers that are wanted are read, of a run of scopes all."""
    scopes, ledgers, expected = RANGES[case]

    assert expected == read(scopes, ledgers, rocks_piece())


def test_as_many_ranges_as_are_looked_up() -> None:
    """Sixteen ranges are read one by one; of more the stretch from the first to the last is."""
    some = [(10 * n, 10 * n) for n in range(1, 18)]

    assert [((0, 10 * n), (0, 10 * n + 1)) for n in range(1, 17)] == read(
        [(0, 0)], some[:16], rocks_piece()
    )
    assert [((0, 10), (0, 171))] == read([(0, 0)], some, rocks_piece())
    assert [((TOP, 10), None)] == read([(-1, -1)], [(-1, -1), *some], rocks_piece())


@pytest.mark.parametrize(
    ("scopes", "ledgers", "expected"),
    [
        ([(0, 0)], [(1, 9)], [((0, 5), (0, 10))]),
        ([(0, 0)], [(4, 4)], []),
        ([(0, 0)], [(5, 5)], [((0, 5), (0, 6))]),
        ([(3, 3)], ALL, [((3, 0), (3, 7))]),
        ([(3, 3)], [(6, 8)], [((3, 6), (3, 7))]),
        ([(3, 3)], [(7, 7)], []),
        ([(-9, -1)], ALL, []),
        ([(0, MOST)], [(6, 6)], [((0, 6), (0, 7)), ((1, 0), (3, 7))]),
    ],
)
def test_a_piece_stays_within_its_own_ends(
    scopes: list[Interval], ledgers: list[Interval], expected: list[Range]
) -> None:
    """Of a piece from ledger 5 of scope 0 to before ledger 7 of scope 3 no other ledger is read."""
    assert expected == read(scopes, ledgers, rocks_piece((0, 5), (3, 7)))


@pytest.mark.parametrize(
    ("scope", "ledgers", "even", "odd"),
    [
        (0, (4, 4), [((0, 4), (0, 5))], []),
        (0, (5, 5), [], [((0, 5), (0, 6))]),
        (0, (4, 5), [((0, 4), (0, 6))], [((0, 4), (0, 6))]),
        (0, (MOST, MOST), [], [((0, MOST), (1, 0))]),
        (1, (MOST, MOST), [], [((1, MOST), (1, 2**63))]),
        (1, (LEAST, LEAST), [((1, 2**63), (1, 2**63 + 1))], []),
        (1, (-1, -1), [], [((1, TOP), (2, 0))]),
        (-1, (-1, -1), [], [((TOP, TOP), None)]),
    ],
)
def test_a_ledger_of_another_directory(
    scope: int, ledgers: Interval, even: list[Range], odd: list[Range]
) -> None:
    """A single ledger is read in the directory of its unsigned id only, a run of them in all."""
    for at, expected in enumerate((even, odd)):
        assert expected == read([(scope, scope)], [ledgers], rocks_piece(place=(at, 2)))


def test_index_files_are_chosen_one_by_one() -> None:
    """Of index files just those of wanted ledgers are read, and a piece without one is left out;
    entry logs are all read."""
    names = [LedgerId(0, 1), LedgerId(0, 7), LedgerId(3, 7), LedgerId(3, 2**64 - 7)]
    files = tuple((name, f"{name}.idx") for name in names)
    piece = DumpPiece("b", "index", 0, 0, False, False, (), "idx", (Path("x"),), files=files)

    def kept(scopes: list[Interval], ledgers: list[Interval], piece: DumpPiece) -> list[Any]:
        bounds = Bounds().with_id_filter("scope_id", scopes).with_id_filter("ledger_id", ledgers)
        return [name for one in bounds.narrow_piece(piece) for name, _ in one.files]

    assert names[1:3] == kept(ALL, [(7, 7)], piece)
    assert [names[3]] == kept(ALL, [(-7, -7)], piece)
    assert names[2:] == kept([(3, 3)], ALL, piece)
    assert [] == kept([(-3, -3)], ALL, piece)
    assert [] == Bounds().with_id_filter("scope_id", [(9, 9)]).narrow_piece(piece)
    logs = DumpPiece("b", "logs", 0, 0, False, False, ())
    assert [logs] == Bounds().with_id_filter("scope_id", [(9, 9)]).narrow_piece(logs)
    assert [piece] == Bounds().narrow_piece(piece)


def test_bounds_against_plain_python() -> None:
    """Any mix of comparisons keeps just the ledgers that plain Python keeps; ranges cover them."""
    rng = np.random.default_rng(7)
    edge = [-(2**63), -(2**63) + 1, -2, -1, 0, 1, 2, 5, 2**63 - 2, 2**63 - 1]
    compare: dict[str, Callable[[int, Any], bool]] = {
        "EqualTo": lambda a, b: a == b,
        "LessThan": lambda a, b: a < b,
        "LessThanOrEqual": lambda a, b: a <= b,
        "GreaterThan": lambda a, b: a > b,
        "GreaterThanOrEqual": lambda a, b: a >= b,
        "In": lambda a, b: a in b,
    }
    ids = np.array([(s, n) for s in edge for n in edge if s != 0 or n >= 0], np.int64)
    for _ in range(300):
        bounds, keep = Bounds(), np.ones(len(ids), bool)
        for _ in range(int(rng.integers(1, 4))):
            at = int(rng.integers(2))
            kind = str(rng.choice(list(compare)))
            value: Any = edge[int(rng.integers(len(edge)))]
            if kind == "In":
                value = tuple(edge[int(n)] for n in rng.integers(len(edge), size=3))
            wanted = passing_intervals(kind, value)
            assert wanted is not None
            bounds = bounds.with_id_filter(("scope_id", "ledger_id")[at], wanted)
            keep &= np.array([compare[kind](int(row[at]), value) for row in ids])
        piece = DumpPiece("b", "index", 0, 0, False, False, (), "rocksdb", (Path("x"),))
        cut = bounds.narrow_piece(piece)
        held = [any(p.has_ledger(LedgerId.from_signed(*map(int, row))) for p in cut) for row in ids]

        assert keep.tolist() == bounds.mask(ids[:, 0], ids[:, 1]).tolist()
        assert not (keep & ~np.array(held)).any()
