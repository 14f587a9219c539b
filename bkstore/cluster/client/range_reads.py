"""Read consecutive entries from all their bookies at once, in order, with bounded memory.

A range is cut into chunks, a chunk into shares: a share is read from one bookie, and entries that
it lacks from the next of the write set. A chunk's shares are requested together, while the one
before is yielded; if every bookie has every entry (E = W), by batch reads. BookKeeper sends all
reads at once, singly: `client/LedgerHandle.asyncReadEntriesInternal`, `client/PendingReadOp`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from bkstore.cluster.client.batch_reads import BatchReader
from bkstore.cluster.client.bookie_client import BookieClient
from bkstore.cluster.client.ledger_access import LedgerAccess
from bkstore.cluster.client.many_entries import ManyEntries, read_entries_from, verify_batch
from bkstore.errors import BookieUnavailable, IllegalOperation
from bkstore.formats.entry import Entry

_MAX_SHARE_ENTRIES = 512
SHARE_BYTES = 1 << 20
"""About how much one bookie is asked for at a time."""

_MIN_SHARE_ENTRIES = 64
"""Smaller shares are not split; also the size of the first shares."""

_RECORD_OVERHEAD = 64
"""Bytes that a record and its frame add to a payload: header, digest, size."""

_MAX_CHUNKS_AHEAD = 2
_SINGLE_READ_SECONDS = 30.0
"""How long single reads are sent after no response to a batch read: support may be missing."""


class _Share(NamedTuple):
    """Entries that are on the same bookies; `bookies` are in the order in which to ask them."""

    entries: range
    bookies: tuple[str, ...]


class _Chunk(NamedTuple):
    """Consecutive entries, their shares, and the results of the shares in the same order."""

    entries: range
    shares: list[_Share]
    answers: Iterator[ManyEntries]


class RangeReader:
    """Reads ranges of one handle's ledger. Threads: use each `scan` in one thread. Memory: two
    shares a bookie, of about 1 MiB or 16 larger entries, or 256 if small ones came before."""

    def __init__(self, access: LedgerAccess, batch_reader: BatchReader) -> None:
        self._access = access
        self._batches = batch_reader
        self._single_reads_until: dict[str, float] = {}
        """Bookies that get single reads only, and until when."""

    def scan(self, first: int, last: int) -> Iterator[Entry]:
        """Yield the entries first..last in order. At an entry that no replica has, raises as
        `LedgerAccess.read`, after the entries before it were yielded."""
        ahead: deque[_Chunk] = deque()
        unresponsive: set[str] = set()
        next_entry, chunk_number, share_entries = first, 0, _MIN_SHARE_ENTRIES
        while next_entry <= last or ahead:
            # Keep requests in flight for the chunks after the one that is yielded.
            while next_entry <= last and len(ahead) < _MAX_CHUNKS_AHEAD:
                unread = range(next_entry, last + 1)
                chunk = self._request_chunk(unread, share_entries, chunk_number, unresponsive)
                ahead.append(chunk)
                next_entry, chunk_number = chunk.entries.stop, chunk_number + 1
            largest_payload = 0
            for entry in self._yield_chunk(ahead.popleft(), unresponsive):
                largest_payload = max(largest_payload, len(entry.payload))
                yield entry
            # Fit the next shares to the size of the entries that were just read.
            record_bytes = largest_payload + _RECORD_OVERHEAD
            share_entries = max(1, min(_MAX_SHARE_ENTRIES, SHARE_BYTES // record_bytes))

    def _yield_chunk(self, chunk: _Chunk, unresponsive: set[str]) -> Iterator[Entry]:
        """Yield the entries of a chunk in order. Those that its shares did not return are requested
        again, or read singly."""
        entries_by_id: dict[int, Entry] = {}
        failed: set[int] = set()
        for answers in chunk.answers:
            entries_by_id |= answers.entries
            failed |= answers.errors.keys()
        for entry in chunk.entries:
            if chunk.shares and entry not in entries_by_id and entry not in failed:
                # Neither read nor failed: the share reached its byte limit before this entry.
                (share,) = (share for share in chunk.shares if entry in share.entries)
                unread = share.entries[share.entries.index(entry) :]
                answers = self._read_share(unresponsive, _Share(unread, share.bookies))
                entries_by_id |= answers.entries
                failed |= answers.errors.keys()
            entry_read = entries_by_id.pop(entry, None)
            # No bookie of a share had it, or there are no shares: read it by the newest metadata.
            yield entry_read if entry_read is not None else self._access.read(entry)

    # -- cutting a range into chunks and shares

    def _request_chunk(
        self, unread: range, share_entries: int, chunk_number: int, unresponsive: set[str]
    ) -> _Chunk:
        """Request a chunk, the first of the unread entries: from each bookie of the ensemble at
        most a share of about `share_entries`. It ends where the next segment begins."""
        metadata = self._access.metadata
        # Stop at the next segment, which has another ensemble.
        segment_starts = (segment.first_entry for segment in metadata.segments)
        end = min((start for start in segment_starts if start > unread.start), default=unread.stop)
        unread = unread[: end - unread.start]
        ensemble = metadata.ensemble_at(unread.start)
        if metadata.write_quorum_size < len(ensemble):
            shares = self._striped_shares(unread[: share_entries * len(ensemble)], ensemble)
        else:
            shares = _mirrored_shares(unread, ensemble, share_entries, chunk_number)
        entries = unread[: sum(len(share.entries) for share in shares)]
        if len(entries) == 1:  # `_yield_chunk` reads it as a single entry
            return _Chunk(entries, [], iter(()))
        answers = self._access.map(partial(self._read_share, unresponsive), shares)
        return _Chunk(entries, shares, answers)

    def _striped_shares(self, entries: range, ensemble: Sequence[str]) -> list[_Share]:
        """Return one share for each write set: every E-th entry has the same bookies."""
        size = len(ensemble)
        return [
            _Share(entries[index::size], tuple(self._access.write_set_of(first_entry, ensemble)))
            for index, first_entry in enumerate(entries[:size])
        ]

    # -- one share, in a thread of the workers

    def _read_share(self, unresponsive: set[str], share: _Share) -> ManyEntries:
        """Ask the bookies of a share in turn, unresponsive ones last; the errors in the result
        are those of entries that none of them has."""
        answers = ManyEntries({}, {})
        unread: Sequence[int] = share.entries
        for index, bookie in enumerate(sorted(share.bookies, key=unresponsive.__contains__)):
            answers.errors.clear()
            # Batch reads need consecutive entries; those that the first bookie lacks may be any.
            if index == 0 and self._may_batch(bookie):
                unread = self._read_in_batches(bookie, share.entries, answers)
            result = read_entries_from(self._access, bookie, unread, SHARE_BYTES)
            answers.entries.update(result.entries)
            answers.errors.update(result.errors)
            if any(isinstance(error, BookieUnavailable) for error in answers.errors.values()):
                unresponsive.add(bookie)
            unread = sorted(answers.errors)
            if not unread:
                break
        return answers

    def _may_batch(self, bookie: str) -> bool:
        single_reads_only = time.monotonic() < self._single_reads_until.get(bookie, 0.0)
        return not single_reads_only and self._batches.unsupported_reason() is None

    def _read_in_batches(self, bookie: str, entries: range, answers: ManyEntries) -> Sequence[int]:
        """Read entries into `answers` by batch reads; return those to request by single reads: the
        unread ones, but none after the byte limit or if the bookie does not respond."""
        next_entry = entries.start

        def read(client: BookieClient) -> None:
            """Read on by batches, until the share is complete or the byte limit is reached."""
            nonlocal next_entry
            received_bytes = 0
            if not client.batch_reads:
                raise IllegalOperation(f"{bookie} does not support batch reads")
            while next_entry < entries.stop and received_bytes < SHARE_BYTES:
                max_count, max_size = entries.stop - next_entry, SHARE_BYTES - received_bytes
                batch = client.read_entries(self._access.ledger, next_entry, max_count, max_size)
                verify_batch(self._access, batch, answers)
                next_entry += len(batch)
                received_bytes += int(batch.sizes.sum())

        error = self._access.call_bookie(bookie, read).error
        if error is None:
            return ()
        # It does not support them, or does not respond: try no batch read for some time.
        if isinstance(error, (IllegalOperation, BookieUnavailable)):
            self._single_reads_until[bookie] = time.monotonic() + _SINGLE_READ_SECONDS
        unread = entries[next_entry - entries.start :]
        if isinstance(error, BookieUnavailable):
            answers.errors.update(dict.fromkeys(unread, error))
            return ()
        return unread


def _mirrored_shares(
    entries: range, ensemble: Sequence[str], max_share_entries: int, chunk_number: int
) -> list[_Share]:
    """Split entries that every bookie has into shares, each with another bookie to ask first."""
    # One share for each bookie (with one bookie two), but fewer rather than very small ones. Both
    # divisions round up.
    share_count = min(max(len(ensemble), 2), -(-len(entries) // _MIN_SHARE_ENTRIES))
    per_share = min(max_share_entries, -(-len(entries) // share_count))
    shares = []
    for index, start in enumerate(range(0, min(len(entries), share_count * per_share), per_share)):
        # Each chunk begins with another bookie, so that all get as many requests.
        first = (chunk_number + index) % len(ensemble)
        bookies = (*ensemble[first:], *ensemble[:first])
        shares.append(_Share(entries[start : start + per_share], bookies))
    return shares
