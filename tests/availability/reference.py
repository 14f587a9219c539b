"""What BP-34's text says of a set of ids: a sequential reference in plain Python, and its ids.

Written from sections 5.1 and 5.2 of the storage notes; strategies for ids as ledgers have them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np
from hypothesis import strategies as st

from bkstore.availability import Availability

INT32_MAX = 2**31 - 1
TOP = 2**63 - 2

Row = tuple[int, int, int, int]


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
