"""Which files of a dump share no ledger with another, and so can be read alone, in any order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from bkstore.ids import LedgerId
from bkstore.offline.reading.dump_file import DumpFile


def split_disjoint(files: Iterable[DumpFile]) -> tuple[list[DumpFile], list[DumpFile]]:
    """Split a bookie's files into (sorted files that share no ledger with another, all others).

    If a file is not declared sorted, all are others. Drops files without rows. O(n log n).
    """
    non_empty = [file for file in files if file.rows]
    sorted_files = [
        (file.ledger_range, file)
        for file in non_empty
        if file.ledger_range is not None and file.has_one_bookie
    ]
    if len(sorted_files) < len(non_empty):
        return [], non_empty
    sorted_files.sort(key=itemgetter(0))  # by their ranges
    # Go through the files in order; `overlapping` are those since the last gap between ranges. If
    # it is a single file, it shares no ledger with another.
    alone: list[DumpFile] = []
    others: list[DumpFile] = []
    overlapping: list[DumpFile] = []
    last_ledger: LedgerId | None = None
    for ledgers, file in sorted_files:
        if last_ledger is None or ledgers.first > last_ledger:  # a gap: no file spans it
            (others if len(overlapping) > 1 else alone).extend(overlapping)
            overlapping = []
        overlapping.append(file)
        last_ledger = ledgers.last if last_ledger is None else max(last_ledger, ledgers.last)
    (others if len(overlapping) > 1 else alone).extend(overlapping)
    return alone, others


def group_by_bookie(files: Iterable[DumpFile]) -> dict[str, list[DumpFile]]:
    """Return the files of each bookie."""
    ordered = sorted(files, key=lambda file: file.bookie)
    return {bookie: list(group) for bookie, group in groupby(ordered, key=lambda file: file.bookie)}


def split_repeating(files: Sequence[DumpFile]) -> tuple[list[DumpFile], list[DumpFile]]:
    """Split the files of several bookies into those whose rows are distinct, and those that may
    repeat a row of another file, as they are not known to share no ledger. O(n log n)."""
    repeating: list[DumpFile] = []
    for bookie_files in group_by_bookie(files).values():
        _, overlapping_files = split_disjoint(bookie_files)
        repeating += overlapping_files
    repeating_paths = {file.path for file in repeating}
    return [file for file in files if file.path not in repeating_paths], repeating
