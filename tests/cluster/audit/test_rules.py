"""BP-34's rules, one by one: each test fails when its rule is taken out."""

from __future__ import annotations

from typing import Any

import pytest

from bkstore.availability import Availability
from bkstore.cluster import MemoryStore
from bkstore.cluster.audit import AuditOptions, Auditor
from bkstore.cluster.placement.policies import Adherence, RackPlacement
from bkstore.errors import (
    InvalidArgument,
)
from bkstore.formats.metadata.underreplication import UnderreplicatedMark, mark_path
from bkstore.ids import LedgerId
from tests.worlds.audits import (
    B3,
    FULL,
    MADE,
    NOW,
    Down,
    Holder,
    audit,
    categories,
    closed,
    store_of,
)

# -- which ledgers


def test_a_loss_is_reported_in_full() -> None:
    """A row has category, ledger, segment, bookie, the missing entries and the ensemble."""
    report = audit(store_of(closed()), Holder(0, 1, 4))
    (row,) = report.violations

    assert ("below_write_quorum", 7, 0, "b3") == (row[0], row[1].ledger, row[2], row[3])
    assert [2, 3, 5] == row.missing.entries().tolist()
    assert "index 2 of b1 b2 b3; W 3, A 2" in row.detail
    assert (1, {"below_write_quorum": 1}) == (report.checked, dict(report.counts))
    assert not report.clean


def test_a_sound_cluster_is_clean() -> None:
    """Nothing is reported, and everything was asked."""
    report = audit(store_of(closed(), closed(8)))

    assert ([], 2, 6) == (report.violations, report.checked, report.replicas)
    assert report.clean


def test_no_ledgers_no_verdict() -> None:
    """A store without ledgers gives a report that says that nothing was checked."""
    report = audit(MemoryStore())

    assert (0, 0) == (report.ledgers, report.checked)
    assert "0 of 0 ledgers checked" in report.summary()[-1]


@pytest.mark.parametrize("state", ["OPEN", "IN_RECOVERY"])
def test_only_closed_ledgers(state: str) -> None:
    """Open ledgers and those in recovery are skipped, counted, and not asked about."""
    third = Holder()
    store = store_of(closed(last=-1, length=0, state=state), closed(8))
    report = audit(store, third)

    assert [("below_write_quorum", 8)] == categories(report)
    assert ({state.lower(): 1}, 1) == (dict(report.skipped), report.checked)
    assert 1 == third.asked


def test_an_empty_ledger_asks_nobody() -> None:
    """A closed ledger without entries is checked, counts as empty, and asks no bookie."""
    third = Down()
    report = audit(store_of(closed(last=-1)), third)

    assert (1, 1, 0, []) == (report.checked, report.empty, third.asked, report.violations)


def test_empty_segments_ask_nobody() -> None:
    """A bookie that is only in a segment without entries is not asked."""
    third = Down()
    segments = [(0, ("b1", "b2")), (6, ("b1", "b3"))]
    report = audit(store_of(closed(segments=segments, ensemble=("b1", "b2"))), third)

    assert (0, []) == (third.asked, report.violations)


def test_a_short_segment_asks_only_who_has_a_stripe() -> None:
    """A bookie to which no entry of the segment goes is not asked."""
    third = Down()
    metadata = MADE(7, 3, 1, 1, [(0, B3)], state="CLOSED", last_entry_id=1, length=2)
    report = audit(store_of(metadata), third)

    assert (0, True) == (third.asked, report.clean)


# -- marks


def test_a_marked_ledger_is_skipped() -> None:
    """A ledger marked underreplicated is left to its repair."""
    store = store_of(closed())
    store.mark_underreplicated(7, UnderreplicatedMark(NOW - 50))
    report = audit(store, Holder())

    assert ([], {"underreplicated": 1}, 0) == (
        report.violations,
        dict(report.skipped),
        report.checked,
    )
    assert report.clean


