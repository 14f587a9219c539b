"""BookieClient: one bookie as clients and the auditor see it, wherever it runs.

Any client with these methods fits. Records are whole entries as bookies store them
(`bkstore.formats.entry`); the caller computes and verifies digests. Source: `proto/BookieClient`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol, runtime_checkable

import numpy.typing as npt

from bkstore.availability import Availability
from bkstore.errors import BkstoreError
from bkstore.formats.entry import RecordBatch
from bkstore.index.api import LedgerLike


class LacResponse(NamedTuple):
    """A bookie's data on a ledger's LAC: the explicit LAC's body and the last entry's record."""

    explicit_lac: bytes | None
    last_record: bytes | None


@runtime_checkable
class BookieClient(Protocol):
    """One bookie: adds, reads, fencing, and which entries it has. Thread-safe.

    Every call raises `BookieUnavailable` if no response came, or the error that the bookie
    returned: `NoSuchLedger`, `NoSuchEntry`, `LedgerFenced`, `UnauthorizedAccess`,
    `CorruptionError`, `ReadOnlyError`, `TooManyRequests`, `DataUnknown`.
    """

    @property
    def bookie_id(self) -> str:
        """The bookie's id, as it stands in ensembles."""

    @property
    def batch_reads(self) -> bool:
        """Whether to send it batch reads; `read_entries` may still raise `IllegalOperation`."""

    def add_entry(
        self, record: bytes, master_key: bytes, *, recovery: bool = False, sync: bool = True
    ) -> int:
        """Store one record and return its entry id; durable with `sync`."""

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
        """Return records of consecutive entries from `start` on, as BP-62 defines it; raises
        `IllegalOperation` if the bookie does not support batch reads."""

    def read_lac(self, ledger: LedgerLike) -> LacResponse:
        """Return the bookie's data on the LAC; raises `NoSuchEntry` if it has neither part."""

    def write_lac(self, ledger: LedgerLike, body: bytes, master_key: bytes) -> None:
        """Store the body of an explicit LAC."""

    def force(self, ledger: LedgerLike) -> None:
        """Make entries durable that were added without `sync`."""

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries of the ledger the bookie has; `NoSuchLedger` if it has none."""


@runtime_checkable
class BatchAdder(Protocol):
    """A bookie that can add several records in one call; writers use that if it is available."""

    def add_batch(self, batch: RecordBatch, master_key: bytes, *, recovery: bool = False) -> None:
        """Store the records of a batch in order, all durable at return; raises as `add_entry`.
        After an error some may be stored. If the bookie was restarted during the call, it must
        raise: records from before the restart may be lost."""


@runtime_checkable
class LacWaiter(Protocol):
    """A bookie that answers once a ledger's LAC advances (a long poll); readers that follow a
    writer use that if it is available."""

    def wait_for_lac(self, ledger: LedgerLike, previous: int, seconds: float = 1.0) -> object:
        """Return once the bookie knows a LAC above `previous`, or after `seconds`; raises as
        `read_lac`."""


@runtime_checkable
class BulkReader(Protocol):
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
        """Return the records of these entries, in their order, as by `read_entry`. The first error
        is raised; with `errors` all go there, by entry id, and those entries are left out."""
