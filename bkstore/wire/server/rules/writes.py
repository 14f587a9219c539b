"""What a bookie answers to requests that change something.

Sources: `WriteEntryProcessor`, `WriteEntryProcessorV3`, `WriteLacProcessorV3`,
`ForceLedgerProcessorV3`, and recorded conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np

from bkstore.errors import (
    BkstoreError,
    DataUnknown,
    IllegalOperation,
    InvalidArgument,
    LedgerFenced,
    ReadOnlyError,
    UnauthorizedAccess,
    WriteFailed,
)
from bkstore.formats.entry import RecordBatch, record_header
from bkstore.ids import LedgerId
from bkstore.storage.bookie import Bookie
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
from bkstore.wire.server.rules.reads import Reads
from bkstore.wire.server.rules.statuses import add_status, status_after
from bkstore.wire.status import Status


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
        waits = False
        at = 0
        while at < len(operations):
            first, end = operations[at], at + 1
            if isinstance(first, Add):
                end = _alike(operations, at)
                done = self._add_all([add for add in operations[at:end] if isinstance(add, Add)])
                durable = not first.sync
            elif isinstance(first, AddMany):
                end = _alike(operations, at)
                many = [adds for adds in operations[at:end] if isinstance(adds, AddMany)]
                done, durable = self._add_many(many), False
            else:
                done = [self._write_one(first)]
                durable = not isinstance(first, (WriteLac, Force))
            waits |= not durable and any(answer.status is Status.EOK for answer in done)
            answers += done
            at = end
        return answers, waits

    def _write_one(self, operation: Operation) -> Answer:
        if isinstance(operation, WriteLac):
            return operation.answer(status_after(lambda: self._write_lac(operation)))
        if isinstance(operation, Force):
            return operation.answer(status_after(lambda: operation.ledger))
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
        heads = [_head(add.record) for add in adds]
        samples = {head: add.record for head, add in zip(heads, adds)}
        ledgers: dict[Hashable, LedgerId | None] = {
            head: _ledger_of(record) for head, record in samples.items()
        }

        def store(waiting: list[int]) -> None:
            key, recovery = first.master_key, first.recovery
            records = [adds[at].record for at in waiting]
            if len(records) == 1:
                self.bookie.add_entry(records[0], key, recovery=recovery, sync=False)
            else:
                self.bookie.add_entries(records, key, recovery=recovery, sync=False)

        statuses = self._statuses(first, heads, ledgers, store)
        return [add.answer(status) for add, status in zip(adds, statuses)]

    def _add_many(self, many: Sequence[AddMany]) -> list[Answer]:
        """Likewise, of records that stand in buffers."""
        first = many[0]
        heads = [head for adds in many for head in adds.ledgers.tolist()]
        ledgers: dict[Hashable, LedgerId | None] = {head: LedgerId.of(head) for head in set(heads)}
        whole = RecordBatch.joined([adds.batch.framed() for adds in many])

        def store(waiting: list[int]) -> None:
            some = len(waiting) < len(heads)
            batch = whole.at(np.array(waiting, np.int64)) if some else whole
            self.bookie.add_batch(batch, first.master_key, recovery=first.recovery, sync=False)

        statuses = self._statuses(first, heads, ledgers, store)
        bounds = pairwise(accumulate((adds.count for adds in many), initial=0))
        return [
            answer
            for adds, (start, stop) in zip(many, bounds)
            for answer in adds.answers(statuses[start:stop])
        ]

    def _statuses(
        self,
        first: Add | AddMany,
        heads: Sequence[Hashable],
        ledgers: Mapping[Hashable, LedgerId | None],
        store: Callable[[list[int]], None],
    ) -> list[Status]:
        """Return the status of each of the adds; `store` takes those of these places, in order."""
        if self.read_only and not first.urgent:
            return [Status.EREADONLY] * len(heads)
        refused = self._foreign(ledgers, first.master_key)
        statuses: list[Status] = [Status.EOK] * len(heads)
        waiting = list(range(len(heads)))
        if refused:
            statuses = [refused.get(head, Status.EOK) for head in heads]
            waiting = [at for at, head in enumerate(heads) if head not in refused]
        while waiting:
            stored, error = _stored(store, waiting)
            waiting = waiting[stored:]
            if error is None or not waiting:
                break
            status = add_status(error)
            rest = _concerned(error, waiting, heads)
            for at in rest:
                statuses[at] = status
            waiting = [at for at in waiting if at not in rest]
        return statuses

    def _foreign(
        self, ledgers: Mapping[Hashable, LedgerId | None], key: bytes
    ) -> dict[Hashable, Status]:
        """Return which ledgers have another key than adds say; None are those of no record."""
        found: dict[Hashable, Status] = {}
        for head, ledger in ledgers.items():
            try:
                if ledger is not None:
                    self._check_key(ledger, key)
            except UnauthorizedAccess:
                found[head] = Status.EUA
            except (BkstoreError, OSError):
                continue  # the storage says what is wrong with it
        return found

    def sync(self) -> Status:
        """Make durable all that was written; return the status of those who wait for it."""
        return status_after(lambda: [journal.sync() for journal in self.bookie.journals])


def _stored(
    store: Callable[[list[int]], None], waiting: list[int]
) -> tuple[int, BkstoreError | OSError | None]:
    """Store what waits; return how many records are stored, and why not the next one."""
    try:
        store(waiting)
    except (WriteFailed, IllegalOperation, OSError) as error:
        return 0, error  # a journal failed: none is acknowledged
    except BkstoreError as error:
        return error.stored or 0, error
    return len(waiting), None


def _alike(operations: Sequence[Operation], at: int) -> int:
    """Return the end of the adds that can be one batch with the one at a place."""
    wanted = _setting(operations[at])
    for end in range(at + 1, len(operations)):
        if _setting(operations[end]) != wanted:
            return end
    return len(operations)


def _setting(operation: Operation) -> tuple[object, ...] | None:
    """Return what adds of one batch have in common, None of what is no add."""
    if not isinstance(operation, (Add, AddMany)):
        return None
    sync = isinstance(operation, AddMany) or operation.sync
    flags = operation.recovery, operation.urgent
    return type(operation), operation.master_key, sync, *flags


def _head(record: bytes) -> bytes:
    """Return the bytes of a record that say its ledger."""
    return record[:17] if record[:1] >= b"\x80" else record[:8]


def _ledger_of(record: bytes) -> LedgerId | None:
    """Return the ledger of a record, None where it is none."""
    try:
        return record_header(record).ledger
    except BkstoreError:
        return None  # the storage says what is wrong with it


def _concerned(
    error: BkstoreError | OSError, waiting: list[int], heads: Sequence[Hashable]
) -> set[int]:
    """Return which adds, of those that wait, an error is about; the first one always is."""
    if isinstance(error, (LedgerFenced, UnauthorizedAccess, DataUnknown)):
        return {at for at in waiting if heads[at] == heads[waiting[0]]}
    return {waiting[0]} if isinstance(error, InvalidArgument) else set(waiting)
