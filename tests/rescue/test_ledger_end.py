"""The end of a ledger that nobody closed, compared with recovery's rule entry by entry."""

from __future__ import annotations

import random

import pytest

from bkstore.availability import Availability
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.rescue.ledger_end import LedgerEnd, find_ledger_end

BOOKIES = ["b0", "b1", "b2", "b3", "b4"]


def end_by_rule(
    metadata: LedgerMetadata,
    lac: int,
    readable: set[int],
    copies: dict[str, set[int]],
    reliable: set[str],
) -> LedgerEnd:
    """Go on from entry to entry until one cannot have been acknowledged."""
    first, ensemble = metadata.segments[-1]
    size, write, ack = (
        metadata.ensemble_size,
        metadata.write_quorum_size,
        metadata.ack_quorum_size,
    )
    confirmed = max(lac, first - 1)
    highest = max([confirmed, *readable])
    for entry in range(confirmed + 1, highest + 2):
        if entry in readable:
            continue
        write_set = [ensemble[(entry + w) % size] for w in range(write)]
        lacking = [b for b in write_set if b in reliable and entry not in copies.get(b, set())]
        if len(lacking) > write - ack:
            return LedgerEnd(entry - 1, True)
    return LedgerEnd(highest, False)


@pytest.mark.parametrize("seed", range(300))
def test_the_end_is_where_recovery_would_end_the_ledger(seed: int) -> None:
    """Random ensembles, copies and reliable disks."""
    choose = random.Random(seed)
    size = choose.randint(1, 5)
    write = choose.randint(1, size)
    ack = choose.randint(1, write)
    segments = [(0, BOOKIES[:size])]
    if choose.random() < 0.5:
        segments.append((choose.randint(1, 12), choose.sample(BOOKIES, size)))
    metadata = LedgerMetadata(7, size, write, ack, segments)
    lac = choose.randint(-1, 15)
    readable = {entry for entry in range(25) if choose.random() < choose.choice((0.5, 0.9))}
    copies = {
        bookie: {entry for entry in range(28) if choose.random() < 0.4}
        for bookie in BOOKIES
        if choose.random() < 0.8
    }
    reliable = {bookie for bookie in BOOKIES if choose.random() < 0.7}

    end = find_ledger_end(
        metadata,
        lac,
        Availability.from_entries(sorted(readable)),
        {bookie: Availability.from_entries(sorted(each)) for bookie, each in copies.items()},
        reliable,
    )

    assert end == end_by_rule(metadata, lac, readable, copies, reliable)


def test_a_huge_gap_costs_nothing() -> None:
    """With all bookies but one away, a gap of 2^60 entries is not walked through."""
    metadata = LedgerMetadata(7, 3, 3, 2, [(0, BOOKIES[:3])])
    readable = Availability.from_entries([0, 1, 1 << 60])

    assert find_ledger_end(metadata, 1, readable, {}, {"b0"}) == LedgerEnd(1 << 60, False)
    assert find_ledger_end(metadata, 1, readable, {}, {"b0", "b1"}) == LedgerEnd(1, True)


def test_nothing_was_written() -> None:
    """An empty ledger ends before its first entry."""
    metadata = LedgerMetadata(7, 3, 3, 2, [(0, BOOKIES[:3])])
    nothing = Availability.from_entries([])

    assert find_ledger_end(metadata, -1, nothing, {}, set(BOOKIES)) == LedgerEnd(-1, True)
