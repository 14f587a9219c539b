"""LocalClient: a `BookieClient` of a bookie in this process.

In BookKeeper: `PerChannelBookieClient`, and request processors such as `proto/ReadEntryProcessor`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy.typing as npt

from bkstore.availability import Availability
from bkstore.cluster.client.bookie_client import LacResponse
from bkstore.cluster.in_process.bookie import LocalBookie
from bkstore.errors import (
    BkstoreError,
    IllegalOperation,
    InvalidArgument,
    NoSuchEntry,
    NoSuchLedger,
)
from bkstore.formats.entry import RecordBatch
from bkstore.ids import LedgerId, as_entry_ids
from bkstore.index.api import LedgerLike
from bkstore.index.bulk_listing import LedgerErrors, list_one_by_one, normalize_ledger_ids
from bkstore.storage.bookie import Bookie


class LocalClient:
    """A `BookieClient` of a `LocalBookie`; `client_name` is the name by which it can be cut off."""

    def __init__(self, server: LocalBookie, client_name: str = "") -> None:
        self.server = server
        self.client_name = client_name

    def __repr__(self) -> str:
        return f"<LocalClient {self.bookie_id}>"

    @property
    def bookie_id(self) -> str:
        """The bookie's id."""
        return self.server.bookie_id

    @property
    def batch_reads(self) -> bool:
        """Whether the bookie supports batch reads."""
        return self.server.batch_reads

    def add_entry(
        self, record: bytes, master_key: bytes, *, recovery: bool = False, sync: bool = True
    ) -> int:
        """Store one record and return its entry id; see `BookieClient.add_entry`."""
        return self.server.call(
            self.client_name,
            lambda b: b.add_entry(record, master_key, recovery=recovery, sync=sync),
        )

    def add_batch(self, batch: RecordBatch, master_key: bytes, *, recovery: bool = False) -> None:
        """As `BatchAdder.add_batch`: one sync for all."""
        self.server.call(
            self.client_name, lambda b: b.add_batch(batch, master_key, recovery=recovery)
        )

    def read_entry(
        self,
        ledger: LedgerLike,
        entry: int,
        *,
        fence: bool = False,
        master_key: bytes | None = None,
    ) -> bytes:
        """Return one record, after fencing the ledger if asked; see `BookieClient.read_entry`."""
        key = _fencing_key(fence, master_key)

        def read(bookie: Bookie) -> bytes:
            if key is not None:
                bookie.fence(ledger, key)
            return bookie.read_entry(ledger, entry)

        return self.server.call(self.client_name, read)

    def read_many(
        self,
        ledger: LedgerLike,
        entries: npt.ArrayLike | Iterable[int],
        errors: dict[int, BkstoreError] | None = None,
        *,
        fence: bool = False,
        master_key: bytes | None = None,
    ) -> RecordBatch:
        """Return the records of many entries, by one call for all; see `BulkReader.read_many`."""
        entry_ids, key = as_entry_ids(entries).tolist(), _fencing_key(fence, master_key)

        def read(bookie: Bookie) -> RecordBatch:
            """Read one by one; errors are kept by entry id, or raised without `errors`."""
            if key is not None:
                bookie.fence(ledger, key)
            records, read_ids = [], []
            for entry in entry_ids:
                try:
                    records.append(bookie.read_entry(ledger, entry))
                except BkstoreError as error:
                    if errors is None:
                        raise
                    errors[entry] = error
                else:
                    read_ids.append(entry)
            return RecordBatch.of(records, read_ids)

        return self.server.call(self.client_name, read)

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
        """Return consecutive records as one batch; see `BookieClient.read_entries`."""
        key = _fencing_key(fence, master_key)

        def read(bookie: Bookie) -> RecordBatch:
            if not self.server.batch_reads:
                raise IllegalOperation(f"{self.bookie_id} does not support batch reads")
            return bookie.read_entries(
                ledger, start, max_count, max_size, fence=fence, master_key=key
            )

        return self.server.call(self.client_name, read)

    def read_lac(self, ledger: LedgerLike) -> LacResponse:
        """Return the explicit LAC and the record of the last entry, each None if it is missing;
        raises `NoSuchEntry` if both are, also for an unknown ledger, as in BookKeeper."""

        def read(bookie: Bookie) -> LacResponse:
            try:
                explicit, last = bookie.explicit_lac(ledger), bookie.last_entry(ledger)
            except NoSuchLedger:
                explicit = last = None
            if explicit is None and last is None:
                raise NoSuchEntry(f"no LAC of ledger {LedgerId.of(ledger)} is stored here")
            record = None if last is None else bookie.read_entry(ledger, last)
            return LacResponse(explicit, record)

        return self.server.call(self.client_name, read)

    def write_lac(self, ledger: LedgerLike, body: bytes, master_key: bytes) -> None:
        """As `BookieClient.write_lac`."""
        self.server.call(self.client_name, lambda b: b.set_explicit_lac(ledger, body, master_key))

    def force(self, ledger: LedgerLike) -> None:
        """As `BookieClient.force`."""
        self.server.call(self.client_name, lambda b: b.force(ledger))

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return which entries of the ledger the bookie has; see `BookieClient.availability`."""

        def read_availability(bookie: Bookie) -> Availability:
            if not bookie.ledger_exists(ledger):
                raise NoSuchLedger(f"ledger {LedgerId.of(ledger)} is not on this bookie")
            return bookie.availability(ledger)

        return self.server.call(self.client_name, read_availability)

    def availability_many(
        self, ledgers: Iterable[LedgerLike] | None = None, errors: LedgerErrors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        """Yield each ledger with the bookie's entries, all its ledgers by default, by single
        requests. With `errors`, which gets them by ledger (also `NoSuchLedger`), failed ledgers are
        left out; else the first error is raised."""
        if ledgers is None:
            ledgers = self.server.call(self.client_name, lambda bookie: bookie.ledgers())
        return list_one_by_one(self.availability, normalize_ledger_ids(ledgers), errors)


def _fencing_key(fence: bool, master_key: bytes | None) -> bytes | None:
    if fence and master_key is None:
        raise InvalidArgument("a fencing read needs the master key")
    return master_key if fence else None


class LocalClients(Mapping[str, LocalClient]):
    """One client's `LocalClient`s (of `client_class`) by bookie id, also of later bookies."""

    def __init__(
        self,
        servers: Mapping[str, LocalBookie],
        client_name: str,
        client_class: type[LocalClient] = LocalClient,
    ) -> None:
        self._servers = servers
        self._client_name = client_name
        self._client_class = client_class

    def __getitem__(self, bookie_id: str) -> LocalClient:
        return self._client_class(self._servers[bookie_id], self._client_name)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._servers))

    def __len__(self) -> int:
        return len(self._servers)
