"""Workloads: what arrives is what the shape says, encoded as a writer would, again and again."""

from __future__ import annotations

import itertools
import tracemalloc
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bkstore.errors import InvalidArgument
from bkstore.formats.entry import Entry, decode
from bkstore.ids import LedgerId
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.testing import workloads
from bkstore.testing.workloads import LedgerShape, Workload

SCOPES = (0, 5, 2**64 - 1)

LOADS = {
    "ledger-shaped": workloads.ledger_shaped(7, 300, seed=3, scopes=SCOPES),
    "striped": workloads.striped(1, 4, 3, ledgers=3, entries=150, seed=3, scopes=SCOPES),
    "round-robin": workloads.interleaved(5, 60, seed=3, scopes=SCOPES),
    "random": workloads.interleaved(5, 60, write_order="random", seed=3, scopes=SCOPES),
    "late": workloads.late_and_duplicate(workloads.interleaved(5, 60, seed=3, scopes=SCOPES)),
    "late-random": workloads.late_and_duplicate(
        workloads.ledger_shaped(3, 300, seed=9), 0.4, 0.3, 7
    ),
}


@pytest.fixture(params=LOADS.values(), ids=LOADS)
def load(request: pytest.FixtureRequest) -> Workload:
    """Return each workload in turn."""
    found: Workload = request.param
    return found


def _decoded(load: Workload) -> list[Entry]:
    return [decode(record, load.digest, load.password) for record in load.records()]


class TestEveryWorkload:
    """What holds for each shape."""

    def test_expected_is_what_arrives(self, load: Workload) -> None:
        """The set of ids that arrive is that which must be there at the end, no more, no less."""
        arrived: dict[Any, set[int]] = {name: set() for name in load.expected}
        for entry in _decoded(load):
            arrived[entry.ledger].add(entry.entry_id)

        assert {n: ids.tolist() for n, ids in load.expected.items()} == {
            name: sorted(ids) for name, ids in arrived.items()
        }

    def test_ids_are_those_of_the_records(self, load: Workload) -> None:
        """Ids come in the order of the records, in batches of the size asked for."""
        rows = [(*entry.ledger, entry.entry_id) for entry in _decoded(load)]  # type: ignore[misc]
        batches = list(load.ids(batch=64))
        found = [tuple(map(int, row)) for batch in batches for row in zip(*batch, strict=True)]

        assert rows == found
        assert [64] * (len(batches) - 1) == [len(batch.entry) for batch in batches[:-1]]
        assert 0 < len(batches[-1].entry) <= 64

    def test_same_seed_same_bytes(self, load: Workload) -> None:
        """A workload is the same each time; another seed gives other bytes."""
        first, second = list(load.records()), list(load.records())

        assert first == second
        assert set(first).isdisjoint(replace(load, seed=load.seed + 1).records())

    def test_lac_and_length_are_a_writers(self, load: Workload) -> None:
        """The length counts the ledger's payload up to the entry; the LAC is the entry before."""
        whole = replace(
            load,
            late=0.0,
            duplicate=0.0,
            ledgers=tuple(LedgerShape(shape.ledger, shape.entry_count) for shape in load.ledgers),
        )
        totals: Counter[Any] = Counter()
        length: dict[Any, int] = {}
        for entry in _decoded(whole):
            totals[entry.ledger] += len(entry.payload)
            length[entry.ledger, entry.entry_id] = totals[entry.ledger]

            assert 64 <= len(entry.payload) <= 512
        for entry in _decoded(load):
            assert length[entry.ledger, entry.entry_id] == entry.length
            assert entry.entry_id - 1 == entry.lac

    @pytest.mark.parametrize("kind", ["sorted", "interleaved", "db"])
    def test_a_storage_ends_with_what_is_expected(
        self, load: Workload, kind: Any, tmp_path: Any
    ) -> None:
        """Added to a storage, just the expected entries are there, byte for byte."""
        sent = {decode(r)[:2]: r for r in load.records()}
        with LedgerStorage.open(tmp_path, kind) as storage:
            storage.add_entries(load.records(), master_key=load.master_key)

            assert sorted(load.expected) == storage.ledgers()
            for name, ids in load.expected.items():
                assert ids.tolist() == storage.entries(name).tolist()
                for entry in ids.tolist()[::17]:
                    assert sent[name, entry] == storage.read_entry(name, entry)


