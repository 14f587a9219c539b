"""Adds: how a storage takes records, one by one and in batches, under the same rules.

What is refused is refused record by record (`LedgerDescriptorImpl.addEntry`, `BookieImpl`); a
batch is checked by arrays and by ledger, and ends where single adds would.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from hmac import compare_digest
from itertools import pairwise
from struct import Struct

import numpy as np

from bkstore.arguments import data, each, instance
from bkstore.errors import (
    BkstoreError,
    CorruptionError,
    DataUnknown,
    InvalidArgument,
    LedgerFenced,
)
from bkstore.formats.entry import (
    V1_HEADER,
    BatchIds,
    BatchLedgers,
    RecordBatch,
    ids_of,
    record_header,
)
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import LedgerState
from bkstore.storage.ledgers.known_ledgers import KnownLedgers
from bkstore.storage.ledgers.write_paths.api import WritePath

_V1: Callable[[bytes], tuple[int, int, int]] = Struct(">qqq").unpack_from
_check_batch = instance(RecordBatch)
_MOST, _ENOUGH = 1000, 1 << 20  # records, bytes: what an iterable's records are taken by


class Adds(KnownLedgers):
    """The adding half of a ledger storage.

    Threads: all calls are safe beside each other; adds of one directory take turns, a batch's
    records of one turn are seen at once.
    """

    def add_entry(
        self, record: bytes, *, master_key: bytes | None = None, recovery: bool = False
    ) -> int:
        """Take one record and return its entry id; about 1 us of a ledger that had some before.

        With `master_key`, an unknown ledger is made and a known one's key is checked. Raises
        `NoSuchLedger`, `LedgerFenced` (unless `recovery`; `DataUnknown` in limbo without a
        fence), `UnauthorizedAccess`,
        `InvalidArgument` for a record that is none or too large, `TooManyRequests`,
        `WriteFailed`. What is there stays there whatever is raised.
        """
        if type(record) is not bytes:
            record = data("record", record)  # a copy, which nobody changes later
        if master_key is not None and type(master_key) is not bytes:
            master_key = data("master key", master_key)
        return self.take_entry(record, master_key, recovery)[1]

    def take_entry(
        self, record: bytes, master_key: bytes | None, recovery: bool
    ) -> tuple[LedgerId, int]:
        """Take one record as `add_entry` does; return its ledger and its entry id."""
        size = len(record)
        if V1_HEADER <= size <= self.options.max_entry_size and record[0] < 0x80:
            ledger, entry, lac = _V1(record)
            path = self.paths[ledger % len(self.paths)]
            with path.lock:  # the short way: what was checked before still holds
                ready = path.states.ready.get(ledger)
                if (
                    ready is not None
                    and (master_key is None or compare_digest(master_key, ready[1]))
                    and 0 <= entry <= self._last_id
                    and path.fits(size)
                ):
                    path.add(ready[0], entry, record)
                    self._confirmed.added(ready[0], lac)
                    return ready[0], entry
        return self._add_checked(record, master_key, recovery)

    def _add_checked(
        self, record: bytes, master_key: bytes | None, recovery: bool
    ) -> tuple[LedgerId, int]:
        """Take one record when all is checked; note ledgers that the next need not check."""
        name, entry, lac = self._parsed(record)
        path = self._path(name)
        path.reserve(len(record))
        with path.lock:
            path.check_writable()
            self._admit(path, name, master_key, recovery)
            self._confirmed.before_add(name)
            path.add(name, entry, record)
            self._confirmed.added(name, lac)
            self._note_ready(path, name)
        return name, entry

    def _note_ready(self, path: WritePath, name: LedgerId) -> None:
        """Enter a ledger that was just added to among those that take adds."""
        state = path.states.get(name)
        if name.scope == 0 and not (state.fenced or state.limbo or self._closed):
            path.states.ready[name.ledger] = name, state.master_key

    def add_batch(
        self, batch: RecordBatch, *, master_key: bytes | None = None, recovery: bool = False
    ) -> Int64Array:
        """Take the records of a batch, of one or many ledgers; return their entry ids, int64[n].

        The same as `add_entry` for each in its order, up to the first that is refused: its error
        is raised, with `stored`, the number of records before it, which are stored. (A write
        that fails raises so too: `stored` is what was taken before.) Bytes on disk are those of
        single adds. About 0.1 us a record of a ledger in ascending order, 1 us else; with
        several directories that take turns from record to record, some 20 us a turn.

        >>> import tempfile
        >>> from bkstore.formats.entry import Coder
        >>> from bkstore.storage.ledger_storage import LedgerStorage
        >>> batch = Coder("CRC32C").encode_batch(7, range(3), [b"a", b"b", b"c"])
        >>> with tempfile.TemporaryDirectory() as top, LedgerStorage.open(top) as storage:
        ...     storage.add_batch(batch, master_key=b"k" * 20), storage.entries(7)
        (array([0, 1, 2]), array([0, 1, 2]))
        """
        self._check_open()
        _check_batch("batch", batch)
        taking = _Taking(batch, master_key, recovery)
        good = self._well_formed(taking)
        try:
            for path, start, stop in self._by_path(taking.ledgers, good):
                self._take(path, taking, start, stop)
            if good < len(batch):
                raise self._refusal_of(batch, good)
        except BkstoreError as error:
            error.stored = taking.stored
            raise
        return batch.entries

    def add_entries(
        self,
        records: Iterable[bytes],
        *,
        master_key: bytes | None = None,
        recovery: bool = False,
    ) -> Int64Array:
        """Take records in order and return their entry ids, int64[n].

        Stops at the first that is refused, whose error has `stored`; those before it are taken.
        As `add_batch` of some thousand records at a time.
        """
        return in_batches(
            records, lambda batch: self.add_batch(batch, master_key=master_key, recovery=recovery)
        )

    # -- what is refused

    def _admit(
        self, path: WritePath, name: LedgerId, master_key: bytes | None, recovery: bool
    ) -> None:
        """Raise where the ledger takes no adds now; the caller holds the path's lock."""
        if master_key is not None:
            self.open_ledger(name, master_key)
        state = path.states.get(name)
        if (state.fenced or state.limbo) and not recovery:
            raise _refusal(name, state)
        path.states.suspects.discard(name)

    def _parsed(self, record: bytes) -> tuple[LedgerId, int, int]:
        """Return (ledger, entry id, LAC) of a record that may be stored."""
        if len(record) > self.options.max_entry_size:
            limit = self.options.max_entry_size
            raise InvalidArgument(f"record of {len(record)} bytes, at most {limit} are taken")
        if len(record) >= V1_HEADER and record[0] < 0x80:
            ledger, entry, lac = _V1(record)
            name = LedgerId.of(ledger)
        else:
            try:
                name, entry, lac = record_header(record)[:3]
            except CorruptionError as error:
                raise InvalidArgument(f"no entry: {error.reason}") from error
        if not 0 <= entry <= self._last_id:
            raise InvalidArgument(f"entry id {entry} is outside 0..{self._last_id}")
        return name, entry, lac

    def _well_formed(self, taking: _Taking) -> int:
        """Return how many records come before the first that is refused for what it is."""
        sizes, entries = taking.batch.sizes, taking.ids.entries
        count = entries.size
        wrong = (sizes[:count] > self.options.max_entry_size) | (entries > self._last_id)
        wrong |= (entries < 0) | (entries != taking.batch.entries[:count])
        return int(wrong.argmax()) if wrong.any() else count

    def _refusal_of(self, batch: RecordBatch, number: int) -> BkstoreError:
        """Return why a record is refused; its number in the caller's batch is `stored`."""
        try:
            _, entry, _ = self._parsed(bytes(batch[number]))
        except BkstoreError as error:
            return error
        listed_entry = int(batch.entries[number])
        return InvalidArgument(f"the batch lists entry {listed_entry}, its record is {entry}")

    # -- taking a batch

    def _by_path(self, ledgers: BatchLedgers, count: int) -> Iterator[tuple[WritePath, int, int]]:
        """Yield (write path, start, stop): stretches of records that go the same way."""
        if len(self.paths) == 1 or ledgers.numbers is None:
            if count:
                yield self._path(ledgers.names[0]), 0, count
            return
        ways = np.array([name.ledger % len(self.paths) for name in ledgers.names], np.int64)
        of_record = ways[ledgers.numbers[:count]]
        starts = [0, *(np.flatnonzero(np.diff(of_record)) + 1).tolist()] if count else []
        for start, stop in zip(starts, [*starts[1:], count]):
            yield self.paths[int(of_record[start])], start, stop

    def _take(self, path: WritePath, taking: _Taking, start: int, stop: int) -> None:
        """Take records that go one way, as many at a time as need no flush before."""
        while start < stop:
            path.reserve(int(taking.batch.sizes[start]))
            with path.lock:
                path.check_writable()
                # So many fit before a flush is due. Their ledgers are admitted first: at one that
                # takes no adds the batch ends, and what stands before its first record is stored.
                upto = min(start + path.room(taking.batch.between(start, stop)), stop)
                ledgers = taking.ledgers.between(start, upto)
                for number, name in enumerate(ledgers.names):
                    try:
                        self._admit(path, name, taking.master_key, taking.recovery)
                        self._confirmed.before_add(name)
                    except BkstoreError:
                        upto = start + ledgers.first(number)
                        self._put(path, taking, start, upto)
                        raise
                self._put(path, taking, start, upto)
            start = upto

    def _put(self, path: WritePath, taking: _Taking, start: int, stop: int) -> None:
        if start == stop:
            return
        batch = taking.batch.between(start, stop).framed()
        ledgers = taking.ledgers.between(start, stop)
        for count in path.add_batch(batch, ledgers):
            part, lacs = taking.ledgers.between(start, start + count), taking.ids.lacs
            for name, lac in part.highest(lacs[start : start + count]):
                self._confirmed.added(name, lac)
            start += count
            taking.stored += count


