"""OwnerUsage: whose data fill the disks of bookies, and what deleting them would free.

A bookie's share is computed beside its other usage (`bookie_shares`), as arrays that can be sent
between processes; `UsageByOwner` adds up the shares of bookies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, get_args

import numpy as np

from bkstore.arguments import choice
from bkstore.ids import Int64Array, LedgerId
from bkstore.ledger_metadata import LedgerOwners
from bkstore.ledger_metadata.owners import LedgerOwner, OwnerKind
from bkstore.offline.usage.disk_usage import Usage
from bkstore.offline.usage.entry_logs import LogUsage

OWNER_KINDS: tuple[OwnerKind, ...] = get_args(OwnerKind)

_check_kind = choice(*OWNER_KINDS)


class OwnerUsage(NamedTuple):
    """Disk usage of the ledgers of an owner, or of all chosen ones together.

    `owner` is the topic, namespace, tenant or component, or the application without it; None if the
    metadata do not state an owner, or lack the ledgers. `entries` are those of closed ledgers by
    the metadata, `replicas` the entries in the indexes of all bookies. `bytes` of records are in
    entry logs, `live_bytes` of them of live ledgers, in `logs` entry logs; `pinned_logs` of these
    are pinned, with `pinned_bytes`. `freed_bytes` are freed if all of the owner's ledgers are
    deleted, beside what garbage collection frees anyway: whole logs, and compaction's part of logs
    whose occupancy falls below the threshold. `removable_bytes` of them need no compaction.
    """

    owner: str | None
    application: str | None
    ledgers: int
    entries: int
    replicas: int
    bookies: int
    bytes: int
    live_bytes: int
    logs: int
    pinned_logs: int
    pinned_bytes: int
    freed_bytes: int
    removable_bytes: int


_LOG_SUMS = ("bytes", "live_bytes", "logs", "pinned_logs", "pinned_bytes", "freed", "removable")


class BookieShares(NamedTuple):
    """What owners have of a bookie: `sums`, int64[7, owners + 1], of its entry logs (rows
    `_LOG_SUMS`, the last column for all); the ledgers in its index or logs, with the number of the
    owner and the replicas of each, int64[n]."""

    sums: Int64Array
    scope_ids: Int64Array
    ledger_ids: Int64Array
    owner_numbers: Int64Array
    replicas: Int64Array


class OwnerNumbers:
    """Numbers the owners by which ledgers are summed up: topics, namespaces, tenants or components.
    `names` has the (name, application) of each number.

    With `chosen`, ledgers that are not in it have no number. O(ledgers) memory, as the metadata.
    """

    def __init__(
        self, owners: LedgerOwners, by: OwnerKind = "topic", chosen: LedgerOwners | None = None
    ) -> None:
        _check_kind("by", by)
        numbers: dict[tuple[str | None, str | None], int] = {}
        for owner in owners.owners:
            numbers.setdefault(_row_key(owner, by), len(numbers))
        unknown = numbers.setdefault((None, None), len(numbers))
        self.names = tuple(numbers)
        row_numbers = [numbers[_row_key(owner, by)] for owner in owners.owners]
        self._owners = owners if chosen is None else chosen
        # The last number is for ledgers that the metadata do not list: without an owner, or not
        # chosen (-1).
        unlisted = unknown if chosen is None else -1
        self._numbers = np.array([*row_numbers, unlisted], np.int64)

    def of(self, scope_ids: Int64Array, ledger_ids: Int64Array) -> Int64Array:
        """Return int64[n]: the owner's number of each ledger, -1 for ledgers not chosen."""
        return self._numbers[self._owners.numbers_of(scope_ids, ledger_ids)]

    def entries(self, scope_ids: Int64Array, ledger_ids: Int64Array) -> Int64Array:
        """Return int64[n]: the entries of each ledger by the metadata, 0 where not known."""
        return self._owners.entries_of(scope_ids, ledger_ids)


def _row_key(owner: LedgerOwner, by: OwnerKind) -> tuple[str | None, str | None]:
    return owner.name_by(by), owner.application


def bookie_shares(usage: Usage, numbers: OwnerNumbers) -> BookieShares:
    """Return what each owner has of a bookie, from one pass over its logs. Exhausts `usage.logs`.
    Memory: 40 bytes a ledger of the bookie beside that of `Usage`."""
    sums = np.zeros((len(_LOG_SUMS), len(numbers.names) + 1), np.int64)
    for log in usage.logs():
        _add_log(sums, log, usage, numbers)
    ledgers = usage.ledgers()
    scope_ids, ledger_ids = _id_columns(each.ledger for each in ledgers)
    owner_numbers = numbers.of(scope_ids, ledger_ids)
    replicas = np.array([each.entries or 0 for each in ledgers], np.int64)
    is_chosen = owner_numbers >= 0
    columns = (scope_ids, ledger_ids, owner_numbers, replicas)
    return BookieShares(sums, *(column[is_chosen] for column in columns))


