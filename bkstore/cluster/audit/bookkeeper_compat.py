"""The replicas check as it was built: the answers, and the ranges of counters (reference 9.2).

Reached through ``compat="bookkeeper"`` only. A bookie's answer is encoded as a real bookie does,
and what is missing is told by `getUnavailableEntries`, which after a hole of two ids reports
the rest. Source: `replication/AuditorReplicasCheckTask`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from bkstore.availability import Availability
from bkstore.ids import LedgerId
from bkstore.schedule import expected

_LEAF = 10_000


def missing_as_built(
    held: Availability, first: int, last: int, bookie_index: int, sizes: tuple[int, int]
) -> Availability:
    """Return the due entries that the real check reports as missing; `sizes` are (E, W).

    >>> missing_as_built(Availability.from_entries([0, 3, 6, 9]), 0, 9, 0, (3, 1)).ranges().tolist()
    [[3, 3], [6, 6], [9, 9]]
    """
    answer = Availability.from_bytes(held.to_bytes("bookkeeper"), compat="bookkeeper")
    due = expected(first, last, bookie_index, *sizes)
    return answer.missing(due, first, last, compat="bookkeeper")


def ledger_ranges(ledgers: Iterable[LedgerId]) -> Iterator[list[LedgerId]]:
    """Yield ledgers by the leaf folder of the metadata store: all but the last four digits.

    The real check sets its counters to zero before each of these.
    """
    for _, part in groupby(ledgers, key=lambda name: (name.scope, name.ledger // _LEAF)):
        yield list(part)
