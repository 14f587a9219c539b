"""Placement policies: judge ensembles, and choose bookies for new ones and for replacements.

`DefaultPlacement` accepts any; `RackPlacement` spreads each write set over racks, `RegionPlacement`
over regions, then racks. In BookKeeper: `client/EnsemblePlacementPolicy`; `Default...`,
`Rackaware...` and `RegionAwareEnsemblePlacementPolicy`, which does not implement judging; the soft
verdict is from `ZoneawareEnsemblePlacementPolicy`.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol, Self, runtime_checkable

from bkstore.arguments import boolean, instance, integer
from bkstore.errors import InvalidArgument, NotEnoughBookies

DEFAULT_RACK = "/default-rack"
"""The rack of a bookie whose location is unknown (`NetworkTopology.DEFAULT_RACK`)."""

DEFAULT_REGION = "/default-region"
"""The region of such a bookie (`NetworkTopology.DEFAULT_REGION`)."""


class Adherence(IntEnum):
    """How well an ensemble meets a policy; the lowest value is the worst."""

    FAIL = 1
    MEETS_SOFT = 3
    MEETS_STRICT = 5


class PlacementVerdict(NamedTuple):
    """How well an ensemble meets a policy and, unless strictly, the reason in words."""

    adherence: Adherence
    reason: str = ""


@runtime_checkable
class PlacementPolicy(Protocol):
    """Judges ensembles and chooses bookies. Thread-safe."""

    def judge(
        self, ensemble: Sequence[str], write_quorum: int, ack_quorum: int
    ) -> PlacementVerdict:
        """Return the verdict on an ensemble."""

    def new_ensemble(
        self, ensemble_size: int, write_quorum: int, ack_quorum: int, bookies: Collection[str]
    ) -> tuple[str, ...]:
        """Return an ensemble of distinct `bookies`; raises `NotEnoughBookies` if there is none."""

    def replace(
        self,
        ensemble: Sequence[str],
        failed: Collection[int],
        write_quorum: int,
        ack_quorum: int,
        bookies: Collection[str],
    ) -> tuple[str, ...]:
        """Return the ensemble with other `bookies` at the `failed` indexes."""


class DefaultPlacement:
    """Accepts any distinct bookies, in random order, which `seed` makes repeatable.

    >>> DefaultPlacement(seed=1).judge(["b1", "b2"], 2, 2).adherence.name
    'MEETS_STRICT'
    """

    def __init__(self, *, seed: int | None = None) -> None:
        self._random = random.Random(seed)  # noqa: S311  (no secret: a choice of bookies)

    def with_seed(self, seed: int) -> Self:
        """Return a copy of this policy that makes the random choices of `seed`."""
        seeded = copy.copy(self)
        seeded._random = random.Random(seed)  # noqa: S311  (no secret)
        return seeded

    def judge(
        self, ensemble: Sequence[str], write_quorum: int, ack_quorum: int
    ) -> PlacementVerdict:
        """Return `MEETS_STRICT`: this policy has no requirements."""
        return PlacementVerdict(Adherence.MEETS_STRICT)

    def new_ensemble(
        self, ensemble_size: int, write_quorum: int, ack_quorum: int, bookies: Collection[str]
    ) -> tuple[str, ...]:
        """Return random distinct bookies; subclasses try several orders and return the best one."""
        check_quorum_sizes(ensemble_size, write_quorum, ack_quorum)
        return self._choose_best([""] * ensemble_size, range(ensemble_size), write_quorum, bookies)

    def replace(
        self,
        ensemble: Sequence[str],
        failed: Collection[int],
        write_quorum: int,
        ack_quorum: int,
        bookies: Collection[str],
    ) -> tuple[str, ...]:
        """Return the ensemble with bookies that it did not have at the `failed` indexes."""
        available = sorted(set(bookies) - set(ensemble))
        return self._choose_best(list(ensemble), sorted(failed), write_quorum, available)

    def _choose_best(
        self, ensemble: list[str], gaps: Iterable[int], write_quorum: int, bookies: Collection[str]
    ) -> tuple[str, ...]:
        """Return the ensemble with other `bookies` at the indexes `gaps`: of several candidates
        made in random orders, the one that best adheres to the policy. Raises `NotEnoughBookies`
        if there are too few bookies, or the policy refuses even the best."""
        indexes, available = list(gaps), sorted(bookies)
        if len(available) < len(indexes):
            message = f"{len(indexes)} more bookies are needed, {len(available)} are available"
            raise NotEnoughBookies(message)
        best, best_adherence = ensemble, Adherence.FAIL  # no candidate yet
        for _ in range(self._attempt_count(len(available))):
            candidate = self._fill_gaps(list(ensemble), indexes, write_quorum, list(available))
            adherence = self.judge(candidate, write_quorum, 1).adherence  # A has no influence
            if best is ensemble or adherence > best_adherence:
                best, best_adherence = candidate, adherence
            if best_adherence == Adherence.MEETS_STRICT:
                break
        self._check_adherence(best_adherence, best, write_quorum)
        return tuple(best)

    def _fill_gaps(
        self, ensemble: list[str], gaps: list[int], write_quorum: int, free: list[str]
    ) -> list[str]:
        """Fill the gaps of `ensemble` once, in place, with bookies taken from `free`: at each, the
        one that fits best beside those chosen already, the first of equals in random order."""
        for index in gaps:
            ensemble[index] = ""  # not chosen yet
        self._random.shuffle(free)
        for index in gaps:
            neighbors = _write_set_neighbors(ensemble, index, write_quorum)
            ensemble[index] = min(free, key=lambda bookie: self._crowding(bookie, neighbors))
            free.remove(ensemble[index])
        return ensemble

    def _attempt_count(self, choices: int) -> int:
        return 1

    def _crowding(self, bookie: str, neighbors: Collection[str]) -> int:
        """Return a cost: how badly a bookie fits those that would share write sets with it."""
        return 0

    def _check_adherence(
        self, adherence: Adherence, ensemble: Sequence[str], write_quorum: int
    ) -> None:
        """Raise `NotEnoughBookies` if the policy accepts no ensemble with this adherence."""


class RackPlacement(DefaultPlacement):
    """Each write set is on at least `min_racks` racks (W, if that is less).

    `racks` maps bookies to racks, paths such as ``/rack-1``. When an ensemble is judged, a bookie
    without a rack counts for none, as in BookKeeper. With `enforce` a bookie in `DEFAULT_RACK`
    fails, and `new_ensemble` and `replace` raise `NotEnoughBookies` if they find no good choice.
    From `min_racks` to below `desired_racks` an ensemble meets the policy only softly.

    >>> policy = RackPlacement({"b1": "/r1", "b2": "/r1", "b3": "/r2"})
    >>> policy.judge(["b1", "b2", "b3"], 2, 2)
    PlacementVerdict(adherence=<Adherence.FAIL: 1>, reason='b1 b2: 1 of 2 racks')
    >>> policy.judge(["b1", "b3"], 2, 2).adherence.name
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
        """Take the racks; raises `InvalidArgument` unless 1 <= `min_racks` <= `desired_racks`."""
        super().__init__(seed=seed)
        self._locations = _check_locations(racks)
        self._min_count, self._desired_count = _check_spread(min_racks, desired_racks, "racks")
        self._enforce = boolean("enforce", enforce)

    def judge(
        self, ensemble: Sequence[str], write_quorum: int, ack_quorum: int
    ) -> PlacementVerdict:
        """Return the worst verdict of all write sets (`isEnsembleAdheringToPlacementPolicy`)."""
        worst = PlacementVerdict(Adherence.MEETS_STRICT)
        for write_set in _list_write_sets(ensemble, write_quorum):
            verdict = self._judge_write_set(write_set)
            if verdict.adherence < worst.adherence:
                worst = verdict
        return worst

    def _judge_write_set(self, write_set: Sequence[str]) -> PlacementVerdict:
        """Judge the bookies of one write set by their racks."""
        racks = self._known_locations(write_set)
        if self._enforce and DEFAULT_RACK in racks:
            bookies = " ".join(write_set)
            return PlacementVerdict(Adherence.FAIL, f"{bookies}: a bookie is in {DEFAULT_RACK}")
        return self._judge_spread(write_set, len(set(racks)), "racks")

    def _known_locations(self, bookies: Sequence[str]) -> list[str]:
        """Return the locations of those bookies that have one: racks, or regions with racks."""
        return [self._locations[bookie] for bookie in bookies if bookie in self._locations]

    def _judge_spread(self, write_set: Sequence[str], count: int, unit: str) -> PlacementVerdict:
        """Judge a write set that is spread over `count` racks or regions."""
        bookies, required = " ".join(write_set), min(len(write_set), self._min_count)
        if count < required:
            return PlacementVerdict(Adherence.FAIL, f"{bookies}: {count} of {required} {unit}")
        desired = self._desired_count
        if count < min(len(write_set), desired):
            reason = f"{bookies}: {count} of {desired} {unit} desired"
            return PlacementVerdict(Adherence.MEETS_SOFT, reason)
        return PlacementVerdict(Adherence.MEETS_STRICT)

    def _attempt_count(self, choices: int) -> int:
        return 20

    def _crowding(self, bookie: str, neighbors: Collection[str]) -> int:
        rack = self._locations.get(bookie, DEFAULT_RACK)
        return sum(rack == self._locations.get(neighbor, DEFAULT_RACK) for neighbor in neighbors)

    def _check_adherence(
        self, adherence: Adherence, ensemble: Sequence[str], write_quorum: int
    ) -> None:
        if self._enforce and adherence == Adherence.FAIL:
            reason = self.judge(ensemble, write_quorum, 1).reason
            raise NotEnoughBookies(f"no ensemble meets the policy: {reason}")


