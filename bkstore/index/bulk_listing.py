"""Listing many ledgers in one call: helpers that every source of entries shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from bkstore.arguments import each
from bkstore.availability import Availability
from bkstore.errors import BkstoreError, IllegalOperation, SystemRefused
from bkstore.ids import LedgerId, sort_ledgers

Errors = dict[LedgerId, BkstoreError]
"""The error of each ledger that could not be listed."""


@runtime_checkable
class ListsMany(Protocol):
    """Anything that lists many ledgers in one call: every `EntrySource`, a `DirectoryBookie`."""

    def availability_many(
        self, ledgers: Iterable[int | LedgerId] | None = None, errors: Errors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        """As `EntrySource.availability_many`."""
        ...


def asked_for(ledgers: Iterable[int | LedgerId]) -> list[LedgerId]:
    """Return ledger ids in unsigned order, each once; `InvalidArgument` if one is not a ledger id.

    >>> asked_for([7, LedgerId(1, 0), 3, 7])
    [LedgerId(scope=0, ledger=3), LedgerId(scope=0, ledger=7), LedgerId(scope=1, ledger=0)]
    """
    ledger_ids = list(dict.fromkeys(map(LedgerId.of, each("ledgers", ledgers))))
    sort_ledgers(ledger_ids)
    return ledger_ids


def one_by_one(
    availability: Callable[[LedgerId], Availability],
    names: Iterable[LedgerId],
    errors: Errors | None,
) -> Iterator[tuple[LedgerId, Availability]]:
    """Yield the result of one call for each ledger; store errors in `errors`, if that is given.
    Raises `IllegalOperation` and `SystemRefused` in any case: they are not about one ledger."""
    for ledger_id in names:
        try:
            result = availability(ledger_id)
        except (IllegalOperation, SystemRefused):
            raise
        except BkstoreError as error:
            if errors is None:
                raise
            errors[ledger_id] = error
        else:
            yield ledger_id, result


def answers(
    source: ListsMany, names: Sequence[LedgerId]
) -> Iterator[tuple[LedgerId, Availability | BkstoreError]]:
    """Yield each of `names`, which are sorted and distinct, with its availability or its error."""
    errors: Errors = {}
    listed = source.availability_many(names, errors)
    next_result = next(listed, None)
    for ledger_id in names:
        if next_result is not None and next_result[0] == ledger_id:
            yield next_result
            next_result = next(listed, None)
        else:
            yield ledger_id, errors.pop(ledger_id)


def over_parts(
    parts: Sequence[ListsMany],
    home: Callable[[LedgerId], int],
    names: Sequence[LedgerId],
    errors: Errors | None,
) -> Iterator[tuple[LedgerId, Availability]]:
    """Yield each ledger's result from the part it belongs to; `home` returns the part's index."""
    if len(parts) == 1:
        yield from parts[0].availability_many(names, errors)
        return
    ids_of_part: list[list[LedgerId]] = [[] for _ in parts]
    for ledger_id in names:
        ids_of_part[home(ledger_id)].append(ledger_id)
    streams = [answers(part, share) for part, share in zip(parts, ids_of_part)]
    for ledger_id in names:
        yield from told(ledger_id, next(streams[home(ledger_id)])[1], errors)


def told(
    name: LedgerId, found: Availability | BkstoreError, errors: Errors | None
) -> Iterator[tuple[LedgerId, Availability]]:
    """Yield an availability; store an error in `errors`, or raise it if that is None."""
    if not isinstance(found, BkstoreError):
        yield name, found
    elif errors is None:
        raise found
    else:
        errors[name] = found
