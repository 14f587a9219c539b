"""Deleting what a list names: only leaks, only as they were listed, however the trees change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from bkstore.cluster.store.api import Versioned
from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.errors import CorruptionError, MetadataUnavailable
from bkstore.ids import LedgerId
from bkstore.pulsar import LeakSearch, MemoryNodes, NodeValue
from bkstore.pulsar.deletion import LedgerDeletion, ListedLeak, delete_leaks
from tests.pulsar.samples import (
    NOW,
    YOUNG,
    compacted_of,
    cursor,
    ledger,
    listed,
    managed_ledger,
    node_values,
    owned,
    store_of,
    topic_path,
)

TREE = {
    topic_path("paid"): managed_ledger(1, listed(2, deleted=True)),
    topic_path("paid", "__compaction"): cursor(3, 4),
}
STORED = [
    ledger(1, owned()),
    ledger(2, owned()),
    ledger(3, owned(cursor_name="__compaction")),
    ledger(4, compacted_of()),
    ledger(5, owned()),
    ledger(6, owned(), YOUNG),
    ledger(7, compacted_of()),
    ledger(8, {}),
]
EVERY = [ListedLeak(LedgerId.of(number), "leaked", 0) for number in range(1, 10)]


def delete(
    store: MemoryStore, nodes: MemoryNodes, wanted: Iterable[ListedLeak], *, apply: bool = True
) -> list[LedgerDeletion]:
    """Return what becomes of listed ledgers."""
    return list(delete_leaks(store, LeakSearch(store, nodes, now=NOW), wanted, apply=apply))


def outcomes(deletions: list[LedgerDeletion]) -> dict[int, str]:
    """Return the outcome of each ledger."""
    return {each.ledger.ledger: each.outcome for each in deletions}


def test_delete() -> None:
    """Leaks and offloaded copies go; what is referred to, young, unknown or in doubt stays."""
    store, nodes = store_of(STORED), MemoryNodes(node_values(TREE))
    expected = {**dict.fromkeys(range(1, 9), "kept"), 2: "deleted", 5: "deleted", 9: "gone"}
    planned = delete(store, nodes, EVERY, apply=False)
    assert 8 == len(store.ledgers())
    deletions = delete(store, nodes, EVERY)
    reasons = {each.ledger.ledger: each.reason for each in deletions if each.reason}

    assert expected == outcomes(deletions)
    assert expected == {
        number: "deleted" if outcome == "would be deleted" else outcome
        for number, outcome in outcomes(planned).items()
    }
    assert {1, 3, 4, 6, 7, 8} == {each.ledger for each in store.ledgers()} == set(reasons)
    assert "it is referenced" == reasons[1]
    assert "ledger 3 of the compaction's cursor may name it" == reasons[7]
    assert "it is unreferenced-young" == reasons[6]
    assert {2: "gone", 5: "gone"} == outcomes(delete(store, nodes, [EVERY[1], EVERY[4]]))


@pytest.mark.parametrize("apply", [True, False])
def test_wiped_tree(apply: bool) -> None:
    """If Pulsar's metadata have no topics any more, all ledgers of a list are kept."""
    store = store_of(STORED)
    wiped = MemoryNodes({"/managed-ledgers": NodeValue(b"")})
    deletions = delete(store, wiped, EVERY, apply=apply)

    assert {**dict.fromkeys(range(1, 9), "kept"), 9: "gone"} == outcomes(deletions)
    assert 8 == len(store.ledgers())
    assert "no topics at all" in deletions[4].reason


def test_list() -> None:
    """A row that is no leak's, of another version, or without one, is not followed."""
    for item, reason in (
        (ListedLeak(LedgerId.of(5), "dangling", 0), "it is listed as dangling"),
        (ListedLeak(LedgerId.of(5), "leaked", 1), "its metadata changed since it was listed"),
        (ListedLeak(LedgerId.of(5), "leaked", None), "does not state the version"),
    ):
        store = store_of(STORED)
        (deletion,) = delete(store, MemoryNodes(node_values(TREE)), [item])
        assert "kept" == deletion.outcome
        assert reason in deletion.reason
        assert LedgerId.of(5) in store.ledgers()


class BusyStore(MemoryStore):
    """A store in which something happens just before ledgers are read for the second time, or
    before one is deleted."""

    def __init__(self, event: Callable[[BusyStore], None], moment: str) -> None:
        super().__init__()
        self._event = event
        self._moment = moment
        self._reads = 0

    def _happen(self, moment: str) -> None:
        if moment == self._moment:
            self._moment = ""
            self._event(self)

    def read_many(
        self, ledgers: Iterable[int | LedgerId]
    ) -> Iterator[tuple[LedgerId, Versioned | CorruptionError]]:
        """Let it happen before the last look, the third."""
        self._reads += 1
        if self._reads == 3:
            self._happen("look")
        return super().read_many(ledgers)

    def delete(self, ledger: int | LedgerId, version: int | None = None) -> None:
        """Let it happen before a deletion."""
        self._happen("delete")
        super().delete(ledger, version)


def change_version(store: BusyStore) -> None:
    """Change the metadata of ledger 5, as a recovery does."""
    metadata, version = store.read(5)
    store.write(metadata, version)


@pytest.mark.parametrize("moment", ["look", "delete"])
@pytest.mark.parametrize(
    ("event", "outcome"), [(change_version, "kept"), (lambda store: store.delete(5), "gone")]
)
def test_changes_meanwhile(moment: str, event: Any, outcome: str) -> None:
    """A ledger whose metadata change after the first look stays; one that is gone is gone."""
    store = BusyStore(event, moment)
    for metadata in STORED:
        store.create(metadata)
    deletions = delete(store, MemoryNodes(node_values(TREE)), [EVERY[4]])

    assert {5: outcome} == outcomes(deletions)
    assert ("kept" == outcome) == (LedgerId.of(5) in store.ledgers())


@pytest.mark.parametrize(
    "change",
    [
        {topic_path("paid"): managed_ledger(1, 5)},
        {topic_path("paid"): b"garbage"},
        {topic_path("paid"): NodeValue(b"", 4, NOW - 1)},
    ],
)
def test_references_meanwhile(change: dict[str, Any]) -> None:
    """A ledger that is listed, doubtful or just unlisted at the last look stays."""
    nodes = MemoryNodes(node_values(TREE))
    store = BusyStore(lambda _: nodes.values.update(node_values(change)), "look")
    for metadata in STORED:
        store.create(metadata)
    deletions = delete(store, nodes, [EVERY[4]])

    assert {5: "kept"} == outcomes(deletions)
    assert LedgerId.of(5) in store.ledgers()


def test_no_answer() -> None:
    """Without an answer it ends; the next call goes on where it ended."""

    def lose(_: BusyStore) -> None:
        raise MetadataUnavailable("no answer; it may have been executed")

    store = BusyStore(lose, "delete")
    for metadata in STORED:
        store.create(metadata)
    nodes = MemoryNodes(node_values(TREE))
    with pytest.raises(MetadataUnavailable):
        delete(store, nodes, EVERY)
    store._reads = 9

    assert {2: "deleted", 5: "deleted"} == outcomes(delete(store, nodes, [EVERY[1], EVERY[4]]))
