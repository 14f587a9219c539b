"""Placement policies: verdicts by the rules' text, choices that keep to them."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import pytest

from bkstore.cluster.placement.policies import (
    DEFAULT_RACK,
    Adherence,
    DefaultPlacement,
    PlacementPolicy,
    RackPlacement,
    RegionPlacement,
)
from bkstore.errors import InvalidArgument, NotEnoughBookies

STRICT, SOFT, FAIL = Adherence.MEETS_STRICT, Adherence.MEETS_SOFT, Adherence.FAIL
RACKS = {"a1": "/a", "a2": "/a", "b1": "/b", "b2": "/b", "c1": "/c"}
PLACES = {
    "e1": "/eu/r1",
    "e2": "/eu/r1",
    "e3": "/eu/r2",
    "u1": "/us/r1",
    "u2": "/us/r2",
    "j1": "/jp/r1",
}


def _verdict(policy: PlacementPolicy, ensemble: str, quorum: int) -> Adherence:
    return policy.judge(ensemble.split(), quorum, 1)[0]


@pytest.mark.parametrize(
    ("ensemble", "quorum", "verdict"),
    [
        ("a1 b1 c1", 2, STRICT),
        ("a1 b1 a2", 2, FAIL),  # the last write set is a2 a1
        ("a1 b1 a2 b2", 2, STRICT),
        ("a1 a2 b1 b2", 3, STRICT),
        ("a1 a2", 2, FAIL),
        ("a1 a2", 1, STRICT),  # a write set of one is on one rack
        ("a1", 1, STRICT),
        ("a1 x1", 2, FAIL),  # nobody knows where x1 is
        ("a1 x1 b1", 3, STRICT),
        ("x1 x2", 1, FAIL),
    ],
)
def test_racks(ensemble: str, quorum: int, verdict: Adherence) -> None:
    """Each write set of W neighbours is on two racks at least, the ring's last ones, too."""
    assert verdict == _verdict(RackPlacement(RACKS), ensemble, quorum)


def test_more_racks() -> None:
    """Fewer racks than asked for fail, fewer than desired are soft; W bounds both."""
    policy = RackPlacement(RACKS, min_racks=2, desired_racks=3)

    assert STRICT == _verdict(policy, "a1 b1 c1", 3)
    assert SOFT == _verdict(policy, "a1 b1 a2", 3)
    assert STRICT == _verdict(policy, "a1 b1 a2 b2", 2)
    assert FAIL == _verdict(RackPlacement(RACKS, min_racks=3), "a1 b1 a2", 3)


def test_the_default_rack() -> None:
    """A bookie in the default rack counts for a rack, unless the policy is enforced."""
    racks = {**RACKS, "d1": DEFAULT_RACK}

    assert STRICT == _verdict(RackPlacement(racks), "a1 d1", 2)
    assert FAIL == _verdict(RackPlacement(racks, enforce=True), "a1 d1", 2)
    assert "default-rack" in RackPlacement(racks, enforce=True).judge(["a1", "d1"], 2, 2)[1]


@pytest.mark.parametrize(
    ("ensemble", "quorum", "verdict"),
    [
        ("e1 u1 j1", 3, STRICT),
        ("e1 u1", 2, STRICT),
        ("e1 e3 u1", 3, SOFT),  # two regions of three
        ("e1 e2 u1", 3, SOFT),
        ("e1 e3", 2, FAIL),
        ("e1 u1 e3", 2, FAIL),  # e3 e1
        ("e1 u1 e3 u2", 2, STRICT),
        ("e1", 1, STRICT),
        ("e1 x1", 2, FAIL),
    ],
)
def test_regions(ensemble: str, quorum: int, verdict: Adherence) -> None:
    """A write set in one region fails, in fewer than there are is soft."""
    assert verdict == _verdict(RegionPlacement(PLACES), ensemble, quorum)


def test_racks_inside_regions() -> None:
    """In enough regions, but two on one rack: soft."""
    policy = RegionPlacement(PLACES, desired_regions=2)

    assert SOFT == _verdict(policy, "e1 e2 u1", 3)
    assert STRICT == _verdict(policy, "e1 e3 u1", 3)


def test_any_bookies_will_do() -> None:
    """The default policy finds nothing wrong with any ensemble."""
    assert (STRICT, "") == DefaultPlacement().judge(["x", "x"], 2, 1)


