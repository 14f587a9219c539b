"""LedgerWriter: appends entries to one ledger, and closes it.

One entry is in flight at a time; `append_many` sends many and then syncs once. An entry is appended
when A bookies (the ack quorum) have it durably. Source: `client/LedgerHandle`,
`client/PendingAddOp`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from threading import RLock

import numpy as np

from bkstore import forks
from bkstore.arguments import bytes_like as as_data
from bkstore.cluster.client.appends.pending_append import PendingAppend
from bkstore.cluster.client.appends.quorum_add import (
    QuorumAdd,
    add_segment,
    add_to_all,
    choose_replacement,
)
from bkstore.cluster.client.bookie_answers import describe_answers
from bkstore.cluster.client.ledger_access import LedgerAccess
from bkstore.errors import IllegalOperation, InvalidArgument, LedgerFenced, NotEnoughBookies
from bkstore.formats.entry import NO_ENTRY, V1_HEADER, V2_HEADER, Entry, RecordBatch
from bkstore.ids import Int64Array
from bkstore.ledger_metadata import LedgerMetadata

_ENTRIES_PER_SYNC = 256
"""Entries that `append_many` sends before the bookies sync."""


class LedgerWriter:
    """The only writer of an open ledger.

    `last_pushed` is the highest entry that was sent, `last_confirmed` the highest up to which all
    are stored, and `length` the payload bytes up to that one. If an append fails, it is unknown
    which bookies have the entry: `failure` is set to the error, and the writer accepts no more
    appends. Threads: calls run one at a time. Fork: closed in the child, but not the ledger.
    """

    def __init__(self, access: LedgerAccess) -> None:
        self.access = access
        self.last_pushed = NO_ENTRY
        self.last_confirmed = NO_ENTRY
        self.length = 0
        self.closed = False
        self.failure: BaseException | None = None
        self._pushed_length = 0
        """Payload bytes up to `last_pushed`."""
        self._has_unsynced = False
        """Whether entries were added without sync, and no `force` has succeeded since."""
        self._is_forked = False
        self._lock = RLock()
        forks.register(self)

    def _forked(self) -> None:
        """Close the writer in a child process: two writers would give one id to two entries."""
        self._lock = RLock()
        self.closed = self._is_forked = True

    # -- adding

    def append(self, data: bytes, sync: bool = True) -> int:
        """Add an entry, wait until A bookies have it, and return its id. Without `sync` they have
        it in memory only, and it is not confirmed, until `force`."""
        with self._lock:
            self._check_open()
            record = self._encode_record(
                self.last_pushed + 1, self._pushed_length + len(data), data
            )
            with self._failing_on_error():
                self._count_pushed(len(data))
                self._has_unsynced |= not sync
                self._add_to_quorum(self.last_pushed, record, sync)
                self._confirm_if_synced()
            return self.last_pushed

    def append_later(self, data: bytes) -> PendingAppend:
        """Add an entry; it is appended at return. See `LedgerHandle.append_later`."""
        return PendingAppend(self.append(self._check_payload(data)), writer=None)

    def flush(self) -> int:
        """Return the LAC; every append of this writer is complete at its return."""
        with self._lock:
            self._check_open()
            return self.last_confirmed

    def _check_payload(self, data: bytes) -> bytes:
        """Return the payload as bytes; raises `InvalidArgument` if its record would be too long."""
        payload = data if type(data) is bytes else as_data("data", data)
        header = V2_HEADER if self.access.ledger.scope else V1_HEADER
        self._check_record_size(header + self.access.coder.digest.size + len(payload))
        return payload

    def append_many(self, payloads: Iterable[bytes]) -> Int64Array:
        """Add entries, and return their ids, int64[n], once all are appended."""
        ids: list[int] = []
        source = iter(payloads)
        with self._lock:
            self._check_open()
            while batch := list(islice(source, _ENTRIES_PER_SYNC)):
                # The last entry goes apart: its record then has the LAC of single appends.
                for payload_group in (batch[:-1], batch[-1:]):
                    ids += self._append_batch(payload_group)
        return np.array(ids, np.int64)

    def _append_batch(self, payloads: Sequence[bytes]) -> list[int]:
        """Send entries in one batch with one sync; if that fails, add them one by one."""
        self._check_open()
        first_entry = self.last_pushed + 1
        batch = self._encode_records(first_entry, payloads)
        with self._failing_on_error():
            # After an append without sync, entries are sent one by one until `force`.
            is_stored = not self._has_unsynced and self._try_add_to_all(batch)
            for index, data in enumerate(payloads):
                self._count_pushed(len(data))
                if not is_stored:
                    self._add_to_quorum(first_entry + index, bytes(batch[index]), sync=True)
                self._confirm_if_synced()
        return list(range(first_entry, first_entry + len(batch)))

    def _encode_records(self, first: int, payloads: Sequence[bytes]) -> RecordBatch:
        """Return the records of payloads, as entries from `first` on, with the present LAC. Raises
        `InvalidArgument` if one is above the frame limit."""
        access, entries = self.access, np.arange(first, first + len(payloads))
        lacs, length = np.full(entries.size, self.last_confirmed), self._pushed_length
        batch = access.coder.encode_batch(access.ledger, entries, payloads, lac=lacs, length=length)
        if len(batch):
            self._check_record_size(int(batch.sizes.max()))
        return batch

    def _encode_record(self, entry_id: int, length: int, data: bytes) -> bytes:
        """Return the record of an entry; `length` is that of all payloads up to this one."""
        entry = Entry(self.access.ledger, entry_id, self.last_confirmed, length, data)
        record = self.access.coder.encode(entry)
        self._check_record_size(len(record))
        return record

    def _check_record_size(self, size: int) -> None:
        limit = self.access.context.options.max_frame
        if size > limit:
            raise InvalidArgument(f"record of {size} bytes exceeds the frame limit of {limit}")

    def _count_pushed(self, payload_size: int) -> None:
        self.last_pushed += 1
        self._pushed_length += payload_size

    def _confirm_if_synced(self) -> None:
        """Confirm every entry that was sent, unless some are not durable yet."""
        if not self._has_unsynced:
            self.last_confirmed, self.length = self.last_pushed, self._pushed_length

    def _try_add_to_all(self, batch: RecordBatch) -> bool:
        """Send a batch; return whether all W bookies of each entry stored it durably."""
        ensemble = self._require_unfenced(self.access.metadata).segments[-1].ensemble
        return add_to_all(self.access, batch, ensemble)

    def _add_to_quorum(self, entry_id: int, record: bytes, sync: bool) -> None:
        ensemble = self._require_unfenced(self.access.metadata).segments[-1].ensemble
        QuorumAdd(self.access, entry_id, record, ensemble, self._replace_failed, sync=sync).run()

    def _replace_failed(
        self, failed: Sequence[int], excluded: Collection[str]
    ) -> tuple[str, ...] | None:
        """Change the ensemble from the first unconfirmed entry on and return it, None for lack of
        bookies. Raises `NotEnoughBookies` if entries were added without sync, and `LedgerFenced` or
        `IllegalOperation` if another client took the ledger."""
        if self._has_unsynced:  # a new bookie would not get the unsynced entries of the failed one
            raise NotEnoughBookies(
                f"ledger {self.access.ledger}: {', '.join(sorted(excluded))} failed; with unsynced "
                "entries the ensemble cannot change"
            )
        current = self.access.metadata
        new_ensemble = choose_replacement(self.access, current, failed, excluded)
        if new_ensemble is None:
            return None

        def change(metadata: LedgerMetadata) -> LedgerMetadata:
            """Add the new ensemble's segment, unless another client has changed the last one."""
            if self._require_unfenced(metadata).segments[-1] != current.segments[-1]:
                message = f"ledger {metadata.ledger}: another client changed its ensemble"
                raise IllegalOperation(message)
            return add_segment(metadata, self.last_confirmed + 1, new_ensemble)

        self.access.update(change)
        return new_ensemble

    def _require_unfenced(self, metadata: LedgerMetadata) -> LedgerMetadata:
        """Return the metadata if no other client took the ledger, else raise `LedgerFenced`."""
        if metadata.state != "OPEN":
            raise LedgerFenced(f"ledger {metadata.ledger} is {metadata.state} by another client")
        return metadata

    # -- durable, explicit LAC, close

    def force(self) -> int:
        """Make entries durable that were added without sync; return the LAC, which covers them."""
        with self._lock:
            self._check_open()
            ledger = self.access.ledger
            ensemble = self._require_unfenced(self.access.metadata).segments[-1].ensemble
            # A call for each bookie, which `call_bookies` makes with the bookie's client.
            requests = ((bookie, lambda client: client.force(ledger)) for bookie in ensemble)
            with self._failing_on_error():  # a bookie that did not respond may have lost entries
                answers = list(self.access.call_bookies(requests))
                if any(answer.error is not None for answer in answers):
                    described = describe_answers(answers)
                    raise NotEnoughBookies(f"ledger {ledger}: not every bookie synced: {described}")
            self._has_unsynced = False
            self._confirm_if_synced()
            return self.last_confirmed

    def write_explicit_lac(self) -> int:
        """Send the LAC to the write set of the last entry, for readers that follow; return it.
        Raises `NotEnoughBookies` if fewer than A bookies stored it."""
        with self._lock:
            self._check_open()
            access, lac = self.access, self.last_confirmed
            body = access.encode_lac(lac)
            ensemble = self._require_unfenced(access.metadata).segments[-1].ensemble
            answers = list(
                access.call_bookies(
                    (bookie, lambda client: client.write_lac(access.ledger, body, access.key))
                    # to the write set of the entry at the LAC; without an entry, to that of 0
                    for bookie in access.write_set_of(max(lac, 0), ensemble)
                )
            )
            ack_count = sum(answer.error is None for answer in answers)
            if ack_count < access.metadata.ack_quorum_size:
                raise NotEnoughBookies(
                    f"ledger {access.ledger}: {ack_count} of {access.metadata.ack_quorum_size} "
                    f"bookies acknowledged the explicit LAC: {describe_answers(answers)}"
                )
            return lac

    def close(self) -> None:
        """Set state, last entry and length in the metadata, once all entries are durable.
        Idempotent."""
        with self._lock:
            if self.closed:
                return
            if self._has_unsynced and self.failure is None:
                self.force()
            self.access.update(self._close_metadata)
            self.closed = True

    def _close_metadata(self, metadata: LedgerMetadata) -> LedgerMetadata | None:
        """Return the closed metadata, None if they are closed with the same end already. Raises
        `LedgerFenced` if another client has closed the ledger with another end, or recovers it."""
        last, length = self.last_confirmed, self.length
        if metadata.closed and (last, length) == (metadata.last_entry_id, metadata.length):
            return None
        self._require_unfenced(metadata)
        return replace(metadata, state="CLOSED", last_entry_id=last, length=length)

    # -- state

    def _check_open(self) -> None:
        """Raise unless this writer can append: open, not forked, and no append has failed."""
        if self._is_forked:
            raise forks.closed_error(f"the writer of ledger {self.access.ledger}")
        if self.closed:
            raise IllegalOperation(f"ledger {self.access.ledger} has been closed by this handle")
        if self.failure is not None:
            is_fenced = isinstance(self.failure, LedgerFenced)
            message = f"ledger {self.access.ledger}: this writer failed with {self.failure!r}"
            raise LedgerFenced(message) if is_fenced else IllegalOperation(message)

    @contextmanager
    def _failing_on_error(self) -> Iterator[None]:
        """Fail the writer if the ``with`` block raises: keep the first such error in `failure`,
        because of which `_check_open` refuses all later appends."""
        try:
            yield
        except BaseException as error:
            self.failure = self.failure or error
            raise
