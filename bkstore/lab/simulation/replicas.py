"""The replicas of simulated clusters: which are missing, which entries are lost, and repairs.

Many clusters of the same kind are simulated at once, so that a share of them is a probability.
Their ledgers are closed and have one segment. Entry E of a ledger is on the bookies at positions E,
E + 1, ... of its ensemble, `write_quorum` of them, modulo the ensemble's size, as in BookKeeper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bkstore import arguments
from bkstore.errors import InvalidArgument

BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]

_CLUSTER, _LEDGER, _ENTRY, _REPLICA = range(4)  # columns of rows of replicas
_COLUMNS = 4

NO_BOOKIE = -1
"""In an ensemble: the bookie at this position failed, and its replicas are not copied yet."""


@dataclass(frozen=True, slots=True)
class ClusterModel:
    """A cluster, what its bookies lose, and what its writers left behind.

    `loss_rate` is the number of losses per replica and year on bookies that go on serving: a
    damaged index row, file or entry log. One loss takes `entries_per_loss` consecutive entries of
    a ledger from one bookie. `failure_rate` is the number of failures per bookie and year; the
    bookie's disks are lost with it, and an empty bookie takes its place. `short_share` is the share
    of entries that were written to `ack_quorum` bookies only, which is what BookKeeper promises.

    Raises `InvalidArgument` unless bookies > ensemble size >= write quorum >= ack quorum >= 1: a
    cluster without a spare bookie could not copy what one of them loses.
    """

    ensemble_size: int = 3
    write_quorum: int = 2
    ack_quorum: int = 2
    bookies: int = 10
    ledgers: int = 100
    entries_per_ledger: int = 100
    loss_rate: float = 0.01
    entries_per_loss: int = 1
    failure_rate: float = 0.2
    short_share: float = 0.0

    def __post_init__(self) -> None:
        """Check each field, then the order of sizes: bookies but one, ensemble, both quorums."""
        arguments.check_fields(self, _CHECKS)
        sizes = (self.ack_quorum, self.write_quorum, self.ensemble_size, self.bookies - 1)
        if list(sizes) != sorted(sizes):
            raise InvalidArgument(
                f"of {self.bookies} bookies, an ensemble of {self.ensemble_size}, write quorum "
                f"{self.write_quorum} and ack quorum {self.ack_quorum}, each must be as large as "
                "the next, and the ensemble must leave a bookie to spare"
            )

    @property
    def entries(self) -> int:
        """The entries of one cluster."""
        return self.ledgers * self.entries_per_ledger


_CHECKS = {
    "ensemble_size": arguments.integer(1),
    "write_quorum": arguments.integer(1),
    "ack_quorum": arguments.integer(1),
    "bookies": arguments.integer(2),
    "ledgers": arguments.integer(1),
    "entries_per_ledger": arguments.integer(1),
    "loss_rate": arguments.number(),
    "entries_per_loss": arguments.integer(1),
    "failure_rate": arguments.number(),
    "short_share": arguments.number(0, 1),
}


@dataclass(frozen=True, slots=True)
class FailedBookie:
    """The positions in ensembles that a failed bookie had: ledger and position number of each."""

    cluster: int
    ledgers: Int64Array
    position_numbers: Int64Array


@dataclass(frozen=True, slots=True)
class _Position:
    """The replicas of a ledger at one position of its ensemble: entry ids, and of each entry the
    index of the replica in its write set."""

    entry_ids: Int64Array
    replica_indexes: Int64Array


class SimulatedReplicas:
    """The replicas of several clusters of one model.

    `missing` is bool[clusters, ledgers, entries, write quorum], `lost` bool[clusters, ledgers,
    entries]: no replica is left, and none comes back. `ensembles` is int64[clusters, ledgers,
    ensemble size]. The methods that lose replicas return the number of entries that are lost by
    it, for each cluster: int64[clusters]. Replicas are rows of int64[n, 4] (cluster, ledger, entry,
    replica index); ``tuple(rows.T)`` indexes an array of these dimensions with them.
    """

    def __init__(self, model: ClusterModel, clusters: int, rng: np.random.Generator) -> None:
        """Place the ledgers of `clusters` clusters on random bookies, all replicas written but
        those that the model's writers left out."""
        self.model, self.clusters, self._rng = model, clusters, rng
        ledger_shape = (clusters, model.ledgers)
        entry_shape = (*ledger_shape, model.entries_per_ledger)
        self.missing: BoolArray = np.zeros((*entry_shape, model.write_quorum), bool)
        self.lost: BoolArray = np.zeros(entry_shape, bool)
        order = rng.random((*ledger_shape, model.bookies)).argsort(-1)
        self.ensembles = order[..., : model.ensemble_size].astype(np.int64)
        self.copied_replicas = 0
        """Replicas that repairs have written, those that were not missing included."""
        self._positions = [self._list_position(number) for number in range(model.ensemble_size)]
        self._suspects: list[Int64Array] = []  # replicas lost since the last repair
        self._uncopied: list[tuple[int, int, int]] = []  # cluster, ledger, position number
        self._drop_unwritten_replicas()

    def _list_position(self, number: int) -> _Position:
        entry_ids = np.arange(self.model.entries_per_ledger)
        replica_indexes = (number - entry_ids) % self.model.ensemble_size
        is_here = replica_indexes < self.model.write_quorum
        return _Position(entry_ids[is_here], replica_indexes[is_here])

    def _drop_unwritten_replicas(self) -> None:
        """Choose the model's `short_share` of the entries, whose writers stopped once an ack quorum
        had them, and leave these `ack_quorum` replicas each, which are random ones."""
        write_quorum, ack_quorum = self.model.write_quorum, self.model.ack_quorum
        if self.model.short_share == 0 or write_quorum == ack_quorum:
            return
        is_short = self._rng.random(self.lost.shape) < self.model.short_share
        rows = np.argwhere(is_short)
        unwritten = self._rng.random((len(rows), write_quorum)).argsort(1)[:, ack_quorum:]
        for replica_indexes in unwritten.T:
            self._mark_missing(np.column_stack([rows, replica_indexes]))

    def _mark_missing(self, rows: Int64Array) -> Int64Array:
        """Mark replicas as missing; return the number of entries that are lost now by cluster."""
        self.missing[tuple(rows.T)] = True
        self._suspects.append(rows)
        return self._note_lost_entries(rows)

    def _note_lost_entries(self, rows: Int64Array) -> Int64Array:
        """Note which entries of `rows` have no replica any more; count the new ones by cluster."""
        entries = np.unique(rows[:, :_REPLICA], axis=0)
        has_none = self.missing[tuple(entries.T)].all(-1)
        lost_now = entries[has_none & ~self.lost[tuple(entries.T)]]
        self.lost[tuple(lost_now.T)] = True
        return np.bincount(lost_now[:, _CLUSTER], minlength=self.clusters)

    def lose_replicas(self, rows: Int64Array) -> Int64Array:
        """Lose replicas, and those of the next entries that the same bookie has in the ledger,
        `entries_per_loss` in all; after its last entry follows its first. `rows` is int64[n, 4]:
        cluster, ledger, entry, replica index."""
        lost_now = np.zeros(self.clusters, np.int64)
        if not len(rows):
            return lost_now
        for _, position, here in self._split_by_position(rows):
            # Ranks of the entries among those that the bookie has of the ledger.
            first_ranks = np.searchsorted(position.entry_ids, here[:, _ENTRY])
            steps = np.arange(min(self.model.entries_per_loss, len(position.entry_ids)))
            ranks = ((first_ranks[:, None] + steps) % len(position.entry_ids)).ravel()
            ledgers = here[:, :_ENTRY].repeat(len(steps), axis=0)
            replicas = (position.entry_ids[ranks], position.replica_indexes[ranks])
            lost_now += self._mark_missing(np.column_stack([ledgers, *replicas]))
        return lost_now

    def _split_by_position(self, rows: Int64Array) -> Iterator[tuple[int, _Position, Int64Array]]:
        """Yield the number of each position, the position, and its rows, unless it has none."""
        numbers = (rows[:, _ENTRY] + rows[:, _REPLICA]) % self.model.ensemble_size
        for number, position in enumerate(self._positions):
            here = rows[numbers == number]
            if len(here):
                yield number, position, here

    def fail_bookie(self, cluster: int, bookie: int) -> tuple[Int64Array, FailedBookie]:
        """Lose all replicas of a bookie. Its positions in ensembles are `NO_BOOKIE` until
        `copy_failed_bookie` is called with the second result."""
        lost_now = np.zeros(self.clusters, np.int64)
        ledgers, numbers = np.nonzero(self.ensembles[cluster] == bookie)
        self.ensembles[cluster, ledgers, numbers] = NO_BOOKIE
        for number, position in enumerate(self._positions):
            failed_ledgers = ledgers[numbers == number]
            size = len(position.entry_ids)
            rows = np.empty((len(failed_ledgers) * size, _COLUMNS), np.int64)
            rows[:, _CLUSTER] = cluster
            rows[:, _LEDGER] = failed_ledgers.repeat(size)
            rows[:, _ENTRY] = np.tile(position.entry_ids, len(failed_ledgers))
            rows[:, _REPLICA] = np.tile(position.replica_indexes, len(failed_ledgers))
            self.missing[tuple(rows.T)] = True
            lost_now += self._note_lost_entries(rows)
        return lost_now, FailedBookie(cluster, ledgers, numbers)

    def copy_failed_bookie(self, failed: FailedBookie) -> None:
        """Copy the replicas of a failed bookie to others, which take its positions.

        As BookKeeper's `ReplicationWorker`: the entries of a position are copied together, and if
        one of them cannot be read from any bookie, the position stays as it is, for ever.
        """
        for ledger, number in zip(failed.ledgers.tolist(), failed.position_numbers.tolist()):
            if not self._copy_position(failed.cluster, ledger, number):
                self._uncopied.append((failed.cluster, ledger, number))

    def _copy_position(
        self, cluster: int, ledger: int, number: int, *, skip_lost_entries: bool = False
    ) -> bool:
        """Copy a ledger's entries of one position to another bookie, and put that bookie into the
        ensemble; return False, and do nothing, if an entry is lost and not to be skipped."""
        position = self._positions[number]
        is_readable = ~self.lost[cluster, ledger, position.entry_ids]
        if not (skip_lost_entries or is_readable.all()):
            return False
        entry_ids = position.entry_ids[is_readable]
        self.missing[cluster, ledger, entry_ids, position.replica_indexes[is_readable]] = False
        self.copied_replicas += len(entry_ids)
        ensemble = self.ensembles[cluster, ledger]
        ensemble[number] = self._rng.choice(
            np.setdiff1d(np.arange(self.model.bookies), ensemble)  # at least one is to spare
        )
        return True

    def repair_replicas(self) -> None:
        """Write each missing replica again, if another replica of its entry is there: what
        `bkstore repair` does with the result of an audit. Positions that could not be copied
        because of lost entries get their other entries."""
        for cluster, ledger, number in self._uncopied:
            self._copy_position(cluster, ledger, number, skip_lost_entries=True)
        self._uncopied = []
        if not self._suspects:
            return
        rows = self._take_suspects()
        numbers = (rows[:, _ENTRY] + rows[:, _REPLICA]) % self.model.ensemble_size
        is_repairable = self.missing[tuple(rows.T)] & ~self.lost[tuple(rows[:, :_REPLICA].T)]
        # Replicas of failed bookies are left to `copy_failed_bookie`.
        is_repairable &= self.ensembles[rows[:, _CLUSTER], rows[:, _LEDGER], numbers] != NO_BOOKIE
        self.missing[tuple(rows[is_repairable].T)] = False
        self.copied_replicas += int(is_repairable.sum())

    def repair_checked_fragments(self) -> None:
        """Copy what BookKeeper's periodic check of all ledgers would report.

        Of each bookie of a segment it reads the first and the last entry that the bookie should
        have (`LedgerChecker`). If one is missing, all entries of this bookie in the segment are
        copied to another one, unless one of them cannot be read from any bookie. Losses between
        the two are not seen.
        """
        if not self._suspects:
            return
        rows = self._take_suspects()
        rows = rows[self.missing[tuple(rows.T)]]
        for number, position, here in self._split_by_position(rows):
            first_or_last = here[np.isin(here[:, _ENTRY], position.entry_ids[[0, -1]])]
            for cluster, ledger in np.unique(first_or_last[:, :_ENTRY], axis=0).tolist():
                # The replicas of a failed bookie are left to `copy_failed_bookie`.
                if self.ensembles[cluster, ledger, number] != NO_BOOKIE:
                    self._copy_position(cluster, ledger, number)

    def _take_suspects(self) -> Int64Array:
        """Return the replicas that were lost since the last call on bookies in service."""
        rows = np.concatenate([np.empty((0, _COLUMNS), np.int64), *self._suspects])
        self._suspects = []
        return np.unique(rows, axis=0)
