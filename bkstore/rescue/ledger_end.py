"""Where a ledger that was not closed ends: the rules of recovery, on disks instead of bookies.

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
    # The ledger may end before any entry without a readable copy. The entry after the highest one
    # is such an entry, so there is at least one candidate.
    unconfirmed = Availability()
    if confirmed < MAX_ENTRY_ID:
        unconfirmed = Availability.from_ranges([(confirmed + 1, min(highest + 1, MAX_ENTRY_ID))])
    candidates = _candidates(unconfirmed - readable, copies, metadata.ensemble_size)
    # Count for each candidate the bookies of its write set that certainly never had it.
    lacking = np.zeros(candidates.size, np.int64)
    ensemble_size, write_quorum = metadata.ensemble_size, metadata.write_quorum_size
    for index, bookie in enumerate(ensemble):
        if bookie in reliable:
            in_write_set = (index - candidates) % ensemble_size < write_quorum
            has_copy = np.zeros(candidates.size, np.bool_)
            if bookie in copies:
                has_copy = copies[bookie].contains_many(candidates)
            lacking += in_write_set & ~has_copy
    # If more than W - A lack it, fewer than A can have confirmed it.
    never_acknowledged = np.flatnonzero(lacking > write_quorum - metadata.ack_quorum_size)
    if never_acknowledged.size:
        return LedgerEnd(int(candidates[never_acknowledged[0]]) - 1, is_certain=True)
    return LedgerEnd(highest, is_certain=False)


def _candidates(
    unreadable: Availability, copies: Mapping[str, Availability], ensemble_size: int
) -> Int64Array:
    """Return those of the unreadable entries that may be the first that cannot have been
    acknowledged, ascending.

    These are all that have a copy, damaged, on some bookie. Of the others only the write set
    matters, which repeats every E entries: the first E of each range are enough.
    """
    with_copies = Availability()
    for available in copies.values():
        with_copies |= available & unreadable
    range_heads = [
        np.arange(first, min(last, first + ensemble_size - 1) + 1)
        for first, last in (unreadable - with_copies).ranges().tolist()
    ]
    return np.sort(np.concatenate([with_copies.entries(), *range_heads]).astype(np.int64))


def _last_entry(entries: Availability) -> int:
    """Return the highest entry of a set, -1 if it is empty."""
    ranges = entries.ranges()
    return int(ranges[-1, 1]) if len(ranges) else -1
