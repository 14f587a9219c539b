"""VerifiedBookies: bookies that list an entry only if they return it with a matching digest.

A bookie lists the entries of its index. That the bytes of one have changed on the disk since is
found only by reading the copy.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from bkstore.availability import Availability
from bkstore.cluster.audit import AvailabilitySource
from bkstore.cluster.client.ledger_access import ClientContext, LedgerAccess
from bkstore.errors import BkstoreError, BookieUnavailable, InvalidArgument, ListingUnsupported
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import LedgerLike
from bkstore.repair.planning.byte_rate import ByteRate
from bkstore.repair.planning.finished_segments import finished_part
from bkstore.repair.planning.options import RepairOptions
from bkstore.repair.planning.sound_reader import (
    CHUNK_ENTRIES,
    SoundReader,
    is_open,
    iterate_ids,
    unite,
)
from bkstore.schedule import expected


class VerifiedBookies(Mapping[str, AvailabilitySource]):
    """The bookies of `sources`, each as a source of the entries of which it returns a sound copy.

    Copies are read by the clients of `context`. Entries that can still be added to, those of the
    last segment of an open ledger, are listed as they are. `damaged` has the entries that a bookie
    lists and does not return sound, by ledger and bookie. For one audit; thread-safe.
    """

    def __init__(
        self,
        sources: Mapping[str, AvailabilitySource],
        context: ClientContext,
        options: RepairOptions,
    ) -> None:
        self._sources = sources
        self._context = context
        self._options = options
        self._stop = threading.Event()
        self._rate = ByteRate(options.bytes_per_second, wait=self._stop.wait)
        self.damaged: dict[LedgerId, dict[str, Availability]] = {}

    def __getitem__(self, bookie: str) -> AvailabilitySource:
        """Return the source of a bookie; raises `KeyError` if `sources` has none."""
        return _VerifiedBookie(self, bookie, self._sources[bookie])

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def stop(self) -> None:
        """End reads in progress and later ones: they raise `BookieUnavailable`."""
        self._stop.set()

    def verify(self, bookie: str, ledger: LedgerId, listed: Availability) -> Availability:
        """Return the listed entries without those of which the bookie returns no sound copy.

        Raises `ListingUnsupported` if the digests cannot be verified, and the error of a read that
        leaves it open whether a copy is sound. Reads all copies, some 1 MiB at a time.
        """
        versioned = self._context.store.read(ledger)
        finished = finished_part(versioned.metadata)
        if not (listed and finished.closed):
            return listed
        password = versioned.metadata.password
        given_password = self._options.password
        is_unknown = password is None and given_password is None
        if versioned.metadata.digest_type == "HMAC" and is_unknown:
            raise ListingUnsupported(f"{_CANNOT_VERIFY} its password is not in the metadata")
        try:
            key = given_password or b"" if password is None else password
            access = LedgerAccess(self._context, versioned, key, self._options.digest_type)
        except InvalidArgument as error:
            raise ListingUnsupported(f"{_CANNOT_VERIFY} {error}") from None
        reader = SoundReader(access, self._check_stopped)
        last_entry = -1 if finished.last_entry_id is None else finished.last_entry_id
        # all entries 0..last_entry: those that an ensemble of one bookie should have
        written = expected(0, last_entry, 0, 1, 1) if last_entry >= 0 else Availability()
        unsound = [
            self._find_unsound(reader, bookie, entry_ids)
            for entry_ids in iterate_ids(listed & written, CHUNK_ENTRIES)
        ]
        damaged = unite([Availability.from_entries(entry_ids) for entry_ids in unsound])
        if damaged:
            self.damaged.setdefault(ledger, {})[bookie] = damaged
        return listed - damaged

    def _find_unsound(self, reader: SoundReader, bookie: str, entry_ids: Int64Array) -> Int64Array:
        """Return those of the entries that a bookie does not return sound."""
        errors: dict[str, BkstoreError] = {}
        unsound = entry_ids
        for batch in reader.read(bookie, entry_ids, errors):
            self._rate.take(int(batch.sizes.sum()))
            unsound = np.setdiff1d(unsound, batch.entries)
        if bookie in errors and is_open(errors[bookie]):
            raise errors[bookie]
        return unsound

    def _check_stopped(self) -> None:
        if self._stop.is_set():
            raise BookieUnavailable("the verification was stopped")


_CANNOT_VERIFY = "the copies of the ledger cannot be verified:"


@dataclass(frozen=True)
class _VerifiedBookie:
    """One bookie."""

    bookies: VerifiedBookies
    bookie: str
    source: AvailabilitySource

    def availability(self, ledger: LedgerLike) -> Availability:
        """Return the entries of which the bookie returns a sound copy."""
        listed = self.source.availability(ledger)
        return self.bookies.verify(self.bookie, LedgerId.of(ledger), listed)
