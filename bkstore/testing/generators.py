"""Entry ids in the shapes that real ledgers have, made from a seed.

What this is: int64 arrays for tests, the demo and the tools, the same for the same arguments.
What it is not: entries with bytes, or a schedule; `bkstore.schedule` answers questions, this
module derives its stripes on its own, so that the two can be held against each other.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bkstore.ids import Int64Array

_FIRST_POSITION = 1028  # 1024 bytes of log header, 4 of the first entry's length prefix


def contiguous(count: int, first: int = 0) -> Int64Array:
    """Return `count` consecutive ids from `first` on: a ledger whose every bookie has all.

    >>> contiguous(3, first=5).tolist()
    [5, 6, 7]
    """
    return np.arange(first, first + count, dtype=np.int64)


def striped(
    last: int, bookie_index: int, ensemble_size: int, write_quorum: int, first: int = 0
) -> Int64Array:
    """Return the ids of first..last that one bookie of a striped ledger holds. O(last - first).

    Bookie b holds entry e if b is one of e, e+1, ... e+W-1 modulo E.

    >>> striped(8, 0, 3, 2).tolist()
    [0, 2, 3, 5, 6, 8]
    """
    ids = np.arange(first, last + 1, dtype=np.int64)
    return ids[(bookie_index - ids) % ensemble_size < write_quorum]


def with_holes(entries: Int64Array, rate: float = 0.01, seed: int = 0) -> Int64Array:
    """Return `entries` without a share of `rate` of them, chosen one by one. O(n).

    >>> len(with_holes(contiguous(1000), rate=0.1, seed=1)) < 1000
    True
    """
    keep: Int64Array = entries[np.random.default_rng(seed).random(entries.size) >= rate]
    return keep


def late_and_duplicate(
    entries: Int64Array, late: float = 0.05, duplicate: float = 0.05, seed: int = 0
) -> Int64Array:
    """Return `entries` as they may arrive: some later than their neighbours, some twice.

    The set is the same; a share of `late` moves up to 64 places back, a share of `duplicate`
    comes a second time within 64 places. O(n log n).

    >>> sorted(set(late_and_duplicate(contiguous(100), seed=3).tolist())) == list(range(100))
    True
    """
    rng = np.random.default_rng(seed)
    again = entries[rng.random(entries.size) < duplicate]
    place = np.arange(entries.size, dtype=np.int64)
    moved = rng.random(entries.size) < late
    place = place + moved * rng.integers(1, 65, entries.size)
    second = np.searchsorted(entries, again) + rng.integers(1, 65, again.size)
    order = np.argsort(np.concatenate((place, second)), kind="stable")
    return np.concatenate((entries, again))[order]


def sparse(count: int, span: int, seed: int = 0) -> Int64Array:
    """Return up to `count` distinct ids spread over 0..span-1, ascending. O(n log n).

    >>> bool((np.diff(sparse(50, 10**6)) > 0).all())
    True
    """
    return np.unique(np.random.default_rng(seed).integers(0, span, count, dtype=np.int64))


def _holed_stripe(count: int, seed: int) -> Int64Array:
    return with_holes(_stripe(count, seed), 0.01, seed)


def _stripe(count: int, seed: int) -> Int64Array:
    return striped((count * 3 + 1) // 2 - 1, seed % 3, 3, 2)[:count]


SHAPES: dict[str, Callable[[int, int], Int64Array]] = {
    "contiguous": lambda count, _: contiguous(count),
    "striped": _stripe,
    "holes": lambda count, seed: with_holes(contiguous(count), 0.01, seed),
    "striped_holes": _holed_stripe,
    "late": lambda count, seed: late_and_duplicate(contiguous(count), seed=seed),
    "sparse": lambda count, seed: sparse(count, 16 * count, seed),
}
"""Every shape by name: a function of about how many ids, and the seed."""


def shaped(shape: str, count: int, seed: int = 0) -> Int64Array:
    """Return about `count` ids of a shape named in `SHAPES`; `KeyError` for another name.

    >>> shaped("striped", 6).tolist()
    [0, 2, 3, 5, 6, 8]
    """
    return SHAPES[shape](count, seed)


def locations(count: int, seed: int = 0, log_id: int = 0, log_bytes: int = 1 << 30) -> Int64Array:
    """Return `count` ascending locations, as if entries of 60..499 bytes were appended to logs.

    Logs begin with `log_id` and roll once they hold `log_bytes`. O(n).

    >>> locations(1).tolist(), locations(1, log_id=2).tolist() == [2 << 32 | 1028]
    ([1028], True)
    """
    sizes = np.random.default_rng(seed).integers(60, 500, count, dtype=np.int64) + 4
    start = np.cumsum(sizes) - sizes
    log = start // log_bytes
    opens = np.searchsorted(log, log)  # the first row of the same log
    made: Int64Array = (log + log_id) << 32 | (start - start[opens] + _FIRST_POSITION)
    return made
