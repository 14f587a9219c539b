"""LedgerJournals: the journals of one bookie, and which ledgers' keys they have.

A ledger's records all go to one journal (`journal_of`). Its key goes before the first of them:
a replay passes over records of a ledger that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.formats.entry import BatchLedgers, RecordBatch, ids_of
from bkstore.formats.journal import LogMark
from bkstore.ids import LedgerId
from bkstore.storage.journal.writer import JournalWriter

Places = dict[int, LogMark]
"""Places in journals, by the journal's number."""


class LedgerJournals:
    """Appends records of many ledgers to their journals; as safe between threads as those are.

    `before_key` is called before the key of a ledger is appended.
    """

    def __init__(
        self, writers: Sequence[JournalWriter], before_key: Callable[[LedgerId], None]
    ) -> None:
        self.writers = list(writers)
        self._before_key = before_key
        self._keys: set[LedgerId] = set()

    @property
    def failed(self) -> bool:
        """Whether one of them failed, after which it takes no more."""
        return any(writer.failed for writer in self.writers)

    def of(self, name: LedgerId) -> JournalWriter:
        """Return the journal of a ledger."""
        return self.writers[journal_of(name, len(self.writers))]

    def append(self, name: LedgerId, record: bytes, key: bytes) -> tuple[JournalWriter, LogMark]:
        """Append one record; return its journal, and the place behind it."""
        if name not in self._keys:
            self.append_key(name, key)
        writer = self.of(name)
        return writer, writer.append(record)

    def append_key(self, name: LedgerId, key: bytes) -> None:
        """Append the ledger's key, if that was not done.

        Noted when it is in the journal, not before: another thread may be about to append an
        entry. Two key records do no harm.
        """
        if name not in self._keys:
            self._before_key(name)
            self.of(name).append_special("master_key", name, key)
            self._keys.add(name)

    def append_special(self, kind: str, name: LedgerId, key: bytes, body: bytes = b"") -> None:
        """Append a fence or an explicit LAC of a ledger, its key before it."""
        self.append_key(name, key)
        self.of(name).append_special(kind, name, body)

    def append_batch(self, batch: RecordBatch, key: bytes) -> Places:
        """Append the records of a batch, each key before its ledger's first one.

        One large write for each journal, and each ledger whose key comes in between. Returns
        the places behind them. Where a journal fails, its error has 0 as `stored`: none of the
        batch is acknowledged.
        """
        with _acknowledging():
            return self._append_all(batch, key)

    def _append_all(self, batch: RecordBatch, key: bytes) -> Places:
        ids = ids_of(batch)
        ledgers = BatchLedgers.of(ids.scopes, ids.ledgers)
        ways = [journal_of(name, len(self.writers)) for name in ledgers.names]
        new = [
            (number, name) for number, name in enumerate(ledgers.names) if name not in self._keys
        ]
        places: Places = {}
        start = 0
        for number, name in new:
            stop = ledgers.first(number)
            places.update(self._append(batch, ledgers, ways, start, stop))
            self.append_key(name, key)
            start = stop
        places.update(self._append(batch, ledgers, ways, start, len(batch)))
        return places

    def _append(
        self, batch: RecordBatch, ledgers: BatchLedgers, ways: list[int], start: int, stop: int
    ) -> Places:
        if start == stop:
            return {}
        part = batch.between(start, stop)
        if ledgers.numbers is None or len(self.writers) == 1:
            return {ways[0]: self.writers[ways[0]].append_batch(part.framed())}
        of_record = np.array(ways)[ledgers.numbers[start:stop]]
        return {
            number: self.writers[number].append_batch(
                part.at(np.flatnonzero(of_record == number)).framed()
            )
            for number in np.unique(of_record).tolist()
        }

    @contextmanager
    def synced(self, places: Places, sync: bool) -> Iterator[None]:
        """Make durable what is appended inside, if `sync`; also where that ends early.

        `places` are filled meanwhile. After a journal has failed nothing is acknowledged: the
        error's `stored` is 0, and only that error is told.
        """
        try:
            yield
        except BaseException as error:
            if self.failed and isinstance(error, BkstoreError):
                error.stored = 0
            elif sync and not self.failed:
                with _acknowledging():
                    self.sync(places)
            raise
        if sync:
            with _acknowledging():
                self.sync(places)

    def sync(self, places: Places) -> None:
        """Return when everything before these places is durable."""
        for number, place in places.items():
            self.writers[number].sync(place)

    def sync_all(self) -> list[LogMark]:
        """Make durable all that was appended; return the marks, by journal."""
        return [writer.sync() for writer in self.writers]

    def forget(self, names: Iterable[LedgerId]) -> None:
        """Note that ledgers were deleted: if they are made again, their keys come again."""
        self._keys.difference_update(names)


def journal_of(ledger: int | LedgerId, count: int) -> int:
    """Return the number of the journal directory, of `count`, that takes a ledger's records.

    The ledger half modulo the count, unsigned (`MathUtils.signSafeMod` on scope 0's ids).

    >>> journal_of(2001, 2), journal_of(LedgerId(5, 2000), 2)
    (1, 0)
    """
    if count < 1:
        raise InvalidArgument(f"{count} journal directories")
    return LedgerId.of(ledger).ledger % count


@contextmanager
def _acknowledging() -> Iterator[None]:
    """Say of a journal's failure that none of the records was acknowledged."""
    try:
        yield
    except BkstoreError as error:
        error.stored = 0
        raise
