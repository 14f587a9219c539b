"""What a bookie answers: the rules of `BookieRequestProcessor` over a `Bookie`.

All of this runs in threads of the server's pools. Sources: `WriteEntryProcessor`,
`ReadEntryProcessor`, `BatchedReadEntryProcessor`, the `*ProcessorV3` classes, and recorded
conversations.
"""

from __future__ import annotations

import hmac
import os
import shutil
from collections.abc import Callable, Sequence
from typing import TypeGuard

from bkstore.errors import (
    BkstoreError,
    DataUnknown,
    IllegalOperation,
    InvalidArgument,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    ReadOnlyError,
    UnauthorizedAccess,
    WriteFailed,
)
from bkstore.formats.entry import RecordBatch, record_header
from bkstore.ids import LedgerId
from bkstore.storage.batch_limits import how_many
from bkstore.storage.bookie import Bookie
from bkstore.wire.server.operations import (
    Add,
    Answer,
    BatchRead,
    BookieInfo,
    Force,
    ListEntries,
    Operation,
    Read,
    ReadLac,
    WriteLac,
)
from bkstore.wire.status import Status, status_of

__all__ = ["BookieRules"]

_LAST = -1
_ENOUGH = 1 << 20


class BookieRules:
    """Answers operations out of a bookie; safe between threads, as that is.

    With `read_only` set, adds and explicit LACs are refused, but for adds of high priority;
    fencing and forcing go on, as at a bookie whose disks are full.
    """

    def __init__(self, bookie: Bookie) -> None:
        self.bookie = bookie
        self.read_only = False

    # -- what changes something

    def write(self, operations: Sequence[Operation]) -> tuple[list[Answer], bool]:
        """Do what is asked, in order; return the answers, and whether they wait for a sync.

        Adds that stand together and say the same of key, recovery and sync are one batch. What
        is answered with EOK is durable only after the journals are synced, if that is True.
        """
        answers: list[Answer] = []
        waits = False
        at = 0
        while at < len(operations):
            first, end = operations[at], at + 1
            if isinstance(first, Add):
                end = _alike(operations, at)
                done = self._add_all([add for add in operations[at:end] if isinstance(add, Add)])
                durable = not first.sync
            else:
                done = [self._write_one(first)]
                durable = not isinstance(first, (WriteLac, Force))
            waits |= not durable and any(answer.status is Status.EOK for answer in done)
            answers += done
            at = end
        return answers, waits

    def _write_one(self, operation: Operation) -> Answer:
        if isinstance(operation, WriteLac):
            return operation.answer(_status(lambda: self._write_lac(operation)))
        if isinstance(operation, Force):
            return operation.answer(_status(lambda: operation.ledger))
        if isinstance(operation, BatchRead):
            return self._batch(operation)
        if isinstance(operation, Read):
            return self._read(operation)
        raise TypeError(f"{operation.name} changes nothing")

    def _write_lac(self, operation: WriteLac) -> None:
        if self.read_only:
            raise ReadOnlyError("the bookie is read-only")
        ledger = operation.ledger
        self._check_key(ledger, operation.master_key)
        self.bookie.set_explicit_lac(ledger, operation.body, operation.master_key, sync=False)

    def _add_all(self, adds: Sequence[Add]) -> list[Answer]:
        """Store records of one key; what is refused leaves the others as they are."""
        first = adds[0]
        if self.read_only and not first.urgent:
            return [add.answer(Status.EREADONLY) for add in adds]
        heads = [_head(add.record) for add in adds]
        refused = self._foreign({head: add.record for head, add in zip(heads, adds)}, first)
        statuses: list[Status] = [refused.get(head, Status.EOK) for head in heads]
        waiting = [at for at, head in enumerate(heads) if head not in refused]
        while waiting:
            stored, error = self._store([adds[at].record for at in waiting], first)
            waiting = waiting[stored:]
            if error is None or not waiting:
                break
            status = _add_status(error)
            rest = _concerned(error, waiting, heads)
            for at in rest:
                statuses[at] = status
            waiting = [at for at in waiting if at not in rest]
        return [add.answer(status) for add, status in zip(adds, statuses)]

    def _store(self, records: list[bytes], add: Add) -> tuple[int, Exception | None]:
        """Return how many of the records are stored, and why not the next one."""
        key, recovery = add.master_key, add.recovery
        try:
            if len(records) == 1:
                self.bookie.add_entry(records[0], key, recovery=recovery, sync=False)
            else:
                self.bookie.add_entries(records, key, recovery=recovery, sync=False)
        except (WriteFailed, IllegalOperation, OSError) as error:
            return 0, error  # a journal failed: none is acknowledged
        except BkstoreError as error:
            return error.stored or 0, error
        return len(records), None

    def _foreign(self, records: dict[bytes, bytes], add: Add) -> dict[bytes, Status]:
        """Return the ledgers, by a record's head, that have another key than an add says."""
        found = {}
        for head, record in records.items():
            try:
                self._check_key(record_header(record).ledger, add.master_key)
            except UnauthorizedAccess:
                found[head] = Status.EUA
            except (BkstoreError, OSError):
                continue  # the storage says what is wrong with it
        return found

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

    def sync(self) -> Status:
        """Make durable all that was written; return the status of those who wait for it."""
        return _status(lambda: [journal.sync() for journal in self.bookie.journals])

    # -- what only reads

    def read(self, operations: Sequence[Operation]) -> list[Answer | None]:
        """Answer operations from the first on, until some 1 MiB is read; at least one.

        None for a long poll that has to wait. Reads of entries in a row are one batch.
        """
        answers: list[Answer | None] = []
        size = 0
        while len(answers) < len(operations) and size < _ENOUGH:
            first = operations[len(answers)]
            count = _in_a_row(operations, len(answers))
            if count > 1:
                reads = [op for op in operations[len(answers) :][:count] if isinstance(op, Read)]
                done: Sequence[Answer | None] = self._read_run(reads)
            else:
                done = [self._read_one(first)]
            size += sum(len(answer.frame) for answer in done if answer is not None)
            answers += done
        return answers

    def _read_one(self, operation: Operation) -> Answer | None:
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

    def _read(self, operation: Read) -> Answer:
        try:
            ledger = operation.ledger
            if operation.fence:
                self._fence(ledger, operation.master_key)
            record = self.bookie.read_entry(ledger, operation.entry)
        except (BkstoreError, OSError) as error:
            return operation.answer(_status_of(error))
        status, lac = self._lac(operation)
        return operation.answer(status, record, lac, None, operation.updated)

    def _lac(self, operation: Read | BatchRead) -> tuple[Status, int | None]:
        """Return the LAC that goes with an answer, None if that tells none."""
        if not operation.tells_lac:
            return Status.EOK, None
        try:
            return Status.EOK, self.bookie.last_add_confirmed(operation.ledger)
        except (BkstoreError, OSError) as error:
            return _status_of(error), None

    def _long_poll(self, operation: Read, previous: int) -> Answer | None:
        if operation.piggyback and operation.entry != _LAST:
            return operation.answer(Status.EBADREQ)
        try:
            ledger = operation.ledger
            lac = self.bookie.last_add_confirmed(ledger)
            if lac <= previous and operation.time_out is not None and not operation.expired:
                return None
            if not operation.piggyback:
                return self._read(operation)
            if lac <= previous:
                return operation.answer(Status.EOK, None, lac)
            record = self.bookie.read_entry(ledger, previous + 1)
        except NoSuchEntry:
            return operation.answer(Status.EOK, None, lac)
        except (BkstoreError, OSError) as error:
            return operation.answer(_status_of(error))
        return operation.answer(Status.EOK, record, lac, previous + 1, operation.updated)

    def _batch(self, operation: BatchRead) -> Answer:
        try:
            ledger = operation.ledger
            if operation.fence:
                self._fence(ledger, operation.master_key)
            batch = self._records(ledger, operation)
        except (BkstoreError, OSError) as error:
            return operation.answer(_status_of(error))
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
            status = _status_of(error)
        try:
            last = self.bookie.read_entry(operation.ledger)
        except NoSuchEntry:
            status = Status.EIO  # as upstream, where that is an IOException
        except (BkstoreError, OSError) as error:
            status = _status_of(error)
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
            return operation.answer(_status_of(error))
        compat = self.bookie.storage.options.compat
        return operation.answer(Status.EOK, found.to_bytes(encoding=compat or "grouped"))

    def _info(self, operation: BookieInfo) -> Answer:
        """Return the sizes of the file systems that the ledger directories lie on, each once."""
        try:
            disks = {os.stat(path).st_dev: path for path in self.bookie.place.ledger}
            usages = [shutil.disk_usage(path) for path in disks.values()]
        except OSError as error:
            return operation.answer(_status_of(error))
        total = sum(usage.total for usage in usages) if operation.total else None
        free = sum(usage.free for usage in usages) if operation.free else None
        return operation.answer(Status.EOK, total, free)


