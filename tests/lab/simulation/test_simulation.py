"""The simulation of losses: its rules on clusters small enough to count, and closed formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bkstore.errors import InvalidArgument
from bkstore.lab.simulation import (
    ClusterModel,
    SimulatedReplicas,
    loss_share_of_failed_bookies,
    loss_share_of_lost_replicas,
    simulate,
)

# One ledger of six entries, E=3, W=2: the bookie at position 0 has entries 0, 2, 3 and 5, of which
# 0 and 3 are first replicas, 2 and 5 second ones; at position 1 there are 0, 1, 3, 4.
SMALL = ClusterModel(3, 2, 2, bookies=5, ledgers=1, entries_per_ledger=6)
OF_POSITION_0 = [(0, 0), (2, 1), (3, 0), (5, 1)]


def make_replicas(model: ClusterModel = SMALL) -> SimulatedReplicas:
    """Return the replicas of one cluster."""
    return SimulatedReplicas(model, 1, np.random.default_rng(7))


def lose(replicas: SimulatedReplicas, *lost: tuple[int, int]) -> int:
    """Lose replicas, pairs of entry and replica index; return the number of entries lost by it."""
    rows = np.array([(0, 0, *pair) for pair in lost])
    return int(replicas.lose_replicas(rows).sum())


def missing(replicas: SimulatedReplicas) -> list[tuple[int, int]]:
    """Return the missing replicas of the only ledger: pairs of entry and replica index."""
    return [(int(entry), int(index)) for entry, index in np.argwhere(replicas.missing[0, 0])]


class TestRules:
    """What is lost, and what each repair brings back."""

    def test_an_entry_is_lost_with_its_last_replica(self) -> None:
        """A lost entry is counted once."""
        replicas = make_replicas()

        assert 0 == lose(replicas, (2, 1))
        assert 1 == lose(replicas, (2, 0))
        assert 0 == lose(replicas, (2, 0))  # counted once
        assert [2] == np.flatnonzero(replicas.lost[0, 0]).tolist()

    def test_a_loss_takes_the_next_entries_of_the_bookie(self) -> None:
        """After the last entry that the bookie has of the ledger follows its first."""
        model = ClusterModel(3, 2, 2, 5, ledgers=1, entries_per_ledger=6, entries_per_loss=3)
        replicas = make_replicas(model)
        lose(replicas, (5, 1))

        assert [(0, 0), (2, 1), (5, 1)] == missing(replicas)

    def test_a_loss_is_never_larger_than_what_is_there(self) -> None:
        """A loss takes at most all that the bookie has of the ledger."""
        model = ClusterModel(3, 2, 2, 5, ledgers=1, entries_per_ledger=6, entries_per_loss=99)
        replicas = make_replicas(model)
        lose(replicas, (3, 0))

        assert OF_POSITION_0 == missing(replicas)

    def test_repair_writes_each_missing_replica(self) -> None:
        """Replicas of a lost entry stay missing."""
        replicas = make_replicas()
        lose(replicas, (2, 1), (4, 0), (1, 0), (1, 1))
        replicas.repair_replicas()

        assert [(1, 0), (1, 1)] == missing(replicas)  # of the lost entry
        assert 2 == replicas.copied_replicas

    @pytest.mark.parametrize("seen", [(0, 0), (5, 1)], ids=["first", "last"])
    def test_the_check_reads_first_and_last_entries(self, seen: tuple[int, int]) -> None:
        """If one is missing, all entries of the bookie are copied to another one."""
        replicas = make_replicas()
        ensemble = replicas.ensembles[0, 0].tolist()
        lose(replicas, (2, 1))
        replicas.repair_checked_fragments()

        assert [(2, 1)] == missing(replicas)
        assert ensemble == replicas.ensembles[0, 0].tolist()

        lose(replicas, seen)
        replicas.repair_checked_fragments()

        assert [] == missing(replicas)
        assert len(OF_POSITION_0) == replicas.copied_replicas
        assert ensemble[1:] == replicas.ensembles[0, 0, 1:].tolist()
        assert replicas.ensembles[0, 0, 0] not in ensemble

    def test_the_check_cannot_copy_a_segment_with_a_lost_entry(self) -> None:
        """Entry 2 is lost, so entry 0 is not copied either."""
        replicas = make_replicas()
        lose(replicas, (0, 0), (2, 0), (2, 1))
        replicas.repair_checked_fragments()

        assert [(0, 0), (2, 0), (2, 1)] == missing(replicas)
        assert 0 == replicas.copied_replicas

    def test_a_failed_bookie(self) -> None:
        """Another bookie takes its position, with all of its replicas."""
        replicas = make_replicas()
        ensemble = replicas.ensembles[0, 0].tolist()
        lose(replicas, (2, 1))  # of the bookie that fails next
        lost_now, failed = replicas.fail_bookie(0, ensemble[0])
        replicas.repair_replicas()

        assert [0] == lost_now.tolist()
        assert OF_POSITION_0 == missing(replicas)

        replicas.copy_failed_bookie(failed)

        assert [] == missing(replicas)
        assert ensemble[1:] == replicas.ensembles[0, 0, 1:].tolist()
        assert replicas.ensembles[0, 0, 0] not in ensemble[1:]
        assert len(OF_POSITION_0) == replicas.copied_replicas

    def test_a_second_failed_bookie_loses_what_both_had(self) -> None:
        """Positions 0 and 1 share entries 0 and 3."""
        replicas = make_replicas()
        ensemble = replicas.ensembles[0, 0].tolist()
        replicas.fail_bookie(0, ensemble[0])
        lost_now, _ = replicas.fail_bookie(0, ensemble[1])

        assert [2] == lost_now.tolist()
        assert [0, 3] == np.flatnonzero(replicas.lost[0, 0]).tolist()

    def test_a_lost_entry_keeps_a_failed_bookie_from_being_copied(self) -> None:
        """BookKeeper leaves all of its entries in the segment; repair leaves the lost one."""
        replicas = make_replicas()
        ensemble = replicas.ensembles[0, 0].tolist()
        lose(replicas, (2, 0))
        lost_now, failed = replicas.fail_bookie(0, ensemble[0])
        replicas.copy_failed_bookie(failed)

        assert [1] == lost_now.tolist()
        assert sorted([*OF_POSITION_0, (2, 0)]) == missing(replicas)

        replicas.repair_replicas()

        assert [(2, 0), (2, 1)] == missing(replicas)
        assert 3 == replicas.copied_replicas

    def test_entries_that_were_only_acknowledged(self) -> None:
        """Each has as many replicas as the ack quorum, until a repair."""
        model = ClusterModel(3, 3, 2, bookies=5, short_share=1.0)
        replicas = make_replicas(model)

        assert (replicas.missing.sum(-1) == 1).all()
        assert (replicas.missing.sum((0, 1, 2)) > 0).all()  # not always the same replica

        replicas.repair_replicas()

        assert not replicas.missing.any()

    def test_ensembles_are_of_different_bookies(self) -> None:
        """All bookies are in some ensemble, and none is twice in one."""
        replicas = make_replicas(ClusterModel(4, 2, 2, bookies=5, ledgers=200))
        ensembles = replicas.ensembles[0]

        assert all(len(set(ensemble)) == 4 for ensemble in ensembles.tolist())
        assert set(range(5)) == set(ensembles.ravel().tolist())


class TestFormulas:
    """Expected shares of lost entries."""

    def test_lost_replicas(self) -> None:
        """By hand: the probability that an entry survives is that of each interval, multiplied."""
        half, fifth = (1 - math.exp(-0.1 * years) for years in (0.4, 0.2))
        survival = (1 - half**2) ** 2 * (1 - fifth**2)

        assert loss_share_of_lost_replicas(2, 0.1, 1.0, 0.4) == pytest.approx(1 - survival)
        assert loss_share_of_lost_replicas(1, 0.1, 1.0, 0.4) == pytest.approx(1 - math.exp(-0.1))
        assert loss_share_of_lost_replicas(3, 0.1, 1.0, None) == pytest.approx(
            (1 - math.exp(-0.1)) ** 3
        )
        assert loss_share_of_lost_replicas(2, 0.1, 1.0, 5.0) == pytest.approx(
            (1 - math.exp(-0.1)) ** 2
        )

    def test_failed_bookies(self) -> None:
        """Rare failures: two bookies, and the chance that the other fails within the window."""
        assert loss_share_of_failed_bookies(0.01, 1.0, 0.001) == pytest.approx(
            2 * 0.01 * 0.01 * 0.001, rel=0.02
        )

    @pytest.mark.parametrize(
        ("write_quorum", "repair_hours"), [(1, 24), (2, None), (2, 720), (3, 8766)]
    )
    @pytest.mark.parametrize("entries_per_loss", [1, 10])
    def test_simulated_losses(
        self, write_quorum: int, repair_hours: float | None, entries_per_loss: int
    ) -> None:
        """The share of lost entries is the formula's to five standard deviations, and the size of a
        loss does not change it: each replica is lost at the same rate."""
        rate, years, clusters = 0.3, 2.0, 40
        model = ClusterModel(
            3,
            write_quorum,
            write_quorum,
            bookies=6,
            ledgers=20,
            loss_rate=rate,
            failure_rate=0.0,
            entries_per_loss=entries_per_loss,
        )
        policy = "nothing" if repair_hours is None else "bkstore repair"
        record = simulate(
            model, policy, years=years, repair_hours=repair_hours or 1, clusters=clusters, seed=11
        )
        interval = None if repair_hours is None else repair_hours / 8766
        share = loss_share_of_lost_replicas(write_quorum, rate, years, interval)
        entries = clusters * model.entries
        deviation = math.sqrt(share * entries * entries_per_loss)

        assert record.count_lost(years) * clusters == pytest.approx(
            share * entries, abs=5 * deviation
        )

    def test_simulated_failures(self) -> None:
        """With E = W = 2 a pair of failures takes whole ledgers, so that copies are all or none."""
        model = ClusterModel(
            2, 2, 2, bookies=30, ledgers=200, entries_per_ledger=2, loss_rate=0, failure_rate=0.4
        )
        for policy, copying_hours in (("nothing", None), ("failed bookies", 200)):
            record = simulate(
                model, policy, years=3, copying_hours=copying_hours or 0, clusters=50, seed=3
            )
            copying_years = None if copying_hours is None else copying_hours / 8766
            share = loss_share_of_failed_bookies(0.4, 3, copying_years)

            assert record.count_lost(3) / model.entries == pytest.approx(share, rel=0.2)


class TestRecord:
    """The result of a simulation."""

    def test_policies_from_the_worst_to_the_best(self) -> None:
        """Each policy loses less than without repair, bkstore's far less."""
        model = ClusterModel(loss_rate=0.05, failure_rate=0.2, ledgers=15)
        lost = [
            simulate(model, policy, years=3, clusters=8, seed=5).count_lost(3)
            for policy in ("nothing", "failed bookies", "periodic check", "bkstore repair")
        ]

        assert max(lost) == lost[0]
        assert lost[-1] < min(lost[:-1]) / 10

    def test_by_year(self) -> None:
        """Both figures grow with the years, to those of all losses."""
        model = ClusterModel(loss_rate=0.05, ledgers=10)
        record = simulate(model, "nothing", years=4, clusters=30, seed=2)
        counts = [record.count_lost(year) for year in (0, 1, 2, 3, 4)]
        shares = [record.loss_probability(year) for year in (0, 1, 2, 3, 4)]

        assert 0 == counts[0] == shares[0]
        assert counts == sorted(counts)
        assert counts[-1] == record.entries.sum() / 30
        assert shares == sorted(shares)
        assert shares[-1] == len(set(record.clusters.tolist())) / 30

    def test_nothing_is_lost_without_losses(self) -> None:
        """Rates of 0 are allowed."""
        model = ClusterModel(loss_rate=0.0, failure_rate=0.0)
        record = simulate(model, "bkstore repair", years=1, repair_hours=720, clusters=3)

        assert 0 == record.count_lost(1) == record.loss_probability(1) == record.copied_replicas

    def test_the_seed_decides(self) -> None:
        """The same seed gives the same result."""
        model = ClusterModel(ledgers=10, loss_rate=0.1)
        first, same, other = (
            simulate(model, "periodic check", years=0.5, clusters=5, seed=seed)
            for seed in (1, 1, 2)
        )

        assert first.years.tolist() == same.years.tolist()
        assert first.years.tolist() != other.years.tolist()

    @pytest.mark.parametrize(
        "sizes", [(3, 2, 2, 3), (2, 3, 2, 9), (3, 2, 3, 9), (0, 0, 0, 5)], ids=str
    )
    def test_sizes_that_no_cluster_has(self, sizes: tuple[int, int, int, int]) -> None:
        """Each size is at least the next, and a bookie is to spare."""
        with pytest.raises(InvalidArgument):
            ClusterModel(*sizes)

    def test_refusals(self) -> None:
        """The error names the argument."""
        with pytest.raises(InvalidArgument, match="policy"):
            simulate(ClusterModel(), "prayer", years=1)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="years"):
            simulate(ClusterModel(), "nothing", years=0)