class RegionPlacement(RackPlacement):
    """Each write set is in at least `min_regions` regions, if possible in `desired_regions`.

    `locations` maps bookies to locations, ``/region/rack``. Fewer regions than `min_regions` (or W)
    fail (`reppMinimumRegionsForDurability`); with fewer than `desired_regions` (default: all in
    `locations`), or two bookies of a write set on one rack, an ensemble meets the policy only
    softly.

    >>> policy = RegionPlacement({"b1": "/eu/r1", "b2": "/eu/r2", "b3": "/us/r1"})
    >>> [policy.judge(pair, 2, 2).adherence.name for pair in (["b1", "b2"], ["b1", "b3"])]
    ['FAIL', 'MEETS_STRICT']
    """

    def __init__(
        self,
        locations: Mapping[str, str],
        *,
        min_regions: int = 2,
        desired_regions: int | None = None,
        enforce: bool = False,
        seed: int | None = None,
    ) -> None:
        """Take the locations; raises `InvalidArgument` if one is no ``/region/rack``."""
        super().__init__(locations, enforce=enforce, seed=seed)
        for bookie, location in self._locations.items():
            if location.count("/") < 2:
                raise InvalidArgument(f"{bookie} is at {location!r}, which is not /region/rack")
        regions = {_region_of(location) for location in self._locations.values()}
        min_regions = integer(1)("min_regions", min_regions)
        desired = max(min_regions, len(regions)) if desired_regions is None else desired_regions
        # For `_judge_spread`, in place of the counts of racks.
        self._min_count, self._desired_count = _check_spread(min_regions, desired, "regions")

    def _judge_write_set(self, write_set: Sequence[str]) -> PlacementVerdict:
        """Judge the bookies of one write set by their regions, then by their racks."""
        locations = self._known_locations(write_set)
        regions = {_region_of(location) for location in locations}
        bookies = " ".join(write_set)
        if self._enforce and DEFAULT_REGION in regions:
            return PlacementVerdict(Adherence.FAIL, f"{bookies}: a bookie is in {DEFAULT_REGION}")
        verdict = self._judge_spread(write_set, len(regions), "regions")
        has_shared_rack = len(set(locations)) < len(locations)
        if verdict.adherence == Adherence.MEETS_STRICT and has_shared_rack:
            return PlacementVerdict(Adherence.MEETS_SOFT, f"{bookies}: two bookies are on one rack")
        return verdict

    def _crowding(self, bookie: str, neighbors: Collection[str]) -> int:
        """Return a cost by which bookies are compared first by their number of neighbors in the
        same region, then by those at the same location (rack)."""
        unknown_location = DEFAULT_REGION + DEFAULT_RACK
        location = self._locations.get(bookie, unknown_location)
        nearby = [self._locations.get(neighbor, unknown_location) for neighbor in neighbors]
        same_region = sum(_region_of(location) == _region_of(neighbor) for neighbor in nearby)
        return same_region * (len(nearby) + 1) + sum(location == neighbor for neighbor in nearby)