@pytest.mark.parametrize(("age", "overdue"), [(99.0, False), (100.0, False), (100.5, True)])
def test_an_overdue_mark_is_a_violation(age: float, overdue: bool) -> None:
    """A mark older than the grace period is reported, also on a ledger that is open."""
    store = store_of(closed(), closed(8, last=-1, length=0, state="OPEN"))
    for ledger in (7, 8):
        store.mark_underreplicated(ledger, UnderreplicatedMark(NOW - age, ("b3",)))
    report = audit(store, Holder())

    assert ([("overdue", 7), ("overdue", 8)] if overdue else []) == categories(report)
    assert {"underreplicated": 2} == dict(report.skipped)
    assert 2 * overdue == report.stats["NUM_UNDERREPLICATED_LEDGERS_ELAPSED_RECOVERY_GRACE_PERIOD"]
    assert all("missing bookies: b3" in each.detail for each in report.violations)


def test_marks_are_not_judged_without_a_grace_period() -> None:
    """Without a grace period no mark is overdue, and the report says that it did not judge."""
    store = store_of(closed())
    store.mark_underreplicated(7, UnderreplicatedMark(0.0))
    report = audit(store, grace_period=None)

    assert [] == report.violations
    assert ["overdue marks: no grace period was given (--grace-period SECONDS)"] == (
        report.unchecked_rules
    )


def test_a_mark_without_a_time_is_not_judged() -> None:
    """A mark of which nobody knows the age is skipped, and the report says so."""
    store = store_of(closed())
    store.mark_underreplicated(7, UnderreplicatedMark(None))
    report = audit(store)

    assert ([], ["1 mark without a time"]) == (report.violations, report.unchecked_rules)


def test_a_mark_that_went_is_none() -> None:
    """A mark that was removed after the marks were listed saves no ledger, and is not overdue."""
    store = store_of(closed(7), closed(8))
    store.mark_underreplicated(8, UnderreplicatedMark(0.0))

    class Clearing(Holder):
        def availability(self, ledger: int | LedgerId) -> Availability:
            store.clear_mark(8)
            return super().availability(ledger)

    report = audit(store, Clearing(0), batch=1)

    assert [("below_write_quorum", 7), ("below_write_quorum", 8)] == categories(report)
    assert {} == dict(report.skipped)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_mark_that_cannot_be_read(when: str) -> None:
    """A damaged mark is named and its ledger not judged; the others are, and nothing is clean."""
    store = store_of(closed(7), closed(8))

    def damage() -> None:
        if store._values.get(mark_path(7)) is None:
            store._values.put(mark_path(7), b"replica: x", None)

    if when == "before":
        damage()
    report = audit(store, Holder(0, then=damage))
    ((name, why),) = report.unreadable

    assert [("below_write_quorum", 8)] == categories(report)
    assert LedgerId.of(7) == name
    assert why.startswith("its mark: ")
    assert not report.clean


def test_marks_are_listed_once_and_read_where_they_count() -> None:
    """A run lists the marks once; it reads those of its batch, and, where something is amiss,
    the ledger's own once more."""
    calls: list[Any] = []

    class Counting(MemoryStore):
        def marked(self) -> Any:
            calls.append("marked")
            return super().marked()

        def mark_of(self, ledger: int | LedgerId) -> Any:
            calls.append(LedgerId.of(ledger).ledger)
            return super().mark_of(ledger)

    store = Counting()
    for number in (6, 7, 8, 9):
        store.create(closed(number))
    store.mark_underreplicated(9, UnderreplicatedMark(NOW))

    class Half(Holder):
        def availability(self, ledger: int | LedgerId) -> Availability:
            return Availability.from_entries(range(6 if LedgerId.of(ledger).ledger == 8 else 5))

    audit(store, Half(), batch=2)

    assert ["marked", 6, 7, 9] == calls


