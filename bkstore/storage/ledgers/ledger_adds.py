"""Adds: how a storage takes records, singly and in batches, under the same rules.

BookKeeper checks each record alone (`LedgerDescriptorImpl.addEntry`, `BookieImpl`). Here a batch is
checked with array operations and per ledger; it stops at the record at which single adds would.

A ledger id has two halves, scope and number; BookKeeper's own have scope 0. A ledger in limbo may
have lost entries, and perhaps its fence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from hmac import compare_digest
from itertools import pairwise
from struct import Struct

import numpy as np

from bkstore.arguments import bytes_like, instance, iterable
from bkstore.errors import BkstoreError, CorruptionError, DataUnknown, InvalidArgument, LedgerFenced
from bkstore.formats.entry import (
    V1_HEADER,
    BatchIds,
    BatchLedgers,
    RecordBatch,
    read_batch_ids,
    record_header,
)
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import LedgerState
from bkstore.storage.ledgers.known_ledgers import KnownLedgers
from bkstore.storage.ledgers.write_paths.api import WritePath

_unpack_v1_header: Callable[[bytes], tuple[int, int, int]] = Struct(">qqq").unpack_from
_check_batch = instance(RecordBatch)
_MAX_BATCH_RECORDS, _MAX_BATCH_BYTES = 1000, 1 << 20  # an iterable's records are grouped so

AddBatch = Callable[[RecordBatch], Int64Array]
_PathRun = tuple[WritePath, int, int]  # with the first record and that after the last


class LedgerAdds(KnownLedgers):
    """The half of a ledger storage that adds records. Threads: all calls may run concurrently; adds
    to one directory take turns, and what a batch adds in one becomes visible together."""

    def add_entry(
        self, record: bytes, *, master_key: bytes | None = None, recovery: bool = False
    ) -> int:
        """Add one record and return its entry id. About 1 us if the ledger was added to before.

        With `master_key`, an unknown ledger is created and a known ledger's key is checked. Raises
        `NoSuchLedger`, `LedgerFenced` (unless `recovery`; `DataUnknown` in limbo without a
        fence), `UnauthorizedAccess`, `InvalidArgument` if `record` is malformed or too large,
        `TooManyRequests` or `WriteFailed`. An error leaves stored entries as they were.
        """
        if type(record) is not bytes:
            record = bytes_like("record", record)  # an immutable copy
        if master_key is not None and type(master_key) is not bytes:
            master_key = bytes_like("master key", master_key)
        return self.add_record(record, master_key, recovery)[1]

    def add_record(self, record: bytes, key: bytes | None, recovery: bool) -> tuple[LedgerId, int]:
        """Add one record as `add_entry` does; return its ledger id and its entry id."""
        size = len(record)
        # A first byte below 0x80 begins a ledger number, others tell that the ledger has a scope.
        if V1_HEADER <= size <= self.options.max_entry_size and record[0] < 0x80:
            ledger_number, entry_id, lac = _unpack_v1_header(record)
            path = self.write_paths[ledger_number % len(self.write_paths)]
            # Fast path: an earlier add made the ledger ready, and its checks still hold.
            with path.lock:
                ready_ledger = path.states.fast_path_ledgers.get(ledger_number)
                if ready_ledger is not None:
                    ledger_id, ledger_key = ready_ledger
                    if (
                        (key is None or compare_digest(key, ledger_key))
                        and 0 <= entry_id <= self._max_entry_id
                        and path.fits(size)
                    ):
                        path.add(ledger_id, entry_id, record)
                        self._lac_tracker.note_added(ledger_id, lac)
                        return ledger_id, entry_id
        return self._add_slow(record, key, recovery)

    def _add_slow(self, record: bytes, key: bytes | None, recovery: bool) -> tuple[LedgerId, int]:
        """Add one record after all checks; let later adds to its ledger take the fast path."""
        ledger_id, entry_id, lac = self._parse_record(record)
        path = self._path_of(ledger_id)
        path.reserve(len(record))  # before the lock is taken: it may wait for a flush
        with path.lock:
            path.check_writable()
            self._check_open_for_adds(path, ledger_id, key, recovery)
            self._lac_tracker.load_before_add(ledger_id)
            path.add(ledger_id, entry_id, record)
            self._lac_tracker.note_added(ledger_id, lac)
            self._note_ready(path, ledger_id)
        return ledger_id, entry_id

    def _note_ready(self, path: WritePath, ledger_id: LedgerId) -> None:
        """Register a ledger that was just added to for the fast path of `add_record`."""
        state = path.states.get(ledger_id)
        if ledger_id.scope == 0 and not (state.fenced or state.limbo or self._closed):
            path.states.fast_path_ledgers[ledger_id.ledger] = ledger_id, state.master_key

    def add_batch(
        self, batch: RecordBatch, *, master_key: bytes | None = None, recovery: bool = False
    ) -> Int64Array:
        """Add a batch of records of one or many ledgers; return their entry ids, int64[n].

        Equals `add_entry` for each record in order, up to the first that is refused: its error
        is raised, with `stored` set to the number of records before it, which are stored. (The
        error of a failed write has `stored` too.) The bytes on disk are those of single adds.
        About 0.1 us a record if a ledger's entries ascend, 1 us otherwise; some 20 us for each
        change of directory from one record to the next.

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
        batch_add = _BatchAdd(batch, master_key, recovery)
        # Add the records before the first malformed one; then raise the error of that one.
        well_formed_count = self._count_well_formed(batch_add)
        try:
            for path, start, stop in self._split_by_path(batch_add.ledgers, well_formed_count):
                self._add_run(path, batch_add, start, stop)
            if well_formed_count < len(batch):
                raise self._refusal_of_record(batch, well_formed_count)
        except BkstoreError as error:
            error.stored = batch_add.stored_count
            raise
        return batch.entries

    def add_entries(
        self, records: Iterable[bytes], *, master_key: bytes | None = None, recovery: bool = False
    ) -> Int64Array:
        """Add records in order, by `add_batch`, about a thousand at a time; return their entry ids,
        int64[n]. Raises the error of the first that is refused, with `stored`."""
        add_batch = partial(self.add_batch, master_key=master_key, recovery=recovery)
        return add_in_batches(records, add_batch)

    # -- checks

    def _check_open_for_adds(
        self, path: WritePath, ledger: LedgerId, key: bytes | None, recovery: bool
    ) -> None:
        """Raise if the ledger takes no adds now; with a master key, create an unknown one. Unmark
        the ledger as a suspect: a garbage collection that is running must not delete it. The caller
        holds the path's lock."""
        if key is not None:
            self.open_ledger(ledger, key)
        state = path.states.get(ledger)
        if (state.fenced or state.limbo) and not recovery:
            raise _refusal(ledger, state)
        path.states.suspects.discard(ledger)

    def _parse_record(self, record: bytes) -> tuple[LedgerId, int, int]:
        """Return (ledger id, entry id, LAC) of a record; raise `InvalidArgument` if unfit."""
        if len(record) > self.options.max_entry_size:
            limit = self.options.max_entry_size
            raise InvalidArgument(f"record of {len(record)} bytes, the limit is {limit}")
        if len(record) >= V1_HEADER and record[0] < 0x80:  # without a scope: the quick way
            ledger_number, entry_id, lac = _unpack_v1_header(record)
            ledger_id = LedgerId.of(ledger_number)
        else:
            try:
                ledger_id, entry_id, lac = record_header(record)[:3]
            except CorruptionError as error:
                raise InvalidArgument(f"not an entry: {error.reason}") from error
        if not 0 <= entry_id <= self._max_entry_id:
            raise InvalidArgument(f"entry id {entry_id} is outside 0..{self._max_entry_id}")
        return ledger_id, entry_id, lac

    def _count_well_formed(self, batch_add: _BatchAdd) -> int:
        """Return how many records precede the first that is malformed, too large, or has another
        entry id than the batch lists for it."""
        sizes, entries = batch_add.batch.sizes, batch_add.ids.entries
        count = entries.size  # ids end before the first record that has none
        is_bad = (sizes[:count] > self.options.max_entry_size) | (entries > self._max_entry_id)
        is_bad |= (entries < 0) | (entries != batch_add.batch.entries[:count])
        return int(is_bad.argmax()) if is_bad.any() else count

    def _refusal_of_record(self, batch: RecordBatch, record_index: int) -> BkstoreError:
        """Return the error for record `record_index` of a batch, which `_count_well_formed` found
        unfit: its bytes are, or its entry id is not the one that the batch lists."""
        try:
            _, entry_id, _ = self._parse_record(bytes(batch[record_index]))
        except BkstoreError as error:
            return error
        listed = int(batch.entries[record_index])
        return InvalidArgument(f"the batch lists entry {listed}, but its record is {entry_id}")

    # -- adding a batch

    def _split_by_path(self, ledgers: BatchLedgers, count: int) -> Iterator[_PathRun]:
        """Yield (write path, start, stop) of runs of adjacent records that belong to one write
        path. Ledger L belongs to path L mod n."""
        if len(self.write_paths) == 1 or ledgers.numbers is None:  # None: a single ledger
            if count:
                yield self._path_of(ledgers.ledger_ids[0]), 0, count
            return
        path_count = len(self.write_paths)
        path_of_ledger = [ledger_id.ledger % path_count for ledger_id in ledgers.ledger_ids]
        path_of_record = np.array(path_of_ledger, np.int64)[ledgers.numbers[:count]]
        # A run begins where the write path differs from that of the record before it.
        starts = [0, *(np.flatnonzero(np.diff(path_of_record)) + 1).tolist()] if count else []
        for start, stop in zip(starts, [*starts[1:], count]):
            yield self.write_paths[int(path_of_record[start])], start, stop

    def _add_run(self, path: WritePath, batch_add: _BatchAdd, start: int, stop: int) -> None:
        """Add the records start..stop (half open), all of one write path: as many at a time as fit
        into its memory before it must be flushed."""
        while start < stop:
            path.reserve(int(batch_add.batch.sizes[start]))
            with path.lock:
                path.check_writable()
                # `fitting_stop` ends what fits before a flush is due. Its ledgers are checked
                # first: one that takes no adds ends the batch at its first record.
                fitting_count = path.count_fitting(batch_add.batch.between(start, stop))
                fitting_stop = min(start + fitting_count, stop)
                ledgers = batch_add.ledgers.between(start, fitting_stop)
                for ledger_index, ledger_id in enumerate(ledgers.ledger_ids):
                    try:
                        self._check_open_for_adds(
                            path, ledger_id, batch_add.master_key, batch_add.recovery
                        )
                        self._lac_tracker.load_before_add(ledger_id)
                    except BkstoreError:
                        fitting_stop = start + ledgers.first_row(ledger_index)
                        self._write_run(path, batch_add, start, fitting_stop)
                        raise
                self._write_run(path, batch_add, start, fitting_stop)
            start = fitting_stop

    def _write_run(self, path: WritePath, batch_add: _BatchAdd, start: int, stop: int) -> None:
        """Write records that passed all checks; count them and note their LACs."""
        if start == stop:
            return
        batch = batch_add.batch.between(start, stop).framed()
        for count in path.add_batch(batch, batch_add.ledgers.between(start, stop)):
            added_ledgers = batch_add.ledgers.between(start, start + count)
            lacs = batch_add.ids.lacs[start : start + count]
            for ledger_id, lac in added_ledgers.highest_by_ledger(lacs):
                self._lac_tracker.note_added(ledger_id, lac)
            start += count
            batch_add.stored_count += count


