"""Simulate years of clusters whose bookies lose replicas and fail, under a policy of repair."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from bkstore import arguments
from bkstore.lab.simulation.replicas import (
    ClusterModel,
    FailedBookie,
    Int64Array,
    SimulatedReplicas,
)

RepairPolicy = Literal["nothing", "failed bookies", "periodic check", "bkstore repair"]
"""What is repaired: nothing; the replicas of failed bookies, by AutoRecovery; also the fragments of
which BookKeeper's periodic check reads a missing entry; also every missing replica."""

REPAIR_POLICIES: tuple[RepairPolicy, ...] = get_args(RepairPolicy)

HOURS_PER_YEAR = 365.25 * 24
_NO_REPLICAS = np.empty((0, 4), np.int64)
_END = 0  # the number of the last step
_MAX_STEP = 1 / 12  # years: the times of losses are known to this much


@dataclass(frozen=True, slots=True)
class LossRecord:
    """The entries that were lost in simulated clusters.

    A row for each time at which a cluster lost entries, ordered by time: `years` (float64, since
    the beginning; up to a month late), `clusters` (int64, its number) and `entries` (int64, how
    many). `copied_replicas` is the number of replicas that repairs wrote in all clusters.
    """

    cluster_count: int
    years: np.ndarray
    clusters: Int64Array
    entries: Int64Array
    copied_replicas: int

    def count_lost(self, year: float) -> float:
        """Return the mean number of entries that a cluster has lost by a year."""
        return float(self.entries[self.years <= year].sum()) / self.cluster_count

    def loss_probability(self, year: float) -> float:
        """Return the share of clusters that have lost an entry by a year."""
        return len(np.unique(self.clusters[self.years <= year])) / self.cluster_count


class _Event(NamedTuple):
    """What happens at a time; of events at the same time the first kind is first."""

    year: float
    kind: Literal["1 step", "2 failure", "3 copied", "4 repair"]
    number: int
    cluster: int = 0
    bookie: int = 0


def simulate(
    model: ClusterModel,
    policy: RepairPolicy,
    *,
    years: float,
    repair_hours: float = 24,
    copying_hours: float = 4,
    clusters: int = 100,
    seed: int = 0,
) -> LossRecord:
    """Return the losses of `clusters` independent clusters of a model within `years`.

    The policies "periodic check" and "bkstore repair" look for missing replicas every
    `repair_hours` and write them at once. All policies but "nothing" have the replicas of a failed
    bookie on other bookies `copying_hours` after its failure. The same seed gives the same result.
    O(events), and a byte per replica. Raises `InvalidArgument` for a value out of range.

    >>> model = ClusterModel(ledgers=10, failure_rate=1.0, loss_rate=0.0)
    >>> record = simulate(model, "nothing", years=5, clusters=20, seed=1)
    >>> record.count_lost(1) < record.count_lost(5), record.loss_probability(5)
    (True, 1.0)
    """
    arguments.choice(*REPAIR_POLICIES)("policy", policy)
    arguments.number(above=True)("years", years)
    arguments.number(above=True)("repair_hours", repair_hours)
    arguments.number()("copying_hours", copying_hours)
    arguments.integer(1)("clusters", clusters)
    rng = np.random.default_rng(seed)
    replicas = SimulatedReplicas(model, clusters, rng)
    lost_entries: list[tuple[float, Int64Array]] = []  # year, entries lost by cluster
    failed_bookies: dict[int, FailedBookie] = {}  # by the number of the failure
    interval = repair_hours / HOURS_PER_YEAR
    events = list(_planned_events(model, policy, years, interval, clusters, rng))
    heapq.heapify(events)
    now = 0.0
    while events:
        event = heapq.heappop(events)
        # Between two events, bookies in service lose replicas; the order of these does not matter.
        new_losses = _draw_losses(model, clusters, event.year - now, rng)
        now = event.year
        if len(new_losses):
            lost_entries.append((now, replicas.lose_replicas(new_losses)))
        if event.kind == "2 failure":
            lost_now, failed = replicas.fail_bookie(event.cluster, event.bookie)
            lost_entries.append((now, lost_now))
            if policy != "nothing":
                failed_bookies[event.number] = failed
                copied_at = now + copying_hours / HOURS_PER_YEAR
                heapq.heappush(events, _Event(copied_at, "3 copied", event.number))
        elif event.kind == "3 copied":
            replicas.copy_failed_bookie(failed_bookies.pop(event.number))
        elif event.kind == "4 repair" and policy == "bkstore repair":
            replicas.repair_replicas()
        elif event.kind == "4 repair":
            replicas.repair_checked_fragments()
        elif event.number == _END:
            break
    return _make_record(lost_entries, replicas)


def _planned_events(
    model: ClusterModel,
    policy: RepairPolicy,
    years: float,
    interval: float,
    clusters: int,
    rng: np.random.Generator,
) -> Iterator[_Event]:
    """Yield the events that are known beforehand: steps, failures of bookies, repairs."""
    for number in range(1, math.ceil(years / _MAX_STEP)):
        yield _Event(number * _MAX_STEP, "1 step", number)
    yield _Event(years, "1 step", _END)
    failures = int(rng.poisson(model.failure_rate * years * model.bookies * clusters))
    failure_years = rng.uniform(0, years, failures)
    failed = zip(rng.integers(clusters, size=failures), rng.integers(model.bookies, size=failures))
    for number, (year, (cluster, bookie)) in enumerate(zip(failure_years, failed)):
        yield _Event(float(year), "2 failure", number, int(cluster), int(bookie))
    if policy in ("periodic check", "bkstore repair"):
        # With a tolerance, as the quotient of floats may be just below a whole number.
        for number in range(1, int(years / interval * (1 + 1e-12)) + 1):
            yield _Event(number * interval, "4 repair", number)


def _draw_losses(
    model: ClusterModel, clusters: int, years: float, rng: np.random.Generator
) -> Int64Array:
    """Return where losses begin: int64[n, 4] of cluster, ledger, entry, replica index. A replica's
    rate is the model's `loss_rate`, whatever the number of entries of a loss."""
    shape = (clusters, model.ledgers, model.entries_per_ledger, model.write_quorum)
    losses_per_year = model.loss_rate * np.prod(shape) / model.entries_per_loss
    count = int(rng.poisson(max(losses_per_year * years, 0.0)))
    if not count:
        return _NO_REPLICAS
    return np.column_stack([rng.integers(size, size=count) for size in shape])


def _make_record(
    lost_entries: list[tuple[float, Int64Array]], replicas: SimulatedReplicas
) -> LossRecord:
    """Return the record of `lost_entries`: years, and the entries lost by each cluster."""
    losses = [(year, lost_now) for year, lost_now in lost_entries if lost_now.any()]
    lost_by_cluster = [lost_now for _, lost_now in losses]
    counts = np.array(lost_by_cluster, np.int64).reshape(-1, replicas.clusters)
    row_numbers, clusters = np.nonzero(counts)
    return LossRecord(
        replicas.clusters,
        np.array([year for year, _ in losses], np.float64)[row_numbers],
        clusters,
        counts[row_numbers, clusters],
        replicas.copied_replicas,
    )
