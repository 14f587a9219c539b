"""The choice of the bookies that replace others in an ensemble, by the placement policy."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from itertools import chain, combinations, islice
from typing import Protocol, Self, runtime_checkable

from bkstore.cluster.placement.policies import Adherence, PlacementPolicy
from bkstore.errors import NotEnoughBookies
from bkstore.ids import LedgerId

_MAX_TRIALS = 1000
"""Up to this many sets of bookies to move are tried for one ensemble, the smallest first."""


@runtime_checkable
class _Seedable(Protocol):
    def with_seed(self, seed: int) -> Self: ...


def policy_for(placement: PlacementPolicy, ledger: LedgerId, first_entry: int) -> PlacementPolicy:
    """Return the policy with the random choices of a segment: a repair that was interrupted chooses
    the same bookies again, which have some of the entries by then."""
    if not isinstance(placement, _Seedable):
        return placement
    seed = zlib.crc32(f"{ledger.qualified_name} {first_entry}".encode())
    seeded: PlacementPolicy = placement.with_seed(seed)
    return seeded


def meet_placement(
    placement: PlacementPolicy,
    ensemble: Sequence[str],
    write_quorum: int,
    ack_quorum: int,
    writable: Collection[str],
) -> tuple[str, ...] | None:
    """Return an ensemble that strictly meets the policy and differs from `ensemble` in as few
    bookies as possible, None if none was found. Tries up to 1,000 sets of bookies to replace.

    >>> from bkstore.cluster.placement.policies import RackPlacement
    >>> racks = {"b1": "/r1", "b2": "/r1", "b3": "/r2"}
    >>> sorted(meet_placement(RackPlacement(racks), ["b1", "b2"], 2, 2, racks))[-1]
    'b3'
    """
    indexes = range(len(ensemble))
    subsets = chain.from_iterable(combinations(indexes, size + 1) for size in indexes)
    for replaced in islice(subsets, _MAX_TRIALS):
        try:
            candidate = placement.replace(ensemble, replaced, write_quorum, ack_quorum, writable)
        except NotEnoughBookies:
            continue
        verdict = placement.judge(candidate, write_quorum, ack_quorum)
        if verdict.adherence == Adherence.MEETS_STRICT:
            return candidate
    return None