class TestShapes:
    """What each shape promises."""

    def test_one_ledger_behind_the_other(self) -> None:
        """Ledger-shaped: a ledger begins when the one before is done, each in order."""
        load = LOADS["ledger-shaped"]
        groups = itertools.groupby(_decoded(load), lambda entry: entry.ledger)
        order = [(name, [entry.entry_id for entry in rows]) for name, rows in groups]

        assert [(s.ledger, list(range(s.entry_count))) for s in load.ledgers] == order
        assert 300 == sum(shape.entry_count for shape in load.ledgers)

    @pytest.mark.parametrize("skew", [0.0, 0.5, 1.0, 2.0])
    def test_sizes_are_skewed(self, skew: float) -> None:
        """The k-th largest ledger has 1 / k^skew of the largest, to rounding; none is empty."""
        load = workloads.ledger_shaped(20, 100_000, skew=skew, seed=5)
        counts = sorted((shape.entry_count for shape in load.ledgers), reverse=True)

        assert 100_000 == sum(counts)
        for k, count in enumerate(counts, 1):
            assert abs(count - counts[0] / k**skew) < 25

    def test_stripes_share_their_bytes(self) -> None:
        """Every bookie of an ensemble gets its part, and the same bytes of shared entries."""
        loads = [workloads.striped(at, 5, 3, entries=200, seed=2) for at in range(5)]
        copies: dict[int, list[bytes]] = {}
        for load in loads:
            for record in load.records():
                copies.setdefault(decode(record).entry_id, []).append(record)

        assert list(range(200)) == sorted(copies)
        for entry, records in copies.items():
            holders = {(entry + step) % 5 for step in range(3)}

            assert [records[0]] * 3 == records
            for at, load in enumerate(loads):
                assert (at in holders) == (entry in load.expected[LedgerId(ledger=1)])

    def test_round_robin(self) -> None:
        """Each writer sends one entry, then it is the next one's turn; short ones drop out."""
        shapes = tuple(
            LedgerShape(LedgerId(ledger=at), count) for at, count in enumerate([2, 4, 1])
        )
        [ids] = Workload(ledgers=shapes, writers="round robin").ids()

        assert [0, 1, 2, 0, 1, 1, 1] == ids.ledger.tolist()
        assert [0, 0, 0, 1, 1, 2, 3] == ids.entry.tolist()

    def test_random_writers(self) -> None:
        """Writers come in no fixed order, each one's entries in theirs."""
        [ids] = workloads.interleaved(4, 200, write_order="random", seed=1).ids()
        switches = int(np.count_nonzero(np.diff(ids.ledger)))

        assert 400 < switches < 750  # 600 of 799 are likely
        for ledger in range(1, 5):
            assert list(range(200)) == ids.entry[ids.ledger == ledger].tolist()

    @pytest.mark.parametrize(("late", "duplicate"), [(0.2, 0.0), (0.0, 0.2), (0.1, 0.3), (1, 1)])
    def test_late_and_duplicate_shares(self, late: float, duplicate: float) -> None:
        """About the shares asked for are out of order and sent again, within the window."""
        plain = workloads.interleaved(1, 4000, seed=4)
        [ids] = workloads.late_and_duplicate(plain, late, duplicate, 10).ids()
        count = Counter(ids.entry.tolist())
        twice = sum(1 for times in count.values() if times == 2)
        firsts = list(dict.fromkeys(ids.entry.tolist()))
        behind = sum(1 for at, entry in enumerate(firsts) if entry < max(firsts[: at + 1]))

        assert set(range(4000)) == set(count)
        assert {1, 2} >= set(count.values())
        assert abs(twice - 4000 * duplicate) < 130
        assert behind <= 4000 * late + 130
        assert (behind > 4000 * late / 3) == (late > 0)
        assert 30 > max(abs(at - entry) for at, entry in enumerate(firsts))

    @pytest.mark.parametrize(("late", "duplicate"), [(0.5, 0.0), (0.0, 0.5), (0.5, 0.5), (1, 1)])
    @pytest.mark.parametrize("window", [1, 2, 7])
    def test_nothing_is_later_than_the_window(
        self, late: float, duplicate: float, window: int
    ) -> None:
        """What is held back, and what is sent again, comes before what was written `window`
        places behind it, and may come as late as that; at the end nothing is held back."""
        plain = workloads.interleaved(1, 600, seed=4)
        [ids] = workloads.late_and_duplicate(plain, late, duplicate, window).ids()
        order = ids.entry.tolist()
        last = {entry: at for at, entry in enumerate(order)}
        first = {entry: at for at, entry in reversed(list(enumerate(order)))}
        overtaken = {
            ahead
            for entry in range(600)
            for ahead in range(1, min(4 * window, 600 - entry))
            if first[entry + ahead] < last[entry]
        }

        assert set(range(600)) == set(first)
        assert (
            set(range(1, window - (late == 1))) == overtaken
        )  # where all are late, those behind too
        if duplicate == 1:
            assert {2} == set(Counter(order).values())
        if duplicate == 0:
            assert 600 == len(order)

    def test_options(self) -> None:
        """Payload sizes, digest, password and entries in flight are the caller's."""
        load = replace(
            workloads.interleaved(2, 9),
            payload=(0, 3),
            digest="HMAC",
            password=b"mine",
            in_flight=4,
        )
        found = [decode(record, "HMAC", b"mine") for record in load.records()]

        assert {0, 1, 2, 3} >= {len(entry.payload) for entry in found}
        assert [max(e.entry_id - 4, -1) for e in found] == [e.lac for e in found]

    @pytest.mark.parametrize(
        "make",
        [
            lambda: workloads.ledger_shaped(5, 4),
            lambda: workloads.striped(3, 3, 2),
            lambda: workloads.striped(0, 3, 4),
            lambda: replace(LOADS["random"], late=1.5),
            lambda: replace(LOADS["random"], payload=(5, 4)),
            lambda: replace(LOADS["random"], window=0),
            lambda: replace(LOADS["random"], ledgers=LOADS["random"].ledgers * 2),
        ],
    )
    def test_what_cannot_be(self, make: Any) -> None:
        """Shapes that cannot be are refused."""
        with pytest.raises(InvalidArgument):
            make()

    def test_memory_is_bounded(self) -> None:
        """A long workload needs no more memory than a short one."""
        peaks = []
        for entries in (500, 5000):
            load = workloads.late_and_duplicate(workloads.interleaved(4, entries))
            tracemalloc.start()
            for _ in load.records():
                pass
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

        assert peaks[1] < 1.3 * peaks[0] + 50_000
