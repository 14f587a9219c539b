"""Runs and sequence groups of entry ids, and their bytes, by BP-34's words in plain Python."""

from __future__ import annotations

import struct
from collections.abc import Iterable

Group = tuple[int, int, int, int]


def runs_of(entries: Iterable[int]) -> list[tuple[int, int]]:
    """(first, size) of each maximal run of consecutive ids."""
    runs: list[tuple[int, int]] = []
    for entry in sorted(entries):
        if runs and runs[-1][0] + runs[-1][1] == entry:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((entry, 1))
    return runs


def groups_of(entries: Iterable[int]) -> list[Group]:
    """BP-34's greedy rule, run by run: (first start, last start, size, period)."""
    groups: list[Group] = []
    for start, size in runs_of(entries):
        if groups:
            first, last, its_size, period = groups[-1]
            fits = size == its_size and start - last < 2**31 and period in (0, start - last)
            if fits:
                groups[-1] = (first, start, size, start - last)
                continue
        groups.append((start, start, size, 0))
    return groups


def bytes_of(groups: list[Group]) -> bytes:
    """The availability bytes: 64 bytes of header, 24 a group, big-endian."""
    rows = b"".join(struct.pack(">qqii", *group) for group in groups)
    return struct.pack(">ii56x", 0, len(groups)) + rows
