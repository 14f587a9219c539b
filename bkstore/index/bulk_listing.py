"""Listing many ledgers in one call: helpers that every source of entries shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from bkstore.arguments import iterable
from bkstore.availability import Availability
from bkstore.errors import BkstoreError, IllegalOperation, SystemRefused
from bkstore.ids import LedgerId, sort_ledgers

Listing = Iterator[tuple[LedgerId, Availability]]
"""Ledgers in order, each with the entries that are stored of it."""

LedgerErrors = dict[LedgerId, BkstoreError]
"""The error of each ledger that could not be listed."""

UNRELATED_ERRORS = (IllegalOperation, SystemRefused)
"""Errors that are not about one ledger: they end a listing."""


@runtime_checkable
class BulkLister(Protocol):
    """Anything that lists many ledgers in one call: every `EntrySource`, a `DirectoryBookie`."""

    def availability_many(
        self, ledgers: Iterable[int | LedgerId] | None = None, errors: LedgerErrors | None = None
    ) -> Listing:
        """As `EntrySource.availability_many`."""
        ...


def normalize_ledger_ids(ledgers: Iterable[int | LedgerId]) -> list[LedgerId]:
    """Return ledger ids in unsigned order, each once; `InvalidArgument` if one is not a ledger id.

    >>> normalize_ledger_ids([7, LedgerId(1, 0), 3, 7])
    [LedgerId(scope=0, ledger=3), LedgerId(scope=0, ledger=7), LedgerId(scope=1, ledger=0)]
    """
    ledger_ids = list(dict.fromkeys(map(LedgerId.of, iterable("ledgers", ledgers))))
    sort_ledgers(ledger_ids)
    return ledger_ids


def list_one_by_one(
    availability: Callable[[LedgerId], Availability],
    ledger_ids: Iterable[LedgerId],
    errors: LedgerErrors | None,
) -> Listing:
    """Yield the result of one call for each ledger; store errors in `errors`, if that is given,
    except `UNRELATED_ERRORS`, which are raised."""
    for ledger_id in ledger_ids:
        try:
            result = availability(ledger_id)
        except UNRELATED_ERRORS:
            raise
        except BkstoreError as error:
            if errors is None:
                raise
            errors[ledger_id] = error
        else:
            yield ledger_id, result


def iterate_results(
    source: BulkLister, ledger_ids: Sequence[LedgerId]
) -> Iterator[tuple[LedgerId, Availability | BkstoreError]]:
    """Yield each of `ledger_ids` (sorted and distinct) with its availability or its error. The
    source yields the availabilities in this order; a ledger that it passes over has an error."""
    errors: LedgerErrors = {}
    listed = source.availability_many(ledger_ids, errors)
    next_result = next(listed, None)
    for ledger_id in ledger_ids:
        if next_result is not None and next_result[0] == ledger_id:
            yield next_result
            next_result = next(listed, None)
        else:
            yield ledger_id, errors.pop(ledger_id)


def list_from_parts(
    parts: Sequence[BulkLister],
    part_index_of: Callable[[LedgerId], int],
    ledger_ids: Sequence[LedgerId],
    errors: LedgerErrors | None,
) -> Listing:
    """Yield each ledger's result from the part that has the ledger, such as the index of one of
    several directories; `part_index_of` returns the number of that part."""
    if len(parts) == 1:
        yield from parts[0].availability_many(ledger_ids, errors)
        return
    ids_of_part: list[list[LedgerId]] = [[] for _ in parts]
    for ledger_id in ledger_ids:
        ids_of_part[part_index_of(ledger_id)].append(ledger_id)
    # A part's results are in the order of its ids, so its next one is that of its next ledger.
    results_of_part = [iterate_results(part, ids) for part, ids in zip(parts, ids_of_part)]
    for ledger_id in ledger_ids:
        _, result = next(results_of_part[part_index_of(ledger_id)])
        yield from yield_or_record_error(ledger_id, result, errors)


def yield_or_record_error(
    ledger_id: LedgerId, result: Availability | BkstoreError, errors: LedgerErrors | None
) -> Listing:
    """Yield an availability; store an error in `errors`, or raise it if that is None."""
    if not isinstance(result, BkstoreError):
        yield ledger_id, result
    elif errors is None:
        raise result
    else:
        errors[ledger_id] = result