class _Taking:
    """A batch that is being taken: what its records say, how many are stored."""

    def __init__(self, batch: RecordBatch, master_key: bytes | None, recovery: bool) -> None:
        self.batch = batch.framed()
        self.ids: BatchIds = ids_of(self.batch)
        self.ledgers = BatchLedgers.of(self.ids.scopes, self.ids.ledgers)
        self.master_key = master_key
        self.recovery = recovery
        self.stored = 0


def _refusal(name: LedgerId, state: LedgerState) -> BkstoreError:
    """Return why a ledger takes no adds but those of a recovery.

    In limbo it is not known whether it is fenced (`LedgerDescriptorImpl`).
    """
    if state.fenced:
        return LedgerFenced(f"ledger {name} is fenced")
    return DataUnknown(f"ledger {name} is in limbo: whether it is fenced is not known here")


def in_batches(
    records: Iterable[bytes], add_batch: Callable[[RecordBatch], Int64Array]
) -> Int64Array:
    """Add records in batches and return their entry ids, int64[n]."""
    return add_all(_batches_of(records), add_batch)


def add_all(
    batches: Iterable[RecordBatch], add_batch: Callable[[RecordBatch], Int64Array]
) -> Int64Array:
    """Add batches in order and return their entry ids, int64[n].

    The error of one has as `stored` what is stored of all.
    """
    added = [np.empty(0, np.int64)]
    for batch in batches:
        try:
            added.append(add_batch(batch))
        except BkstoreError as error:
            error.stored = (error.stored or 0) + sum(map(len, added))
            raise
    return np.concatenate(added)


