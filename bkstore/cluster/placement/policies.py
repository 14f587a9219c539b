"""Placement policies: which ensembles are good, and which bookies to take for one.

A policy judges an ensemble (`MEETS_STRICT`, `MEETS_SOFT`, `FAIL`) and chooses bookies for a new
ensemble or for a replacement. `DefaultPlacement` takes any; `RackPlacement` spreads each write
set over racks, `RegionPlacement` over regions, then over racks inside them. Upstream:
`client/EnsemblePlacementPolicy` and `DefaultEnsemblePlacementPolicy`,
`RackawareEnsemblePlacementPolicy`, `RegionAwareEnsemblePlacementPolicy` (whose built form does
not judge; the soft verdict is taken from `ZoneawareEnsemblePlacementPolicy`).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Protocol, runtime_checkable

from bkstore.arguments import instance, truth, whole
from bkstore.errors import InvalidArgument, NotEnoughBookies

DEFAULT_RACK = "/default-rack"
"""Where a bookie is whose place nobody knows (`NetworkTopology.DEFAULT_RACK`)."""

DEFAULT_REGION = "/default-region"
"""The region of such a bookie (`NetworkTopology.DEFAULT_REGION`)."""


class Adherence(IntEnum):
    """How an ensemble keeps to a policy; the lowest of several is the worst."""

    FAIL = 1
    MEETS_SOFT = 3
    MEETS_STRICT = 5


@runtime_checkable
class PlacementPolicy(Protocol):
    """Judges ensembles and chooses bookies. Safe between threads."""

    def judge(
        self, ensemble: Sequence[str], write_quorum: int, ack_quorum: int
    ) -> tuple[Adherence, str]:
        """Return the verdict and, unless it is strict, the reason in words."""
        ...

    def new_ensemble(
        self, ensemble_size: int, write_quorum: int, ack_quorum: int, bookies: Collection[str]
    ) -> tuple[str, ...]:
        """Return an ensemble of distinct `bookies`; `NotEnoughBookies` if there is none."""
        ...

    def replace(
        self,
        ensemble: Sequence[str],
        failed: Collection[int],
        write_quorum: int,
        ack_quorum: int,
        bookies: Collection[str],
    ) -> tuple[str, ...]:
        """Return the ensemble with other `bookies` at the `failed` indexes; the rest stays."""
        ...


class DefaultPlacement:
    """Any distinct bookies will do, in random order: always strict.

    `seed` makes the choices repeatable.

    >>> DefaultPlacement(seed=1).judge(["b1", "b2"], 2, 2)[0].name
    'MEETS_STRICT'
    """

    def __init__(self, *, seed: int | None = None) -> None:
        """Take the seed of the choices."""
        self._random = random.Random(seed)  # noqa: S311  (no secret: a choice of bookies)

    def judge(
        self, ensemble: Sequence[str], write_quorum: int, ack_quorum: int
    ) -> tuple[Adherence, str]:
        """Return `MEETS_STRICT`: the policy asks for nothing."""
        return Adherence.MEETS_STRICT, ""

    def new_ensemble(
        self, ensemble_size: int, write_quorum: int, ack_quorum: int, bookies: Collection[str]
    ) -> tuple[str, ...]:
        """Return random distinct bookies. Best of many orders where the policy has wishes."""
        check_sizes(ensemble_size, write_quorum, ack_quorum)
        return self._best([""] * ensemble_size, range(ensemble_size), write_quorum, bookies)

    def replace(
        self,
        ensemble: Sequence[str],
        failed: Collection[int],
        write_quorum: int,
        ack_quorum: int,
        bookies: Collection[str],
    ) -> tuple[str, ...]:
        """Return the ensemble with bookies at the `failed` indexes that it did not have."""
        free = sorted(set(bookies) - set(ensemble))
        return self._best(list(ensemble), sorted(failed), write_quorum, free)

    def _best(
        self, ensemble: list[str], gaps: Iterable[int], write_quorum: int, bookies: Collection[str]
    ) -> tuple[str, ...]:
        """Fill the gaps one by one, each with a bookie that the rest likes best.

        A greedy choice can end in a corner, so some orders are tried and the best one kept.
        """
        places, free = list(gaps), sorted(bookies)
        if len(free) < len(places):
            raise NotEnoughBookies(f"{len(places)} more bookies are needed, {len(free)} can be had")
        best, verdict = ensemble, Adherence.FAIL
        for _ in range(self._tries(len(free))):
            made = self._filled(list(ensemble), places, write_quorum, list(free))
            judged = self.judge(made, write_quorum, 1)[0]
            if best is ensemble or judged > verdict:
                best, verdict = made, judged
            if verdict == Adherence.MEETS_STRICT:
                break
        self._refuse(verdict, best, write_quorum)
        return tuple(best)

    def _filled(
        self, ensemble: list[str], gaps: list[int], write_quorum: int, free: list[str]
    ) -> list[str]:
        for at in gaps:
            ensemble[at] = ""
        self._random.shuffle(free)
        for at in gaps:
            near = _neighbours(ensemble, at, write_quorum)
            ensemble[at] = min(free, key=lambda bookie: self._crowding(bookie, near))
            free.remove(ensemble[at])
        return ensemble

    def _tries(self, choices: int) -> int:
        return 1

    def _crowding(self, bookie: str, near: Collection[str]) -> int:
        """Return how little a bookie is wanted beside those that share write sets with it."""
        return 0

    def _refuse(self, verdict: Adherence, ensemble: Sequence[str], write_quorum: int) -> None:
        """Raise `NotEnoughBookies` where the policy would rather have no ensemble."""


class RackPlacement(DefaultPlacement):
    """Each write set is on at least `min_racks` racks (W, if that is less).

    `racks` tells each bookie's rack, a path such as ``/rack-1``. A bookie that it does not name
    counts for no rack when it is judged, as upstream's unknown bookie does; one in
    `DEFAULT_RACK` fails with `enforce`, which also makes `new_ensemble` and `replace` raise
    `NotEnoughBookies` where no good choice is found. With `desired_racks` above `min_racks`,
    an ensemble with fewer meets the policy softly only.

    >>> policy = RackPlacement({"b1": "/r1", "b2": "/r1", "b3": "/r2"})
    >>> policy.judge(["b1", "b2", "b3"], 2, 2)
    (<Adherence.FAIL: 1>, 'b1 b2: 1 of 2 racks')
    >>> policy.judge(["b1", "b3"], 2, 2)[0].name
    'MEETS_STRICT'
    """

    def __init__(
        self,
        racks: Mapping[str, str],
        *,
        min_racks: int = 2,
        desired_racks: int | None = None,
        enforce: bool = False,
        seed: int | None = None,
    ) -> None:
        """Take the racks; `InvalidArgument` for numbers below 1 or in the wrong order."""
        super().__init__(seed=seed)
        self._places = _checked_places(racks)
        self._min, self._desired = _checked_spread(min_racks, desired_racks, "racks")
        self._enforce = truth("enforce", enforce)

    def judge(
        self, ensemble: Sequence[str], write_quorum: int, ack_quorum: int
    ) -> tuple[Adherence, str]:
        """Return the worst verdict of all write sets (`isEnsembleAdheringToPlacementPolicy`)."""
        worst = (Adherence.MEETS_STRICT, "")
        for group in _write_sets(ensemble, write_quorum):
            places = [self._places[bookie] for bookie in group if bookie in self._places]
            worst = min(worst, self._verdict(group, places), key=lambda found: found[0])
        return worst

    def _verdict(self, group: Sequence[str], places: Sequence[str]) -> tuple[Adherence, str]:
        """Judge the bookies of one write set, of which those that are known lie at `places`."""
        if self._enforce and DEFAULT_RACK in places:
            return Adherence.FAIL, f"{' '.join(group)}: one is in {DEFAULT_RACK}"
        return _spread(group, len(set(places)), self._min, self._desired, "racks")

    def _tries(self, choices: int) -> int:
        return 20

    def _crowding(self, bookie: str, near: Collection[str]) -> int:
        rack = self._places.get(bookie, DEFAULT_RACK)
        return sum(rack == self._places.get(other, DEFAULT_RACK) for other in near)

    def _refuse(self, verdict: Adherence, ensemble: Sequence[str], write_quorum: int) -> None:
        if self._enforce and verdict == Adherence.FAIL:
            raise NotEnoughBookies(
                f"no ensemble keeps to the policy: {self.judge(ensemble, write_quorum, 1)[1]}"
            )


class RegionPlacement(RackPlacement):
    """Each write set is in at least `min_regions` regions, if it can in `desired_regions`.

    `places` tells each bookie's region and rack, ``/region/rack``. Fewer regions than
    `min_regions` (or W) fail; fewer than `desired_regions` (default: all that `places` names),
    or two bookies of a write set on one rack, meet the policy softly.
    Source of the minimum: `reppMinimumRegionsForDurability`.

    >>> policy = RegionPlacement({"b1": "/eu/r1", "b2": "/eu/r2", "b3": "/us/r1"})
    >>> [policy.judge(pair, 2, 2)[0].name for pair in (["b1", "b2"], ["b1", "b3"])]
    ['FAIL', 'MEETS_STRICT']
    """

    def __init__(
        self,
        places: Mapping[str, str],
        *,
        min_regions: int = 2,
        desired_regions: int | None = None,
        enforce: bool = False,
        seed: int | None = None,
    ) -> None:
        """Take the places; `InvalidArgument` for one that is no ``/region/rack``."""
        super().__init__(places, enforce=enforce, seed=seed)
        for bookie, place in self._places.items():
            if place.count("/") < 2:
                raise InvalidArgument(f"{bookie} is at {place!r}, which is no /region/rack")
        known = {_region(place) for place in self._places.values()}
        min_regions = whole(1)("min_regions", min_regions)
        desired = max(min_regions, len(known)) if desired_regions is None else desired_regions
        self._min, self._desired = _checked_spread(min_regions, desired, "regions")

    def _verdict(self, group: Sequence[str], places: Sequence[str]) -> tuple[Adherence, str]:
        regions = {_region(place) for place in places}
        if self._enforce and DEFAULT_REGION in regions:
            return Adherence.FAIL, f"{' '.join(group)}: one is in {DEFAULT_REGION}"
        verdict = _spread(group, len(regions), self._min, self._desired, "regions")
        if verdict[0] == Adherence.MEETS_STRICT and len(set(places)) < len(places):
            return Adherence.MEETS_SOFT, f"{' '.join(group)}: two are on one rack"
        return verdict

    def _crowding(self, bookie: str, near: Collection[str]) -> int:
        unknown = DEFAULT_REGION + DEFAULT_RACK
        place = self._places.get(bookie, unknown)
        others = [self._places.get(other, unknown) for other in near]
        same_region = sum(_region(place) == _region(other) for other in others)
        return same_region * (len(others) + 1) + sum(place == other for other in others)


def _checked_places(places: Mapping[str, str]) -> dict[str, str]:
    for bookie, place in instance(Mapping)("places", places).items():
        if not isinstance(place, str) or not place.startswith("/") or "" in place.split("/")[1:]:
            raise InvalidArgument(f"{bookie} is at {place!r}, which is no path such as /rack-1")
    return dict(places)


def check_sizes(ensemble_size: int, write_quorum: int, ack_quorum: int) -> None:
    """Raise `InvalidArgument` unless ensemble >= write quorum >= ack quorum >= 1, i32 all."""
    for name, value in (
        ("ensemble_size", ensemble_size),
        ("write_quorum", write_quorum),
        ("ack_quorum", ack_quorum),
    ):
        whole(1, 2**31 - 1)(name, value)
    if not ack_quorum <= write_quorum <= ensemble_size:
        raise InvalidArgument(
            f"ensemble_size {ensemble_size}, write_quorum {write_quorum}, ack_quorum "
            f"{ack_quorum}: each is at least the one after it"
        )


def _checked_spread(least: int, desired: int | None, what: str) -> tuple[int, int]:
    least = whole(1)(f"min_{what}", least)
    return least, least if desired is None else whole(least)(f"desired_{what}", desired)


def _write_sets(ensemble: Sequence[str], write_quorum: int) -> Iterable[list[str]]:
    """Yield the bookies of each of the E write sets that entries go to."""
    size = len(ensemble)
    for start in range(size):
        yield [ensemble[(start + w) % size] for w in range(min(write_quorum, size))]


def _neighbours(ensemble: Sequence[str], at: int, write_quorum: int) -> list[str]:
    """Return the bookies that share a write set with index `at`, gaps left out."""
    size = len(ensemble)
    reach = range(-write_quorum + 1, write_quorum)
    others = {(at + step) % size for step in reach} - {at}
    return [ensemble[other] for other in others if ensemble[other]]


def _spread(
    group: Sequence[str], found: int, least: int, desired: int, what: str
) -> tuple[Adherence, str]:
    """Return the verdict on a write set that is spread over `found` racks or regions."""
    if found < min(len(group), least):
        return Adherence.FAIL, f"{' '.join(group)}: {found} of {min(len(group), least)} {what}"
    if found < min(len(group), desired):
        return Adherence.MEETS_SOFT, f"{' '.join(group)}: {found} of {desired} {what} desired"
    return Adherence.MEETS_STRICT, ""


def _region(place: str) -> str:
    return "/" + place.split("/")[1]
