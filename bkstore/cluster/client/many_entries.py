"""Asking one bookie for many entries: what it has, verified, and why it lacks the others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

from bkstore.cluster.client.bookie_client import BookieClient, ReadsMany
from bkstore.cluster.client.open_ledger import LedgerAccess
from bkstore.errors import BkstoreError, BookieUnavailable
from bkstore.formats.entry import Entry, RecordBatch

_FIRST, _MOST = 16, 256
"""Entries of one call: few while nothing is known of their sizes."""


class ManyEntries(NamedTuple):
    """What one bookie answered: verified entries by id, and an error for each of the others.

    An entry that is in neither was not asked for: there was enough already.
    """

    found: dict[int, Entry]
    errors: dict[int, BkstoreError]


def ask_for_entries(
    access: LedgerAccess, bookie: str, entries: Sequence[int], enough: int, *, fence: bool = False
) -> ManyEntries:
    """Ask a bookie for entries, by single reads that are under way together.

    It ends where `enough` bytes of records leave no room for another like the largest so far; a
    call is for as many entries as would fit, 16 to begin with and 256 at most. Raises nothing:
    where the bookie gave no answer, that is the error of every entry that it had not sent before.
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
    enough: int,
    answers: ManyEntries,
    fence: bool,
) -> None:
    answers.errors.clear()  # of a try at an address that the bookie has left
    at, held, count = 0, 0, _FIRST
    largest = 1
    while at < len(entries) and (not at or held + largest <= enough):
        part = entries[at : at + count]
        batch = _records(access, client, part, answers.errors, fence)
        take(access, batch, answers)
        for error in answers.errors.values():
            if isinstance(error, BookieUnavailable):
                raise error
        at += len(part)
        held += int(batch.sizes.sum())
        largest = max(largest, int(batch.sizes.max(initial=1)))
        count = max(1, min(_MOST, (enough - held) // largest))


def _records(
    access: LedgerAccess,
    client: BookieClient,
    entries: Sequence[int],
    errors: dict[int, BkstoreError],
    fence: bool,
) -> RecordBatch:
    """Return the records that a bookie has of these; the errors of the others are noted."""
    key = access.key if fence else None
    if isinstance(client, ReadsMany):
        return client.read_many(access.ledger, entries, errors, fence=fence, master_key=key)
    records: list[bytes] = []
    found: list[int] = []
    for entry in entries:
        try:
            record = client.read_entry(access.ledger, entry, fence=fence, master_key=key)
        except BkstoreError as error:
            errors[entry] = error
            if isinstance(error, BookieUnavailable):
                break
        else:
            records.append(record)
            found.append(entry)
    return RecordBatch.of(records, found)


def take(access: LedgerAccess, batch: RecordBatch, answers: ManyEntries) -> None:
    """Note the entries of a batch, and the error of each record that does not verify.

    About 2 us an entry: digests are verified together.
    """
    said = access.coder.decode_batch(batch, access.ledger)
    buffer = bytes(batch.buffer)
    starts, ends = said.offsets.tolist(), (said.offsets + said.sizes).tolist()
    payloads = (buffer[start:end] for start, end in zip(starts, ends))
    columns = said.entries.tolist(), said.lacs.tolist(), said.lengths.tolist()
    for at, entry in enumerate(map(Entry, repeat(access.ledger), *columns, payloads)):
        if at in said.failed:
            answers.errors[int(batch.entries[at])] = said.failed[at]
        else:
            answers.found[entry.entry_id] = entry
