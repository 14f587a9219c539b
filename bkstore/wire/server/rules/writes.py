"""What a bookie answers to requests that change something.

Sources: `WriteEntryProcessor`, `WriteEntryProcessorV3`, `WriteLacProcessorV3`,
`ForceLedgerProcessorV3`, and recorded conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, groupby, pairwise

from bkstore.errors import (
    BkstoreError,
    DataUnknown,
    IllegalOperation,
    ReadOnlyError,
    UnauthorizedAccess,
    WriteFailed,
)
from bkstore.formats.entry import RecordBatch, record_header
from bkstore.storage.bookie import Bookie
from bkstore.storage.ledgers.adds import as_batch
from bkstore.wire.server.requests.operations import (
    Add,
    AddMany,
    Answer,
    BatchRead,
    Force,
    Operation,
    Read,
    WriteLac,
)
from bkstore.wire.server.rules.reads import Reads, error_status
from bkstore.wire.status import Status

_OF_A_LEDGER = (Status.EFENCED, Status.EUA)
"""Refusals of adds that hold for all of their ledger."""


class BookieRules(Reads):
    """Answers all operations out of a bookie; safe between threads, as that is.

    With `read_only` set, adds and explicit LACs are refused, but for adds of high priority;
    fencing and forcing go on, as at a bookie whose disks are full.
    """

    def __init__(self, bookie: Bookie) -> None:
        super().__init__(bookie)
        self.read_only = False

    def write(self, operations: Sequence[Operation]) -> tuple[list[Answer], bool]:
        """Do what is asked, in order; return the answers, and whether they wait for a sync.

        Adds that stand together and say the same of key, recovery and sync are one batch. What
        is answered with EOK is durable only after the journals are synced, if that is True.
        """
        answers: list[Answer] = []
        for are_adds, group in groupby(operations, _common_fields):
            if are_adds:
                answers += self._add_all(list(group))
            else:
                answers += [self._write_one(operation) for operation in group]
        return answers, any(op.sync for op, status, _ in answers if status is Status.EOK)

    def _write_one(self, operation: Operation) -> Answer:
        if isinstance(operation, WriteLac):
            return operation.answer(_status_after(lambda: self._write_lac(operation)))
        if isinstance(operation, Force):
            return operation.answer(_status_after(lambda: operation.ledger))
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

    def _add_all(self, adds: Sequence[Operation]) -> list[Answer]:
        """Store records under one key; what is refused leaves the others as they are."""
        first = adds[0]
        assert isinstance(first, (Add, AddMany))
        if self.read_only and not first.urgent:
            return [add.refuse(Status.EREADONLY) for add in adds]
        if isinstance(first, AddMany):
            batches = [many.batch.framed() for many in adds if isinstance(many, AddMany)]
            statuses = self._add_batch(RecordBatch.joined(batches), first)
        elif len(adds) == 1:
            return [first.answer(self._add_one(first))]
        else:
            batch = as_batch([add.record for add in adds if isinstance(add, Add)])
            statuses = self._add_batch(batch, first)
        bounds = pairwise(accumulate((add.count for add in adds), initial=0))
        return [
            answer
            for add, (start, stop) in zip(adds, bounds)
            for answer in add.answers(statuses[start:stop])
        ]

    def _add_one(self, add: Add) -> Status:
        try:
            self.bookie.add_entry(add.record, add.master_key, recovery=add.recovery, sync=False)
        except (BkstoreError, OSError) as error:
            return self._refusal(error, add.record, add.master_key)
        return Status.EOK

    def _add_batch(self, batch: RecordBatch, first: Add | AddMany) -> list[Status]:
        """Return the status of each record; those behind one that is refused are tried again."""
        statuses: list[Status] = [Status.EOK] * len(batch)
        waiting, rest = list(range(len(batch))), batch
        while waiting:
            stored, error = self._store(rest, first)
            waiting = waiting[stored:]
            if error is None or not waiting:
                break
            record = bytes(batch[waiting[0]])
            status = self._refusal(error, record, first.master_key)
            refused = waiting
            if status in _OF_A_LEDGER:
                ledger = _ledger_bytes(record)
                refused = [row for row in waiting if _ledger_bytes(bytes(batch[row])) == ledger]
            elif status is Status.EBADREQ:
                refused = waiting[:1]
            for row in refused:
                statuses[row] = status
            waiting = sorted(set(waiting).difference(refused))
            rest = as_batch([bytes(batch[row]) for row in waiting])
        return statuses

    def _store(
        self, batch: RecordBatch, first: Add | AddMany
    ) -> tuple[int, BkstoreError | OSError | None]:
        """Store a batch; return how many of its records are stored, and why not the next one."""
        try:
            self.bookie.add_batch(batch, first.master_key, recovery=first.recovery, sync=False)
        except (WriteFailed, IllegalOperation, OSError) as error:
            return 0, error  # a journal failed: none is acknowledged
        except BkstoreError as error:
            return error.stored or 0, error
        return len(batch), None

    def _refusal(self, error: BkstoreError | OSError, record: bytes, key: bytes) -> Status:
        """Return the answer to an add that was refused: whoever has another key learns no more.

        Limbo is no access here, as upstream.
        """
        try:
            self._check_key(record_header(record).ledger, key)
        except UnauthorizedAccess:
            return Status.EUA
        except (BkstoreError, OSError):
            pass  # the storage's error says what is wrong with it
        return Status.EUA if isinstance(error, DataUnknown) else error_status(error)

    def sync(self) -> Status:
        """Make durable all that was written; return the status of those who wait for it."""
        return _status_after(self.bookie.sync)


def _common_fields(operation: Operation) -> tuple[object, ...] | None:
    """Return what adds of one batch have in common, None of what is no add."""
    if not isinstance(operation, (Add, AddMany)):
        return None
    flags = operation.recovery, operation.urgent, operation.sync
    return type(operation), operation.master_key, *flags


def _ledger_bytes(record: bytes) -> bytes:
    """Return the bytes of a record that say its ledger."""
    return record[:17] if record[:1] >= b"\x80" else record[:8]


def _status_after(call: Callable[[], object]) -> Status:
    """Return EOK after a call, or the status of its error."""
    try:
        call()
    except (BkstoreError, OSError) as error:
        return error_status(error)
    return Status.EOK
