"""Read many entries from one bookie: the verified entries, and an error for each other one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

from bkstore.cluster.client.bookie_client import BookieClient, BulkReader
from bkstore.cluster.client.ledger_access import LedgerAccess
from bkstore.errors import BkstoreError, BookieUnavailable
from bkstore.formats.entry import Entry, RecordBatch

_FIRST_CALL_ENTRIES, _MAX_CALL_ENTRIES = 16, 256
"""Entries of one call: few in the first one, as their sizes are not known yet."""


class ManyEntries(NamedTuple):
    """One bookie's entries by id, verified, and an error for each entry that failed; one in neither
    was not requested, because the byte limit was reached before."""

    entries: dict[int, Entry]
    errors: dict[int, BkstoreError]


def read_entries_from(
    access: LedgerAccess,
    bookie: str,
    entry_ids: Sequence[int],
    max_bytes: int,
    *,
    fence: bool = False,
) -> ManyEntries:
    """Read entries from one bookie, by concurrent single reads.

    Stops when another record as large as the largest so far would exceed `max_bytes` bytes. Each
    call requests as many entries as should fit: 16 first, 256 at most. Raises nothing: if the
    bookie stops responding, every entry not received by then gets that error.
    """
    answers = ManyEntries({}, {})
    answer = access.call_bookie(
        bookie, lambda client: _read_in_calls(access, client, entry_ids, max_bytes, answers, fence)
    )
    if answer.error is not None:
        for entry in entry_ids:
            if entry not in answers.entries:
                answers.errors.setdefault(entry, answer.error)
    return answers


def _read_in_calls(
    access: LedgerAccess,
    client: BookieClient,
    entry_ids: Sequence[int],
    max_bytes: int,
    result: ManyEntries,
    fence: bool,
) -> None:
    """Read entries into `result` in calls of growing size, until all are read or `max_bytes` is
    reached. The first call is always made."""
    result.errors.clear()  # left by a call to the bookie's former address
    start, received_bytes, count = 0, 0, _FIRST_CALL_ENTRIES
    largest_record = 1
    while start < len(entry_ids) and (not start or received_bytes + largest_record <= max_bytes):
        requested = entry_ids[start : start + count]
        batch = read_records(access, client, requested, result.errors, fence)
        verify_batch(access, batch, result)
        for error in result.errors.values():
            if isinstance(error, BookieUnavailable):
                raise error
        start += len(requested)
        received_bytes += int(batch.sizes.sum())
        largest_record = max(largest_record, int(batch.sizes.max(initial=1)))
        count = max(1, min(_MAX_CALL_ENTRIES, (max_bytes - received_bytes) // largest_record))


def read_records(
    access: LedgerAccess,
    client: BookieClient,
    requested_ids: Sequence[int],
    errors: dict[int, BkstoreError],
    fence: bool,
) -> RecordBatch:
    """Return the records that a bookie has of the requested entries, by one bulk request if the
    client can; `errors` gets the errors of the others. Stops when the bookie is unavailable."""
    key = access.key if fence else None
    if isinstance(client, BulkReader):
        return client.read_many(access.ledger, requested_ids, errors, fence=fence, master_key=key)
    records: list[bytes] = []
    entry_ids: list[int] = []
    for entry_id in requested_ids:
        try:
            record = client.read_entry(access.ledger, entry_id, fence=fence, master_key=key)
        except BkstoreError as error:
            errors[entry_id] = error
            if isinstance(error, BookieUnavailable):
                break
        else:
            records.append(record)
            entry_ids.append(entry_id)
    return RecordBatch.of(records, entry_ids)


def verify_batch(access: LedgerAccess, batch: RecordBatch, result: ManyEntries) -> None:
    """Verify the digests of a batch together, and add its entries and errors to `result`."""
    decoded = access.coder.decode_batch(batch, access.ledger)
    buffer = bytes(batch.buffer)
    starts, ends = decoded.offsets.tolist(), (decoded.offsets + decoded.sizes).tolist()
    payloads = (buffer[start:end] for start, end in zip(starts, ends))
    columns = decoded.entries.tolist(), decoded.lacs.tolist(), decoded.lengths.tolist()
    for index, entry in enumerate(map(Entry, repeat(access.ledger), *columns, payloads)):
        if index in decoded.failed:
            result.errors[int(batch.entries[index])] = decoded.failed[index]
        else:
            result.entries[entry.entry_id] = entry
