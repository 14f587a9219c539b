"""Entry ids in the shapes that real ledgers have, made from a seed.

The functions return int64 arrays for tests, the demo and the tools, the same for the same
arguments. They make no records (see `workloads`). Stripes are computed without `bkstore.schedule`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bkstore.ids import Int64Array

_FIRST_POSITION = 1028  # 1024 bytes of log header, 4 of the first entry's length prefix


def contiguous(count: int, first: int = 0) -> Int64Array:
    """Return `count` consecutive ids from `first` on, as if every bookie stores every entry.

    >>> contiguous(3, first=5).tolist()
    [5, 6, 7]
    """
    return np.arange(first, first + count, dtype=np.int64)


def striped(
    last: int, bookie_index: int, ensemble_size: int, write_quorum: int, first: int = 0
) -> Int64Array:
    """Return the ids of first..last that one bookie of a striped ledger stores. O(last - first).
    Bookie b stores entry e if b is one of e, e+1, ... e+W-1 modulo E.

    >>> striped(8, 0, 3, 2).tolist()
    [0, 2, 3, 5, 6, 8]
    """
    ids = np.arange(first, last + 1, dtype=np.int64)
    return ids[(bookie_index - ids) % ensemble_size < write_quorum]


def with_holes(entries: Int64Array, rate: float = 0.01, seed: int = 0) -> Int64Array:
    """Return `entries`, each left out with probability `rate`. O(n).

    >>> len(with_holes(contiguous(1000), rate=0.1, seed=1)) < 1000
    True
    """
    remaining: Int64Array = entries[np.random.default_rng(seed).random(entries.size) >= rate]
    return remaining


def late_and_duplicate(
    entries: Int64Array, late: float = 0.05, duplicate: float = 0.05, seed: int = 0
) -> Int64Array:
    """Return `entries` in a possible order of arrival: some late, some twice.

    The set is the same; a share of `late` moves up to 64 positions back, a share of `duplicate`
    is repeated within 64 positions. O(n log n).

    >>> sorted(set(late_and_duplicate(contiguous(100), seed=3).tolist())) == list(range(100))
    True
    """
    rng = np.random.default_rng(seed)
    repeated = entries[rng.random(entries.size) < duplicate]
    # Times of arrival: the index of each entry, later by a random delay for some; then sort by it.
    is_late = rng.random(entries.size) < late
    arrival = np.arange(entries.size) + is_late * rng.integers(1, 65, entries.size)
    repeat_arrival = np.searchsorted(entries, repeated) + rng.integers(1, 65, repeated.size)
    order = np.argsort(np.concatenate((arrival, repeat_arrival)), kind="stable")
    return np.concatenate((entries, repeated))[order]


def sparse(count: int, span: int, seed: int = 0) -> Int64Array:
    """Return up to `count` distinct ids spread over 0..span-1, ascending. O(n log n).

    >>> bool((np.diff(sparse(50, 10**6)) > 0).all())
    True
    """
    return np.unique(np.random.default_rng(seed).integers(0, span, count, dtype=np.int64))


def _make_stripe(count: int, seed: int) -> Int64Array:
    return striped((count * 3 + 1) // 2 - 1, seed % 3, 3, 2)[:count]


SHAPES: dict[str, Callable[[int, int], Int64Array]] = {
    "contiguous": lambda count, _: contiguous(count),
    "striped": _make_stripe,
    "holes": lambda count, seed: with_holes(contiguous(count), 0.01, seed),
    "striped_holes": lambda count, seed: with_holes(_make_stripe(count, seed), 0.01, seed),
    "late": lambda count, seed: late_and_duplicate(contiguous(count), seed=seed),
    "sparse": lambda count, seed: sparse(count, 16 * count, seed),
}
"""Functions of the approximate number of ids and the seed, by name of the shape."""


def ids_of_shape(shape: str, count: int, seed: int = 0) -> Int64Array:
    """Return about `count` ids of a shape in `SHAPES`. Raises `KeyError` for another shape.

    >>> ids_of_shape("striped", 6).tolist()
    [0, 2, 3, 5, 6, 8]
    """
    return SHAPES[shape](count, seed)


def locations(count: int, seed: int = 0, log_id: int = 0, log_bytes: int = 1 << 30) -> Int64Array:
    """Return `count` ascending locations, as if entries of 60..499 bytes were appended to logs. The
    first log is `log_id`; a log rolls once it holds `log_bytes`. O(n).

    >>> locations(1).tolist(), locations(1, log_id=2).tolist() == [2 << 32 | 1028]
    ([1028], True)
    """
    sizes = np.random.default_rng(seed).integers(60, 500, count, dtype=np.int64) + 4  # with prefix
    offsets = np.cumsum(sizes) - sizes  # as if all were in one log
    logs = offsets // log_bytes
    first_rows = np.searchsorted(logs, logs)  # for each row, the first one of its log
    positions = offsets - offsets[first_rows] + _FIRST_POSITION
    result: Int64Array = (logs + log_id) << 32 | positions
    return result
