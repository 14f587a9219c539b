"""Unflushed entries over flushed ones: the union, each entry once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bkstore.availability import Availability
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import EntrySource, LedgerLike
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.layered import LayeredSource
from bkstore.index.memtable import MemtableIndex

IDS = st.lists(st.integers(0, 60), max_size=30)
BOUND = st.none() | st.integers(0, 70)


def memtable(ids: list[int], ledger: LedgerLike = 7) -> MemtableIndex:
    """Return a memtable that has `ids`; it does not know the ledger if there are none."""
    index = MemtableIndex()
    if ids:
        index.put_many(ledger, ids, [5] * len(ids))
    return index


@given(IDS, IDS, st.integers(0, 70), BOUND)
def test_union(top: list[int], below: list[int], first: int, last: int | None) -> None:
    """Entries are the distinct union, whole and in an inclusive range."""
    source = LayeredSource(memtable(top), memtable(below))
    union = sorted({*top, *below})

    assert union == source.entries(7).tolist()
    assert np.int64 == source.entries(7).dtype
    assert [e for e in union if first <= e and (last is None or e <= last)] == source.entries(
        7, first, last
    ).tolist()


@given(IDS, IDS)
def test_derived_answers(top: list[int], below: list[int]) -> None:
    """Last entry and availability are those of the union."""
    source = LayeredSource(memtable(top), memtable(below))
    union = sorted({*top, *below})

    assert max(union, default=None) == source.last_entry(7)
    assert union == source.availability(7).entries().tolist()
    assert Availability.from_entries(union) == source.availability(7)


def test_last_entry_below() -> None:
    """The highest entry counts even where the top has lower ones (late entries)."""
    assert 9 == LayeredSource(memtable([3]), memtable([9])).last_entry(7)
    assert 9 == LayeredSource(memtable([9]), memtable([3])).last_entry(7)


def test_ledgers() -> None:
    """The ledgers of both, each once, in unsigned order, by scope if asked."""
    names = [
        LedgerId(0, 7),
        LedgerId(0, 8),
        LedgerId(1, 7),
        LedgerId(1, 2**63),
        LedgerId(2**63, 0),
        LedgerId(2**64 - 1, 2**64 - 1),
    ]
    top, below = MemtableIndex(), MemtableIndex()
    for at, name in enumerate(names):
        if at % 3 != 1:
            top.put(name, 0, 5)
        if at % 3 != 2:
            below.put(name, 0, 5)
    source = LayeredSource(top, below)

    assert names == source.ledgers()
    assert names[:2] == source.ledgers(0)
    assert names[2:4] == source.ledgers(1)
    assert [] == source.ledgers(2)


def test_unknown_ledger() -> None:
    """A ledger that neither knows lists as empty."""
    source = LayeredSource(MemtableIndex(), MemtableIndex())

    assert [] == source.entries(7).tolist()
    assert source.last_entry(7) is None
    assert Availability() == source.availability(7)
    assert [] == source.ledgers()


def test_three_layers(tmp_path: Path) -> None:
    """Layers may be layered: active list, snapshot list, index files."""
    with HierarchicalIndex(tmp_path, writable=True) as files:
        files.put_many(7, range(0, 3000, 3), range(1, 1001))
        source = LayeredSource(
            memtable(list(range(2, 3000, 3))),
            LayeredSource(memtable(list(range(1, 3000, 3))), files),
        )

        assert [[0, 2999]] == source.availability(7).ranges().tolist()
        assert list(range(3000)) == source.entries(7).tolist()
        assert list(range(1000, 2001)) == source.entries(7, 1000, 2000).tolist()


class Flushing(EntrySource):
    """A top whose entries move below as soon as it has been asked: a flush in between."""

    def __init__(self, ids: list[int], below: MemtableIndex) -> None:
        self.inner = memtable(ids)
        self.below = below

    def flush(self) -> None:
        """Move everything below."""
        for ledger in self.inner.ledgers():
            self.below.put_many(ledger, *self.inner.items(ledger))
            self.inner.delete(ledger)

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the ledgers, then flush."""
        found = self.inner.ledgers(scope)
        self.flush()
        return found

    def entries(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> Int64Array:
        """Return the entries, then flush."""
        found = self.inner.entries(ledger, first, last)
        self.flush()
        return found


class Below(EntrySource):
    """What lies below a top that is flushed as soon as this has been asked."""

    def __init__(self, top: Flushing) -> None:
        self.top = top

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        """Return the ledgers, then flush the top."""
        found = self.top.below.ledgers(scope)
        self.top.flush()
        return found

    def entries(self, ledger: LedgerLike, first: int = 0, last: int | None = None) -> Int64Array:
        """Return the entries, then flush the top."""
        found = self.top.below.entries(ledger, first, last)
        self.top.flush()
        return found


@pytest.mark.parametrize("after", ["top", "below"])
@pytest.mark.parametrize("question", ["entries", "availability", "last_entry", "ledgers"])
def test_flush_in_between(question: str, after: str) -> None:
    """The top is read first, so an entry that is flushed meanwhile is not lost from the answer."""
    below = memtable([0, 1])
    top = Flushing([2, 3], below)
    source = LayeredSource(top, below) if after == "top" else LayeredSource(top.inner, Below(top))
    answers: dict[str, Any] = {
        "entries": lambda: source.entries(7).tolist() == [0, 1, 2, 3],
        "availability": lambda: source.availability(7).ranges().tolist() == [[0, 3]],
        "last_entry": lambda: source.last_entry(7) == 3,
        "ledgers": lambda: source.ledgers() == [LedgerId(0, 7)],
    }

    assert answers[question]()


def test_golden_merges(tree: Any, reader: Any) -> None:
    """Memtable and index content of sorted storage merge to the list that the bookie gave."""
    merged = 0
    for snapshot in tree.snapshots.values():
        for answer in snapshot["ledgers"]:
            if "entries_in_memtable" not in answer or "entries_in_index" not in answer:
                continue
            if reader.refused(answer["entries_in_memtable"]) or reader.refused(answer["entries"]):
                continue
            top = memtable(reader.expand_runs(answer["entries_in_memtable"]), answer["ledger"])
            below = memtable(reader.expand_runs(answer["entries_in_index"]), answer["ledger"])
            source = LayeredSource(top, below)
            merged += 1

            assert (
                reader.expand_runs(answer["entries"]) == source.entries(answer["ledger"]).tolist()
            )
            assert answer["entries"] == source.availability(answer["ledger"]).ranges().tolist()
    if not merged:
        pytest.skip("not sorted storage")