class _BatchAdd:
    """A batch that is being added: its records' ids, and how many are stored so far."""

    def __init__(self, batch: RecordBatch, master_key: bytes | None, recovery: bool) -> None:
        self.batch = batch.framed()
        self.ids: BatchIds = read_batch_ids(self.batch)
        self.ledgers = BatchLedgers.of(self.ids.scopes, self.ids.ledgers)
        self.master_key = master_key
        self.recovery = recovery
        self.stored_count = 0


def _refusal(ledger_id: LedgerId, state: LedgerState) -> BkstoreError:
    """Return the error for a ledger that takes no adds except those of a recovery. In limbo,
    whether it is fenced is unknown (`LedgerDescriptorImpl`)."""
    if state.fenced:
        return LedgerFenced(f"ledger {ledger_id} is fenced")
    return DataUnknown(f"ledger {ledger_id} is in limbo: whether it is fenced is unknown")


def add_in_batches(records: Iterable[bytes], add_batch: AddBatch) -> Int64Array:
    """Add records in batches and return their entry ids, int64[n]."""
    return add_batches(_batches_of(records), add_batch)


def add_batches(batches: Iterable[RecordBatch], add_batch: AddBatch) -> Int64Array:
    """Add batches in order; return their entry ids, int64[n]. An error's `stored` counts all."""
    entry_ids = [np.empty(0, np.int64)]
    for batch in batches:
        try:
            entry_ids.append(add_batch(batch))
        except BkstoreError as error:
            error.stored = (error.stored or 0) + sum(map(len, entry_ids))
            raise
    return np.concatenate(entry_ids)


