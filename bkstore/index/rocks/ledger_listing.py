"""Listing many ledgers of a `locations` database by one scan of its keys, in blocks of arrays: one
comparison splits a block into ledgers, whose entries are condensed together. A look-up for each
ledger would cost two iterators and a dozen numpy calls."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from bkstore.availability import Availability, from_entries, grouping
from bkstore.availability.many_sets import from_ids_of_many, split_by_owner
from bkstore.availability.sequence_groups import Groups
from bkstore.ids import MAX_ENTRY_ID, Int64Array, LedgerId
from bkstore.index.rocks.keys import key_words, ledger_range
from bkstore.index.rocks.readable_database import KeyColumns, LocationsDatabase

_MAX_PARTIAL_IDS = 1 << 16
_NO_ENTRIES = np.empty(0, np.int64)

LedgerAvailabilities = list[tuple[LedgerId, Availability]]


def list_ledgers(
    database: LocationsDatabase, ledger_ids: list[LedgerId]
) -> Iterator[LedgerAvailabilities]:
    """Yield lists of (ledger, availability) of `ledger_ids`: sorted, distinct, of one key width.
    Raises `CorruptionError` at damage, after everything before it. Memory: a block of rows, and the
    groups of a ledger that is longer than a block."""
    progress = _ListingProgress(ledger_ids)
    words = key_words(ledger_ids[0])
    _, stop = ledger_range(ledger_ids[-1])
    while progress.done_count < len(ledger_ids):
        start, _ = ledger_range(ledger_ids[progress.done_count])
        for keys in database.key_blocks(start, stop, words):
            yield progress.take(keys)
            if progress.is_seek_due:  # scan again from the next wanted ledger on
                break
        else:
            yield progress.finish()


class _ListingProgress:
    """The state of a listing: `done_count` ledgers are listed, the next one's rows partly read."""

    def __init__(self, ledger_ids: list[LedgerId]) -> None:
        """Begin with none of the ledgers, sorted, listed."""
        self.done_count = 0
        self.is_seek_due = False
        """Whether the last block ended in a ledger that is not to be listed, and to be skipped."""
        self._ledger_ids = ledger_ids
        self._index_of = {ledger_id: index for index, ledger_id in enumerate(ledger_ids)}
        # Rows read so far of the ledger number `done_count`: entry ids, and before them, if there
        # were many, the sequence groups of earlier ids.
        self._partial_ids = _NO_ENTRIES
        self._partial_groups: list[Groups] = []

    def take(self, keys: KeyColumns) -> LedgerAvailabilities:
        """Take the next rows, in the order of keys, and return the availability of each ledger that
        has all of its rows now. The last row's ledger may have more, so it is not among them."""
        run_indexes, owner = self._find_owners(keys)
        entries = keys[-1]  # the last word of a key is the entry id
        # Negative entry ids, and ids above the highest valid one, are not listed.
        is_listed = (owner >= 0) & (entries >= 0) & (entries <= MAX_ENTRY_ID)
        if not is_listed.all():
            entries, owner = entries[is_listed], owner[is_listed]
        # Ledgers before that of the last row are complete. If that one is not to be listed, so are
        # those before the next that is, and the scan goes on there.
        next_index = int(run_indexes[-1])
        self.is_seek_due = next_index < 0
        if self.is_seek_due:
            scope, number = (0, *keys[:-1, -1].tolist())[-2:]  # keys of scope 0 have no scope
            last_ledger = tuple.__new__(LedgerId, (scope % (1 << 64), number % (1 << 64)))
            next_index = bisect_right(self._ledger_ids, last_ledger)
        return self._take_complete(entries, owner, max(next_index, self.done_count))

    def _find_owners(self, keys: KeyColumns) -> tuple[list[int], Int64Array]:
        """Return the index in `ledger_ids` of each run of rows of the same ledger, then that of
        each row; -1 for a ledger that is not to be listed. The words of a key are ledger and entry,
        or scope, ledger and entry in the database of scopes other than 0."""
        is_run_start = keys[0, 1:] != keys[0, :-1]
        if len(keys) > 2:
            is_run_start |= keys[1, 1:] != keys[1, :-1]
        run_starts = np.concatenate(([0], np.flatnonzero(is_run_start) + 1))
        run_ledgers = keys[:-1, run_starts].view(np.uint64)
        scopes = run_ledgers[0].tolist() if len(run_ledgers) == 2 else [0] * run_starts.size
        index_of = self._index_of.get
        run_indexes = [index_of(pair, -1) for pair in zip(scopes, run_ledgers[-1].tolist())]  # type: ignore[call-overload]
        run_lengths = np.diff(run_starts, append=keys.shape[1])
        return run_indexes, np.repeat(np.array(run_indexes, np.int64), run_lengths)

    def _take_complete(
        self, entries: Int64Array, owner: Int64Array, next_index: int
    ) -> LedgerAvailabilities:
        """Return the availabilities of the ledgers before `next_index`, which are complete; keep
        the rows of the ledger `next_index`, which may go on. Row i has the entry ``entries[i]`` of
        the ledger with index ``owner[i]``."""
        # Rows kept from the last block come before the new ones.
        if self._partial_ids.size:
            entries = np.concatenate((self._partial_ids, entries))
            owner = np.concatenate((np.full(self._partial_ids.size, self.done_count), owner))
        complete_rows = int(np.searchsorted(owner, next_index))  # rows of complete ledgers
        complete_count = next_index - self.done_count
        sets: list[Availability] = []
        # If the first ledger is longer than a block, its earlier rows are groups already. Join them
        # with its last rows.
        if complete_count and self._partial_groups:
            last_rows = int(np.searchsorted(owner, self.done_count, "right"))
            parts = [*self._partial_groups, from_entries.from_ids(entries[:last_rows])]
            sets.append(Availability.from_canonical(grouping.canonicalize_parts(parts)))
            self._partial_groups = []
            entries, owner = entries[last_rows:], owner[last_rows:]
            complete_rows -= last_rows
        # Make the sets of all other complete ledgers together; some may have no rows.
        if len(sets) < complete_count:
            first = self.done_count + len(sets)
            groups = from_ids_of_many(entries[:complete_rows], owner[:complete_rows] - first)
            sets += split_by_owner(*groups, complete_count - len(sets))
        # Keep the rows of the ledger that may go on: as ids if they are few, otherwise as groups.
        self._partial_ids = entries[complete_rows:]
        if self._partial_ids.size >= _MAX_PARTIAL_IDS:
            self._partial_groups.append(from_entries.from_ids(self._partial_ids))
            self._partial_ids = _NO_ENTRIES
        ledger_ids = self._ledger_ids[self.done_count : next_index]
        self.done_count = next_index
        return list(zip(ledger_ids, sets))

    def finish(self) -> LedgerAvailabilities:
        """Return the remaining ledgers, as the scan has ended."""
        return self._take_complete(_NO_ENTRIES, _NO_ENTRIES, len(self._ledger_ids))
