"""Bookies that give no answer to an audit: looked at again, then two questions decide."""

from __future__ import annotations

from typing import Any

import pytest

from bkstore.availability import Availability
from bkstore.cluster.audit import AuditOptions, Auditor, AvailabilitySource
from bkstore.cluster.store.key_value_store import KeyValueStore
from bkstore.errors import (
    CorruptionError,
    NoSuchLedger,
)
from bkstore.ids import LedgerId
from tests.worlds.audits import FULL, NOW, Down, Holder, audit, categories, closed, store_of

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
    report = audit(store_of(closed()), third, waits, rechecks=3)

    assert ([30.0] * 3, True) == (waits, report.clean)


def test_registered_but_silent() -> None:
    """A bookie that is registered and gives no answer to any look is a violation."""
    third, waits = Down(), list[float]()
    store = store_of(closed())
    store.set_unavailable("b3")
    report = audit(store, third, waits)
    (row,) = report.violations

    assert ("bookie_unavailable", 0, "b3", None) == (row[0], row[2], row[3], row.missing)
    assert "no answer: connection refused; it is registered" == row.detail
    assert (3, [30.0, 30.0]) == (third.asked, waits)


def test_unregistered_and_nobody_knows() -> None:
    """A silent bookie whose unavailability the auditor does not know of is a violation."""
    store = store_of(closed())
    store.unregister_bookie("b3")
    report = audit(store, Down())

    assert [("bookie_unavailable", 7)] == categories(report)
    assert report.violations[0].detail.endswith("; it is not listed as unavailable")


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
    bookies: dict[str, AvailabilitySource] = {"b1": FULL, "b2": Holder(0), "b3": Down()}
    options = AuditOptions(rechecks=2, recheck_delay=0)
    report = Auditor(store, bookies, options=options, wait=lambda _: None).run()

    assert [("below_write_quorum", 7), ("bookie_unavailable", 7)] == categories(report)


def test_not_told_is_not_judged() -> None:
    """Where the store does not tell of bookies, silence is no violation, and nothing is clean."""
    store = KeyValueStore(store_of(closed())._values, known_lists=frozenset())
    report = audit(store, Down(), rechecks=0)

    assert ([], {LedgerId(0, 7): ("b3",)}) == (report.violations, report.unanswered)
    assert not report.clean
    assert 3 == len(report.unchecked_rules)


def test_an_error_is_no_answer_and_no_loss() -> None:
    """A bookie that cannot read its index is not taken for one that has nothing."""

    class Broken(Holder):
        def availability(self, _: int | LedgerId) -> Availability:
            raise CorruptionError("7.idx", 8, "master key length -3 is negative")

    report = audit(store_of(closed()), Broken())

    assert [("bookie_unavailable", 7)] == categories(report)
    assert "7.idx: offset 8" in report.violations[0].detail


def test_no_such_ledger_is_nothing_there() -> None:
    """A bookie that does not know the ledger holds none of it."""

    class Without(Holder):
        def availability(self, ledger: int | LedgerId) -> Availability:
            raise NoSuchLedger(f"ledger {ledger}")

    report = audit(store_of(closed()), Without())

    assert [("below_write_quorum", 7)] == categories(report)
    assert 6 == len(report.violations[0].missing)


def test_a_dead_bookie_is_not_asked_forever() -> None:
    """After some failures in a row the rest of the question is put off to the next look."""
    third = Down()
    store = store_of(*(closed(number) for number in range(64)))
    report = audit(store, third, rechecks=0)

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
    report = audit(store_of(*(closed(number) for number in range(40))), third, rechecks=0)

    assert (40, 20) == (third.asked, len(report.violations))


def test_later_looks_are_at_the_ledgers_of_all_batches() -> None:
    """Silence in several batches: each of the ledgers is looked at again."""
    third = Down(3)
    report = audit(store_of(*(closed(number) for number in range(3))), third, batch=1)

    assert (6, 3, True) == (third.asked, report.checked, report.clean)


@pytest.mark.parametrize(("second", "without"), [(FULL, 1), (Down(), 0)])
def test_ledgers_for_which_only_absent_bookies_gave_no_answer(second: Any, without: int) -> None:
    """They are counted; a ledger with a violation of another silent bookie is not one of them."""
    options = AuditOptions(rechecks=0, grace_period=100.0)
    bookies = {"b1": FULL, "b2": second}
    report = Auditor(store_of(closed()), bookies, options=options, clock=lambda: NOW).run()

    assert ["b3"] == list(report.absent)
    assert without == report.without
    assert [1 - without] == [len({each.bookie for each in report.violations} & {"b2"})]
