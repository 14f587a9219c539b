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
from bkstore.storage.batch_limits import how_many
from bkstore.storage.bookie import Bookie
from bkstore.wire.server.requests.operations import (
    Answer,
    BatchRead,
    BookieInfo,
    ListEntries,
    Operation,
    Read,
    ReadLac,
    ReadMany,
)
from bkstore.wire.status_codes import Status, status_of

_LAST_ENTRY = -1
_MAX_READ_BYTES = 1 << 20


class Reads:
    """Answers reads from a bookie. As thread-safe as the bookie."""

    def __init__(self, bookie: Bookie) -> None:
        self.bookie = bookie

    def read(self, operations: Sequence[Operation]) -> tuple[list[Answer | Read], list[Operation]]:
        """Answer at least one operation, in order, until about 1 MiB is read.

        Return the answers and the unread operations. A long poll that has to wait stands among the
        answers as the `Read` itself. Reads of consecutive entries are one batch.
        """
        answers: list[Answer | Read] = []
        pending, start, size = list(operations), 0, 0
        while start < len(pending) and size < _MAX_READ_BYTES:
            first, count = pending[start], _count_consecutive(pending, start)
            batch: Sequence[Answer | Read]
            # a batch may have fewer records than wanted: the next turn goes on behind them
            if isinstance(first, ReadMany):
                answer = self._read_many(first)
                batch = [answer]
                pending[start] = first.part(answer.operation.count, first.count)
                start += not pending[start].count
            elif count > 1:
                batch = self._read_run(
                    [op for op in pending[start : start + count] if isinstance(op, Read)]
                )
                start += len(batch)
            else:
                batch = [self._read_one(first)]
                start += 1
            size += sum(len(answer.frame) for answer in batch if isinstance(answer, Answer))
            answers += batch
        return answers, pending[start:]

    def _read_one(self, operation: Operation) -> Answer | Read:
        if isinstance(operation, Read):
            if operation.previous_lac is not None:
                return self._long_poll(operation, operation.previous_lac)
            return self._read(operation)
        if isinstance(operation, BatchRead):
            return self._read_batch(operation)
        if isinstance(operation, ReadLac):
            return self._read_lac(operation)
        if isinstance(operation, ListEntries):
            return self._list_entries(operation)
        if isinstance(operation, BookieInfo):
            return self._bookie_info(operation)
        raise TypeError(f"{operation.name} is not a read")

    def _read_run(self, reads: Sequence[Read]) -> list[Answer]:
        """Return answers to the first of these consecutive reads: those that one batch has."""
        first = reads[0]
        try:
            batch = self.bookie.read_entries(first.ledger, first.entry, len(reads), _MAX_READ_BYTES)
        except (BkstoreError, OSError):
            return [self._read(first)]
        status, lac = self._lac_for_answer(first)
        records = batch.records()
        return [read.answer(status, record, lac) for read, record in zip(reads, records)]

    def _read_many(self, reads: ReadMany) -> Answer:
        """Return the answer to the first of these consecutive reads: those that one batch has."""
        ledger_number, entry = int(reads.ledgers[0]), int(reads.entries[0])
        try:
            batch = self.bookie.read_entries(ledger_number, entry, reads.count, _MAX_READ_BYTES)
        except (BkstoreError, OSError):
            return self._read_first(reads.part(0, 1))
        reads_done = reads.part(0, len(batch))
        return reads_done.answer(Status.EOK, reads_done.ledgers, reads_done.entries, batch)

    def _read_first(self, read: ReadMany) -> Answer:
        """Return the answer to a single read, with its own error status."""
        ledger_number, entry = int(read.ledgers[0]), int(read.entries[0])
        try:
            record = self.bookie.read_entry(ledger_number, entry)
        except (BkstoreError, OSError) as error:
            return read.refuse(error_status(error))
        batch = RecordBatch.of([record], [entry])
        return read.answer(Status.EOK, read.ledgers, read.entries, batch)

    def _read(self, operation: Read) -> Answer:
        """Read one entry; fence the ledger first if the request says so."""
        try:
            ledger_id = operation.ledger
            if operation.fence:
                self._fence(ledger_id, operation.master_key)
            record = self.bookie.read_entry(ledger_id, operation.entry)
        except (BkstoreError, OSError) as error:
            return operation.answer(error_status(error))
        status, lac = self._lac_for_answer(operation)
        return operation.answer(status, record, lac, None, operation.updated)

    def _lac_for_answer(self, operation: Read | BatchRead) -> tuple[Status, int | None]:
        """Return the LAC to put into an answer, None if that has none; and its error status."""
        if not operation.tells_lac:
            return Status.EOK, None
        try:
            return Status.EOK, self.bookie.last_add_confirmed(operation.ledger)
        except (BkstoreError, OSError) as error:
            return error_status(error), None

    def _long_poll(self, operation: Read, previous_lac: int) -> Answer | Read:
        """Return the answer to a long poll, or the poll itself if it has to wait."""
        if operation.piggyback and operation.entry != _LAST_ENTRY:
            return operation.answer(Status.EBADREQ)
        try:
            ledger_id = operation.ledger
            lac = self.bookie.last_add_confirmed(ledger_id)
            if lac <= previous_lac and operation.time_out is not None and not operation.expired:
                operation.was_fenced = self.bookie.is_fenced(ledger_id)
                return operation
            if not operation.piggyback:
                return self._read(operation)
            if lac <= previous_lac:
                return operation.answer(Status.EOK, None, lac)
            record = self.bookie.read_entry(ledger_id, previous_lac + 1)
        except NoSuchEntry:
            return operation.answer(Status.EOK, None, lac)
        except (BkstoreError, OSError) as error:
            return operation.answer(error_status(error))
        return operation.answer(Status.EOK, record, lac, previous_lac + 1, operation.updated)

    def _read_batch(self, operation: BatchRead) -> Answer:
        try:
            ledger_id = operation.ledger
            if operation.fence:
                self._fence(ledger_id, operation.master_key)
            batch = self._batch_records(ledger_id, operation)
        except (BkstoreError, OSError) as error:
            return operation.answer(error_status(error))
        status, lac = self._lac_for_answer(operation)
        return operation.answer(status, batch, lac)

    def _batch_records(self, ledger_id: LedgerId, operation: BatchRead) -> RecordBatch:
        """Return the records of a batch read. If it begins at the last entry, entries 0, 1, ...
        follow that, as in BookKeeper."""
        max_count, max_bytes = max(operation.max_count, 0), max(operation.max_size, 1)
        if operation.entry != _LAST_ENTRY:
            return self.bookie.read_entries(ledger_id, operation.entry, max_count, max_bytes)
        last_entry = self.bookie.read_entries(ledger_id, _LAST_ENTRY)
        try:
            from_first = self.bookie.read_entries(ledger_id, 0, max_count, max_bytes)
        except NoSuchEntry:
            return last_entry
        batch = RecordBatch.joined([last_entry.framed(), from_first.framed()])
        options = self.bookie.storage.options
        max_batch_bytes = min(max_bytes, options.max_batch_size)
        return batch.first(how_many(batch.sizes, max_count, max_batch_bytes, options.compat))

    def _read_lac(self, operation: ReadLac) -> Answer:
        """Return the explicit LAC and the last entry; ENOENTRY if there is neither."""
        status, explicit_lac, last_record = Status.EOK, None, None
        try:
            explicit_lac = self.bookie.explicit_lac(operation.ledger)
        except (BkstoreError, OSError) as error:
            status = error_status(error)
        try:
            last_record = self.bookie.read_entry(operation.ledger)
        except NoSuchEntry:
            status = Status.EIO  # as in BookKeeper, where it is an IOException
        except (BkstoreError, OSError) as error:
            status = error_status(error)
        if explicit_lac is None and last_record is None and status is not Status.EBADREQ:
            status = Status.ENOENTRY
        return operation.answer(status, explicit_lac, last_record)

    def _list_entries(self, operation: ListEntries) -> Answer:
        try:
            ledger_id = operation.ledger
            if not self.bookie.ledger_exists(ledger_id):
                return operation.answer(Status.ENOLEDGER)
            availability = self.bookie.availability(ledger_id)
        except (BkstoreError, OSError) as error:
            return operation.answer(error_status(error))
        compat = self.bookie.storage.options.compat
        return operation.answer(Status.EOK, availability.to_bytes(encoding=compat or "grouped"))

    def _bookie_info(self, operation: BookieInfo) -> Answer:
        """Return the sizes of the file systems of the ledger directories, each counted once."""
        try:
            path_of_device = {os.stat(path).st_dev: path for path in self.bookie.place.ledger}
            usages = [shutil.disk_usage(path) for path in path_of_device.values()]
        except OSError as error:
            return operation.answer(error_status(error))
        total = sum(usage.total for usage in usages) if operation.total else None
        free = sum(usage.free for usage in usages) if operation.free else None
        return operation.answer(Status.EOK, total, free)

    def _check_master_key(self, ledger_id: LedgerId, master_key: bytes) -> None:
        """Raise `UnauthorizedAccess` if the ledger has another master key; compares in constant
        time. The storage compares again, but then the keys are equal."""
        try:
            stored_key = self.bookie.master_key(ledger_id)
        except NoSuchLedger:
            return
        if stored_key.strip(b"\0") and not hmac.compare_digest(stored_key, master_key):
            raise UnauthorizedAccess(f"ledger {ledger_id} has another master key")

    def _fence(self, ledger_id: LedgerId, master_key: bytes | None) -> None:
        if master_key is None:
            raise UnauthorizedAccess("a fencing read needs a master key")
        self._check_master_key(ledger_id, master_key)
        self.bookie.fence(ledger_id, master_key)


def error_status(error: BkstoreError | OSError) -> Status:
    """Return the status of an error; EIO if the bookie is closed or has failed."""
    return Status.EIO if isinstance(error, IllegalOperation) else status_of(error)


def _count_consecutive(operations: Sequence[Operation], start: int) -> int:
    """Return how many operations from an index on are plain reads of consecutive entries."""
    first = operations[start]
    if not _is_plain_read(first):
        return 1
    count = 1
    for other in operations[start + 1 :]:
        if not (
            _is_plain_read(other)
            and other.entry == first.entry + count
            and other.ledger_number == first.ledger_number
            and other.scope == first.scope
            and other.tells_lac is first.tells_lac
        ):
            break
        count += 1
    return count


def _is_plain_read(operation: Operation) -> TypeGuard[Read]:
    return (
        isinstance(operation, Read)
        and operation.previous_lac is None
        and not operation.fence
        and operation.entry >= 0
    )