def cut_behind_firsts(batch: RecordBatch, names: Collection[LedgerId]) -> list[RecordBatch]:
    """Return a batch cut behind the first record of each of these ledgers."""
    if not names:
        return [batch]
    ids = ids_of(batch)
    ledgers = BatchLedgers.of(ids.scopes, ids.ledgers)
    among = [number for number, name in enumerate(ledgers.names) if name in names]
    cuts = [0, *(ledgers.first(number) + 1 for number in among), len(batch)]
    return [batch.between(start, stop) for start, stop in pairwise(cuts)]


def _batches_of(records: Iterable[bytes]) -> Iterator[RecordBatch]:
    """Yield records as batches, some thousand or a MiB at a time.

    Where the iterable raises, what it gave before comes first.
    """
    some: list[bytes] = []
    size = 0
    try:
        for record in each("records", records):
            if type(record) is not bytes:
                record = data("record", record)
            size += len(record)
            some.append(record)
            if len(some) >= _MOST or size >= _ENOUGH:
                full, some, size = some, [], 0
                yield as_batch(full)
    except Exception:
        if some:
            yield as_batch(some)
        raise
    if some:
        yield as_batch(some)


def as_batch(records: list[bytes]) -> RecordBatch:
    """Return records as a batch with the entry ids that they say; -1 of what is no record."""
    batch = RecordBatch.of(records, np.full(len(records), -1))
    entries = ids_of(batch).entries
    batch.entries[: entries.size] = entries
    return batch
