"""LedgerJournals: the journals of one bookie, and the ledgers whose master keys they have.

All records of a ledger go to one journal (`journal_index_of`). Its master key is appended before
the first of them, since a replay skips records of unknown ledgers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.formats.entry import BatchLedgers, RecordBatch, read_batch_ids
from bkstore.formats.journal import LogMark
from bkstore.ids import LedgerId
from bkstore.storage.journal.writer import JournalWriter

Positions = dict[int, LogMark]
"""Positions in journals, by the journal's index."""


class LedgerJournals:
    """Appends records of many ledgers to their journals; `before_key` is called before the master
    key of a ledger is appended. Threads: all calls may run concurrently."""

    def __init__(
        self, writers: Sequence[JournalWriter], before_key: Callable[[LedgerId], None]
    ) -> None:
        self.writers = list(writers)
        self._before_key = before_key
        self._ledgers_with_key: set[LedgerId] = set()

    @property
    def has_failed(self) -> bool:
        """Whether a journal failed; it takes no more records then."""
        return any(writer.has_failed for writer in self.writers)

    def journal_for(self, ledger_id: LedgerId) -> JournalWriter:
        """Return the journal of a ledger."""
        return self.writers[journal_index_of(ledger_id, len(self.writers))]

    def append(self, ledger: LedgerId, record: bytes, key: bytes) -> tuple[JournalWriter, LogMark]:
        """Append one record, after its ledger's key; return the journal and the end position."""
        if ledger not in self._ledgers_with_key:
            self.append_key(ledger, key)
        writer = self.journal_for(ledger)
        return writer, writer.append(record)

    def append_key(self, ledger_id: LedgerId, key: bytes) -> None:
        """Append the ledger's key, unless that was done before. That it was done is noted only
        afterwards, so that no other thread appends an entry before the key; two threads may both
        append it, which does no harm."""
        if ledger_id not in self._ledgers_with_key:
            self._before_key(ledger_id)
            self.journal_for(ledger_id).append_special("master_key", ledger_id, key)
            self._ledgers_with_key.add(ledger_id)

    def append_special(self, kind: str, ledger_id: LedgerId, key: bytes, body: bytes = b"") -> None:
        """Append a fence or an explicit LAC of a ledger, after the ledger's key."""
        self.append_key(ledger_id, key)
        self.journal_for(ledger_id).append_special(kind, ledger_id, body)

    def append_batch(self, batch: RecordBatch, key: bytes) -> Positions:
        """Append the records of a batch, each ledger's key before its first record. Makes one large
        write for each journal, plus one for each new key. Returns the positions after the records.
        If a journal fails, the error's `stored` is 0: no record of the batch is acknowledged."""
        with _unacknowledge_on_error():
            return self._append_with_keys(batch, key)

    def _append_with_keys(self, batch: RecordBatch, key: bytes) -> Positions:
        """Append a batch whose ledgers are partly not in the journals yet: in runs, because the
        master key of such a ledger must be appended before its first record."""
        ids = read_batch_ids(batch)
        ledgers = BatchLedgers.of(ids.scopes, ids.ledgers)
        positions: Positions = {}
        start = 0
        journals = [journal_index_of(each, len(self.writers)) for each in ledgers.ledger_ids]
        for ledger_index, ledger_id in enumerate(ledgers.ledger_ids):
            if ledger_id in self._ledgers_with_key:
                continue
            # Append the records before this ledger's first one, then its key.
            stop = ledgers.first_row(ledger_index)
            positions.update(self._append_run(batch, ledgers, journals, start, stop))
            self.append_key(ledger_id, key)
            start = stop
        positions.update(self._append_run(batch, ledgers, journals, start, len(batch)))
        return positions

    def _append_run(
        self, batch: RecordBatch, ledgers: BatchLedgers, journals: list[int], start: int, stop: int
    ) -> Positions:
        """Append the records start..stop (half open), and return the end of each journal written.
        `journals` has the journal index of each ledger in `ledgers`."""
        if start == stop:
            return {}
        run = batch.between(start, stop)
        if ledgers.numbers is None or len(self.writers) == 1:  # None: a single ledger
            return {journals[0]: self.writers[journals[0]].append_batch(run.framed())}
        positions: Positions = {}
        journal_of_record = np.array(journals)[ledgers.numbers[start:stop]]
        for journal_index in np.unique(journal_of_record).tolist():
            records = run.take(np.flatnonzero(journal_of_record == journal_index)).framed()
            positions[journal_index] = self.writers[journal_index].append_batch(records)
        return positions

    @contextmanager
    def syncing(self, positions: Positions, sync: bool) -> Iterator[None]:
        """If `sync`, make durable what the ``with`` block appends and adds to `positions`, even if
        it raises: an error's `stored` counts records that are acknowledged. If a journal fails,
        none is: `stored` is 0."""
        try:
            yield
        except BaseException as error:
            # The records before the refused one are acknowledged, unless a journal failed.
            if self.has_failed and isinstance(error, BkstoreError):
                error.stored = 0
            elif sync and not self.has_failed:
                with _unacknowledge_on_error():
                    self.sync(positions)
            raise
        if sync:
            with _unacknowledge_on_error():
                self.sync(positions)

    def sync(self, positions: Positions) -> None:
        """Block until everything before these positions is durable."""
        for journal_index, position in positions.items():
            self.writers[journal_index].sync(position)

    def sync_all(self) -> list[LogMark]:
        """Make all appended records durable; return the mark of each journal."""
        return [writer.sync() for writer in self.writers]

    def forget(self, ledger_ids: Iterable[LedgerId]) -> None:
        """Note that ledgers were deleted: if created again, their keys are appended again."""
        self._ledgers_with_key.difference_update(ledger_ids)


def journal_index_of(ledger_id: int | LedgerId, count: int) -> int:
    """Return the index of the journal directory, of `count`, that takes a ledger's records.

    This is the lower half of the id, unsigned, modulo the count, as `MathUtils.signSafeMod` gives
    for scope 0.

    >>> journal_index_of(2001, 2), journal_index_of(LedgerId(5, 2000), 2)
    (1, 0)
    """
    if count < 1:
        raise InvalidArgument(f"{count} journal directories")
    return LedgerId.of(ledger_id).ledger % count


@contextmanager
def _unacknowledge_on_error() -> Iterator[None]:
    """Set `stored` of an error to 0: none of the records was acknowledged."""
    try:
        yield
    except BkstoreError as error:
        error.stored = 0
        raise
