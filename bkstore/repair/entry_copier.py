"""EntryCopier: copies entries of one ledger from sound replicas to a bookie, in bounded batches.

A replica is sound if the bookie returns it with a matching digest. A record is copied as it is
stored, after its digest was verified, and read again from the target. In BookKeeper:
`client/LedgerFragmentReplicator`, which encodes entries anew and reads nothing again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from bkstore.availability import Availability
from bkstore.cluster.client.appends.quorum_add import make_sender
from bkstore.cluster.client.bookie_client import BookieClient
from bkstore.cluster.client.ledger_access import LedgerAccess
from bkstore.cluster.client.many_entries import read_records
from bkstore.errors import BkstoreError, CorruptionError
from bkstore.formats.entry import RecordBatch
from bkstore.repair.planning.byte_rate import ByteRate
from bkstore.repair.planning.sound_reader import CHUNK_ENTRIES, SoundReader, iterate_ids, unite


class RepairStopped(Exception):
    """The repair was stopped between two batches."""


class CopyResult(NamedTuple):
    """The entries that the target has now, and the error of each source for the others, as of
    `SoundReader.read`."""

    copied: Availability
    errors: dict[str, BkstoreError]


class EntryCopier:
    """Copies entries of the ledger of `access`. `stop` ends a copy between two batches, by
    `RepairStopped`; `on_copied` is called with the entries and bytes of each. Thread-safe."""

    def __init__(
        self,
        access: LedgerAccess,
        rate: ByteRate,
        stop: threading.Event,
        on_copied: Callable[[int, int], None],
    ) -> None:
        self._access = access
        self._rate = rate
        self._stop = stop
        self._on_copied = on_copied
        self._reader = SoundReader(access, self._check_stopped)

    def copy(
        self, entries: Availability, target: str, sources: Sequence[tuple[str, Availability]]
    ) -> CopyResult:
        """Copy entries to `target`, each from the first of `sources` that has it sound. A source is
        a bookie with the entries that it should have.

        Raises the error of the target if it does not take a record, or does not return it then.
        Memory: some 4,096 ids and 1 MiB of records, or one record if that is larger.
        """
        copied: list[Availability] = []
        errors: dict[str, BkstoreError] = {}
        for chunk in iterate_ids(entries, CHUNK_ENTRIES):
            missing = chunk
            for bookie, share in sources:
                in_share = share.contains_many(missing)
                if not in_share.any():
                    continue
                for batch in self._reader.read(bookie, missing[in_share], errors):
                    self._write(target, batch)
                    missing = np.setdiff1d(missing, batch.entries)
                if not missing.size:
                    break
            copied.append(Availability.from_entries(np.setdiff1d(chunk, missing)))
        return CopyResult(unite(copied), errors)

    def _write(self, target: str, batch: RecordBatch) -> None:
        """Add records to the target by recovery adds, which a bookie takes for a fenced ledger too;
        then read them again and compare."""
        self._rate.take(int(batch.sizes.sum()))
        self._check_stopped()
        framed = batch.framed()
        sent = self._access.call_bookie(target, make_sender(self._access, framed, recovery=True))
        if sent.error is not None:
            raise sent.error
        answer = self._access.call_bookie(target, lambda client: self._read_back(client, framed))
        if answer.error is not None:
            raise answer.error
        self._on_copied(len(batch), int(batch.sizes.sum()))

    def _read_back(self, client: BookieClient, batch: RecordBatch) -> None:
        """Raise an error unless the bookie returns the records of a batch as they are."""
        errors: dict[int, BkstoreError] = {}
        entry_ids = batch.entries.tolist()
        again = read_records(self._access, client, entry_ids, errors, fence=False)
        if errors:
            raise next(iter(errors.values()))
        if again.records() != batch.records():
            reason = f"{client.bookie_id} returns other bytes than were written"
            raise CorruptionError(None, None, f"ledger {self._access.ledger}: {reason}")

    def _check_stopped(self) -> None:
        if self._stop.is_set():
            raise RepairStopped
