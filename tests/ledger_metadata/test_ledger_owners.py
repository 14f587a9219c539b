"""`LedgerOwners`: the owners of many ledgers against a dict of them."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import numpy as np
import pytest

from bkstore import CorruptionError, InvalidArgument, LedgerId
from bkstore.cluster import DirectoryStore, open_metadata
from bkstore.cluster.store.owners import read_owners
from bkstore.ledger_metadata import LedgerOwner, LedgerOwners, OwnerFilter
from tests.pulsar.samples import ledger, owned

EDGES = [0, 1, 2**63 - 1]
SCOPED_EDGES = [0, 1, 255, 256, 2**63 - 1, 2**63, 2**64 - 1]
APPLICATIONS = ["pulsar", "distributedlog", None]


def _random_owners(seed: int) -> dict[LedgerId, LedgerOwner]:
    """Return owners of ledgers with the edges of ids, in no order."""
    rng = random.Random(seed)
    ids = [LedgerId(0, number) for number in EDGES]
    ids += [LedgerId(scope, number) for scope in SCOPED_EDGES[1:] for number in SCOPED_EDGES]
    ids += [LedgerId.of(rng.randrange(500)) for _ in range(100)]
    rng.shuffle(ids)
    return {
        ledger_id: LedgerOwner(rng.choice(APPLICATIONS), tenant=rng.choice("ab"))
        for ledger_id in ids
    }


def test_owners_of_all_kinds_of_ids() -> None:
    """Each listed ledger has its owner, every other one none; the same after a pickle."""
    expected = _random_owners(1)
    owners = pickle.loads(pickle.dumps(LedgerOwners(expected.items())))

    assert sorted(expected) == owners.ledgers()
    assert len(expected) == len(owners)
    for ledger_id in expected:
        assert expected[ledger_id] == owners.get(ledger_id)
    others = [LedgerId(7, number) for number in EDGES] + [
        LedgerId.of(number) for number in (500, 2)
    ]
    others = [ledger_id for ledger_id in others if ledger_id not in expected]

    assert others
    assert not any(ledger_id in owners for ledger_id in others)
    asked = [*others, *expected]
    numbers = owners.numbers_of(*np.array([ledger_id.signed for ledger_id in asked]).T)

    assert [expected.get(ledger_id) for ledger_id in asked] == [
        None if number < 0 else owners.owners[number] for number in numbers.tolist()
    ]


def test_choosing() -> None:
    """The filter chooses by owner; owners keep their numbers, so that sums go on."""
    expected = _random_owners(2)
    owners = LedgerOwners(expected.items())
    chosen = owners.choose(OwnerFilter(tenant="a"))

    assert chosen.ledgers() == sorted(each for each in expected if expected[each].tenant == "a")
    assert owners.owners == chosen.owners
    assert all(expected[each] == chosen.get(each) for each in chosen.ledgers())
    assert [] == owners.choose(OwnerFilter(tenant="")).ledgers()
    assert [] == LedgerOwners().choose(OwnerFilter(tenant="*")).ledgers()


def test_entry_counts_of_unsorted_pairs() -> None:
    """Counts belong to the pairs in the order in which they are given, also after a choice."""
    expected = {ledger_id: n for n, ledger_id in enumerate(_random_owners(3), 1)}
    owners = _random_owners(3)
    numbered = LedgerOwners(owners.items(), [*expected.values()])
    absent = LedgerId(9, 9)
    ids = np.array([each.signed for each in (*expected, absent)]).T

    assert [*expected.values(), 0] == numbered.entries_of(*ids).tolist()
    chosen = numbered.choose(OwnerFilter(tenant="a"))

    assert [
        expected[each] if each in owners and owners[each].tenant == "a" else 0
        for each in (*expected, absent)
    ] == chosen.entries_of(*ids).tolist()


def test_a_ledger_that_is_listed_twice() -> None:
    """It could have two owners."""
    pairs = [(LedgerId.of(number), LedgerOwner()) for number in (3, 1, 3)]
    with pytest.raises(InvalidArgument, match="ledger 3 is given twice"):
        LedgerOwners(pairs)


def test_metadata_that_cannot_be_read(tmp_path: Path) -> None:
    """The ledger is listed with an unknown owner, and its error is told."""
    with_files = DirectoryStore(tmp_path)
    for number in (4, 5):
        with_files.create(ledger(number, owned()))
    (file,) = [path for path in tmp_path.rglob("*") if path.name.endswith("L0005")]
    file.write_bytes(b"no metadata")
    unreadable: list[tuple[LedgerId, CorruptionError]] = []
    owners = read_owners(open_metadata(tmp_path), unreadable=unreadable)

    assert [LedgerId.of(4), LedgerId.of(5)] == owners.ledgers()
    assert LedgerOwner() == owners.get(LedgerId.of(5))
    assert [LedgerId.of(5)] == [ledger_id for ledger_id, _ in unreadable]
    assert [LedgerId.of(4)] == read_owners(with_files, [LedgerId.of(4), LedgerId.of(9)]).ledgers()
