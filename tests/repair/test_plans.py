"""Plans of repairs: every missing replica has a row, with a source that has it, or a reason."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from bkstore.availability import Availability
from bkstore.cluster import Cluster, MemoryStore
from bkstore.cluster.placement.policies import RackPlacement
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.ledger_metadata.owners import read_owner
from bkstore.repair import RepairOptions, RepairPlanner, ReplicaRepair, repairs_table

Planned = tuple[str, str, str | None, str | None, list[int]]


class ReadOnlyBookies(MemoryStore):
    """A store in which some of the registered bookies are read-only."""

    read_only: frozenset[str] = frozenset()

    def writable_bookies(self) -> frozenset[str] | None:
        """Return the others."""
        return (self.registered_bookies() or frozenset()) - self.read_only


@pytest.fixture
def running(bkstore_cluster: Any) -> Cluster:
    """Return five bookies of one storage."""
    made: Cluster = bkstore_cluster(5, store=ReadOnlyBookies())
    return made


def _written(running: Cluster, sizes: tuple[int, int, int], entries: int) -> LedgerId:
    with running.create_ledger(*sizes) as ledger:
        ledger.append_many(b"payload %d" % number for number in range(entries))
    return ledger.ledger


def _plan(running: Cluster, placement: Any = None, **options: Any) -> list[ReplicaRepair]:
    planner = RepairPlanner(
        running.store, running.bookies, placement=placement, options=RepairOptions(**options)
    )
    return planner.plan().repairs


def _rows(repairs: Iterable[ReplicaRepair]) -> list[Planned]:
    return [
        (each.action, each.bookie, each.source, each.target, each.missing.entries().tolist())
        for each in repairs
    ]


def _ensemble(running: Cluster, ledger: LedgerId) -> tuple[str, ...]:
    return running.store.read(ledger).metadata.segments[-1].ensemble


def test_nothing_to_repair(running: Cluster) -> None:
    """A cluster that lacks nothing has an empty plan, which is clean."""
    _written(running, (3, 2, 2), 10)
    plan = RepairPlanner(running.store, running.bookies).plan()

    assert [] == plan.repairs
    assert plan.is_clean
    assert not plan.checked_nothing
    assert "Nothing to repair" == plan.summary()[0]


def test_entries_go_back_to_the_bookie_that_lacks_them(running: Cluster) -> None:
    """Of a stripe, each entry has one other bookie: the plan names it, entry by entry."""
    ledger = _written(running, (3, 2, 2), 9)
    b1, b2, b3 = _ensemble(running, ledger)
    running.lose(b1, ledger, [0, 2, 3])  # of 0, 2, 3, 5, 6, 8; its neighbors have the others

    expected = [("write", b1, b2, b1, [0, 3]), ("write", b1, b3, b1, [2])]
    assert expected == _rows(_plan(running))


def test_no_copy_is_left(running: Cluster) -> None:
    """An entry that every bookie lacks has a row without a source, which says why."""
    ledger = _written(running, (2, 2, 2), 4)
    b1, b2 = _ensemble(running, ledger)
    running.lose(b1, ledger, [1, 2])
    running.lose(b2, ledger, [1])
    repairs = _plan(running)

    assert [("write", b1, None, b1, [1]), ("write", b1, b2, b1, [2])] == _rows(repairs[:2])
    assert ("write", b2, None, b2, [1]) == _rows(repairs)[2]
    assert ["impossible", "planned", "impossible"] == [each.status for each in repairs]
    assert "no sound copy: no bookie that answers has these entries" == repairs[0].detail


def test_a_bookie_that_is_gone_is_replaced(running: Cluster) -> None:
    """All its entries go to a bookie outside the ensemble, the same one in each plan."""
    ledger = _written(running, (3, 2, 2), 6)
    ensemble = _ensemble(running, ledger)
    gone = ensemble[1]
    running.crash(gone)
    repairs = _plan(running)
    (target,) = {each.target for each in repairs}

    assert target not in ensemble
    # Bookie 1 of 3 has entries 0, 1, 3, 4; of these 0 and 3 are at bookie 0, 1 and 4 at bookie 2.
    assert [
        ("replace", gone, ensemble[0], target, [0, 3]),
        ("replace", gone, ensemble[2], target, [1, 4]),
    ] == sorted(_rows(repairs), key=lambda row: row[4])
    assert repairs == _plan(running)


def test_a_bookie_that_is_gone_may_have_the_only_copy(running: Cluster) -> None:
    """An entry whose other replica is lost is impossible, and the row names the absent bookie."""
    ledger = _written(running, (2, 2, 2), 3)
    b1, b2 = _ensemble(running, ledger)
    running.lose(b1, ledger, [1])
    running.crash(b2)
    impossible = [each for each in _plan(running) if each.status == "impossible"]

    assert {("write", b1, (1,)), ("replace", b2, (1,))} == {
        (each.action, each.bookie, tuple(each.missing)) for each in impossible
    }
    assert all(f"{b2}, which is not registered, may have them" in e.detail for e in impossible)


def test_no_bookie_can_replace(running: Cluster) -> None:
    """With fewer bookies than the ensemble needs, the row says so."""
    _written(running, (5, 5, 3), 3)
    running.crash("bookie-1")
    (repair,) = _plan(running)

    assert ("replace", "impossible", "bookie-1") == (repair.action, repair.status, repair.bookie)
    assert "no bookie can replace it: 1 more bookies are needed, 0 are available" == repair.detail


def test_open_ledgers(running: Cluster) -> None:
    """The segments before the last one are repaired; the last one only by recovery."""
    ledger = running.create_ledger(3, 3, 2)
    ledger.append_many([b"one", b"two", b"three"])
    first = ledger.metadata.segments[0].ensemble
    running.crash(first[0])
    ledger.append(b"four")
    running.start(first[0])
    (_, _), (start, last) = ledger.metadata.segments
    assert 3 == start
    assert [] == _plan(running)  # also a bookie that lacks entries of the open segment

    running.lose(first[1], ledger.ledger, [0, 3])
    assert [("write", first[1], [0])] == [
        (each.action, each.bookie, list(each.missing)) for each in _plan(running)
    ]
    new = next(bookie for bookie in last if bookie not in first)
    running.crash(new)
    (repair,) = [each for each in _plan(running) if each.action == "recover"]
    assert ("impossible", new, 3) == (repair.status, repair.bookie, repair.first_entry)
    assert "--recover" in repair.detail
    assert "planned" in {each.status for each in _plan(running, recover=True) if each.bookie == new}


def test_read_only_bookies(running: Cluster) -> None:
    """They take no entries: a row says so, unless they may be replaced."""
    ledger = _written(running, (3, 3, 2), 4)
    ensemble = _ensemble(running, ledger)
    running.lose(ensemble[0], ledger, [1])
    running.store.read_only = frozenset({ensemble[0]})  # type: ignore[attr-defined]
    (repair,) = _plan(running)

    assert ("write", "impossible", (1,)) == (repair.action, repair.status, tuple(repair.missing))
    assert "read-only" in repair.detail
    replaced = _plan(running, replace_read_only=True)
    assert {"replace"} == {each.action for each in replaced}
    assert [0, 1, 2, 3] == sorted(entry for each in replaced for entry in each.missing)
    assert not {each.target for each in replaced} & set(ensemble)


def test_a_bookie_without_an_answer(running: Cluster) -> None:
    """A registered bookie that does not answer is away: nothing is written for it, and it is the
    last source, which may lack the entries."""
    ledger = _written(running, (3, 3, 2), 4)
    b1, b2, b3 = _ensemble(running, ledger)
    running.lose(b1, ledger, [0])
    running.lose(b2, ledger, [0])
    running.partition(b3)
    repairs = {each.bookie: each for each in _plan(running)}

    assert (b3, "planned") == (repairs[b1].source, repairs[b1].status)
    assert "it is not known whether the source has them" in repairs[b1].detail
    assert "impossible" == repairs[b3].status
    assert "it is registered" in repairs[b3].detail


def test_marked_ledgers_are_planned(running: Cluster) -> None:
    """A mark, which makes an audit skip a ledger, does not hide it from a repair."""
    ledger = _written(running, (2, 2, 1), 2)
    b1, b2 = _ensemble(running, ledger)
    running.lose(b2, ledger, [1])
    running.store.mark_underreplicated(ledger, UnderreplicatedMark(1.0, (b2,)))
    assert [("write", b2, b1, b2, [1])] == _rows(_plan(running))


def test_the_placement_policy_is_met(running: Cluster) -> None:
    """An ensemble on one rack moves one bookie, from itself, to another rack."""
    ledger = _written(running, (2, 2, 2), 3)
    b1, b2 = _ensemble(running, ledger)
    others = sorted(set(running.bookies) - {b1, b2})
    racks = {b1: "/r1", b2: "/r1"} | dict.fromkeys(others, "/r2")
    (repair,) = _plan(running, RackPlacement(racks, seed=0))

    assert "move" == repair.action
    assert repair.source == repair.bookie
    assert repair.target in others
    assert [0, 1, 2] == repair.missing.entries().tolist()
    everywhere_one = RackPlacement(dict.fromkeys(running.bookies, "/r1"), seed=0)
    (hopeless,) = _plan(running, everywhere_one)
    assert ("move", "impossible") == (hopeless.action, hopeless.status)


def test_segments_without_entries(running: Cluster) -> None:
    """An empty ledger names a bookie that is gone: only its metadata change."""
    with running.create_ledger(2, 2, 2) as ledger:
        pass
    gone = ledger.metadata.segments[0].ensemble[0]
    running.crash(gone)
    (repair,) = _plan(running)

    assert ("replace", gone, None) == (repair.action, repair.bookie, repair.source)
    assert "no entries: only the metadata change" == repair.detail


def test_rows_of_the_table() -> None:
    """Owner, ids and entries are in their columns, also for a scope."""
    custom = {
        "application": b"pulsar",
        "component": b"managed-ledger",
        "pulsar/managed-ledger": b"shop/orders/persistent/paid",
    }
    missing = Availability.from_entries([1, 3, 5, 8])
    ids = LedgerId(5, 2**63 + 7), 0, "b2", 1, "b1", "b2"
    repair = ReplicaRepair("write", "planned", *ids, missing, "", read_owner(custom))
    table = repairs_table([repair])
    columns = {column.name: table.columns[column.name][0] for column in table.schema.columns}

    assert (5, 7 - 2**63) == (columns["scope_id"], columns["ledger_id"])
    assert "persistent://shop/orders/paid" == columns["topic"]
    assert (4, 1, 8) == (
        columns["missing_entries"],
        columns["first_missing"],
        columns["last_missing"],
    )
    assert [[1, 1], [3, 3], [5, 5], [8, 8]] == columns["missing"]


def test_damaged_metadata_are_left_alone(running: Cluster) -> None:
    """Contradictory metadata get no rows, and the plan is not clean."""
    broken = LedgerMetadata(9, 2, 2, 2, [(0, ["b1", "b1"])], state="CLOSED", last_entry_id=3)
    running.store.create(broken)
    plan = RepairPlanner(running.store, running.bookies).plan()

    assert [] == plan.repairs
    assert not plan.is_clean
    assert any("ledger 9 not judged" in line for line in plan.summary())
