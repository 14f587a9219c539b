"""Read many entries from one bookie: the verified entries, and an error for each other one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

from bkstore.cluster.client.bookie_client import BookieClient, ReadsMany
from bkstore.cluster.client.open_ledger import LedgerAccess
from bkstore.errors import BkstoreError, BookieUnavailable
from bkstore.formats.entry import Entry, RecordBatch

_FIRST_CALL_ENTRIES, _MAX_CALL_ENTRIES = 16, 256
"""Entries of one call: few in the first one, as their sizes are not known yet."""


class ManyEntries(NamedTuple):
    """One bookie's entries by id, verified, and an error for each entry that failed; one in neither
    was not requested, because the byte limit was reached before."""

    found: dict[int, Entry]
    errors: dict[int, BkstoreError]


def ask_for_entries(
    access: LedgerAccess, bookie: str, entries: Sequence[int], enough: int, *, fence: bool = False
) -> ManyEntries:
    """Read entries from one bookie, by concurrent single reads.

    Stops when another record as large as the largest so far would exceed `enough` bytes. Each call
    requests as many entries as should fit: 16 first, 256 at most. Raises nothing: if the bookie
    stops responding, every entry not received by then gets that error.
    """
    answers = ManyEntries({}, {})
    answer = access.ask(
        bookie, lambda client: _read(access, client, entries, enough, answers, fence)
    )
    if answer.error is not None:
        for entry in entries:
            if entry not in answers.found:
                answers.errors.setdefault(entry, answer.error)
    return answers


def _read(
    access: LedgerAccess,
    client: BookieClient,
    entries: Sequence[int],
    max_bytes: int,
    answers: ManyEntries,
    fence: bool,
) -> None:
    """Read entries in calls of growing size, until all are read or `max_bytes` is reached."""
    answers.errors.clear()  # left by a call to the bookie's former address
    position, received_bytes, count = 0, 0, _FIRST_CALL_ENTRIES
    largest_record = 1
    while position < len(entries) and (
        not position or received_bytes + largest_record <= max_bytes
    ):
        requested = entries[position : position + count]
        batch = _read_records(access, client, requested, answers.errors, fence)
        take(access, batch, answers)
        for error in answers.errors.values():
            if isinstance(error, BookieUnavailable):
                raise error
        position += len(requested)
        received_bytes += int(batch.sizes.sum())
        largest_record = max(largest_record, int(batch.sizes.max(initial=1)))
        count = max(1, min(_MAX_CALL_ENTRIES, (max_bytes - received_bytes) // largest_record))


def _read_records(
    access: LedgerAccess,
    client: BookieClient,
    entries: Sequence[int],
    errors: dict[int, BkstoreError],
    fence: bool,
) -> RecordBatch:
    key = access.key if fence else None
    if isinstance(client, ReadsMany):
        return client.read_many(access.ledger, entries, errors, fence=fence, master_key=key)
    records: list[bytes] = []
    entry_ids: list[int] = []
    for entry_id in entries:
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


def take(access: LedgerAccess, batch: RecordBatch, answers: ManyEntries) -> None:
    """Verify a batch, its digests together: 2 us an entry; add entries and errors to `answers`."""
    decoded = access.coder.decode_batch(batch, access.ledger)
    buffer = bytes(batch.buffer)
    starts, ends = decoded.offsets.tolist(), (decoded.offsets + decoded.sizes).tolist()
    payloads = (buffer[start:end] for start, end in zip(starts, ends))
    columns = decoded.entries.tolist(), decoded.lacs.tolist(), decoded.lengths.tolist()
    for index, entry in enumerate(map(Entry, repeat(access.ledger), *columns, payloads)):
        if index in decoded.failed:
            answers.errors[int(batch.entries[index])] = decoded.failed[index]
        else:
            answers.found[entry.entry_id] = entry
