"""Ensemble changes: which bookies a writer replaces, with which, and what its metadata then say."""

from __future__ import annotations

from typing import Any

import pytest

from bkstore.cluster import ClientOptions
from bkstore.cluster.placement.policies import DefaultPlacement
from bkstore.schedule import write_set
from bkstore.testing.factories import ClusterFactory
from bkstore.testing.faults import FaultPlan
from tests.cluster.client.ensembles import ensemble, holders


class TestEnsembleChange:
    """A bookie fails, another takes its place."""

    @pytest.mark.bkstore_storage
    @pytest.mark.parametrize("way", ["stop", "crash", "partition", "slow"])
    def test_a_new_segment(self, bkstore_cluster: ClusterFactory, way: str) -> None:
        """It begins at LAC + 1; the entry under way goes to the new bookie too."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(3, 3, 2)
        ledger.append(b"zero")
        ledger.append(b"one")
        before = ensemble(ledger)
        (spare,) = set(cluster.bookies) - set(before)
        if way == "slow":
            cluster.slow(before[1], 5)
        else:
            getattr(cluster, way)(before[1])

        assert 2 == ledger.append(b"two")
        assert [(0, before), (2, (before[0], spare, before[2]))] == [*ledger.metadata.segments]
        assert ledger.metadata == cluster.store.read(ledger.ledger).metadata
        assert {before[0], spare, before[2]} <= holders(cluster, ledger, 2)
        assert spare not in holders(cluster, ledger, 1)

    def test_replaced_in_place(self, bkstore_cluster: ClusterFactory) -> None:
        """With the same first entry as the last segment, the segment itself changes."""
        cluster = bkstore_cluster(5)
        ledger = cluster.create_ledger(3, 3, 2)
        first = ensemble(ledger)
        cluster.stop(first[0])
        ledger.append(b"zero")
        second = ensemble(ledger)

        assert [0] == [segment.first_entry for segment in ledger.metadata.segments]
        assert second[1:] == first[1:]
        assert second[0] not in first

        ledger.append(b"one")
        cluster.stop(second[1])
        cluster.stop(second[2])
        cluster.start(first[0])
        ledger.append(b"two")

        assert [0, 2] == [segment.first_entry for segment in ledger.metadata.segments]
        assert {second[0], first[0]} < set(ensemble(ledger))

    def test_the_new_bookie_fails_too(self, bkstore_cluster: ClusterFactory) -> None:
        """Registered but silent bookies are tried one by one, none of them twice for an entry."""
        cluster = bkstore_cluster(6)
        ledger = cluster.create_ledger(3, 3, 3)
        ledger.append(b"zero")
        spares = set(cluster.bookies) - set(ensemble(ledger))
        good = sorted(spares)[1]
        for name in spares - {good} | {ensemble(ledger)[2]}:
            cluster.partition(name)

        assert 1 == ledger.append(b"one")
        assert good == ensemble(ledger)[2]
        assert [0, 1] == [segment.first_entry for segment in ledger.metadata.segments]
        assert set(ensemble(ledger)) == holders(cluster, ledger, 1)

    def test_nobody_is_tried_twice(self, bkstore_cluster: ClusterFactory) -> None:
        """A bookie that failed at an entry is not offered to the policy again for it; with the
        next entry it has another chance."""
        offered: list[set[str]] = []

        class Recording(DefaultPlacement):
            def replace(self, *args: Any) -> tuple[str, ...]:
                offered.append(set(args[-1]))
                return super().replace(*args)

        cluster = bkstore_cluster(6, placement=Recording(seed=1))
        ledger = cluster.create_ledger(3, 3, 2)
        one, two, three = ensemble(ledger)
        spares = set(cluster.bookies) - {one, two, three}
        for name in spares | {two}:
            cluster.partition(name)
        ledger.append(b"two replicas")
        left = [len(found & spares) for found in offered]

        assert [3, 2, 1, 0] == left
        assert all(two not in found for found in offered)

        offered.clear()
        failing = ensemble(ledger)[1]
        ledger.append(b"again")

        assert set(cluster.bookies) - {failing} == offered[0]

    def test_bookies_that_are_not_asked_stay(self, bkstore_cluster: ClusterFactory) -> None:
        """A bookie outside of the write set is not missed before an entry is for it."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(3, 2, 2)
        before = ensemble(ledger)
        cluster.stop(before[2])  # entry 0 goes to indexes 0 and 1
        ledger.append(b"zero")

        assert before == ensemble(ledger)
        assert [0, 1] == write_set(0, 3, 2)

        ledger.append(b"one")

        assert before != ensemble(ledger)
        assert [0, 1] == [segment.first_entry for segment in ledger.metadata.segments]

    def test_as_many_as_there_are(self, bkstore_cluster: ClusterFactory) -> None:
        """Where there are fewer bookies than failed, those there are take a place."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(3, 3, 2)
        before = ensemble(ledger)
        (spare,) = set(cluster.bookies) - set(before)
        cluster.stop(before[0])
        cluster.stop(before[1])

        assert 0 == ledger.append(b"two replicas")
        assert {spare, before[2]} == holders(cluster, ledger, 0)
        assert (spare, before[1], before[2]) == ensemble(ledger)

    def test_enough_without_a_replacement(self, bkstore_cluster: ClusterFactory) -> None:
        """A of W acknowledgements are enough where no other bookie is left; nothing is written
        to the metadata, and the bookie is used again when it is back."""
        cluster = bkstore_cluster(3)
        ledger = cluster.create_ledger(3, 3, 2)
        before = ledger.metadata
        cluster.stop("bookie-2")

        assert [0, 1] == [ledger.append(b"a"), ledger.append(b"b")]
        assert before == ledger.metadata == cluster.store.read(0).metadata
        assert {"bookie-1", "bookie-3"} == holders(cluster, ledger, 0)

        cluster.start("bookie-2")
        ledger.append(b"c")

        assert {"bookie-1", "bookie-2", "bookie-3"} == holders(cluster, ledger, 2)

    def test_delayed(self, bkstore_cluster: ClusterFactory) -> None:
        """With `delay_ensemble_change` a bookie is replaced when fewer than A are left."""
        cluster = bkstore_cluster(5, client_options=ClientOptions(delay_ensemble_change=True))
        ledger = cluster.create_ledger(3, 3, 2)
        before = ensemble(ledger)
        cluster.stop(before[0])
        ledger.append(b"zero")

        assert before == ensemble(ledger)

        cluster.stop(before[1])
        ledger.append(b"one")

        assert [0, 1] == [segment.first_entry for segment in ledger.metadata.segments]
        assert before[2] == ensemble(ledger)[2]
        assert set() == {before[0], before[1]} & set(ensemble(ledger))
        assert set(ensemble(ledger)) == holders(cluster, ledger, 1)

    def test_a_late_add_is_over_replication(self, bkstore_cluster: ClusterFactory) -> None:
        """A bookie that answered too late has the entry, and is no part of the ensemble."""
        waited: list[float] = []
        cluster = bkstore_cluster(4, sleep=waited.append, timeout=2.0)
        ledger = cluster.create_ledger(3, 3, 2)
        late = ensemble(ledger)[0]
        cluster.slow(late, 7)
        ledger.append(b"zero")

        assert [2.0] == waited
        assert late not in ensemble(ledger)
        assert {late, *ensemble(ledger)} == holders(cluster, ledger, 0)

    def test_slow_but_in_time(self, bkstore_cluster: ClusterFactory) -> None:
        """Below the timeout a slow bookie costs time only."""
        waited: list[float] = []
        cluster = bkstore_cluster(4, sleep=waited.append)
        ledger = cluster.create_ledger(3, 3, 3)
        before = ledger.metadata
        cluster.slow(ensemble(ledger)[0], 4.5)
        ledger.append(b"zero")
        ledger.append(b"one")
        cluster.slow(ensemble(ledger)[0], 0)
        ledger.append(b"two")

        assert [4.5, 4.5] == waited
        assert before == ledger.metadata

    def test_append_many_changes_ensembles(self, bkstore_cluster: ClusterFactory) -> None:
        """Many at once end up where one by one would have put them."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(3, 2, 2)
        ledger.append_many([b"x"] * 5)
        gone = ensemble(ledger)[0]
        cluster.crash(gone)

        assert list(range(5, 35)) == ledger.append_many([b"y"] * 30).tolist()

        # Entry 5 is for indexes 2 and 0 (5 mod 3 = 2): the failure shows at once.
        assert [0, 5] == [segment.first_entry for segment in ledger.metadata.segments]
        for entry in range(5, 35):
            replicas = {ensemble(ledger)[index] for index in write_set(entry, 3, 2)}

            assert replicas <= holders(cluster, ledger, entry)
        assert [b"x"] * 5 + [b"y"] * 30 == [entry.payload for entry in ledger.read(0, 34)]

    def test_a_bookie_with_a_full_disk(
        self, bkstore_cluster: ClusterFactory, bkstore_faults: FaultPlan
    ) -> None:
        """A bookie that cannot write is replaced like one that is down."""
        cluster = bkstore_cluster(4)
        ledger = cluster.create_ledger(3, 3, 2)
        ledger.append(b"zero")
        before = ensemble(ledger)
        bkstore_faults.fail_sync()  # of the bookie that entry 1 is sent to first
        ledger.append(b"one")

        assert ["fail_sync"] == [fault.what for fault in bkstore_faults.done]
        assert before[1] not in ensemble(ledger)
        assert (before[0], before[2]) == (ensemble(ledger)[0], ensemble(ledger)[2])
        assert set(ensemble(ledger)) <= holders(cluster, ledger, 1)
