"""Reading the chosen records: sequentially within each file, verified again, in entry order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bkstore.availability import Availability
from bkstore.errors import BkstoreError, SystemRefused
from bkstore.formats.entry import RecordBatch
from bkstore.ids import Int64Array, LedgerId, make_locations
from bkstore.rescue.copy_choice import rank_class
from bkstore.rescue.disks.copies import Copies
from bkstore.rescue.disks.survey import SurveyedCopies
from bkstore.rescue.disks.verification import RecordVerifier
from bkstore.rescue.disks.wanted_ledgers import LedgerSecrets
from bkstore.rescue.ledger_plans import LedgerPlan, read_copies
from bkstore.storage.entry_log.reader import LogReader
from bkstore.storage.entry_log.resynchronization import LogBytes

_BATCH_BYTES = 8 << 20
_BATCH_RECORDS = 1 << 15
_READER_BYTES = 1 << 31
"""A `LogReader` reads records that begin in these first bytes, the most that an entry log has."""


class RescuedRecords(NamedTuple):
    """Records of one ledger, in the order of entries. Of chosen entries up to `last_entry` that are
    not among them or earlier ones, no copy could be read."""

    plan: LedgerPlan
    records: RecordBatch
    last_entry: int


def read_rescued(
    plans: Mapping[LedgerId, LedgerPlan],
    surveyed: SurveyedCopies,
    secrets: LedgerSecrets,
    entries: Mapping[LedgerId, Availability],
) -> Iterator[RescuedRecords]:
    """Yield the records of rescued entries, ledger after ledger in the order of ids, in batches of
    some 8 MiB. `entries` has for each ledger which of its readable entries are read.

    Each record is verified again as it is read. Where that fails, for a disk that fails meanwhile,
    the next copy of the entry is read; without a further one the entry is added to the plan's
    `unread`. Cost: reading the chosen records, about 2 us each. Memory: a few batches.
    """
    paths = [source.path for source in surveyed.files]
    with LogReader(lambda number: paths[number]) as reader:
        chosen = _ChosenReader(paths, reader, RecordVerifier(secrets))
        for copies in _read_chosen_copies(plans, surveyed, entries):
            plan = plans[copies.ledger_id]
            for part in _split_by_bytes(copies):
                records, unread = chosen.read(part)
                if unread.size:
                    plan.unread |= Availability.from_entries(unread)
                yield RescuedRecords(plan, records, int(part.entry_id[-1]))


def _read_chosen_copies(
    plans: Mapping[LedgerId, LedgerPlan],
    surveyed: SurveyedCopies,
    entries: Mapping[LedgerId, Availability],
) -> Iterator[Copies]:
    """Yield the readable copies of the chosen entries, as `read_copies` does."""
    for copies in read_copies(surveyed):
        plan, chosen = plans[copies.ledger_id], entries[copies.ledger_id]
        is_chosen = (copies.entry_id <= plan.last_entry) & copies.is_readable
        if chosen is not plan.readable:
            is_chosen &= chosen.contains_many(copies.entry_id)
        if is_chosen.any():
            yield copies.where(is_chosen)


def _split_by_bytes(copies: Copies) -> Iterator[Copies]:
    """Yield parts with all copies of some entries, whose first copies have some `_BATCH_BYTES`."""
    first_rows = np.flatnonzero(copies.first_of_entries())
    cumulative_bytes = np.cumsum(copies.size[first_rows])
    # `start` and `stop` count entries; their copies are the rows between two of `first_rows`.
    start = 0
    while start < first_rows.size:
        bytes_before = int(cumulative_bytes[start - 1]) if start else 0
        stop = int(np.searchsorted(cumulative_bytes, bytes_before + _BATCH_BYTES, "right"))
        stop = min(max(stop, start + 1), start + _BATCH_RECORDS)  # an entry at least
        end_row = first_rows[stop] if stop < first_rows.size else copies.entry_id.size
        yield copies.where(np.arange(first_rows[start], end_row))
        start = stop


class _ChosenReader:
    """Reads the first copy of each entry, and the next ones where it cannot be read."""

    def __init__(self, paths: Sequence[str], reader: LogReader, verifier: RecordVerifier) -> None:
        self._paths = paths
        self._reader = reader
        self._verifier = verifier

    def read(self, copies: Copies) -> tuple[RecordBatch, Int64Array]:
        """Return the records by entry, and the entries of which no copy could be read."""
        # Read the first copies file by file, then one by one the entries that this did not give.
        wanted = copies.where(copies.first_of_entries())
        parts = list(self._read_files(wanted))
        read = np.concatenate([np.empty(0, np.int64), *(part.entries for part in parts)])
        unread = wanted.entry_id[~np.isin(wanted.entry_id, read)]
        if unread.size:
            other_parts = self._read_other_copies(copies.where(np.isin(copies.entry_id, unread)))
            parts += other_parts
            read_later = [entry for part in other_parts for entry in part.entries.tolist()]
            unread = unread[~np.isin(unread, read_later)]
        records = RecordBatch.concatenate(parts)
        return records.take(np.argsort(records.entries, kind="stable")), unread

    def _read_files(self, wanted: Copies) -> Iterator[RecordBatch]:
        """Yield verified records, file by file and in the order of positions."""
        order = np.argsort(wanted.location, kind="stable")
        by_location = wanted.where(order)
        file_starts = np.flatnonzero(np.diff(by_location.file_number)) + 1
        for rows in np.split(np.arange(order.size), file_starts):
            part = by_location.where(rows)
            # Later records, of a large journal, are read one by one.
            part = part.where(part.position < _READER_BYTES)
            start = 0
            while start < part.entry_id.size:
                remaining = part.where(np.arange(start, part.entry_id.size))
                locations = make_locations(remaining.file_number, remaining.position)
                try:
                    batch = self._reader.read_many(
                        remaining.ledger_id, remaining.entry_id, locations
                    )
                except SystemRefused:
                    raise
                except BkstoreError:
                    break  # the others are read one by one, from any copy
                yield self._verified(remaining.where(np.arange(len(batch))), batch)
                start += len(batch)

    def _verified(self, copies: Copies, batch: RecordBatch) -> RecordBatch:
        """Return those of the records that are still as the survey has read them."""
        scope, ledger = copies.ledger_id.signed
        ids = np.full(len(batch), scope), np.full(len(batch), ledger)
        verified, _ = self._verifier.verify(batch, *ids)
        is_same = (verified.rank == rank_class(copies.rank)) & (verified.content == copies.content)
        return batch if is_same.all() else batch.take(np.flatnonzero(is_same))

    def _read_other_copies(self, copies: Copies) -> list[RecordBatch]:
        """Return a record for each entry of which any copy can be read now. No byte beside the
        record is read: it may lie in a sector that fails."""
        batches: dict[int, RecordBatch] = {}
        for row, entry_id in enumerate(copies.entry_id.tolist()):
            if entry_id in batches:
                continue
            copy = copies.where(np.array([row]))
            try:
                with LogBytes(self._paths[int(copy.file_number[0])]) as data:
                    record = data.read(int(copy.position[0]), int(copy.size[0]))
            except SystemRefused:
                raise
            except BkstoreError:
                continue
            batch = self._verified(copy, RecordBatch.of([record], [entry_id]))
            if len(batch):
                batches[entry_id] = batch
        return list(batches.values())
