"""Where a ledger that nobody closed ends: the rules of recovery, on disks instead of bookies.

Entries up to the highest LAC are acknowledged, and so are those before the last segment. After them
every entry that has a readable copy is kept, up to the first that cannot have been acknowledged:
more than W - A bookies of its write set lack it. A bookie lacks an entry if its disk was read
without damage and has no trace of the entry. Source: `client/LedgerRecoveryOp`; see
`cluster/client/recovery`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from bkstore.availability import Availability
from bkstore.ids import MAX_ENTRY_ID, Int64Array
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.schedule import expected


class LedgerEnd(NamedTuple):
    """The last entry, -1 for none. `is_certain` is False if disks are missing or damaged so that a
    further entry may have been acknowledged, of which no readable copy is left."""

    last_entry: int
    is_certain: bool


def find_ledger_end(
    metadata: LedgerMetadata,
    lac: int,
    readable: Availability,
    copies: Mapping[str, Availability],
    reliable: Collection[str],
) -> LedgerEnd:
    """Return where recovery would close a ledger.

    `lac` is the highest LAC on any disk. `readable` has the entries of which there is a readable
    copy, `copies` for each bookie those of which it has a copy at all, both at least from the LAC
    on. `reliable` are the bookies whose disks were read without damage.

    >>> metadata = LedgerMetadata(7, 3, 3, 2, [(0, ["b1", "b2", "b3"])])
    >>> readable = Availability.from_entries([0, 1, 2])
    >>> find_ledger_end(metadata, 1, readable, {}, {"b1", "b2", "b3"})
    LedgerEnd(last_entry=2, is_certain=True)
    >>> find_ledger_end(metadata, 1, readable, {}, {"b1"})
    LedgerEnd(last_entry=2, is_certain=False)
    """
    first_entry, ensemble = metadata.segments[-1]
    confirmed = max(lac, first_entry - 1)
    highest = max(confirmed, _last_entry(readable))
    # The entries without a readable copy, and one more: the ledger ends at the latest there.
    all_later = Availability.from_entries(np.empty(0, np.int64))
    if confirmed < MAX_ENTRY_ID:
        stop = min(highest + 1, MAX_ENTRY_ID)
        all_later = expected(confirmed + 1, stop, 0, 1, 1)
    candidates = _candidates(all_later - readable, copies, metadata.ensemble_size)
    lacking = np.zeros(candidates.size, np.int64)
    size, write = metadata.ensemble_size, metadata.write_quorum_size
    for index, bookie in enumerate(ensemble):
        if bookie in reliable:
            is_due = (index - candidates) % size < write
            has_copy = np.zeros(candidates.size, np.bool_)
            if bookie in copies:
                has_copy = copies[bookie].contains_many(candidates)
            lacking += is_due & ~has_copy
    ends = np.flatnonzero(lacking > write - metadata.ack_quorum_size)
    if ends.size:
        return LedgerEnd(int(candidates[ends[0]]) - 1, True)
    return LedgerEnd(highest, False)


def _candidates(
    unreadable: Availability, copies: Mapping[str, Availability], ensemble_size: int
) -> Int64Array:
    """Return the entries among which is the first that cannot have been acknowledged, ascending.

    Where no bookie has a copy, only an entry's place in the stripe counts: the first E entries of
    each run are enough.
    """
    with_copies = Availability.from_entries(np.empty(0, np.int64))
    for available in copies.values():
        with_copies |= available & unreadable
    run_heads = [
        np.arange(first, min(last, first + ensemble_size - 1) + 1)
        for first, last in (unreadable - with_copies).ranges().tolist()
    ]
    return np.sort(np.concatenate([with_copies.entries(), *run_heads]).astype(np.int64))


def _last_entry(entries: Availability) -> int:
    """Return the highest entry of a set, -1 if it is empty."""
    ranges = entries.ranges()
    return int(ranges[-1, 1]) if len(ranges) else -1