@pytest.mark.parametrize("policy", [DefaultPlacement, RackPlacement, RegionPlacement])
@pytest.mark.parametrize("seed", range(5))
def test_new_ensembles_are_as_good_as_can_be(policy: Any, seed: int) -> None:
    """Distinct bookies of those given; strict wherever some ensemble is."""
    places = {"RackPlacement": RACKS, "RegionPlacement": PLACES}.get(policy.__name__, RACKS)
    made = policy(seed=seed) if policy is DefaultPlacement else policy(places, seed=seed)
    chance = random.Random(seed)
    for size in range(1, 5):
        quorum = chance.randint(1, size)
        bookies = chance.sample(sorted(places), chance.randint(size, len(places)))
        ensemble = made.new_ensemble(size, quorum, 1, bookies)
        possible = max(
            made.judge(order, quorum, 1)[0]
            for chosen in combinations(bookies, size)
            for order in (chance.sample(chosen, size) for _ in range(12))
        )

        assert size == len(set(ensemble))
        assert set(ensemble) <= set(bookies)
        assert possible <= made.judge(ensemble, quorum, 1)[0]


def test_replacements() -> None:
    """The rest of the ensemble stays, nobody comes back, and the racks are kept apart."""
    policy = RackPlacement(RACKS, seed=3)

    assert ("a1", "c1", "b2") == policy.replace(["a1", "b1", "b2"], [1], 2, 2, ["b1", "c1", "a2"])
    assert {"b1", "b2"} == set(policy.replace(["a1", "a2"], [0, 1], 2, 2, ["b1", "b2", "a1"]))
    with pytest.raises(NotEnoughBookies, match="1 more bookies are needed, 0 are available"):
        policy.replace(["a1", "b1"], [1], 2, 2, ["a1", "b1"])


@pytest.mark.parametrize("policy", [RackPlacement, RegionPlacement])
@pytest.mark.parametrize("seed", range(3))
def test_both_neighbours_count(policy: Any, seed: int) -> None:
    """A bookie has to fit beside the one before it and the one behind it.

    Each of ten gaps lies between an a and a b, so only the ten c will do, of fifty that are
    free: who looks at one side takes an a or b somewhere, whatever the order.
    """
    places = {f"{name}{n}": f"/{name}/r{n}" for name in "abc" for n in range(40)}
    if policy is RackPlacement:
        places = {bookie: f"/{bookie[0]}" for bookie in places}
    ensemble = [f"{'a-b-'[n % 4]}{n}" for n in range(20)]
    free = [b for b in places if int(b[1:]) >= (30 if b[0] == "c" else 20)]
    made = policy(places, seed=seed)
    found = made.replace(ensemble, range(1, 20, 2), 2, 2, free)

    assert "acbc" * 5 == "".join(bookie[0] for bookie in found)
    assert STRICT == made.judge(found, 2, 2)[0]


def test_too_few_bookies() -> None:
    """Where there are too few, or none that keep to an enforced policy, there is no ensemble."""
    with pytest.raises(NotEnoughBookies, match="3 more bookies are needed, 2 are available"):
        DefaultPlacement().new_ensemble(3, 2, 2, ["b1", "b2"])
    with pytest.raises(NotEnoughBookies, match=r"a. a.: 1 of 2 racks"):
        RackPlacement(RACKS, enforce=True).new_ensemble(2, 2, 2, ["a1", "a2"])

    assert {"a1", "a2"} == set(RackPlacement(RACKS).new_ensemble(2, 2, 2, ["a1", "a2"]))


@pytest.mark.parametrize("sizes", [(3, 4, 2), (3, 2, 3), (0, 0, 0), (2, 2, 0)])
def test_sizes_that_contradict_each_other(sizes: tuple[int, int, int]) -> None:
    """E >= W >= A >= 1, else there is nothing to choose."""
    with pytest.raises(InvalidArgument, match=r"each must be at least|must be a whole number, 1"):
        DefaultPlacement().new_ensemble(*sizes, ["b1", "b2", "b3", "b4"])


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: RackPlacement({"b1": "r1"}), "'r1', which is not a path"),
        (lambda: RackPlacement({"b1": "/"}), "'/', which is not a path"),
        (lambda: RackPlacement({}, min_racks=0), "min_racks must be"),
        (lambda: RackPlacement({}, min_racks=3, desired_racks=2), "desired_racks must be"),
        (lambda: RegionPlacement({"b1": "/eu"}), "not /region/rack"),
    ],
)
def test_places_that_are_none(make: Any, reason: str) -> None:
    """Places and numbers that mean nothing are refused by name."""
    with pytest.raises(InvalidArgument, match=reason):
        make()
