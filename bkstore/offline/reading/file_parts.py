"""The row groups and ledgers of a file that a read covers, computed from the file's footer.

All tasks with a share of a file split it by the same footer, so each ledger of a sorted file is in
one share. Row groups without statistics are never skipped: every row that is out of order is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from bkstore.ids import LedgerId
from bkstore.offline.reading.dump_file import RowGroup, check_row_groups
from bkstore.offline.reading.read_tasks import FileRead


class FilePart(NamedTuple):
    """Row groups from `first_group` to before `stop_group`.

    Of them, the ledgers above `after_ledger` up to `last_ledger`. `continues`: another share
    continues at the first row after `last_ledger`.
    """

    first_group: int
    stop_group: int
    after_ledger: LedgerId | None = None
    last_ledger: LedgerId | None = None
    continues: bool = False


NO_PART = FilePart(0, 0)
"""The part of a share with too high a number: a file may have fewer parts than shares."""


def locate_part(read: FileRead, groups: Sequence[RowGroup]) -> FilePart:
    """Return the part of a file, row groups and ledgers, that `read` covers with its share (number,
    of how many). An unsorted file is cut by row groups, a sorted one between ledgers. Raises
    `CorruptionError` if the file's statistics contradict the declared order."""
    share, shares = read.share
    # A sorted file may have a `ledger_range`, although the read takes its rows as unsorted ones.
    if read.is_sorted or read.ledger_range is not None:
        check_row_groups(read.path, groups, read.ledger_range)
    if not read.is_sorted:
        return FilePart(len(groups) * share // shares, len(groups) * (share + 1) // shares)
    # Share n ends with the ledger splits[n], the last share with that of the read.
    splits = _split_ledgers(groups, shares) if shares > 1 else []
    if share > len(splits):  # the file can be split into fewer parts than there are shares
        return NO_PART
    continues = share < len(splits)
    after_ledger = splits[share - 1] if share else read.after_ledger
    last_ledger = splits[share] if continues else read.last_ledger
    first_group, stop_group = _find_row_groups(groups, after_ledger, last_ledger)
    return FilePart(first_group, stop_group, after_ledger, last_ledger, continues)


def _split_ledgers(groups: Sequence[RowGroup], shares: int) -> list[LedgerId]:
    """Return the last ledgers of all shares but the last, ascending; at most `shares - 1`."""
    total = sum(group.rows for group in groups)
    splits: list[LedgerId] = []
    rows_so_far = 0
    for group, following in pairwise(groups):
        rows_so_far += group.rows
        # The last ledger of a row group, or the first of the next, if statistics have one.
        last = group.last or following.first
        if last is None or (splits and last <= splits[-1]):
            continue
        # Split where the shares so far have at least their part of the rows.
        if rows_so_far * shares >= total * (len(splits) + 1):
            splits.append(last)
    return splits


def _find_row_groups(
    groups: Sequence[RowGroup], after_ledger: LedgerId | None, last_ledger: LedgerId | None
) -> tuple[int, int]:
    """Return (first, stop) of the row groups that may have ledgers of the range.

    Only leading and trailing row groups are skipped; all between are read, whatever their range.
    """
    first, stop = 0, len(groups)
    if after_ledger is not None:
        while first < stop and (last := groups[first].last) and last <= after_ledger:
            first += 1
    if last_ledger is not None:
        while stop > first and (start := groups[stop - 1].first) and start > last_ledger:
            stop -= 1
    return first, stop
