"""BookieClient: one bookie as clients and the auditor see it, wherever it runs.

The protocol is by shape: `bkstore.cluster.in_process.bookie_client` has one without a network, and
any that speaks over one may fit. Records are whole entries as bookies store them
(`bkstore.formats.entry`); digests are the caller's business. Source: `proto/BookieClient`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, runtime_checkable

import numpy.typing as npt

from bkstore.availability import Availability
from bkstore.errors import BkstoreError
from bkstore.formats.entry import RecordBatch
from bkstore.index.api import LedgerLike


class LastConfirmed(NamedTuple):
    """What a bookie knows of a ledger's LAC: an explicit LAC's body, its last entry's record."""

    explicit_lac: bytes | None
    last_record: bytes | None


@runtime_checkable
class BookieClient(Protocol):
    """One bookie: adds, reads, fencing, and which entries it has.

    Every call raises `BookieUnavailable` where no answer came, and otherwise what a bookie
    answers: `NoSuchLedger`, `NoSuchEntry`, `LedgerFenced`, `UnauthorizedAccess`,
    `CorruptionError`, `ReadOnlyError`, `TooManyRequests`, `DataUnknown`. Safe between threads.
    """

    @property
    def bookie_id(self) -> str:
        """The bookie's id, as ensembles name it."""
        ...

    @property
    def batch_reads(self) -> bool:
        """Whether it may be asked for batches; one that turns out not to know them says so by
        `IllegalOperation`."""
        ...

    def add_entry(
        self, record: bytes, master_key: bytes, *, recovery: bool = False, sync: bool = True
    ) -> int:
        """Store one record and return its entry id; durable with `sync`."""
        ...

    def read_entry(
        self,
        ledger: LedgerLike,
        entry: int,
        *,
        fence: bool = False,
        master_key: bytes | None = None,
    ) -> bytes:
        """Return one record; entry -1 means the last one. With `fence` the ledger is fenced
        first, which needs its `master_key`; also where there is no such entry."""
        ...

    def read_entries(
        self,
        ledger: LedgerLike,
        start: int,
        max_count: int = 0,
        max_size: int = 0,
        *,
        fence: bool = False,
        master_key: bytes | None = None,
    ) -> RecordBatch:
        """Return records of consecutive entries from `start` on, as BP-62 has it.

        `IllegalOperation` if the bookie does not know batch reads.
        """
        ...

    def read_lac(self, ledger: LedgerLike) -> LastConfirmed:
        """Return what the bookie knows of the LAC; `NoSuchEntry` if it knows neither."""
        ...

    def write_lac(self, ledger: LedgerLike, body: bytes, master_key: bytes) -> None:
        """Keep the body of an explicit LAC."""
        ...

    def force(self, ledger: LedgerLike) -> None:
        """Make durable what was added without `sync`."""
        ...

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries of the ledger are here; `NoSuchLedger` if it is unknown."""
        ...


@runtime_checkable
class TakesMany(Protocol):
    """A bookie that takes several records in one call; writers use it where it is there."""

    def add_batch(self, batch: RecordBatch, master_key: bytes, *, recovery: bool = False) -> None:
        """Store the records of a batch in order, all durable at return; raises as `add_entry`.

        Then some of them may be stored. A bookie that was started again meanwhile must not
        return: what it took before may be gone.
        """
        ...


@runtime_checkable
class ReadsMany(Protocol):
    """A bookie that is asked for several entries in one call; readers use it where it is there."""

    def read_many(
        self,
        ledger: LedgerLike,
        entries: npt.ArrayLike | Iterable[int],
        errors: dict[int, BkstoreError] | None = None,
        *,
        fence: bool = False,
        master_key: bytes | None = None,
    ) -> RecordBatch:
        """Return the records of these entries, in their order, each read as by `read_entry`.

        Raises the error of the first that fails; with `errors` those that fail are noted there by
        entry id, and left out.
        """
        ...