def _add_log(sums: Int64Array, log: LogUsage, usage: Usage, numbers: OwnerNumbers) -> None:
    """Add an entry log to the sums of the owners that have records in it, and to those of all."""
    if not log.ledgers:
        return
    owner_numbers = numbers.of(*_id_columns(log.ledgers))
    sizes = np.array([*log.ledgers.values()], np.int64)
    live_sizes = np.array([log.live_ledgers.get(each, 0) for each in log.ledgers], np.int64)
    is_chosen = owner_numbers >= 0
    owner_numbers, sizes, live_sizes = (
        column[is_chosen] for column in (owner_numbers, sizes, live_sizes)
    )
    # Sum the bytes of the ledgers of each owner; the last elements are the sums over all owners, as
    # the last column of `sums` is.
    owners, places = np.unique(owner_numbers, return_inverse=True)
    owners = np.append(owners, sums.shape[1] - 1)
    byte_counts, live_counts = np.zeros((2, owners.size), np.int64)
    np.add.at(byte_counts, places, sizes)
    np.add.at(live_counts, places, live_sizes)
    byte_counts[-1], live_counts[-1] = sizes.sum(), live_sizes.sum()
    has_live = live_counts > 0
    is_pinned = has_live & usage.is_pinned(log)
    freed = usage.freed_by_deleting(log, live_counts)
    removable = np.where(live_counts == log.live_bytes, freed, 0)
    sums[:, owners] += np.stack(
        (
            byte_counts,
            live_counts,
            has_live,
            is_pinned,
            is_pinned * log.log.bytes,
            freed,
            removable,
        )
    )


def _id_columns(ledgers: Iterable[LedgerId]) -> tuple[Int64Array, Int64Array]:
    """Return the scopes and ledgers of ids as int64 columns."""
    pairs = np.array([ledger_id.signed for ledger_id in ledgers], np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


class UsageByOwner:
    """Adds up the shares of bookies (`add`); `rows` and `total` have the usage of owners.

    Memory: 32 bytes a ledger, however many bookies have it.

    >>> import tempfile
    >>> from bkstore import BookieDir, LedgerStorage
    >>> owners = LedgerOwners([(LedgerId.of(7), LedgerOwner("pulsar", tenant="shop"))])
    >>> numbers = OwnerNumbers(owners, by="tenant")
    >>> sums = UsageByOwner(numbers)
    >>> with tempfile.TemporaryDirectory() as top:
    ...     with LedgerStorage.open(top, "sorted") as storage:
    ...         for ledger in (7, 8):
    ...             record = ledger.to_bytes(8, "big") + bytes(56)
    ...             _ = storage.add_entry(record, master_key=b"k" * 20)
    ...     with BookieDir(top) as bookie:
    ...         sums.add(bookie_shares(Usage(bookie), numbers))
    >>> [(row.owner, row.bytes, row.freed_bytes) for row in sums.rows()]
    [(None, 68, 1092), ('shop', 68, 1092)]
    """

    def __init__(self, numbers: OwnerNumbers) -> None:
        self._numbers = numbers
        owner_count = len(numbers.names)
        self._sums = np.zeros((len(_LOG_SUMS), owner_count + 1), np.int64)
        self._replicas = np.zeros(owner_count, np.int64)
        self._bookies = np.zeros(owner_count + 1, np.int64)
        self._ledgers = np.empty((0, 3), np.int64)  # distinct: scope, ledger, owner number

    def add(self, shares: BookieShares) -> None:
        """Add what owners have of one bookie. O(ledgers log ledgers)."""
        self._sums += shares.sums
        np.add.at(self._replicas, shares.owner_numbers, shares.replicas)
        self._bookies[np.unique(shares.owner_numbers)] += 1
        self._bookies[-1] += bool(shares.owner_numbers.size)
        rows = np.column_stack((shares.scope_ids, shares.ledger_ids, shares.owner_numbers))
        self._ledgers = np.unique(np.concatenate((self._ledgers, rows)), axis=0)

    def rows(self) -> list[OwnerUsage]:
        """Return the usage of each owner that has a ledger on a bookie, the most bytes first."""
        rows = [row for row in self._owner_rows() if row.ledgers]
        return sorted(rows, key=lambda row: (-row.bytes, row.owner or "", row.application or ""))

    def total(self) -> OwnerUsage:
        """Return the sums over all owners; `freed_bytes` are those that deleting all would free."""
        entries = self._entries_of_ledgers()
        counts = (len(self._ledgers), int(entries.sum()), int(self._replicas.sum()))
        sums = self._sums[:, -1].tolist()
        return OwnerUsage("total", None, *counts, int(self._bookies[-1]), *sums)

    def _entries_of_ledgers(self) -> Int64Array:
        return self._numbers.entries(self._ledgers[:, 0], self._ledgers[:, 1])

    def _owner_rows(self) -> Iterator[OwnerUsage]:
        """Yield the usage of each owner, by number; `columns` has its fields after the names."""
        owner_count = len(self._numbers.names)
        ledger_counts = np.bincount(self._ledgers[:, 2], minlength=owner_count)
        entry_counts = np.zeros(owner_count, np.int64)
        np.add.at(entry_counts, self._ledgers[:, 2], self._entries_of_ledgers())
        columns = (ledger_counts, entry_counts, self._replicas, self._bookies, *self._sums)
        for names, *numbers in zip(self._numbers.names, *(column.tolist() for column in columns)):
            yield OwnerUsage(*names, *numbers)
