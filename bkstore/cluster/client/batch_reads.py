"""Batch reads of a client, as BP-62 defines them; `docs/batch-reads.md` lists the fallbacks.

A bookie is asked for consecutive entries, then the next replica if it lacks the first of them. The
result may be shorter than requested, but never wrong or empty. Source:
`client/LedgerHandle.batchReadEntries*`, `client/BatchedReadOp`.
"""

from __future__ import annotations

from bkstore.cluster.client.bookie_answers import BookieAnswer, combine_errors, describe_answers
from bkstore.cluster.client.bookie_client import BookieClient
from bkstore.cluster.client.ledger_access import LedgerAccess
from bkstore.errors import (
    BkstoreError,
    BookieUnavailable,
    CorruptionError,
    IllegalOperation,
    InvalidArgument,
)
from bkstore.formats.entry import V1_HEADER, V2_HEADER, Entry, RecordBatch
from bkstore.ids import MAX_ENTRY_ID, check_entry_id
from bkstore.storage.batch_limits import FRAME_OVERHEAD, RECORD_OVERHEAD, check_limits


class BatchReader:
    """Batch reads of one handle; it remembers when a bookie does not support them. `last` is the
    highest entry that may be read, None for no bound. Thread-safe."""

    def __init__(self, access: LedgerAccess) -> None:
        self.access = access
        self.bookie_refusal: str | None = None
        """Why single reads are used: the response of a bookie without batch reads, or None."""

    def unsupported_reason(self) -> str | None:
        """Return why this ledger cannot be read in batches, None if it can."""
        metadata = self.access.metadata
        ensemble_size, write_quorum = metadata.ensemble_size, metadata.write_quorum_size
        if ensemble_size != write_quorum:
            return (
                f"the ledger is striped: {write_quorum} of {ensemble_size} bookies have an entry; "
                "read and scan take single entries"
            )
        if not self.access.context.options.batch_reads:
            return "batch reads are disabled"
        return self.bookie_refusal  # of an earlier batch read, None if there was none

    def read(
        self, start: int, max_count: int, max_size: int, last: int | None, *, fence: bool
    ) -> list[Entry]:
        """Return entries from `start` to at most `last` (None: no bound), by one request: at most
        `max_count` entries and about `max_size` bytes (0: no limit), and at least one entry. With
        `fence` the bookie that answers fences the ledger."""
        self._check_arguments(start, max_count, max_size, last)
        reason = self.unsupported_reason()
        if reason is not None:
            message = f"cannot read in batches from ledger {self.access.ledger}: {reason}"
            raise IllegalOperation(message)
        count = _limit_count(start, max_count, last)
        return self._read_batch(start, count, self._size_limit(max_size), fence)

    def read_with_fallback(
        self, start: int, max_count: int, max_size: int, last: int | None, *, fence: bool
    ) -> list[Entry]:
        """Return entries as `read` does, by single reads if batch reads are not possible."""
        self._check_arguments(start, max_count, max_size, last)
        if self.unsupported_reason() is None:
            count = _limit_count(start, max_count, last)
            try:
                return self._read_batch(start, count, self._size_limit(max_size), fence)
            except BkstoreError:
                if self.bookie_refusal is None:  # set if a bookie does not support batch reads
                    raise
        if self.access.context.options.compat is not None:
            return self._read_singly_as_bookkeeper(start, max_count, last, fence)
        return self._read_singly(start, max_count, self._size_limit(max_size), last, fence)

    def _check_arguments(self, start: int, max_count: int, max_size: int, last: int | None) -> None:
        check_entry_id(start)
        check_limits(max_count, max_size)
        if last is not None and start > last:
            message = f"entry {start} of ledger {self.access.ledger} is beyond the LAC, {last}"
            raise InvalidArgument(message)

    def _size_limit(self, max_size: int) -> int:
        max_frame = self.access.context.options.max_frame
        return min(max_size, max_frame) if max_size else max_frame

    # -- in one request

    def _read_batch(self, start: int, count: int, max_size: int, fence: bool) -> list[Entry]:
        """Ask the replicas of `start` in turn; return the entries of the first that has it."""

        def read_from_first(replicas: list[str]) -> list[Entry]:
            """Return the batch of the first replica that answers; raises with all answers
            otherwise."""
            answers: list[BookieAnswer[list[Entry]]] = []
            for bookie in replicas:
                answer = self.access.call_bookie(
                    bookie,
                    lambda client: self._read_batch_from(client, start, count, max_size, fence),
                )
                if answer.value is not None:
                    return answer.value
                answers.append(answer)
            raise self._batch_error(start, answers)

        return self.access.call_with_replicas(start, read_from_first)

    def _read_batch_from(
        self, client: BookieClient, start: int, count: int, max_size: int, fence: bool
    ) -> list[Entry]:
        """Send one batch read; return its verified entries."""
        if not client.batch_reads:
            raise IllegalOperation(f"{client.bookie_id} does not support batch reads")
        ledger, key = self.access.ledger, self.access.key if fence else None
        batch = client.read_entries(ledger, start, count, max_size, fence=fence, master_key=key)
        return self._verify_batch(batch, start, count)

    def _verify_batch(self, batch: RecordBatch, start: int, count: int) -> list[Entry]:
        """Return the entries before the first damaged record; raises if that is the first one."""
        entries: list[Entry] = []
        for record in batch.first(count) if count else batch:
            try:
                entries.append(self.access.verify_record(record, start + len(entries)))
            except CorruptionError:
                if not entries:
                    raise
                break
        if not entries:
            raise CorruptionError(None, None, f"the batch from entry {start} is empty")
        return entries

    def _batch_error(self, start: int, answers: list[BookieAnswer[list[Entry]]]) -> BkstoreError:
        """Return the error to raise if no bookie returned entries. Sets `bookie_refusal` if one has
        no batch reads, with `compat` also if it is down: BookKeeper does not distinguish these."""
        request = f"batch from entry {start} of ledger {self.access.ledger}"
        error_types: tuple[type[BkstoreError], ...] = (IllegalOperation,)
        if self.access.context.options.compat is not None:
            error_types = (IllegalOperation, BookieUnavailable)
        if any(isinstance(answer.error, error_types) for answer in answers):
            described = describe_answers(answers)
            self.bookie_refusal = f"a bookie does not support batch reads ({described})"
            return IllegalOperation(f"{request}: {described}")
        return combine_errors(request, answers)

    # -- one by one

    def _read_singly(
        self, start: int, max_count: int, max_size: int, last: int | None, fence: bool
    ) -> list[Entry]:
        """Return what a batch would: up to a gap, damage, the count, or the size in a response."""
        entries = [self.access.read(start, fence=fence)]
        frame_size = FRAME_OVERHEAD + self._framed_size(entries[0])
        count = _limit_count(start, max_count, last)
        while not count or len(entries) < count:
            if start + len(entries) > MAX_ENTRY_ID:
                break
            try:
                entry = self.access.read(start + len(entries), fence=fence)
            except BkstoreError:  # the entries so far are a valid result; the next call raises it
                break
            frame_size += self._framed_size(entry)
            if frame_size > max_size:
                break
            entries.append(entry)
        return entries

    def _framed_size(self, entry: Entry) -> int:
        """Return the size of an entry's record within a batch response."""
        header = V2_HEADER if self.access.ledger.scope else V1_HEADER
        return RECORD_OVERHEAD + header + self.access.coder.digest.size + len(entry.payload)

    def _read_singly_as_bookkeeper(
        self, start: int, max_count: int, last: int | None, fence: bool
    ) -> list[Entry]:
        """Read start .. start + max_count - 1, whatever the size; count 0 returns nothing."""
        end = start + max_count - 1 if last is None else min(start + max_count - 1, last)
        return [self.access.read(entry, fence=fence) for entry in range(start, end + 1)]


def _limit_count(start: int, max_count: int, last: int | None) -> int:
    """Return `max_count` limited to the entries up to `last`; 0 means any number."""
    if last is None:
        return max_count
    available = last - start + 1
    return min(max_count, available) if max_count else available
