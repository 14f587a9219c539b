"""BP-34's rules, one by one: each test fails when its rule is taken out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bkstore.availability import Availability
from bkstore.cluster import MemoryStore
from bkstore.cluster.audit import AuditOptions, Auditor, AuditReport, EntriesOfLedger
from bkstore.cluster.placement import Adherence, RackPlacement
from bkstore.cluster.store import KeyValueStore
from bkstore.errors import (
    BookieUnavailable,
    CorruptionError,
    InvalidArgument,
    NoSuchLedger,
)
from bkstore.formats.ledgermetadata import Mark
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata

NOW = 1_000_000.0
B3 = ("b1", "b2", "b3")


MADE: Any = LedgerMetadata


def closed(ledger: int = 7, last: int = 5, ensemble: Any = B3, **fields: Any) -> LedgerMetadata:
    """A closed ledger with E = W = 3 (or all of the ensemble), A = 2 and one segment."""
    given = {
        "segments": [(0, ensemble)],
        "state": "CLOSED",
        "last_entry_id": last,
        "length": 10 * (last + 1),
        "digest_type": "CRC32C",
        "password": b"",
    }
    size = len(ensemble)
    made: LedgerMetadata = MADE(ledger, size, size, min(2, size), **given | fields)
    return made


class Holder:
    """A bookie that holds what it is told, and does something when it is asked."""

    def __init__(self, *entries: int, then: Callable[[], Any] = lambda: None) -> None:
        """Take the entries of every ledger, and what happens at each question."""
        self.entries, self.then, self.asked = entries, then, 0

    def availability(self, _: int | LedgerId) -> Availability:
        """Let it happen, then answer."""
        self.asked += 1
        self.then()
        return Availability.from_entries(self.entries)


class Down:
    """A bookie that gives no answer so many times, then holds all."""

    def __init__(self, times: int = 10**9) -> None:
        """Take how often it fails."""
        self.left, self.asked = times, 0

    def availability(self, _: int | LedgerId) -> Availability:
        """Fail, or answer."""
        self.asked += 1
        if self.left > 0:
            self.left -= 1
            raise BookieUnavailable("connection refused")
        return Availability.from_ranges([(0, 5)])


FULL = Holder(*range(6))


def store_of(*ledgers: LedgerMetadata) -> MemoryStore:
    """A store with these ledgers, in which b1 to b3 are registered."""
    store = MemoryStore()
    for each in ledgers:
        store.create(each)
    for bookie in B3:
        store.register_bookie(bookie)
    return store


def audit(
    store: Any, third: Any = FULL, waits: list[float] | None = None, **options: Any
) -> AuditReport:
    """Run an audit in which the third bookie is the one in question."""
    settings = AuditOptions(**{"looks": 2, "look_delay": 30.0, "grace_period": 100.0} | options)
    wait = (waits if waits is not None else []).append
    bookies = {"b1": FULL, "b2": FULL, "b3": third}
    return Auditor(store, bookies, options=settings, clock=lambda: NOW, wait=wait).run()


def _categories(report: AuditReport) -> list[tuple[str, int]]:
    return [(each.category, each.ledger.ledger) for each in report.violations]


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

    assert [("below_write_quorum", 8)] == _categories(report)
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
    store.mark_underreplicated(7, Mark(NOW - 50))
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
        store.mark_underreplicated(ledger, Mark(NOW - age, ("b3",)))
    report = audit(store, Holder())

    assert ([("overdue", 7), ("overdue", 8)] if overdue else []) == _categories(report)
    assert {"underreplicated": 2} == dict(report.skipped)
    assert 2 * overdue == report.stats["NUM_UNDERREPLICATED_LEDGERS_ELAPSED_RECOVERY_GRACE_PERIOD"]
    assert all("missing bookies: b3" in each.detail for each in report.violations)


def test_marks_are_not_judged_without_a_grace_period() -> None:
    """Without a grace period no mark is overdue, and the report says that it did not judge."""
    store = store_of(closed())
    store.mark_underreplicated(7, Mark(0.0))
    report = audit(store, grace_period=None)

    assert [] == report.violations
    assert ["overdue marks, no grace period is given"] == report.not_judged


def test_a_mark_without_a_time_is_not_judged() -> None:
    """A mark of which nobody knows the age is skipped, and the report says so."""
    store = store_of(closed())
    store.mark_underreplicated(7, Mark(None))
    report = audit(store)

    assert ([], ["1 marks, they have no time"]) == (report.violations, report.not_judged)


# -- the second look


def test_a_mark_between_two_looks_voids_the_verdict() -> None:
    """A mark that appears while the ledger is judged makes it one that is being repaired."""
    store = store_of(closed())
    third = Holder(then=lambda: store.mark_underreplicated(7, Mark(NOW)))
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

    assert [("bookie_unavailable", 7)] == _categories(report)  # nobody answers for b4
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


def test_one_look_is_enough_where_nothing_is_amiss() -> None:
    """A sound ledger costs one read of its metadata, one with a loss two."""
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

    assert [7, 8, 7] == [each.ledger for each in reads]


# -- unreachable bookies


def test_a_bookie_back_at_the_second_look() -> None:
    """What could not be asked is asked again after the delay; then all is well."""
    third, waits = Down(1), list[float]()
    report = audit(store_of(closed()), third, waits)

    assert ([30.0], 2, True) == (waits, third.asked, report.clean)
    assert 1 == report.checked


def test_a_bookie_back_at_the_last_look() -> None:
    """The number of looks is a parameter, and the last one counts, too."""
    third, waits = Down(3), list[float]()
    report = audit(store_of(closed()), third, waits, looks=3)

    assert ([30.0] * 3, True) == (waits, report.clean)


def test_registered_but_silent() -> None:
    """A bookie that is registered and gives no answer to any look is a violation."""
    third, waits = Down(), list[float]()
    store = store_of(closed())
    store.set_unavailable("b3")
    report = audit(store, third, waits)
    (row,) = report.violations

    assert ("bookie_unavailable", 0, "b3", 0) == (row[0], row[2], row[3], len(row.missing))
    assert "no answer: connection refused; it is registered" == row.detail
    assert (3, [30.0, 30.0]) == (third.asked, waits)


def test_unregistered_and_nobody_knows() -> None:
    """A silent bookie whose unavailability the auditor does not know of is a violation."""
    store = store_of(closed())
    store.unregister_bookie("b3")
    report = audit(store, Down())

    assert [("bookie_unavailable", 7)] == _categories(report)
    assert report.violations[0].detail.endswith("; its unavailability is not known")


def test_unregistered_and_known() -> None:
    """A bookie that is gone, and known to be, is what replication is for: no violation."""
    store = store_of(closed())
    store.unregister_bookie("b3")
    store.set_unavailable("b3")
    report = audit(store, Down())

    assert ([], {"b3": 1}) == (report.violations, dict(report.excused))
    assert report.clean


def test_losses_beside_a_silent_bookie_are_reported_once() -> None:
    """What the other bookies lack is reported with the last look, not with each."""
    store = store_of(closed())
    bookies: dict[str, EntriesOfLedger] = {"b1": FULL, "b2": Holder(0), "b3": Down()}
    options = AuditOptions(looks=2, look_delay=0)
    report = Auditor(store, bookies, options=options, wait=lambda _: None).run()

    assert [("below_write_quorum", 7), ("bookie_unavailable", 7)] == _categories(report)


def test_not_told_is_not_judged() -> None:
    """Where the store does not tell of bookies, silence is no violation, and nothing is clean."""
    store = KeyValueStore(store_of(closed())._values, tells=frozenset())
    report = audit(store, Down(), looks=0)

    assert ([], {LedgerId(0, 7): ("b3",)}) == (report.violations, report.unanswered)
    assert not report.clean
    assert 3 == len(report.not_judged)


def test_an_error_is_no_answer_and_no_loss() -> None:
    """A bookie that cannot read its index is not taken for one that has nothing."""

    class Broken(Holder):
        def availability(self, _: int | LedgerId) -> Availability:
            raise CorruptionError("7.idx", 8, "master key length -3 is negative")

    report = audit(store_of(closed()), Broken())

    assert [("bookie_unavailable", 7)] == _categories(report)
    assert "7.idx: offset 8" in report.violations[0].detail


def test_no_such_ledger_is_nothing_there() -> None:
    """A bookie that does not know the ledger holds none of it."""

    class Without(Holder):
        def availability(self, ledger: int | LedgerId) -> Availability:
            raise NoSuchLedger(f"ledger {ledger}")

    report = audit(store_of(closed()), Without())

    assert [("below_write_quorum", 7)] == _categories(report)
    assert 6 == len(report.violations[0].missing)


def test_a_dead_bookie_is_not_asked_forever() -> None:
    """After some failures in a row the rest of the question is put off to the next look."""
    third = Down()
    store = store_of(*(closed(number) for number in range(64)))
    report = audit(store, third, looks=0)

    assert 5 == third.asked
    assert 64 == len(report.violations)
    assert "not asked after 5 failures" in report.violations[-1].detail


def test_failures_count_in_a_row() -> None:
    """A bookie that answers in between is asked about all ledgers."""

    class Flaky(Down):
        def availability(self, ledger: int | LedgerId) -> Availability:
            self.left = LedgerId.of(ledger).ledger % 2
            return super().availability(ledger)

    third = Flaky()
    report = audit(store_of(*(closed(number) for number in range(40))), third, looks=0)

    assert (40, 20) == (third.asked, len(report.violations))


def test_later_looks_are_at_the_ledgers_of_all_batches() -> None:
    """Silence in several batches: each of the ledgers is looked at again."""
    third = Down(3)
    report = audit(store_of(*(closed(number) for number in range(3))), third, batch=1)

    assert (6, 3, True) == (third.asked, report.checked, report.clean)


# -- placement


def test_every_segment_is_judged_by_the_policy() -> None:
    """A segment that fails is reported, an empty one, too; the ledger counts once."""
    racks = {"b1": "/r1", "b2": "/r1", "b3": "/r1", "b4": "/r2"}
    segments = [(0, ("b1", "b2")), (3, ("b1", "b4")), (6, ("b2", "b3"))]
    metadata = closed(segments=segments, ensemble=("b1", "b2"))
    store = store_of(metadata)
    bookies = dict.fromkeys(("b1", "b2", "b3", "b4"), FULL)
    policy = RackPlacement(racks)
    report = Auditor(store, bookies, placement=policy, options=AuditOptions(looks=0)).run()

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
    options = AuditOptions(looks=0)
    bookies = dict.fromkeys(B3, FULL)
    report = Auditor(store, bookies, placement=Policy({}), options=options).run()
    rows = [("placement_soft", 7), ("placement_soft", 8), ("placement", 8)]

    assert rows == _categories(report)
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
    assert "does not begin after the one before it" in reasons[1]
    assert "last entry 5 lies before segment 9" in reasons[2]
    assert "write quorum 3 is outside 1..2" in reasons[3]
    assert [("below_write_quorum", 4)] == _categories(report)
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
        {"looks": -1},
        {"look_delay": -1.0},
        {"redo_limit": -1},
        {"concurrency": 0},
        {"batch": 0},
        {"grace_period": 0.0},
        {"grace_period": float("nan")},
        {"compat": "zookeeper"},
    ],
    ids=str,
)
def test_options_that_mean_nothing(wrong: dict[str, Any]) -> None:
    """A number outside what it can be is refused by name."""
    (name,) = wrong
    with pytest.raises(InvalidArgument, match=name.replace("_", "[ _]")):
        AuditOptions(**wrong)
