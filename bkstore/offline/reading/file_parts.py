"""Which row groups and ledgers of a file a read is: found by its footer, where it is opened.

Each task that has a share of a file cuts the file by the same footer, so that all shares together
are the file, and a ledger of a sorted one is in one of them. Of row groups that statistics say
nothing of none is skipped, so that somebody sees each row that is out of order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

from bkstore.ids import LedgerId
from bkstore.offline.reading.dump_file import RowGroup, check_row_groups
from bkstore.offline.reading.read_tasks import Read


class FilePart(NamedTuple):
    """Row groups `first` to before `stop`, and of them the ledgers above `above` up to `upto`.

    `goes_on`: another share reads on from the first row behind `upto`.
    """

    first: int
    stop: int
    above: LedgerId | None = None
    upto: LedgerId | None = None
    goes_on: bool = False


NO_PART = FilePart(0, 0)
"""That of a share beyond those that a file could be cut into."""


def part_of(read: Read, groups: Sequence[RowGroup]) -> FilePart:
    """Return the part of a file with these row groups that a read is. O(row groups).

    Raises `CorruptionError` where their statistics contradict what is said of the file: that it
    is sorted, and which ledgers it has.
    """
    at, of = read.share
    if read.is_sorted or read.ledgers is not None:
        check_row_groups(read.path, groups, read.ledgers)
    if not read.is_sorted:
        return FilePart(len(groups) * at // of, len(groups) * (at + 1) // of)
    cuts = _cuts(groups, of) if of > 1 else []
    if at > len(cuts):  # the file has fewer places to cut it than shares were asked for
        return NO_PART
    goes_on = at < len(cuts)
    above = cuts[at - 1] if at else read.above
    upto = cuts[at] if goes_on else read.upto
    first, stop = _skipping(groups, above, upto)
    return FilePart(first, stop, above, upto, goes_on)


def _cuts(groups: Sequence[RowGroup], of: int) -> list[LedgerId]:
    """Return ledgers behind which a sorted file is cut, `of - 1` of them or fewer, ascending."""
    rows = sum(group.rows for group in groups)
    cuts: list[LedgerId] = []
    so_far = 0
    for group, following in pairwise(groups):
        so_far += group.rows
        # The end of a row group, or the beginning of the next, if statistics tell one.
        last = group.last or following.first
        ascends = last is not None and (not cuts or last > cuts[-1])
        if last is not None and ascends and so_far * of >= rows * (len(cuts) + 1):
            cuts.append(last)
    return cuts


def _skipping(
    groups: Sequence[RowGroup], above: LedgerId | None, upto: LedgerId | None
) -> tuple[int, int]:
    """Return from which row group to before which one there may be ledgers of the range.

    Statistics skip what lies before and behind; what lies between is read, whatever they say.
    """
    before = takewhile(lambda g: above and g.last and g.last <= above, groups)
    first = sum(1 for _ in before)
    behind = takewhile(lambda g: upto and g.first and g.first > upto, reversed(groups[first:]))
    return first, len(groups) - sum(1 for _ in behind)
