"""Batch reads by a client, as BP-62 has them: `docs/batch-reads.md` says what falls back when.

One bookie is asked for a run of entries, the next replica if it has not even the first one. The
answer may be shorter than what was asked for; it is never wrong and never empty. Source:
`client/LedgerHandle.batchReadEntries*`, `client/BatchedReadOp`.
"""

from __future__ import annotations

from bkstore.cluster.client.bookie_answers import Answer, told, verdict
from bkstore.cluster.client.bookie_client import BookieClient
from bkstore.cluster.client.open_ledger import LedgerAccess
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
    """Batch reads of one handle, which remembers that a bookie did not know them.

    `last` in the calls is the highest entry that may be read, None for no bound. Threads: safe.
    """

    def __init__(self, access: LedgerAccess) -> None:
        self.access = access
        self.unsupported: str | None = None
        """What a bookie said that did not know batch reads; single reads since then."""

    def cannot(self) -> str | None:
        """Return why this ledger cannot be read in batches, None if it can."""
        access = self.access
        size, quorum = access.metadata.ensemble_size, access.metadata.write_quorum_size
        if size != quorum:
            return f"it is striped: {quorum} of {size} bookies have an entry"
        if not access.context.options.batch_reads:
            return "batch reads are switched off"
        return self.unsupported

    def read(
        self, start: int, max_count: int, max_size: int, last: int | None, *, fence: bool
    ) -> list[Entry]:
        """Return entries from `start` on; see `LedgerHandle.read_batch`."""
        self._check(start, max_count, max_size, last)
        why = self.cannot()
        if why is not None:
            raise IllegalOperation(f"no batch read of ledger {self.access.ledger}: {why}")
        return self._batch(start, _bounded(start, max_count, last), self._size(max_size), fence)

    def read_with_fallback(
        self, start: int, max_count: int, max_size: int, last: int | None, *, fence: bool
    ) -> list[Entry]:
        """Return the same by single reads, where a batch read is impossible."""
        self._check(start, max_count, max_size, last)
        if self.cannot() is None:
            count = _bounded(start, max_count, last)
            try:
                return self._batch(start, count, self._size(max_size), fence)
            except BkstoreError:
                if self.unsupported is None:
                    raise
        if self.access.context.options.compat is not None:
            return self._one_by_one_as_upstream(start, max_count, last, fence)
        return self._one_by_one(start, max_count, self._size(max_size), last, fence)

    def _check(self, start: int, max_count: int, max_size: int, last: int | None) -> None:
        check_entry_id(start)
        check_limits(max_count, max_size)
        if last is not None and start > last:
            raise InvalidArgument(
                f"entry {start} of ledger {self.access.ledger} is beyond the LAC, {last}"
            )

    def _size(self, max_size: int) -> int:
        limit = self.access.context.options.max_frame
        return min(max_size, limit) if max_size else limit

    # -- in one request

    def _batch(self, start: int, count: int, size: int, fence: bool) -> list[Entry]:
        """Ask the replicas of `start` in turn; the first that has it answers."""

        def first(replicas: list[str]) -> list[Entry]:
            answers: list[Answer[list[Entry]]] = []
            for bookie in replicas:
                answer = self.access.ask(
                    bookie, lambda client: self._asked(client, start, count, size, fence)
                )
                if answer.value is not None:
                    return answer.value
                answers.append(answer)
            raise self._failed(start, answers)

        return self.access.with_replicas(start, first)

    def _asked(
        self, client: BookieClient, start: int, count: int, size: int, fence: bool
    ) -> list[Entry]:
        if not client.batch_reads:
            raise IllegalOperation(f"{client.bookie_id} does not know batch reads")
        key = self.access.key if fence else None
        batch = client.read_entries(
            self.access.ledger, start, count, size, fence=fence, master_key=key
        )
        return self._verified(batch, start, count)

    def _verified(self, batch: RecordBatch, start: int, count: int) -> list[Entry]:
        """Return the records up to the first that is damaged, which raises if it is the first."""
        found: list[Entry] = []
        for record in batch.first(count) if count else batch:
            try:
                found.append(self.access.verified(record, start + len(found)))
            except CorruptionError:
                if not found:
                    raise
                break
        if not found:
            raise CorruptionError(None, None, f"an empty batch for entry {start}")
        return found

    def _failed(self, start: int, answers: list[Answer[list[Entry]]]) -> BkstoreError:
        """Return the error for answers without entries; note a bookie without batch reads.

        Upstream's client cannot tell such a bookie from one that is down, and notes both.
        """
        what = f"batch from entry {start} of ledger {self.access.ledger}"
        kinds: tuple[type[BkstoreError], ...] = (IllegalOperation,)
        if self.access.context.options.compat is not None:
            kinds = (IllegalOperation, BookieUnavailable)
        if any(isinstance(answer.error, kinds) for answer in answers):
            self.unsupported = f"a bookie did not know batch reads ({told(answers)})"
            return IllegalOperation(f"{what}: {told(answers)}")
        return verdict(what, answers)

    # -- one by one

    def _one_by_one(
        self, start: int, max_count: int, size: int, last: int | None, fence: bool
    ) -> list[Entry]:
        """Read singly what a batch would have: up to a gap or damage, count or size.

        A record counts with the size that it has in an answer.
        """
        found = [self.access.read(start, fence=fence)]
        frame = FRAME_OVERHEAD + self._framed(found[0])
        count = _bounded(start, max_count, last)
        while not count or len(found) < count:
            if start + len(found) > MAX_ENTRY_ID:
                break
            try:
                entry = self.access.read(start + len(found), fence=fence)
            except BkstoreError:  # what is here already is a good answer; the next call tells
                break
            frame += self._framed(entry)
            if frame > size:
                break
            found.append(entry)
        return found

    def _framed(self, entry: Entry) -> int:
        header = V2_HEADER if self.access.ledger.scope else V1_HEADER
        return RECORD_OVERHEAD + header + self.access.coder.digest.size + len(entry.payload)

    def _one_by_one_as_upstream(
        self, start: int, max_count: int, last: int | None, fence: bool
    ) -> list[Entry]:
        """Read start .. start + max_count - 1, whatever the size; count 0 gives nothing."""
        end = start + max_count - 1 if last is None else min(start + max_count - 1, last)
        return [self.access.read(entry, fence=fence) for entry in range(start, end + 1)]


def _bounded(start: int, max_count: int, last: int | None) -> int:
    """Return how many entries may come, 0 for any number."""
    if last is None:
        return max_count
    left = last - start + 1
    return min(max_count, left) if max_count else left