def _check_locations(locations: Mapping[str, str]) -> dict[str, str]:
    """Raise `InvalidArgument` for a location that is not an absolute path without empty parts."""
    for bookie, path in instance(Mapping)("locations", locations).items():
        if not isinstance(path, str) or not path.startswith("/") or "" in path.split("/")[1:]:
            raise InvalidArgument(f"{bookie} is at {path!r}, which is not a path like /rack-1")
    return dict(locations)


def check_quorum_sizes(ensemble_size: int, write_quorum: int, ack_quorum: int) -> None:
    """Raise `InvalidArgument` unless E >= W >= A >= 1, and all are 32-bit numbers."""
    sizes = {"ensemble_size": ensemble_size, "write_quorum": write_quorum, "ack_quorum": ack_quorum}
    for name, size in sizes.items():
        integer(1, 2**31 - 1)(name, size)
    if not ack_quorum <= write_quorum <= ensemble_size:
        raise InvalidArgument(
            f"ensemble_size {ensemble_size}, write_quorum {write_quorum}, ack_quorum "
            f"{ack_quorum}: each must be at least the next"
        )


def _check_spread(minimum: int, desired: int | None, unit: str) -> tuple[int, int]:
    minimum = integer(1)(f"min_{unit}", minimum)
    return minimum, minimum if desired is None else integer(minimum)(f"desired_{unit}", desired)


def _list_write_sets(ensemble: Sequence[str], write_quorum: int) -> Iterable[list[str]]:
    size = len(ensemble)
    for start in range(size):
        yield [ensemble[(start + offset) % size] for offset in range(min(write_quorum, size))]


def _write_set_neighbors(ensemble: Sequence[str], index: int, write_quorum: int) -> list[str]:
    """Return the bookies that share a write set with an index, without gaps."""
    size = len(ensemble)
    distances = range(-write_quorum + 1, write_quorum)
    neighbor_indexes = {(index + distance) % size for distance in distances} - {index}
    return [ensemble[i] for i in neighbor_indexes if ensemble[i]]


def _region_of(location: str) -> str:
    return "/" + location.split("/")[1]
