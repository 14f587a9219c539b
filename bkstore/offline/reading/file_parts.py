"""Which row groups and ledgers of a file a read is: found by its footer, where it is opened.

Each task that has a share of a file cuts the file by the same footer, so that all shares together
are the file, and a ledger of a sorted one is in one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from bkstore.ids import LedgerId
from bkstore.offline.reading.dump_file import RowGroup
from bkstore.offline.reading.read_tasks import Read

__all__ = ["NO_PART", "FilePart", "part_of"]


class FilePart(NamedTuple):
    """Row groups `first` to before `stop`, and of them the ledgers above `above` up to `upto`."""

    first: int
    stop: int
    above: LedgerId | None = None
    upto: LedgerId | None = None


NO_PART = FilePart(0, 0)
"""That of a share beyond those that a file could be cut into."""


def part_of(read: Read, groups: Sequence[RowGroup]) -> FilePart:
    """Return the part of a file with these row groups that a read is. O(row groups)."""
    at, of = read.share
    if not read.is_sorted:
        return FilePart(len(groups) * at // of, len(groups) * (at + 1) // of)
    cuts = _cuts(groups, of) if of > 1 else []
    if at > len(cuts):  # the file has fewer places to cut it than shares were asked for
        return NO_PART
    above = cuts[at - 1] if at else read.above
    upto = cuts[at] if at < len(cuts) else read.upto
    return _skipping(groups, above, upto)


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
) -> FilePart:
    """Return the row groups that may have ledgers of the range: statistics skip the others."""
    first, stop = 0, len(groups)
    if above is not None:
        done = [at for at, g in enumerate(groups) if g.last is not None and g.last <= above]
        # Of the first row group that begins above it, the one before may still have some.
        first = max(done, default=-1) + 1
    if upto is not None:
        later = [at for at, g in enumerate(groups) if g.first is not None and g.first > upto]
        stop = min(later, default=stop)
    return FilePart(first, stop, above, upto)
