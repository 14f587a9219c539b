"""Two bookies side by side, directories or dumps: ledgers, entries, states that differ.

`comparison` has `diff`, which merges two ordered listings: read it first. `ledger_sides` defines
what can be compared, and has the side for a directory; `dump_side` the one for a bookie of a dump.
"""

from bkstore.offline.diff.comparison import Difference, DifferenceKind, diff
from bkstore.offline.diff.dump_side import DumpSide, is_dump
from bkstore.offline.diff.ledger_sides import ComparedLedger, ComparedState, DiffSide, DirectorySide

__all__ = [
    "ComparedLedger",
    "ComparedState",
    "DiffSide",
    "Difference",
    "DifferenceKind",
    "DirectorySide",
    "DumpSide",
    "diff",
    "is_dump",
]
