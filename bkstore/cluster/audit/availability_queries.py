"""Asking bookies which entries they have, several at a time.

Running bookies get a question for each ledger; directories, indexes and tables are asked for all
ledgers of a batch at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeGuard

import numpy as np

from bkstore.availability import Availability
from bkstore.cluster.audit.options import EntriesOfLedger
from bkstore.cluster.client.bookie_client import BookieClient
from bkstore.durability import Due, Held, missing_entries
from bkstore.errors import (
    BkstoreError,
    BookieUnavailable,
    NoListOfEntries,
    NoSuchLedger,
    SystemRefused,
)
from bkstore.ids import LedgerId
from bkstore.index.many_ledgers import Errors, ListsMany

AT_A_TIME = 64
"""Ledgers that one task asks a bookie for."""

_GIVE_UP = 5
"""A bookie that is unreachable so often in a row is not asked about the rest of a task."""

DueRow = tuple[int, int, int, int, int, int]
"""A row of `Due`."""


@dataclass(slots=True)
class Questions:
    """What one bookie is asked for: ledgers by number in the batch, and what is due of them."""

    numbers: list[int] = field(default_factory=list)
    rows: list[DueRow] = field(default_factory=list)

    def add(self, row: DueRow) -> None:
        """Take a row; those of a ledger follow each other."""
        if not self.numbers or self.numbers[-1] != row[0]:
            self.numbers.append(row[0])
        self.rows.append(row)


@dataclass(slots=True)
class Answers:
    """What one bookie answered, ascending by ledger number; why not, where it did not.

    `unlisted`: it is there, and lists no entries. `absent`: nobody answers for it, so that there
    is nothing to ask.
    """

    held: list[tuple[int, Availability]] = field(default_factory=list)
    silent: dict[int, str] = field(default_factory=dict)
    unlisted: dict[int, str] = field(default_factory=dict)
    absent: bool = False

    def lacks(self, questions: Questions) -> Iterator[tuple[DueRow, Availability]]:
        """Yield (row, missing entries) for the rows that an answer falls short of."""
        unknown = self.silent.keys() | self.unlisted.keys()
        rows = (
            [row for row in questions.rows if row[0] not in unknown] if unknown else questions.rows
        )
        if not rows:
            return
        due = Due(*np.array(rows, np.int64).T)
        for at, missing in missing_entries(due, Held.of(self.held)):
            yield rows[at], missing


def ask_bookies(
    bookies: Mapping[str, EntriesOfLedger],
    asked: Mapping[str, Questions],
    ledgers: Sequence[LedgerId],
    pool: ThreadPoolExecutor | None,
) -> dict[str, Answers]:
    """Return each bookie's answers; a bookie that is not in `bookies` gives none.

    Without a pool the calling thread asks.
    """
    tasks: list[tuple[str, Callable[[], Answers]]] = []
    found = {name: Answers() for name in asked}
    for name, questions in asked.items():
        bookie = bookies.get(name)
        if bookie is None:
            found[name].silent = dict.fromkeys(questions.numbers, "nothing is known of its place")
            found[name].absent = True
            continue
        step = len(questions.numbers) if _lists_many(bookie) else AT_A_TIME
        for at in range(0, len(questions.numbers), step):
            part = questions.numbers[at : at + step]
            if pool is None:
                tasks.append((name, partial(_ask, bookie, part, ledgers)))
            else:
                tasks.append((name, pool.submit(_ask, bookie, part, ledgers).result))
    for name, task in tasks:
        part_found = task()
        found[name].held += part_found.held
        found[name].silent |= part_found.silent
        found[name].unlisted |= part_found.unlisted
    return found


def _lists_many(bookie: EntriesOfLedger) -> TypeGuard[ListsMany]:
    return isinstance(bookie, ListsMany) and not isinstance(bookie, BookieClient)


def _ask(bookie: EntriesOfLedger, numbers: list[int], ledgers: Sequence[LedgerId]) -> Answers:
    single: Callable[[LedgerId], Availability] = bookie.availability
    if _lists_many(bookie):
        single = _All(bookie, [ledgers[number] for number in numbers]).answer
    found = Answers()
    give_up = len(numbers) if _lists_many(bookie) else _GIVE_UP  # it was asked already
    failures, reason = 0, ""
    for at, number in enumerate(numbers):
        if at % AT_A_TIME == 0:
            failures = 0
        if failures == give_up:
            found.silent[number] = f"not asked after {_GIVE_UP} failures: {reason}"
            continue
        try:
            found.held.append((number, single(ledgers[number])))
            failures = 0
        except NoSuchLedger:
            found.held.append((number, Availability()))
            failures = 0
        except NoListOfEntries as error:
            found.unlisted[number] = str(error)
        except SystemRefused:
            raise
        except BookieUnavailable as error:
            failures, reason = failures + 1, str(error)
            found.silent[number] = f"no answer: {reason}"
        except BkstoreError as error:
            found.silent[number] = f"answered with an error: {error}"
    return found


class _All:
    """The answers of a bookie that was asked for all at once."""

    def __init__(self, bookie: ListsMany, names: Sequence[LedgerId]) -> None:
        self._errors: Errors = {}
        try:
            self._found = dict(bookie.availability_many(names, self._errors))
        except SystemRefused:
            raise
        except BkstoreError as error:  # none can be listed: it is closed, say
            self._found = {}
            self._errors = dict.fromkeys(names, error)

    def answer(self, ledger: LedgerId) -> Availability:
        found = self._found.get(ledger)
        if found is None:
            raise self._errors[ledger]
        return found
