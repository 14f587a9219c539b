"""Reads a bookie's stored records offline, through the index, from the entry logs, for `BookieDir`.

The rules are those of `LedgerStorage`: an absent entry raises `NoSuchEntry`, or `DataUnknown` if
its ledger is in limbo (it may have lost entries); an unreadable one is damage.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from bkstore.errors import CorruptionError, DataUnknown, NoSuchEntry
from bkstore.formats.entry import RecordBatch
from bkstore.formats.entrylog import log_name
from bkstore.ids import LedgerId, check_entry_id, check_integer, count_consecutive, positions_of
from bkstore.index.api import DEFAULT_BATCH, Closeable, EntryIndex, Finding
from bkstore.index.damage_runs import DamageRuns
from bkstore.storage.batch_limits import DEFAULT_MAX_SIZE, check_limits, count_fitting, max_records
from bkstore.storage.entry_log.reader import LogReader
from bkstore.storage.entry_log.record_runs import read_run

LAST_ENTRY = -1
"""As an entry id in a read: the last one (`BookieProtocol.LAST_ADD_CONFIRMED`)."""

_MAX_READ_BYTES = 4 << 20
_ENTRIES_AFTER_DAMAGE, _GROWTH = 8, 4
"""After damage so few entries are read at once; then each time so many times as many."""


class RecordReader(Closeable):
    """Reads records through an index, from the logs in `currents`. With `by_ledger`, as in db
    storage, ledger L is in the logs of directory ``L mod n``; else log ids are one sequence over
    all directories, and the first file found is used. Threads: as safe as the index."""

    def __init__(
        self,
        index: EntryIndex,
        currents: Sequence[Path],
        by_ledger: bool,
        compat: Literal["bookkeeper"] | None = None,
    ) -> None:
        self._index = index
        self._compat = compat
        # With `by_ledger`, a reader for each directory; else one that searches all of them.
        dir_groups = [[current] for current in currents] if by_ledger else [list(currents)]
        self._readers = [LogReader(partial(_find_log, group)) for group in dir_groups]

    def close(self) -> None:
        """Close the logs; a later read opens them again."""
        for reader in self._readers:
            reader.close()

    def _reader_of(self, ledger_id: LedgerId) -> LogReader:
        return self._readers[ledger_id.ledger % len(self._readers)]

    def read_entry(self, ledger_id: LedgerId, entry_id: int = LAST_ENTRY) -> bytes:
        """Return one stored record; see `BookieDir.read_entry`."""
        entry_id = check_integer(entry_id, "entry id")
        if entry_id == LAST_ENTRY:
            entry_id = self._last_entry(ledger_id)
        location = self._index.get(ledger_id, check_entry_id(entry_id))
        self._check_present(ledger_id, location is not None, entry_id)
        return self._reader_of(ledger_id).read(location or 0, ledger_id, entry_id)

    def _last_entry(self, ledger_id: LedgerId) -> int:
        if self._index.state(ledger_id).limbo:
            raise DataUnknown(f"ledger {ledger_id} is in limbo: its last entry is unknown")
        last_entry = self._index.last_entry(ledger_id)
        if last_entry is None:
            raise NoSuchEntry(f"ledger {ledger_id} has no entry")
        return last_entry

    def _check_present(self, ledger_id: LedgerId, is_present: bool, entry_id: int) -> None:
        """Raise `NoSuchLedger`, `DataUnknown` or `NoSuchEntry` unless the entry is present."""
        state = self._index.state(ledger_id)  # raises `NoSuchLedger`
        if not is_present and state.limbo:
            raise DataUnknown(f"ledger {ledger_id} is in limbo: entry {entry_id} is unknown")
        if not is_present:
            raise NoSuchEntry(f"entry {entry_id} of ledger {ledger_id} is not here")

    def read_entries(
        self, ledger_id: LedgerId, start: int, max_count: int, max_size: int
    ) -> RecordBatch:
        """Return records of consecutive entries; see `BookieDir.read_entries`."""
        max_count, max_size = check_limits(max_count, max_size)
        start = check_integer(start, "entry id")
        if start == LAST_ENTRY:
            last_entry = self._last_entry(ledger_id)
            return RecordBatch.of([self.read_entry(ledger_id, last_entry)], [last_entry])
        size = max_size or DEFAULT_MAX_SIZE
        read_part = partial(self._read_part, ledger_id)
        batch = read_run(read_part, check_entry_id(start), max_records(max_count, size), size)
        self._check_present(ledger_id, len(batch) > 0, start)
        return batch.first(count_fitting(batch.sizes, max_count, size, self._compat))

    def _read_part(self, ledger: LedgerId, start: int, count: int, max_bytes: int) -> RecordBatch:
        """Return consecutive records from `start` on, up to the first entry that is missing."""
        entries, locations = self._index.items(ledger, start, start + count - 1)
        stop = count_consecutive(entries, start)
        reader = self._reader_of(ledger)
        return reader.read_many(ledger, entries[:stop], locations[:stop], max_bytes)

    def scan_ledger(
        self, ledger_id: LedgerId, first: int, last: int | None, findings: list[Finding] | None
    ) -> Iterator[RecordBatch]:
        """Yield the records of first..last, in batches. Damaged ones are added to `findings`, with
        one finding for neighbours lost together; without `findings` the first one raises."""
        entries, locations = self._index.items(ledger_id, first, last)
        reader, row, batch_size = self._reader_of(ledger_id), 0, DEFAULT_BATCH
        runs = None if findings is None else DamageRuns(findings)
        while row < entries.size:
            # Read the next records; `damage` is that of the first one, or that which ended them.
            batch_rows = slice(row, row + batch_size)
            try:
                batch = reader.read_many(
                    ledger_id, entries[batch_rows], locations[batch_rows], _MAX_READ_BYTES
                )
            except CorruptionError as error:
                damage: CorruptionError | None = error
            else:
                damage = batch.stopped
                row += len(batch)
                yield batch
                batch_size = min(_GROWTH * batch_size, DEFAULT_BATCH)
                if runs is not None:
                    runs.end_runs()
            if damage is None:
                continue
            if runs is None:
                raise damage
            # Report together all entries whose locations are lost for the same reason.
            stop = row + max(reader.count_lost(locations[row:]), 1)
            last_position = None  # of the last lost location, if the finding is of several
            if damage.offset is not None and stop > row + 1:
                last_position = int(positions_of(locations[stop - 1 : stop])[0])
            runs.add(Finding.of(damage, ledger_id), entries[row:stop], last_position)
            row, batch_size = stop, _ENTRIES_AFTER_DAMAGE  # more damage may follow at once


def _find_log(currents: Sequence[Path], log_id: int) -> Path | None:
    paths = [current / log_name(log_id) for current in currents]
    return next((path for path in paths if os.path.lexists(path)), None)
