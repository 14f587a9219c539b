"""Reading a bookie's stored records offline: by the index, from the entry logs it points at.

What `BookieDir` answers about single entries, runs and whole ledgers. Rules are those of
`LedgerStorage`: what is not known is said so, what cannot be read is damage, and a ledger in
limbo answers neither.
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
from bkstore.ids import LedgerId, check_entry_id, check_integer, consecutive, positions
from bkstore.index.api import DEFAULT_BATCH, Closing, EntryIndex, Finding
from bkstore.index.damage_runs import DamageRuns
from bkstore.storage.batch_limits import DEFAULT_MAX_SIZE, check_limits, how_many, most_records
from bkstore.storage.entry_log.reader import LogReader
from bkstore.storage.entry_log.record_runs import read_run

LAST_ENTRY = -1
"""As an entry id in a read: the last one (`BookieProtocol.LAST_ADD_CONFIRMED`)."""

_PIECE = 4 << 20
_FEW, _MORE = 8, 4
"""Behind damage, entries are looked at by so few; then by so many times as many."""


class RecordReading(Closing):
    """Reads records through an index, from the logs in `currents`.

    With `by_ledger`, as in db storage, ledger L's logs are those of directory ``L mod n``; else
    log ids are one sequence over all directories, and the first that has the file is taken.
    Threads: safe, as far as the index is.
    """

    def __init__(
        self,
        index: EntryIndex,
        currents: Sequence[Path],
        by_ledger: bool,
        compat: Literal["bookkeeper"] | None = None,
    ) -> None:
        self._index = index
        self._compat = compat
        groups = [[current] for current in currents] if by_ledger else [list(currents)]
        self._readers = [LogReader(partial(_find_log, group)) for group in groups]

    def close(self) -> None:
        """Close the logs; a later read opens them again."""
        for reader in self._readers:
            reader.close()

    def _reader(self, name: LedgerId) -> LogReader:
        return self._readers[name.ledger % len(self._readers)]

    def read_entry(self, name: LedgerId, entry: int = LAST_ENTRY) -> bytes:
        """Return one stored record; see `BookieDir.read_entry`."""
        entry = check_integer(entry, "entry id")
        if entry == LAST_ENTRY:
            entry = self._last(name)
        location = self._index.get(name, check_entry_id(entry))
        self._check(name, location is not None, entry)
        return self._reader(name).read(location or 0, name, entry)

    def _last(self, name: LedgerId) -> int:
        if self._index.state(name).limbo:
            raise DataUnknown(f"ledger {name} is in limbo: its last entry is not known here")
        last = self._index.last_entry(name)
        if last is None:
            raise NoSuchEntry(f"ledger {name} has no entry")
        return last

    def _check(self, name: LedgerId, here: bool, entry: int) -> None:
        """Raise unless the ledger is known and the entry here."""
        state = self._index.state(name)
        if not here and state.limbo:
            raise DataUnknown(f"ledger {name} is in limbo: entry {entry} is not known here")
        if not here:
            raise NoSuchEntry(f"entry {entry} of ledger {name} is not here")

    def read_entries(
        self, name: LedgerId, start: int, max_count: int, max_size: int
    ) -> RecordBatch:
        """Return records of consecutive entries; see `BookieDir.read_entries`."""
        max_count, max_size = check_limits(max_count, max_size)
        start = check_integer(start, "entry id")
        if start == LAST_ENTRY:
            last = self._last(name)
            return RecordBatch.of([self.read_entry(name, last)], [last])
        size = max_size or DEFAULT_MAX_SIZE
        piece = partial(self._piece, name)
        batch = read_run(piece, check_entry_id(start), most_records(max_count, size), size)
        self._check(name, len(batch) > 0, start)
        return batch.first(how_many(batch.sizes, max_count, size, self._compat))

    def _piece(self, name: LedgerId, at: int, count: int, left: int) -> RecordBatch:
        entries, locations = self._index.items(name, at, at + count - 1)
        stop = consecutive(entries, at)
        return self._reader(name).read_many(name, entries[:stop], locations[:stop], left)

    def scan_ledger(
        self, name: LedgerId, first: int, last: int | None, findings: list[Finding] | None
    ) -> Iterator[RecordBatch]:
        """Yield the records of first..last; see `BookieDir.scan_ledger`."""
        entries, locations = self._index.items(name, first, last)
        reader, at, look = self._reader(name), 0, DEFAULT_BATCH
        runs = None if findings is None else DamageRuns(findings)
        while at < entries.size:
            part = slice(at, at + look)
            try:
                batch = reader.read_many(name, entries[part], locations[part], _PIECE)
            except CorruptionError as error:
                damage: CorruptionError | None = error
            else:
                damage = batch.stopped
                at += len(batch)
                yield batch
                look = min(_MORE * look, DEFAULT_BATCH)
                if runs is not None:
                    runs.end()
            if damage is None:
                continue
            if runs is None:
                raise damage
            stop = at + max(reader.lost(locations[at:]), 1)
            far = None if damage.offset is None else int(positions(locations[stop - 1 : stop])[0])
            runs.add(Finding.of(damage, name), entries[at:stop], far if stop > at + 1 else None)
            at, look = stop, _FEW


def _find_log(currents: Sequence[Path], log_id: int) -> Path | None:
    """Return the path of a log, None if no directory has it."""
    paths = [current / log_name(log_id) for current in currents]
    return next((path for path in paths if os.path.lexists(path)), None)