def _alike(operations: Sequence[Operation], at: int) -> int:
    """Return the end of the adds that can be one batch with the one at a place."""
    first = operations[at]
    assert isinstance(first, Add)
    for end in range(at + 1, len(operations)):
        add = operations[end]
        if not (
            isinstance(add, Add)
            and add.sync is first.sync
            and add.recovery is first.recovery
            and add.urgent is first.urgent
            and add.master_key == first.master_key
        ):
            return end
    return len(operations)


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


def _head(record: bytes) -> bytes:
    """Return the bytes of a record that say its ledger."""
    return record[:17] if record[:1] >= b"\x80" else record[:8]


def _concerned(error: Exception, waiting: list[int], heads: list[bytes]) -> set[int]:
    """Return which adds, of those that wait, an error is about; the first one always is."""
    if isinstance(error, (LedgerFenced, UnauthorizedAccess, DataUnknown)):
        return {at for at in waiting if heads[at] == heads[waiting[0]]}
    return {waiting[0]} if isinstance(error, InvalidArgument) else set(waiting)


def _add_status(error: Exception) -> Status:
    """Return the answer to an add; limbo is no access there, as upstream."""
    return Status.EUA if isinstance(error, DataUnknown) else _status_of(error)


def _status_of(error: Exception) -> Status:
    """Return the status of an error; a bookie that is closed or failed is no bad request."""
    if isinstance(error, IllegalOperation) or not isinstance(error, (BkstoreError, OSError)):
        return Status.EIO
    return status_of(error)


def _status(call: Callable[[], object]) -> Status:
    try:
        call()
    except (BkstoreError, OSError) as error:
        return _status_of(error)
    return Status.EOK