def split_after_first(batch: RecordBatch, ledger_ids: Collection[LedgerId]) -> list[RecordBatch]:
    """Return the parts of a batch, each of which ends after the first record of one of these
    ledgers, or with the batch."""
    if not ledger_ids:
        return [batch]
    ids = read_batch_ids(batch)
    ledgers = BatchLedgers.of(ids.scopes, ids.ledgers)
    chosen = [number for number, each in enumerate(ledgers.ledger_ids) if each in ledger_ids]
    # The cuts ascend: ledgers are in the order of their first records.
    cuts = [0, *(ledgers.first_row(number) + 1 for number in chosen), len(batch)]
    return [batch.between(start, stop) for start, stop in pairwise(cuts)]


def _batches_of(records: Iterable[bytes]) -> Iterator[RecordBatch]:
    """Yield records in batches of at most a thousand, about a MiB. If the iterable raises, the
    records before the error are yielded first."""
    group: list[bytes] = []
    size = 0
    try:
        for record in iterable("records", records):
            if type(record) is not bytes:
                record = bytes_like("record", record)
            size += len(record)
            group.append(record)
            if len(group) >= _MAX_BATCH_RECORDS or size >= _MAX_BATCH_BYTES:
                full, group, size = group, [], 0
                yield make_batch(full)
    except Exception:
        if group:
            yield make_batch(group)
        raise
    if group:
        yield make_batch(group)


def make_batch(records: list[bytes]) -> RecordBatch:
    """Return records as a batch with their entry ids; -1 from the first malformed one on."""
    batch = RecordBatch.of(records, np.full(len(records), -1))
    entries = read_batch_ids(batch).entries
    batch.entries[: entries.size] = entries
    return batch
