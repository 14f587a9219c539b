"""The synthetic cluster: what is stored, where, and what is planted, by slow means of its own."""

from __future__ import annotations

from collections import Counter

import pytest

from bkstore.errors import InvalidArgument
from tools.synthesize.bookie_entries import RECORD_BYTES, BookieEntries
from tools.synthesize.cluster import HOMELESS, LEFTOVERS, NO_REPLICA, SyntheticCluster, bookie_name
from tools.synthesize.expected_results import count_planted
from tools.synthesize.shape import ClusterShape

SHAPE = ClusterShape(bookies=9, entries=5000, ledgers=300)
PER_LOG = 700


@pytest.fixture(scope="module")
def drawn() -> SyntheticCluster:
    """Return a small cluster with all faults."""
    return SyntheticCluster(SHAPE)


def _write_set(ensemble: list[str], entry: int) -> list[str]:
    """Return who is to store an entry: round robin, W of E."""
    return [ensemble[(entry + w) % SHAPE.ensemble_size] for w in range(SHAPE.write_quorum)]


def _ends(cluster: SyntheticCluster, ledger: int) -> list[tuple[int, int, list[str]]]:
    segments = cluster.ensembles_of(ledger)
    ends = [first for first, _ in segments[1:]] + [int(cluster.sizes[ledger])]
    return [(first, end, ensemble) for (first, ensemble), end in zip(segments, ends)]


def _stored(cluster: SyntheticCluster) -> dict[str, set[tuple[int, int]]]:
    """Return the (ledger, entry) pairs of each bookie, an entry at a time."""
    held: dict[str, set[tuple[int, int]]] = {bookie_name(n): set() for n in range(SHAPE.bookies)}
    for ledger, kind in enumerate(cluster.kinds.tolist()):
        if kind == HOMELESS:
            continue
        segments = _ends(cluster, ledger)
        for first, end, ensemble in segments:
            for entry in range(first, end):
                for bookie in _write_set(ensemble, entry):
                    held[bookie].add((ledger, entry))
        if kind == LEFTOVERS:
            (_, _, old), (change, _, new) = segments
            (gone,) = set(old) - set(new)
            for entry in range(change, change + 2 * SHAPE.ensemble_size):
                if gone in _write_set(old, entry):
                    held[gone].add((ledger, entry))
    for bookie, ledger, entry, count in zip(*(column.tolist() for column in cluster.lost)):
        for stripe in range(count):
            held[bookie_name(bookie)].remove((ledger, entry + stripe * SHAPE.ensemble_size))
    return held


@pytest.mark.parametrize("at_once", [64, 1 << 20])
def test_rows_are_what_ensembles_say_less_what_is_lost(
    drawn: SyntheticCluster, at_once: int
) -> None:
    """A bookie has its share of each segment, what was left behind, not what was lost."""
    scopes, numbers = drawn.ids()
    ledgers = {ids: n for n, ids in enumerate(zip(scopes.tolist(), numbers.tolist()))}
    for number, (_, expected) in enumerate(sorted(_stored(drawn).items())):
        bookie = BookieEntries(drawn, number, 1024 + PER_LOG * RECORD_BYTES)
        found = [
            (ledgers[scope, ledger], entry)
            for rows in bookie.rows([], at_once)
            for scope, ledger, entry in zip(*(column.tolist() for column in rows[1:4]))
        ]

        assert sorted(expected) == found
        assert len(expected) == bookie.total
        assert {ledger for ledger, _ in expected} == {
            ledgers[name.signed] for name in bookie.ledgers()
        }


def test_records_fill_entry_logs_one_behind_the_other(drawn: SyntheticCluster) -> None:
    """Locations are distinct and leave no gap, and entry logs count the ledgers they point to."""
    bookie = BookieEntries(drawn, 3, 1024 + PER_LOG * RECORD_BYTES)
    places: list[tuple[int, int]] = []
    counts: Counter[tuple[int, int, int]] = Counter()
    for rows in bookie.rows([], 1000):
        logs, positions = (rows.location >> 32).tolist(), (rows.location & 0xFFFFFFFF).tolist()
        places += zip(logs, positions)
        counts.update(zip(logs, rows.scope_id.tolist(), rows.ledger_id.tolist()))
    full = [(n // PER_LOG, 1028 + n % PER_LOG * RECORD_BYTES) for n in range(bookie.total)]
    log, ledger, records = bookie.logs()
    ids = zip(*(column.tolist() for column in bookie.signed_ids(ledger)))

    assert full == sorted(places)
    assert counts == {
        (at, *names): count for at, names, count in zip(log.tolist(), ids, records.tolist())
    }


def test_ids_ascend_unsigned_and_ensembles_are_distinct(drawn: SyntheticCluster) -> None:
    """Ledgers are numbered in the order of ids; no ensemble names a bookie twice."""
    scopes, numbers = (column.view("u8").tolist() for column in drawn.ids())

    assert sorted(set(zip(scopes, numbers))) == list(zip(scopes, numbers))
    assert {0, 2**63 + 5} == set(scopes)
    for ledger in range(drawn.kinds.size):
        for _, ensemble in drawn.ensembles_of(ledger):
            assert SHAPE.ensemble_size == len(set(ensemble))


def test_planted_numbers_are_those_of_the_entries(drawn: SyntheticCluster) -> None:
    """An entry at a time: replicas that lack, by the ledger's worst entry."""
    held = _stored(drawn)
    rows: Counter[str] = Counter()
    missing: Counter[str] = Counter()
    for ledger, kind in enumerate(drawn.kinds.tolist()):
        if kind == 7:  # an orphan: the metadata do not know it
            continue
        lacks: Counter[tuple[int, str]] = Counter()
        fewest = SHAPE.write_quorum
        for first, end, ensemble in _ends(drawn, ledger):
            for entry in range(first, end):
                without = [b for b in _write_set(ensemble, entry) if (ledger, entry) not in held[b]]
                lacks.update((first, bookie) for bookie in without)
                fewest = min(fewest, SHAPE.write_quorum - len(without))
        if lacks:
            category = {0: "no_replica", 1: "below_ack_quorum", 2: "below_write_quorum"}[fewest]
            rows[category] += len(lacks)
            missing[category] += lacks.total()
    found = count_planted(drawn)

    assert rows == found["violations"]
    assert missing == found["missing_entries"]
    assert NO_REPLICA in drawn.kinds
    assert sum(len({ledger for ledger, _ in each}) for each in held.values()) == found["sequences"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"ack_quorum": 4},
        {"ensemble_size": 9},
        {"ack_quorum": 3},
        {"ack_quorum": 1},
        {"homeless": 290},
        {"ledgers": 2000},
        {"changed": 1.5},
    ],
)
def test_shapes_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    """Quorums rise, faults fit into the ledgers, ledgers into the entries."""
    with pytest.raises(InvalidArgument):
        ClusterShape(**{"bookies": 9, "entries": 5000, "ledgers": 300, **wrong})  # type: ignore[arg-type]
