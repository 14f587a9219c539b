"""BookieClient: one bookie as clients and the auditor see it, wherever it runs.

This is a structural protocol: `bkstore.cluster.in_process.bookie_client` implements it without a
network, and any network client with these methods fits. Records are whole entries as bookies store
them (`bkstore.formats.entry`); the caller computes and verifies digests. Source:
`proto/BookieClient`.
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
    """A bookie's data on a ledger's LAC: the explicit LAC's body and the last entry's record."""

    explicit_lac: bytes | None
    last_record: bytes | None


@runtime_checkable
class BookieClient(Protocol):
    """One bookie: adds, reads, fencing, and which entries it has.

    Every call raises `BookieUnavailable` if no response came, or the error that the bookie
    returned: `NoSuchLedger`, `NoSuchEntry`, `LedgerFenced`, `UnauthorizedAccess`,
    `CorruptionError`, `ReadOnlyError`, `TooManyRequests`, `DataUnknown`. Thread-safe.
    """

    @property
    def bookie_id(self) -> str:
        """The bookie's id, as it stands in ensembles."""
        ...

    @property
    def batch_reads(self) -> bool:
        """Whether batch reads may be sent to it; if it turns out not to support them,
        `read_entries` raises `IllegalOperation`."""
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
        first, even if there is no such entry; that needs its `master_key`."""
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
        """Return records of consecutive entries from `start` on, as BP-62 defines it.

        Raises `IllegalOperation` if the bookie does not support batch reads.
        """
        ...

    def read_lac(self, ledger: LedgerLike) -> LastConfirmed:
        """Return the bookie's data on the LAC; raises `NoSuchEntry` if it has neither part."""
        ...

    def write_lac(self, ledger: LedgerLike, body: bytes, master_key: bytes) -> None:
        """Store the body of an explicit LAC."""
        ...

    def force(self, ledger: LedgerLike) -> None:
        """Make entries durable that were added without `sync`."""
        ...

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries of the ledger the bookie has; `NoSuchLedger` if it has none."""
        ...


@runtime_checkable
class TakesMany(Protocol):
    """A bookie that can add several records in one call; writers use that if it is available."""

    def add_batch(self, batch: RecordBatch, master_key: bytes, *, recovery: bool = False) -> None:
        """Store the records of a batch in order, all durable at return; raises as `add_entry`.

        After an error some of them may be stored. If the bookie was restarted during the call,
        it must raise: records from before the restart may be lost.
        """
        ...


@runtime_checkable
class ReadsMany(Protocol):
    """A bookie that can read several entries in one call; readers use that if it is available."""

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

        Raises the error of the first entry that fails; if `errors` is given, the errors are put
        there by entry id instead, and those entries are left out.
        """
        ...