def test_as_built_a_mark_saves_from_the_replicas_check_only() -> None:
    """As built, the placement of a marked ledger is judged, beside its age; nobody is asked."""
    store = store_of(closed(), closed(8))
    store.mark_underreplicated(7, UnderreplicatedMark(NOW - 101, ("b3",)))
    third = Holder()
    bookies = {"b1": FULL, "b2": FULL, "b3": third}
    auditor = Auditor(
        store,
        bookies,
        placement=RackPlacement(dict.fromkeys(B3, "/one")),
        options=AuditOptions(grace_period=100.0, compat="bookkeeper"),
        clock=lambda: NOW,
    )
    report = auditor.run()

    assert [("overdue", 7), ("placement", 7), ("below_write_quorum", 8), ("placement", 8)] == (
        sorted(categories(report), key=lambda each: (each[1], each[0] == "placement"))
    )
    assert 1 == third.asked


# -- the second look


def test_a_mark_between_two_looks_voids_the_verdict() -> None:
    """A mark that appears while the ledger is judged makes it one that is being repaired."""
    store = store_of(closed())
    third = Holder(then=lambda: store.mark_underreplicated(7, UnderreplicatedMark(NOW)))
    report = audit(store, third)

    assert ([], {"underreplicated": 1}) == (report.violations, dict(report.skipped))


def test_changed_metadata_begin_the_ledger_anew() -> None:
    """Metadata that change under the check are judged as they are now."""
    store = store_of(closed())

    def move() -> None:
        version = store.read(7)
        if version.version == 0:
            store.write(closed(segments=[(0, ("b1", "b2", "b4"))]), 0)

    report = audit(store, Holder(then=move))

    (row,) = report.violations

    assert ("bookie_unavailable", "b4") == (row.category, row.bookie)  # nobody answers for it
    assert 1 == report.redone


def test_a_ledger_created_again_is_another_one() -> None:
    """Equal version, other metadata: it counts as changed."""
    store = store_of(closed())
    done: list[int] = []

    def again() -> None:
        if not done:
            done.append(1)
            store.delete(7)
            store.create(closed(last=0))

    report = audit(store, Holder(0, then=again))

    assert ([], 1, 1) == (report.violations, report.redone, report.checked)


def test_a_ledger_that_keeps_changing_is_said_not_judged() -> None:
    """Redoing is bounded; what could not be judged is listed, and the run is not clean."""
    store = store_of(closed())

    def bump() -> None:
        metadata, version = store.read(7)
        store.write(metadata, version)

    third = Holder(then=bump)
    report = audit(store, third, redo_limit=4)

    assert ([], [LedgerId(0, 7)], 0) == (report.violations, report.unsettled, report.checked)
    assert (5, 4, False) == (third.asked, report.redone, report.clean)


def test_a_ledger_deleted_meanwhile_is_gone() -> None:
    """A ledger that goes while it is judged is no violation."""
    store = store_of(closed())
    report = audit(store, Holder(then=lambda: store.delete(7)))

    assert ([], {"gone": 1}) == (report.violations, dict(report.skipped))
    assert 0 == report.redone


def test_one_look_is_enough_where_nothing_is_amiss() -> None:
    """A sound ledger costs one read of its metadata, one with a loss three: the third is for the
    owner."""
    reads: list[LedgerId] = []

    class Counting(MemoryStore):
        def read(self, ledger: int | LedgerId) -> Any:
            reads.append(LedgerId.of(ledger))
            return super().read(ledger)

    store = Counting()
    for number in (7, 8):
        store.create(closed(number))

    class Half(Holder):
        def availability(self, ledger: int | LedgerId) -> Availability:
            return Availability.from_entries(range(6 if LedgerId.of(ledger).ledger == 8 else 5))

    audit(store, Half())

    assert [7, 8, 7, 7] == [each.ledger for each in reads]


# -- placement


