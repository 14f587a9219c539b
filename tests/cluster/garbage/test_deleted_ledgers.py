"""Which ledgers count as deleted: twice asked for, and never by half an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from bkstore.cluster.garbage.deleted_ledgers import DeletedLedgerFinder
from bkstore.cluster.store.api import Versioned
from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.errors import CorruptionError, IllegalOperation, MetadataUnavailable
from bkstore.ids import LedgerId
from bkstore.ledger_metadata import LedgerMetadata

HERE = [LedgerId(scope, ledger) for scope in (0, 5, 2**64 - 1) for ledger in (1, 2, 3)]


class Store(MemoryStore):
    """A store with sessions, whose calls may be changed; notes what it was asked for."""

    def __init__(self, *ledgers: LedgerId) -> None:
        super().__init__()
        self.session: int | None = 1
        self.asked: list[list[LedgerId]] = []
        self.hidden: set[LedgerId] = set()
        """Ledgers that its list lacks."""
        self.after_list: Callable[[], object] = lambda: None
        for ledger in ledgers:
            self.add(ledger)

    def add(self, ledger: LedgerId) -> None:
        """Make a ledger."""
        self.create(LedgerMetadata(ledger, 1, 1, 1, [(0, ["b1"])], digest_type="CRC32C"))

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """As asked, but for the hidden ones."""
        found = [ledger for ledger in super().ledgers(scope) if ledger not in self.hidden]
        self.after_list()
        return found

    def read_many(
        self, ledgers: Iterable[int | LedgerId]
    ) -> Iterator[tuple[LedgerId, Versioned | CorruptionError]]:
        """As asked."""
        names = list(map(LedgerId.of, ledgers))
        self.asked.append(names)
        return super().read_many(names)


def _nobody(_: list[LedgerId]) -> None:
    """Take suspects."""


def _deleted(store: MemoryStore, here: list[LedgerId] = HERE, **settings: Any) -> list[LedgerId]:
    judge = DeletedLedgerFinder(store, **{"rate": 1e9, "pause": lambda _: False, **settings})
    return [ledger for part in judge(here, _nobody) for ledger in part]


def test_what_the_store_does_not_have_is_deleted_in_all_scopes() -> None:
    """A ledger is one by scope and number; what the store has beyond those here does not count."""
    store = Store(HERE[0], HERE[4], HERE[8], LedgerId(0, 99))

    assert [HERE[at] for at in (1, 2, 3, 5, 6, 7)] == _deleted(store)


def test_a_ledger_that_a_list_lacks_is_asked_for_again() -> None:
    """One that is there after all is live: lists of a store that changes meanwhile may lack it.
    One whose metadata cannot be read is there, too."""
    store = Store(*HERE)
    store.hidden = {HERE[1], HERE[2]}
    store.delete(HERE[1])

    assert [HERE[1]] == _deleted(store)
    assert [[HERE[1], HERE[2]]] == store.asked

    def damaged(_: object) -> Iterator[tuple[LedgerId, CorruptionError]]:
        yield HERE[1], CorruptionError("/ledgers/x", 0, "damaged")
        yield HERE[2], CorruptionError("/ledgers/y", 0, "damaged")

    store.read_many = damaged  # type: ignore[method-assign, assignment]

    assert [] == _deleted(store)


def test_nothing_is_judged_where_the_list_fails() -> None:
    """What the store raises is raised, and no ledger was yielded before."""
    store = Store()

    def fail() -> None:
        raise MetadataUnavailable("no answer")

    store.after_list = fail
    judge = DeletedLedgerFinder(store, rate=1e9, pause=lambda _: False)
    with pytest.raises(MetadataUnavailable, match="no answer"):
        next(judge(HERE, _nobody))


@pytest.mark.parametrize("after", [2, None])
def test_nothing_is_judged_across_two_sessions(after: int | None) -> None:
    """A session that expired while ledgers were listed, or that is interrupted: another server
    may not know yet what the first one knew."""
    store = Store()
    store.after_list = lambda: setattr(store, "session", after)
    with pytest.raises(MetadataUnavailable, match="session"):
        _deleted(store)
    assert [] == store.asked


def test_nothing_is_judged_before_a_session_is_there() -> None:
    """The store is not even asked for its list."""
    store = Store()
    store.session = None
    store.after_list = lambda: pytest.fail("asked")
    with pytest.raises(MetadataUnavailable, match="interrupted"):
        _deleted(store)


def test_a_session_that_ends_later_ends_the_judgement() -> None:
    """Ledgers that were judged before it are deleted, no others."""
    store = Store()
    here = [LedgerId(0, number) for number in range(600)]
    judge = DeletedLedgerFinder(store, rate=1e9, pause=lambda _: False)
    parts = judge(here, _nobody)

    assert here[:256] == next(parts)

    store.session = 2
    with pytest.raises(MetadataUnavailable, match="expired"):
        next(parts)


@pytest.mark.parametrize("told", ["f00", None])
def test_another_cluster_judges_nothing(told: str | None) -> None:
    """A cluster that was made anew has no ledger of before, and another instance id."""
    store = Store()
    store.instance_id = lambda: told  # type: ignore[attr-defined]
    with pytest.raises(IllegalOperation, match="cluster"):
        _deleted(store, instance_id="abc")
    assert HERE == _deleted(store, instance_id=None)

    store.instance_id = lambda: "abc"  # type: ignore[attr-defined]

    assert HERE == _deleted(store, instance_id="abc")


def test_at_most_so_many_a_second_are_asked_for() -> None:
    """256 at a time, and in between a pause for the rest of their time; it may end the pass."""
    store, pauses = Store(), list[float]()
    here = [LedgerId(0, number) for number in range(600)]

    def pause(seconds: float) -> bool:
        pauses.append(seconds)
        return len(pauses) == 2

    found = _deleted(store, here, rate=100, pause=pause, clock=lambda: 7.0)

    assert (here[:512], [256, 256]) == (found, [len(part) for part in store.asked])
    assert [2.56, 2.56] == pytest.approx(pauses)
