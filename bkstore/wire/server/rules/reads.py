"""A bookie's answers to requests that only read, and to reads that fence first.

Sources: `ReadEntryProcessor`, `BatchedReadEntryProcessor`, `ReadEntryProcessorV3`,
`LongPollReadEntryProcessorV3`, `ReadLacProcessorV3`, `GetListOfEntriesOfLedgerProcessorV3`,
`GetBookieInfoProcessorV3`, and recorded conversations.
"""

from __future__ import annotations

import hmac
import os
import shutil
from collections.abc import Sequence
from typing import TypeGuard

from bkstore.errors import (
    BkstoreError,
    IllegalOperation,
    NoSuchEntry,
    NoSuchLedger,
    UnauthorizedAccess,
)
from bkstore.formats.entry import RecordBatch
from bkstore.ids import LedgerId
from bkstore.storage.batch_limits import count_fitting
from bkstore.storage.bookie import Bookie
from bkstore.wire.server.requests.operations import (
    BatchReadOperation,
    BookieInfoOperation,
    EncodedResponse,
    ListEntriesOperation,
    Operation,
    ReadAnswer,
    ReadLacOperation,
    ReadManyOperation,
    ReadOperation,
)
from bkstore.wire.status_codes import Status, status_for_error

_LAST_ENTRY = -1
_MAX_READ_BYTES = 1 << 20


