"""What a bookie answers to requests that only read, and to reads that fence first.

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
from bkstore.wire.status import Status, status_of

_LAST = -1
_ENOUGH = 1 << 20


class Reads:
    """Answers operations out of a bookie; safe between threads, as that is."""

    def __init__(self, bookie: Bookie) -> None:
        self.bookie = bookie

    def read(self, operations: Sequence[Operation]) -> tuple[list[Answer | Read], list[Operation]]:
        """Answer operations from the first on, until some 1 MiB is read; at least one.

        Returns their answers, with the read itself where a long poll has to wait, and what is
        left. Reads of entries in a row are one batch.
        """
        answers: list[Answer | Read] = []
        left, at, size = list(operations), 0, 0
        while at < len(left) and size < _ENOUGH:
            first, count = left[at], _in_a_row(left, at)
            done: Sequence[Answer | Read]
            if isinstance(first, ReadMany):
                answer = self._read_many(first)
                done = [answer]
                left[at] = first.part(answer.operation.count, first.count)
                at += not left[at].count
            elif count > 1:
                done = self._read_run([op for op in left[at : at + count] if isinstance(op, Read)])
                at += len(done)
            else:
                done = [self._read_one(first)]
                at += 1
            size += sum(len(answer.frame) for answer in done if isinstance(answer, Answer))
            answers += done
        return answers, left[at:]

    def _read_one(self, operation: Operation) -> Answer | Read:
        if isinstance(operation, Read):
            if operation.previous_lac is not None:
                return self._long_poll(operation, operation.previous_lac)
            return self._read(operation)
        if isinstance(operation, BatchRead):
            return self._batch(operation)
        if isinstance(operation, ReadLac):
            return self._read_lac(operation)
        if isinstance(operation, ListEntries):
            return self._list(operation)
        if isinstance(operation, BookieInfo):
            return self._info(operation)
        raise TypeError(f"{operation.name} is not to be read")

    def _read_run(self, reads: Sequence[Read]) -> list[Answer]:
        """Return the answers to the first of some reads in a row, as one batch gives them."""
        first = reads[0]
        try:
            batch = self.bookie.read_entries(first.ledger, first.entry, len(reads), _ENOUGH)
        except (BkstoreError, OSError):
            return [self._read(first)]
        status, lac = self._lac(first)
        records = batch.records()
        return [read.answer(status, record, lac) for read, record in zip(reads, records)]

    def _read_many(self, reads: ReadMany) -> Answer:
        """Return the answer to the first of reads in a row, as many as one batch gives."""
        ledger, entry = int(reads.ledgers[0]), int(reads.entries[0])
        try:
            batch = self.bookie.read_entries(ledger, entry, reads.count, _ENOUGH)
        except (BkstoreError, OSError):
            return self._read_first(reads.part(0, 1))
        found = reads.part(0, len(batch))
        return found.answer(Status.EOK, found.ledgers, found.entries, batch)

    def _read_first(self, read: ReadMany) -> Answer:
        ledger, entry = int(read.ledgers[0]), int(read.entries[0])
        try:
            record = self.bookie.read_entry(ledger, entry)
        except (BkstoreError, OSError) as error:
            return read.refuse(error_status(error))
        batch = RecordBatch.of([record], [entry])
        return read.answer(Status.EOK, read.ledgers, read.entries, batch)

    def _read(self, operation: Read) -> Answer:
        try:
            ledger = operation.ledger
            if operation.fence:
                self._fence(ledger, operation.master_key)
            record = self.bookie.read_entry(ledger, operation.entry)
        except (BkstoreError, OSError) as error:
            return operation.answer(error_status(error))
        status, lac = self._lac(operation)
        return operation.answer(status, record, lac, None, operation.updated)

    def _lac(self, operation: Read | BatchRead) -> tuple[Status, int | None]:
        """Return the LAC that goes with an answer, None if that tells none."""
        if not operation.tells_lac:
            return Status.EOK, None
        try:
            return Status.EOK, self.bookie.last_add_confirmed(operation.ledger)
        except (BkstoreError, OSError) as error:
            return error_status(error), None

    def _long_poll(self, operation: Read, previous: int) -> Answer | Read:
        if operation.piggyback and operation.entry != _LAST:
            return operation.answer(Status.EBADREQ)
        try:
            ledger = operation.ledger
            lac = self.bookie.last_add_confirmed(ledger)
            if lac <= previous and operation.time_out is not None and not operation.expired:
                operation.was_fenced = self.bookie.is_fenced(ledger)
                return operation
            if not operation.piggyback:
                return self._read(operation)
            if lac <= previous:
                return operation.answer(Status.EOK, None, lac)
            record = self.bookie.read_entry(ledger, previous + 1)
        except NoSuchEntry:
            return operation.answer(Status.EOK, None, lac)
        except (BkstoreError, OSError) as error:
            return operation.answer(error_status(error))
        return operation.answer(Status.EOK, record, lac, previous + 1, operation.updated)

    def _batch(self, operation: BatchRead) -> Answer:
        try:
            ledger = operation.ledger
            if operation.fence:
                self._fence(ledger, operation.master_key)
            batch = self._records(ledger, operation)
        except (BkstoreError, OSError) as error:
            return operation.answer(error_status(error))
        status, lac = self._lac(operation)
        return operation.answer(status, batch, lac)

    def _records(self, ledger: LedgerId, operation: BatchRead) -> RecordBatch:
        """Return the records of a batch read: from the last entry on come entries 0, 1, ..."""
        count, size = max(operation.max_count, 0), max(operation.max_size, 1)
        if operation.entry != _LAST:
            return self.bookie.read_entries(ledger, operation.entry, count, size)
        last = self.bookie.read_entries(ledger, _LAST)
        try:
            rest = self.bookie.read_entries(ledger, 0, count, size)
        except NoSuchEntry:
            return last
        batch = RecordBatch.joined([last.framed(), rest.framed()])
        options = self.bookie.storage.options
        limit = min(size, options.max_batch_size)
        return batch.first(how_many(batch.sizes, count, limit, options.compat))

    def _read_lac(self, operation: ReadLac) -> Answer:
        status, body, last = Status.EOK, None, None
        try:
            body = self.bookie.explicit_lac(operation.ledger)
        except (BkstoreError, OSError) as error:
            status = error_status(error)
        try:
            last = self.bookie.read_entry(operation.ledger)
        except NoSuchEntry:
            status = Status.EIO  # as upstream, where that is an IOException
        except (BkstoreError, OSError) as error:
            status = error_status(error)
        if body is None and last is None and status is not Status.EBADREQ:
            status = Status.ENOENTRY
        return operation.answer(status, body, last)

    def _list(self, operation: ListEntries) -> Answer:
        try:
            ledger = operation.ledger
            if not self.bookie.ledger_exists(ledger):
                return operation.answer(Status.ENOLEDGER)
            found = self.bookie.availability(ledger)
        except (BkstoreError, OSError) as error:
            return operation.answer(error_status(error))
        compat = self.bookie.storage.options.compat
        return operation.answer(Status.EOK, found.to_bytes(encoding=compat or "grouped"))

    def _info(self, operation: BookieInfo) -> Answer:
        """Return the sizes of the file systems that the ledger directories lie on, each once."""
        try:
            disks = {os.stat(path).st_dev: path for path in self.bookie.place.ledger}
            usages = [shutil.disk_usage(path) for path in disks.values()]
        except OSError as error:
            return operation.answer(error_status(error))
        total = sum(usage.total for usage in usages) if operation.total else None
        free = sum(usage.free for usage in usages) if operation.free else None
        return operation.answer(Status.EOK, total, free)

    def _check_key(self, ledger: LedgerId, key: bytes) -> None:
        """Compare in constant time; the storage does it again, between equals then."""
        try:
            stored = self.bookie.master_key(ledger)
        except NoSuchLedger:
            return
        if stored.strip(b"\0") and not hmac.compare_digest(stored, key):
            raise UnauthorizedAccess(f"ledger {ledger} has another master key")

    def _fence(self, ledger: LedgerId, key: bytes | None) -> None:
        if key is None:
            raise UnauthorizedAccess("a fencing read without a master key")
        self._check_key(ledger, key)
        self.bookie.fence(ledger, key)


def error_status(error: BkstoreError | OSError) -> Status:
    """Return the status of an error; of a bookie that is closed or has failed it is EIO."""
    return Status.EIO if isinstance(error, IllegalOperation) else status_of(error)


def _in_a_row(operations: Sequence[Operation], at: int) -> int:
    """Return how many plain reads from a place on are of entries in a row of one ledger."""
    first = operations[at]
    if not _is_plain(first):
        return 1
    count = 1
    for other in operations[at + 1 :]:
        if not (
            _is_plain(other)
            and other.entry == first.entry + count
            and other.ledger_number == first.ledger_number
            and other.scope == first.scope
            and other.tells_lac is first.tells_lac
        ):
            break
        count += 1
    return count


def _is_plain(operation: Operation) -> TypeGuard[Read]:
    return (
        isinstance(operation, Read)
        and operation.previous_lac is None
        and not operation.fence
        and operation.entry >= 0
    )
