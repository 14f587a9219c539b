"""Ask bookies which entries they have, several bookies at a time.

Running bookies are asked ledger by ledger, others for all ledgers of a batch at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeGuard

import numpy as np

from bkstore.availability import Availability
from bkstore.cluster.audit.options import AvailabilitySource
from bkstore.cluster.client.bookie_client import BookieClient
from bkstore.durability.missing_entries import ExpectedEntries, HeldEntries, missing_entries
from bkstore.errors import (
    BkstoreError,
    BookieUnavailable,
    ListingUnsupported,
    NoSuchLedger,
    SystemRefused,
)
from bkstore.ids import LedgerId
from bkstore.index.bulk_listing import BulkLister, LedgerErrors

LEDGERS_PER_TASK = 64
"""Number of ledgers that one task asks a bookie for."""

_MAX_FAILURES = 5
"""A bookie that was unreachable this often in a row is not asked for the task's other ledgers."""


class ExpectedRow(NamedTuple):
    """A row of `ExpectedEntries`: the entries of a segment that one bookie should hold."""

    ledger_number: int
    first_entry: int
    last_entry: int
    bookie_index: int
    ensemble_size: int
    write_quorum: int


@dataclass(slots=True)
class AvailabilityQuery:
    """The query to one bookie: ledgers, by number in the batch, and the entries expected of
    them."""

    ledger_numbers: list[int] = field(default_factory=list)
    rows: list[ExpectedRow] = field(default_factory=list)

    def add(self, row: ExpectedRow) -> None:
        """Add a row; the rows of a ledger must be added consecutively."""
        if not self.ledger_numbers or self.ledger_numbers[-1] != row.ledger_number:
            self.ledger_numbers.append(row.ledger_number)
        self.rows.append(row)


@dataclass(slots=True)
class AvailabilityResponse:
    """One bookie's entries, ascending by ledger number; `unanswered` has the reason if unknown.

    `unlisted` has the reason if the bookie responds but cannot list entries. `absent`: it is not in
    the audit's mapping, so it was not asked.
    """

    availabilities: list[tuple[int, Availability]] = field(default_factory=list)
    unanswered: dict[int, str] = field(default_factory=dict)
    unlisted: dict[int, str] = field(default_factory=dict)
    absent: bool = False

    def find_missing(self, query: AvailabilityQuery) -> Iterator[tuple[ExpectedRow, Availability]]:
        """Yield (row, missing entries) for the rows of the query of which the bookie lacks entries;
        a row has the entries of a segment that are expected on it. Ledgers without an answer are
        left out: nothing is known of them."""
        unknown, rows = self.unanswered.keys() | self.unlisted.keys(), query.rows
        if unknown:
            rows = [row for row in rows if row.ledger_number not in unknown]
        if not rows:
            return
        expected = ExpectedEntries(*np.array(rows, np.int64).T)  # by columns
        held = HeldEntries.from_availabilities(self.availabilities)
        for row_index, missing in missing_entries(expected, held):
            yield rows[row_index], missing


def query_bookies(
    bookies: Mapping[str, AvailabilitySource],
    queries: Mapping[str, AvailabilityQuery],
    ledgers: Sequence[LedgerId],
    pool: ThreadPoolExecutor | None,
) -> dict[str, AvailabilityResponse]:
    """Ask bookies which entries of ledgers they hold; return the answers by bookie id. One that is
    not in `bookies` cannot be asked: its answer is `absent`. Asks in this thread without a pool.
    Queries and answers name a ledger by its number, the index in `ledgers`."""
    # Split each bookie's ledgers into tasks; with a pool they start at once.
    tasks: list[tuple[str, Callable[[], AvailabilityResponse]]] = []
    answers = {bookie_id: AvailabilityResponse() for bookie_id in queries}
    for bookie_id, query in queries.items():
        bookie, ledger_numbers = bookies.get(bookie_id), query.ledger_numbers
        if bookie is None:
            given = f"no directory was given for {bookie_id} ({bookie_id}=DIR)"
            reason = f"{given}, and no address is known"
            answers[bookie_id].unanswered = dict.fromkeys(ledger_numbers, reason)
            answers[bookie_id].absent = True
            continue
        # A bookie that can list many ledgers by one call gets a single task.
        task_size = len(ledger_numbers) if _lists_many(bookie) else LEDGERS_PER_TASK
        for start in range(0, len(ledger_numbers), task_size):
            task_ledgers = ledger_numbers[start : start + task_size]
            task = partial(_query_bookie, bookie, task_ledgers, ledgers)
            # Called below: does the task now, or waits for the thread that does it.
            tasks.append((bookie_id, task if pool is None else pool.submit(task).result))
    # Collect the results in order.
    for bookie_id, get_task_answers in tasks:
        task_answers = get_task_answers()
        answers[bookie_id].availabilities += task_answers.availabilities
        answers[bookie_id].unanswered |= task_answers.unanswered
        answers[bookie_id].unlisted |= task_answers.unlisted
    return answers


def _lists_many(bookie: AvailabilitySource) -> TypeGuard[BulkLister]:
    return isinstance(bookie, BulkLister) and not isinstance(bookie, BookieClient)


def _query_bookie(
    bookie: AvailabilitySource, ledger_numbers: list[int], ledgers: Sequence[LedgerId]
) -> AvailabilityResponse:
    """Ask one bookie for some ledgers, given by their numbers, which are indexes in `ledgers`.
    Errors become part of the answers. After `_MAX_FAILURES` requests in a row without an answer the
    bookie counts as gone and is asked no more."""
    availability_of: Callable[[LedgerId], Availability] = bookie.availability
    max_failures = _MAX_FAILURES
    if _lists_many(bookie):  # all by one call: a failure costs no further requests
        listed = [ledgers[number] for number in ledger_numbers]
        availability_of = _BatchedAnswers(bookie, listed).availability_of
        max_failures = len(listed)  # no limit
    answers = AvailabilityResponse()
    failures, reason = 0, ""
    for number in ledger_numbers:
        if failures == max_failures:
            answers.unanswered[number] = f"not asked after {_MAX_FAILURES} failures: {reason}"
            continue
        try:
            answers.availabilities.append((number, availability_of(ledgers[number])))
            failures = 0
        except NoSuchLedger:
            answers.availabilities.append((number, Availability()))
            failures = 0
        except ListingUnsupported as error:
            answers.unlisted[number] = str(error)
        except SystemRefused:  # this machine lacks something: the bookie is not to blame
            raise
        except BookieUnavailable as error:
            failures, reason = failures + 1, str(error)
            answers.unanswered[number] = f"no answer: {reason}"
        except BkstoreError as error:
            answers.unanswered[number] = f"answered with an error: {error}"
    return answers


class _BatchedAnswers:
    """The answers of a bookie that is asked for all its ledgers by one call."""

    def __init__(self, bookie: BulkLister, ledger_ids: Sequence[LedgerId]) -> None:
        """Request all lists by one call. If it fails as a whole, its error is that of each
        ledger."""
        self._errors: LedgerErrors = {}
        try:
            self._availabilities = dict(bookie.availability_many(ledger_ids, self._errors))
        except SystemRefused:
            raise
        except BkstoreError as error:  # nothing could be listed, for example because it is closed
            self._availabilities = {}
            self._errors = dict.fromkeys(ledger_ids, error)

    def availability_of(self, ledger: LedgerId) -> Availability:
        availability = self._availabilities.get(ledger)
        if availability is None:
            raise self._errors[ledger]
        return availability