class ReadRules:
    """Answers reads from a bookie. As thread-safe as the bookie."""

    def __init__(self, bookie: Bookie) -> None:
        self.bookie = bookie

    def read(self, operations: Sequence[Operation]) -> tuple[list[ReadAnswer], list[Operation]]:
        """Answer operations in order, at least one, until about 1 MiB is read. Return the answers
        and the unread operations. A long poll (a read that waits until the LAC passes the one it
        has) that must wait stands among the answers as the `ReadOperation` itself. Reads of
        consecutive entries are read from the bookie as one batch."""
        answers: list[ReadAnswer] = []
        pending, start, size = list(operations), 0, 0
        while start < len(pending) and size < _MAX_READ_BYTES:
            first, run_length = pending[start], _count_consecutive(pending, start)
            # `turn` is what this pass of the loop answers. A batch may have fewer records than
            # wanted: the next pass goes on behind them.
            turn: Sequence[ReadAnswer]
            if isinstance(first, ReadManyOperation):
                answer = self._read_many(first)
                turn, done_count = [answer], answer.operation.request_count
                if done_count < first.request_count:
                    pending[start] = first.select_range(done_count, first.request_count)
                else:
                    start += 1
            elif run_length > 1:
                run = pending[start : start + run_length]
                turn = self._read_run([op for op in run if isinstance(op, ReadOperation)])
                start += len(turn)
            else:
                turn = [self._read_one(first)]
                start += 1
            size += sum(len(done.frame) for done in turn if isinstance(done, EncodedResponse))
            answers += turn
        return answers, pending[start:]

    def _read_one(self, operation: Operation) -> ReadAnswer:
        """Return the answer to one read, by the class of the operation."""
        if isinstance(operation, ReadOperation):
            if operation.previous_lac is not None:
                return self._long_poll(operation, operation.previous_lac)
            return self._read_entry(operation)
        if isinstance(operation, BatchReadOperation):
            return self._read_batch(operation)
        if isinstance(operation, ReadLacOperation):
            return self._read_lac(operation)
        if isinstance(operation, ListEntriesOperation):
            return self._list_entries(operation)
        if isinstance(operation, BookieInfoOperation):
            return self._bookie_info(operation)
        raise TypeError(f"{operation.name} is not a read")

    def _read_run(self, reads: Sequence[ReadOperation]) -> list[EncodedResponse]:
        """Read entries of consecutive ids as one batch; return the answers to those that it has.
        It may have fewer than requested: it ends at a missing entry, or at its size limit."""
        first, count = reads[0], len(reads)
        try:
            ledger_id = first.ledger_id
            batch = self.bookie.read_entries(ledger_id, first.entry_id, count, _MAX_READ_BYTES)
        except (BkstoreError, OSError):
            return [self._read_entry(first)]  # alone, with the status of its own error
        status, lac = self._answer_lac(first)
        records = batch.records()
        return [read.answer(status, record, lac) for read, record in zip(reads, records)]

    def _read_many(self, reads: ReadManyOperation) -> EncodedResponse:
        """Read entries of consecutive ids as one batch; return one answer to the requests that it
        satisfies: it ends at a missing entry, or at its size limit. The others are read next."""
        ledger_and_entry = int(reads.ledger_ids[0]), int(reads.entry_ids[0])
        count = reads.request_count
        try:
            batch = self.bookie.read_entries(*ledger_and_entry, count, _MAX_READ_BYTES)
        except (BkstoreError, OSError):
            return self._read_first(reads.select_range(0, 1))  # alone, with its own status
        reads_done = reads.select_range(0, len(batch))
        return reads_done.answer(Status.EOK, reads_done.ledger_ids, reads_done.entry_ids, batch)

    def _read_first(self, read: ReadManyOperation) -> EncodedResponse:
        """Read the first entry of a batch that failed; answer it alone, with its record or its own
        error status. The form of the answer is that of many."""
        ledger_number, entry = int(read.ledger_ids[0]), int(read.entry_ids[0])
        try:
            record = self.bookie.read_entry(ledger_number, entry)
        except (BkstoreError, OSError) as error:
            return read.refuse(status_for_bookie_error(error))
        batch = RecordBatch.of([record], [entry])
        return read.answer(Status.EOK, read.ledger_ids, read.entry_ids, batch)

    def _read_entry(self, operation: ReadOperation) -> EncodedResponse:
        """Read one entry; fence the ledger first if the request says so."""
        try:
            ledger_id = operation.ledger_id
            if operation.fence:
                self._check_and_fence(ledger_id, operation.master_key)
            record = self.bookie.read_entry(ledger_id, operation.entry_id)
        except (BkstoreError, OSError) as error:
            return operation.answer(status_for_bookie_error(error))
        status, lac = self._answer_lac(operation)
        return operation.answer(status, record, lac, None, operation.lac_update_millis)

    def _answer_lac(self, read: ReadOperation | BatchReadOperation) -> tuple[Status, int | None]:
        """Return (status, LAC) for an answer: EOK with the LAC, or with None if it needs none; the
        status of the error, with None, if the LAC cannot be read."""
        if not read.needs_lac:
            return Status.EOK, None
        try:
            return Status.EOK, self.bookie.last_add_confirmed(read.ledger_id)
        except (BkstoreError, OSError) as error:
            return status_for_bookie_error(error), None

    def _long_poll(self, poll: ReadOperation, previous_lac: int) -> ReadAnswer:
        """Return the answer to a long poll, or the poll itself if it has to wait."""
        # with piggyback the entry is the one after the client's LAC: it cannot request another
        if poll.piggyback and poll.entry_id != _LAST_ENTRY:
            return poll.answer(Status.EBADREQ)
        try:
            ledger_id = poll.ledger_id
            lac = self.bookie.last_add_confirmed(ledger_id)
            if lac <= previous_lac and poll.timeout_millis is not None and not poll.expired:
                poll.was_fenced = self.bookie.is_fenced(ledger_id)
                return poll
            if not poll.piggyback:  # it only delays the read of an entry
                return self._read_entry(poll)
            if lac <= previous_lac:  # the time is over
                return poll.answer(Status.EOK, None, lac)
            record = self.bookie.read_entry(ledger_id, previous_lac + 1)
        except NoSuchEntry:  # it is not on this bookie, only on others of its write quorum
            return poll.answer(Status.EOK, None, lac)
        except (BkstoreError, OSError) as error:
            return poll.answer(status_for_bookie_error(error))
        return poll.answer(Status.EOK, record, lac, previous_lac + 1, poll.lac_update_millis)

    def _read_batch(self, operation: BatchReadOperation) -> EncodedResponse:
        """Return the records from an entry on, within the limits; fence first if asked."""
        try:
            ledger_id = operation.ledger_id
            if operation.fence:
                self._check_and_fence(ledger_id, operation.master_key)
            batch = self._batch_records(ledger_id, operation)
        except (BkstoreError, OSError) as error:
            return operation.answer(status_for_bookie_error(error))
        status, lac = self._answer_lac(operation)
        return operation.answer(status, batch, lac)

    def _batch_records(self, ledger_id: LedgerId, operation: BatchReadOperation) -> RecordBatch:
        """Return the records of a batch read. If it begins at the last entry, entries 0, 1, ...
        follow that, as in BookKeeper."""
        max_count, max_bytes = max(operation.max_count, 0), max(operation.max_size, 1)
        if operation.entry_id != _LAST_ENTRY:
            return self.bookie.read_entries(ledger_id, operation.entry_id, max_count, max_bytes)
        last_entry = self.bookie.read_entries(ledger_id, _LAST_ENTRY)
        try:
            from_first = self.bookie.read_entries(ledger_id, 0, max_count, max_bytes)
        except NoSuchEntry:
            return last_entry
        # both together, cut to the limits of the request and the storage
        batch = RecordBatch.concatenate([last_entry.framed(), from_first.framed()])
        options = self.bookie.storage.options
        max_batch_bytes = min(max_bytes, options.max_batch_size)
        return batch.first(count_fitting(batch.sizes, max_count, max_batch_bytes, options.compat))

    def _read_lac(self, operation: ReadLacOperation) -> EncodedResponse:
        """Return the explicit LAC and the last entry; ENOENTRY if there is neither."""
        status, explicit_lac, last_record = Status.EOK, None, None
        try:
            explicit_lac = self.bookie.explicit_lac(operation.ledger_id)
        except (BkstoreError, OSError) as error:
            status = status_for_bookie_error(error)
        try:
            last_record = self.bookie.read_entry(operation.ledger_id)
        except NoSuchEntry:
            status = Status.EIO  # as in BookKeeper, where it is an IOException
        except (BkstoreError, OSError) as error:
            status = status_for_bookie_error(error)
        # with neither, ENOENTRY replaces the statuses above, as in BookKeeper
        if explicit_lac is None and last_record is None and status is not Status.EBADREQ:
            status = Status.ENOENTRY
        return operation.answer(status, explicit_lac, last_record)

    def _list_entries(self, operation: ListEntriesOperation) -> EncodedResponse:
        """Return the ledger's entries as an encoded availability."""
        try:
            ledger_id = operation.ledger_id
            if not self.bookie.ledger_exists(ledger_id):
                return operation.answer(Status.ENOLEDGER)
            availability = self.bookie.availability(ledger_id)
        except (BkstoreError, OSError) as error:
            return operation.answer(status_for_bookie_error(error))
        compat = self.bookie.storage.options.compat
        return operation.answer(Status.EOK, availability.to_bytes(encoding=compat or "grouped"))

    def _bookie_info(self, operation: BookieInfoOperation) -> EncodedResponse:
        """Return the sizes of the file systems of the ledger directories, each counted once."""
        try:
            path_of_device = {os.stat(path).st_dev: path for path in self.bookie.directories.ledger}
            usages = [shutil.disk_usage(path) for path in path_of_device.values()]
        except OSError as error:
            return operation.answer(status_for_bookie_error(error))
        total = sum(usage.total for usage in usages) if operation.needs_total else None
        free = sum(usage.free for usage in usages) if operation.needs_free else None
        return operation.answer(Status.EOK, total, free)

    def _check_master_key(self, ledger_id: LedgerId, master_key: bytes) -> None:
        """Raise `UnauthorizedAccess` if the ledger is stored with another master key. A stored key
        that is empty or all zeros permits any. Compares in constant time, unlike the storage, which
        compares again."""
        try:
            stored_key = self.bookie.master_key(ledger_id)
        except NoSuchLedger:
            return
        if stored_key.strip(b"\0") and not hmac.compare_digest(stored_key, master_key):
            raise UnauthorizedAccess(f"ledger {ledger_id} has another master key")

    def _check_and_fence(self, ledger_id: LedgerId, master_key: bytes | None) -> None:
        """Fence the ledger if the master key is right."""
        if master_key is None:
            raise UnauthorizedAccess("a fencing read needs a master key")
        self._check_master_key(ledger_id, master_key)
        self.bookie.fence(ledger_id, master_key)


def status_for_bookie_error(error: BkstoreError | OSError) -> Status:
    """Return the status of an error; EIO if the bookie is closed or has failed."""
    return Status.EIO if isinstance(error, IllegalOperation) else status_for_error(error)


def _count_consecutive(operations: Sequence[Operation], start: int) -> int:
    """Return how many operations from an index on are plain reads of consecutive entries."""
    first = operations[start]
    if not _is_plain_read(first):
        return 1
    count = 1
    for other in operations[start + 1 :]:
        if not (
            _is_plain_read(other)
            and other.entry_id == first.entry_id + count
            and other.ledger_number == first.ledger_number
            and other.scope == first.scope
            and other.needs_lac is first.needs_lac
        ):
            break
        count += 1
    return count


def _is_plain_read(operation: Operation) -> TypeGuard[ReadOperation]:
    """Return whether it reads one entry by its id, without waiting or fencing."""
    return (
        isinstance(operation, ReadOperation)
        and operation.previous_lac is None
        and not operation.fence
        and operation.entry_id >= 0
    )
