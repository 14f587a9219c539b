"""The replicas check as BookKeeper implements it, with its errors.

Used with ``compat="bookkeeper"`` only. A bookie's answer is encoded as by BookKeeper's bookie and
compared as by `getUnavailableEntries`: after a gap of two ids every further entry is missing.
Source: `replication/AuditorReplicasCheckTask`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from bkstore.availability import Availability
from bkstore.ids import LedgerId
from bkstore.schedule import expected

_LEDGERS_PER_LEAF = 10_000


def missing_as_in_bookkeeper(
    stored: Availability, first: int, last: int, bookie_index: int, sizes: tuple[int, int]
) -> Availability:
    """Return which of the entries first..last, as far as they are expected on the bookie,
    BookKeeper's auditor reports as missing. `sizes` are ensemble size and write quorum.

    The bookie in the example has all of its entries; the gaps between them are of two ids.

    >>> held = Availability.from_entries([0, 3, 6, 9])
    >>> missing_as_in_bookkeeper(held, 0, 9, 0, (3, 1)).ranges().tolist()
    [[3, 3], [6, 6], [9, 9]]
    """
    # As BookKeeper encodes the list of entries that the bookie sends, and decodes it again.
    decoded_answer = Availability.from_bytes(stored.to_bytes("bookkeeper"), compat="bookkeeper")
    expected_entries = expected(first, last, bookie_index, *sizes)
    return decoded_answer.missing(expected_entries, first, last, compat="bookkeeper")


def group_by_leaf(ledgers: Iterable[LedgerId]) -> Iterator[list[LedgerId]]:
    """Yield ledgers grouped by leaf folder of the metadata store (all but the last four digits),
    before each of which BookKeeper's auditor resets its counters."""
    for _, leaf_ledgers in groupby(
        ledgers, key=lambda ledger_id: (ledger_id.scope, ledger_id.ledger // _LEDGERS_PER_LEAF)
    ):
        yield list(leaf_ledgers)
