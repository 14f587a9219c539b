"""Marks, locks, settings and votes, in the form of `store_operations`."""

from __future__ import annotations

from collections.abc import Iterator

from bkstore.errors import IllegalOperation
from bkstore.formats.metadata.underreplication import UnderreplicatedMark
from bkstore.ids import LedgerId
from tests.cluster.store.zookeeper.store_operations import Here, Operation

__all__ = ["MARK_OPERATIONS"]

MARK_OPERATIONS: dict[str, Operation] = {}


def operation(work: Operation) -> Operation:
    """Add an operation to the table, by its name."""
    MARK_OPERATIONS[work.__name__] = work
    return work


@operation
def mark(here: Here) -> Iterator[None]:
    yield
    assert here.store.underreplication.mark(7, ["b1"])
    yield
    made = here.other.mark_of(7)
    assert made is not None
    assert ("b1",) == made.missing_bookies


@operation
def add_to_a_mark(here: Here) -> Iterator[None]:
    here.other.underreplication.mark(7, ["b1"], timed=False)
    yield
    assert here.store.underreplication.mark(7, ["b2"], timed=False)
    yield
    assert UnderreplicatedMark(None, ("b1", "b2")) == here.other.mark_of(7)


@operation
def set_a_mark(here: Here) -> Iterator[None]:
    here.other.mark_underreplicated(7, UnderreplicatedMark(5.0))
    yield
    here.store.mark_underreplicated(7, UnderreplicatedMark(6.0, ("b1",)))
    here.store.mark_underreplicated(8, UnderreplicatedMark(7.0))
    yield
    assert {
        LedgerId.of(7): UnderreplicatedMark(6.0, ("b1",)),
        LedgerId.of(8): UnderreplicatedMark(7.0),
    } == here.other.underreplicated()


@operation
def clear_a_mark(here: Here) -> Iterator[None]:
    here.other.mark_underreplicated(7, UnderreplicatedMark(5.0))
    yield
    here.store.clear_mark(7)
    yield
    assert {} == here.other.underreplicated()


@operation
def read_marks(here: Here) -> Iterator[None]:
    marks = {LedgerId.of(number): UnderreplicatedMark(float(number)) for number in (7, 2**40)}
    for name, its in marks.items():
        here.other.mark_underreplicated(name, its)
    yield
    assert marks == here.store.underreplicated()
    assert marks[LedgerId.of(7)] == here.store.mark_of(7)


@operation
def take_and_copy(here: Here) -> Iterator[None]:
    here.other.underreplication.mark(7, ["b1"])
    marks = here.store.underreplication
    yield
    lock = marks.lock_any()
    assert lock is not None
    try:
        assert marks.mark_replicated(lock)
        copied = True
    except IllegalOperation:
        assert here.ended  # the lock went with the session, and says so
        copied = False
    yield
    assert copied == (here.other.mark_of(7) is None)
    again = here.other.underreplication.lock(7)
    assert again is not None
    assert here.other.underreplication.holder(7) is not None


@operation
def lock_and_release(here: Here) -> Iterator[None]:
    marks = here.store.underreplication
    yield
    lock = marks.lock(7)
    assert lock is not None
    marks.release(lock)
    yield
    assert here.other.underreplication.holder(7) is None


@operation
def lock_that_another_has(here: Here) -> Iterator[None]:
    assert here.other.underreplication.lock(7) is not None
    marks = here.store.underreplication
    yield
    assert marks.lock(7) is None
    assert marks.holder(7) is not None
    yield
    assert here.other.underreplication.holder(7) is not None


@operation
def switches(here: Here) -> Iterator[None]:
    marks = here.store.underreplication
    yield
    marks.disable()
    assert not marks.enabled
    marks.enable()
    marks.disable()
    yield
    assert not here.other.underreplication.enabled


@operation
def settings(here: Here) -> Iterator[None]:
    marks = here.store.underreplication
    yield
    marks.set_recovery_delay(5)
    marks.set_recovery_delay(6)
    marks.set_check_time("checkallledgersctime", 7)
    here.store.set_checked_at(8.0)
    assert (6, 7) == (marks.recovery_delay(), marks.check_time("checkallledgersctime"))
    yield
    assert 6 == here.other.underreplication.recovery_delay()
    assert 8.0 == here.other.checked_at()


@operation
def elections(here: Here) -> Iterator[None]:
    marks = here.store.underreplication
    yield
    try:
        vote = marks.vote("b1")
        assert marks.elected(vote)
        stands = True
    except IllegalOperation:
        assert here.ended  # the vote went with the session, and says so
        stands = False
    yield
    assert stands == (here.other.underreplication.auditor() == "b1")
    late = here.other.underreplication.vote("b2")
    assert stands != here.other.underreplication.elected(late)


@operation
def withdrawals(here: Here) -> Iterator[None]:
    marks = here.store.underreplication
    vote = marks.vote("b1")
    late = here.other.underreplication.vote("b2")
    yield
    marks.withdraw(vote)
    yield
    assert here.other.underreplication.elected(late)
