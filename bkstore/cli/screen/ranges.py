"""Ranges of a set of entries as a cell of a table: all, the first of them, or none."""

from __future__ import annotations

from bkstore.availability import Availability
from bkstore.cli.screen.cells import Beginning
from bkstore.counts import counted

MOST_RANGES = 10_000
"""Ranges above which typed outputs have null: their groups say the same, and are few."""


def ranges_cell(
    some: Availability, shown: bool, on_screen: int, beginning: int
) -> list[list[int]] | None:
    """Return the ranges as a cell; where the table is `shown`, the first of more than `on_screen`.

    `beginning` is how many those are. None in another output above `MOST_RANGES`.
    """
    if some.range_count <= (on_screen if shown else MOST_RANGES):
        ranges: list[list[int]] = some.ranges().tolist()
        return ranges
    if not shown:
        return None
    first = some.ranges(limit=beginning).tolist()
    return Beginning(first, f"{counted(some.range_count, 'range')}; see groups")
