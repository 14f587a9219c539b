"""Holes of a ledger's own stripe: what it asks for and is not there, whatever else is."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from bkstore.ids import LedgerId
from bkstore.offline import analyses
from bkstore.offline.analyses import LocalEngine
from tests.models.analyses import Expected, rows_of
from tests.worlds.random_dumps import DumpWorld, Place, write_dump

pytest.importorskip("duckdb")

ENGINE = LocalEngine(threads=1)
LEDGER = LedgerId.of(7)


def _one_ledger(entries: Iterable[int]) -> DumpWorld:
    return DumpWorld(held={"b": {LEDGER: {e: (0, 1, 1000 + 10 * e) for e in entries}}})


@pytest.mark.parametrize(
    ("lost", "beside", "row"),
    [
        ({13}, {2}, (1, 1)),  # 13 is asked for and 2 is not: one for one
        ({13, 30, 31}, {2, 5, 8}, (3, 3)),
        ({13}, set(), (1, 0)),
        ({13}, {2, 5, 8}, (1, 3)),
        (set(), {2, 5, 8}, None),
    ],
)
def test_an_entry_off_the_stripe_fills_no_hole(
    lost: set[int], beside: set[int], row: tuple[int, int] | None, tmp_path: Path
) -> None:
    """2 of 3 of entries 0 to 99: what is lost is a hole, however many lie off the stripe."""
    stripe = {entry for entry in range(100) if entry % 3 < 2}
    dump = write_dump(_one_ledger((stripe - lost) | beside), tmp_path / "dump")
    found = rows_of(analyses.run("holes", dump, engine=ENGINE))
    stored = len(stripe) - len(lost) + len(beside)
    ids = ("b", *LEDGER.signed, LEDGER.qualified_name, 0, 99, stored, "2 of 3")

    assert ([] if row is None else [(*ids, *row)]) == found


@pytest.mark.parametrize("seed", range(8))
def test_holes_of_random_stripes(seed: int, tmp_path: Path) -> None:
    """Holes and entries off the stripe, of stripes that were cut, moved and punctured at random."""
    chance = random.Random(seed)
    held: dict[LedgerId, dict[int, Place]] = {}
    for ledger in range(30):
        period = chance.randint(2, 7)
        size, phase = chance.randint(1, period - 1), chance.randint(0, period)
        first = chance.randint(0, 50)
        entries = {e for e in range(first, first + 120) if (e - phase) % period < size}
        entries -= set(chance.sample(range(200), chance.randint(0, 40)))
        entries |= set(chance.sample(range(200), chance.randint(0, 4)))
        if entries:
            held[LedgerId.of(ledger)] = {e: (0, 1, 1000 + e) for e in entries}
    world = DumpWorld(held={"b": held})
    dump = write_dump(world, tmp_path / "dump")

    assert Expected(world).holes() == rows_of(analyses.run("holes", dump, engine=ENGINE))