def test_every_segment_is_judged_by_the_policy() -> None:
    """A segment that fails is reported, an empty one, too; the ledger counts once."""
    racks = {"b1": "/r1", "b2": "/r1", "b3": "/r1", "b4": "/r2"}
    segments = [(0, ("b1", "b2")), (3, ("b1", "b4")), (6, ("b2", "b3"))]
    metadata = closed(segments=segments, ensemble=("b1", "b2"))
    store = store_of(metadata)
    bookies = dict.fromkeys(("b1", "b2", "b3", "b4"), FULL)
    policy = RackPlacement(racks)
    report = Auditor(store, bookies, placement=policy, options=AuditOptions(rechecks=0)).run()

    assert [("placement", 0), ("placement", 6)] == [(v[0], v[2]) for v in report.violations]
    assert {"placement": 1} == dict(report.counts)
    assert "b1 b2: 1 of 2 racks" in report.violations[0].detail


def test_soft_adherence_counts_only_where_nothing_fails() -> None:
    """A ledger that fails somewhere does not count as softly adhering."""

    class Policy(RackPlacement):
        def judge(self, ensemble: Any, *_: int) -> tuple[Adherence, str]:
            return (Adherence.FAIL if "b3" in ensemble else Adherence.MEETS_SOFT), "why"

    two = closed(8, segments=[(0, ("b1", "b2")), (3, ("b1", "b3"))], ensemble=("b1", "b2"))
    store = store_of(closed(7, ensemble=("b1", "b2")), two)
    options = AuditOptions(rechecks=0)
    bookies = dict.fromkeys(B3, FULL)
    report = Auditor(store, bookies, placement=Policy({}), options=options).run()
    rows = [("placement_soft", 7), ("placement_soft", 8), ("placement", 8)]

    assert rows == categories(report)
    assert {"placement_soft": 1, "placement": 1} == dict(report.counts)


# -- metadata that are none


def test_contradictions_are_not_judged() -> None:
    """W > E, overlapping segments, an end below a segment: named, not judged, not clean."""
    store = store_of(
        closed(1, segments=[(0, B3), (0, B3)]),
        closed(2, segments=[(0, B3), (9, B3)]),
        MADE(3, 2, 3, 2, [(0, ("b1", "b2"))], state="CLOSED", last_entry_id=5),
        closed(4),
    )
    report = audit(store, Holder())
    reasons = {name.ledger: why for name, why in report.unreadable}

    assert {1, 2, 3} == set(reasons)
    assert "does not begin after the previous one" in reasons[1]
    assert "last entry 5 is before segment 9" in reasons[2]
    assert "write quorum 3 is outside 1..2" in reasons[3]
    assert [("below_write_quorum", 4)] == categories(report)
    assert (1, False) == (report.checked, report.clean)


def test_unreadable_metadata_are_not_a_lost_ledger() -> None:
    """Damage of one ledger's metadata is in the report; the others are judged."""
    store = store_of(closed(7), closed(8))
    place = next(key for key in store._values.keys("/") if key.endswith("L0007"))
    store._values.put(place, b"BookieMetadataFormatVersion\t9\n", 0)
    report = audit(store)

    assert [(LedgerId(0, 7))] == [name for name, _ in report.unreadable]
    assert "version 9 is outside 1..3" in report.unreadable[0][1]
    assert (1, False) == (report.checked, report.clean)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rechecks": -1},
        {"recheck_delay": -1.0},
        {"recheck_delay": 1e300},
        {"redo_limit": -1},
        {"concurrency": 0},
        {"batch": 0},
        {"grace_period": 0.0},
        {"grace_period": float("nan")},
        {"rate": 0.0},
        {"rate": 1e-300},
        {"compat": "zookeeper"},
    ],
    ids=str,
)
def test_options_that_mean_nothing(wrong: dict[str, Any]) -> None:
    """A number outside what it can be is refused by name."""
    (name,) = wrong
    with pytest.raises(InvalidArgument, match=name.replace("_", "[ _]")):
        AuditOptions(**wrong)
