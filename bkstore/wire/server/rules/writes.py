"""A bookie's answers to requests that change something.

Sources: `WriteEntryProcessor`, `WriteEntryProcessorV3`, `WriteLacProcessorV3`,
`ForceLedgerProcessorV3`, and recorded conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

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
from bkstore.storage.ledgers.ledger_adds import make_batch
from bkstore.wire.server.requests.operations import (
    AddManyOperation,
    AddOperation,
    BatchReadOperation,
    EncodedResponse,
    ForceOperation,
    Operation,
    ReadOperation,
    WriteLacOperation,
)
from bkstore.wire.server.rules.reads import ReadRules, status_for_bookie_error
from bkstore.wire.status_codes import Status

_WHOLE_LEDGER_REFUSALS = (Status.EFENCED, Status.EUA)
"""Statuses that refuse all adds of the same ledger."""


class BookieRules(ReadRules):
    """Answers all operations from a bookie. As thread-safe as the bookie. With `read_only` set,
    explicit LACs and adds are refused, except adds of high priority. Fencing and forcing still
    work, as in a bookie whose disks are full."""

    def __init__(self, bookie: Bookie) -> None:
        super().__init__(bookie)
        self.read_only = False

    def write(self, operations: Sequence[Operation]) -> tuple[list[EncodedResponse], bool]:
        """Do the operations in order; return the answers, and whether they need a sync. If they do,
        what an EOK acknowledges is durable only after the next sync of the journals. Neighboring
        adds with the same master key, recovery, priority and sync are one batch."""
        answers: list[EncodedResponse] = []
        for fields_of_adds, group in groupby(operations, _common_fields):
            if fields_of_adds is not None:
                answers += self._add_all(list(group))
            else:
                answers += [self._write_one(operation) for operation in group]
        return answers, any(op.sync for op, status, _ in answers if status is Status.EOK)

    def _write_one(self, operation: Operation) -> EncodedResponse:
        """Return the answer to one operation that is no add, by its class: a write, or a read that
        fences."""
        if isinstance(operation, WriteLacOperation):
            return operation.answer(_status_after(lambda: self._write_lac(operation)))
        if isinstance(operation, ForceOperation):
            # An invalid ledger id raises. The caller syncs before the answer is sent.
            return operation.answer(_status_after(lambda: operation.ledger_id))
        if isinstance(operation, BatchReadOperation):
            return self._read_batch(operation)
        if isinstance(operation, ReadOperation):
            return self._read_entry(operation)
        raise TypeError(f"{operation.name} is not a write")

    def _write_lac(self, operation: WriteLacOperation) -> None:
        """Store an explicit LAC if the bookie is writable and the master key is right."""
        if self.read_only:
            raise ReadOnlyError("the bookie is read-only")
        ledger_id = operation.ledger_id
        self._check_master_key(ledger_id, operation.master_key)
        self.bookie.set_explicit_lac(ledger_id, operation.body, operation.master_key, sync=False)

    def _add_all(self, adds: Sequence[Operation]) -> list[EncodedResponse]:
        """Store the records of adds that `_common_fields` groups (one class, one master key, the
        same flags) as one batch. Return the answers: a refused add does not affect the others."""
        first = adds[0]
        assert isinstance(first, (AddOperation, AddManyOperation))
        if self.read_only and not first.high_priority:
            return [add.refuse(Status.EREADONLY) for add in adds]
        if isinstance(first, AddManyOperation):
            batches = [many.batch.framed() for many in adds if isinstance(many, AddManyOperation)]
            statuses = self._add_batch(RecordBatch.concatenate(batches), first)
        elif len(adds) == 1:
            return [first.answer(self._add_one(first))]
        else:
            batch = make_batch([add.record for add in adds if isinstance(add, AddOperation)])
            statuses = self._add_batch(batch, first)
        # an operation may have many adds: give it the statuses of its own
        answers: list[EncodedResponse] = []
        stop = 0
        for add in adds:
            start, stop = stop, stop + add.request_count
            answers += add.answer_each(statuses[start:stop])
        return answers

    def _add_one(self, add: AddOperation) -> Status:
        """Add one record without a sync; return the status."""
        try:
            self.bookie.add_entry(add.record, add.master_key, recovery=add.recovery, sync=False)
        except (BkstoreError, OSError) as error:
            return self._refusal_status(error, add.record, add.master_key)
        return Status.EOK

    def _add_batch(self, batch: RecordBatch, add: AddOperation | AddManyOperation) -> list[Status]:
        """Store records with the key and flags of `add`; return the status of each. The storage
        stops at the first that it refuses: later ones are tried again, except those that the same
        refusal covers. `pending_rows` are the rows without a status yet, `unstored` their batch."""
        statuses: list[Status] = [Status.EOK] * len(batch)
        pending_rows, unstored = list(range(len(batch))), batch
        while pending_rows:
            stored_count, error = self._store_batch(unstored, add)
            pending_rows = pending_rows[stored_count:]
            if error is None or not pending_rows:
                break
            record = bytes(batch[pending_rows[0]])
            status = self._refusal_status(error, record, add.master_key)
            # the refusal covers the records of its ledger, this one alone, or (a failed write) all
            refused_rows = pending_rows
            if status in _WHOLE_LEDGER_REFUSALS:
                ledger = _ledger_bytes(record)
                refused_rows = [r for r in pending_rows if _ledger_bytes(bytes(batch[r])) == ledger]
            elif status is Status.EBADREQ:
                refused_rows = pending_rows[:1]
            for row in refused_rows:
                statuses[row] = status
            pending_rows = sorted(set(pending_rows).difference(refused_rows))
            unstored = make_batch([bytes(batch[row]) for row in pending_rows])
        return statuses

    def _store_batch(
        self, batch: RecordBatch, add: AddOperation | AddManyOperation
    ) -> tuple[int, BkstoreError | OSError | None]:
        """Store a batch; return the number of records stored, and the error of the next one."""
        try:
            self.bookie.add_batch(batch, add.master_key, recovery=add.recovery, sync=False)
        except (WriteFailed, IllegalOperation, OSError) as error:
            return 0, error  # a journal failed: acknowledge none
        except BkstoreError as error:
            return error.stored or 0, error  # None: it was refused before any was stored
        return len(batch), None

    def _refusal_status(self, error: BkstoreError | OSError, record: bytes, key: bytes) -> Status:
        """Return the status of a refused add: EUA if the master key is wrong, so that the client
        learns nothing else, and, as in BookKeeper, if the ledger is in limbo (`DataUnknown`: it
        may have lost entries)."""
        try:
            self._check_master_key(record_header(record).ledger, key)
        except UnauthorizedAccess:
            return Status.EUA
        except (BkstoreError, OSError):
            pass  # the status of the storage's error is returned below
        return Status.EUA if isinstance(error, DataUnknown) else status_for_bookie_error(error)

    def sync(self) -> Status:
        """Sync the journals; return EOK, or the status for the answers that wait for the sync."""
        return _status_after(self.bookie.sync)


def _common_fields(operation: Operation) -> tuple[object, ...] | None:
    """Return the fields that all adds of one batch share, or None if it is not an add."""
    if not isinstance(operation, (AddOperation, AddManyOperation)):
        return None
    flags = operation.recovery, operation.high_priority, operation.sync
    return type(operation), operation.master_key, *flags


def _ledger_bytes(record: bytes) -> bytes:
    """Return the part of a record's header with its ledger. A record with a scope, whose first byte
    is 0x80 or more, has scope and ledger after that byte; others begin with the ledger."""
    return record[:17] if record[:1] >= b"\x80" else record[:8]


def _status_after(call: Callable[[], object]) -> Status:
    """Call a function; return EOK, or the status of the error that it raises."""
    try:
        call()
    except (BkstoreError, OSError) as error:
        return status_for_bookie_error(error)
    return Status.EOK
