"""Listing many ledgers in one call: what every source of entries has in common there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from bkstore.arguments import each
from bkstore.availability import Availability
from bkstore.errors import BkstoreError, IllegalOperation, SystemRefused
from bkstore.ids import LedgerId, sort_ledgers

Errors = dict[LedgerId, BkstoreError]
"""Why ledgers could not be listed."""


@runtime_checkable
class ListsMany(Protocol):
    """Whoever lists many ledgers in one call: every `EntrySource`, a `DirectoryBookie`."""

    def availability_many(
        self, ledgers: Iterable[int | LedgerId] | None = None, errors: Errors | None = None
    ) -> Iterator[tuple[LedgerId, Availability]]:
        """As `EntrySource.availability_many`."""
        ...


def asked_for(ledgers: Iterable[int | LedgerId]) -> list[LedgerId]:
    """Return ledgers in unsigned order, each once; `InvalidArgument` for what is none.

    >>> asked_for([7, LedgerId(1, 0), 3, 7])
    [LedgerId(scope=0, ledger=3), LedgerId(scope=0, ledger=7), LedgerId(scope=1, ledger=0)]
    """
    names = list(dict.fromkeys(map(LedgerId.of, each("ledgers", ledgers))))
    sort_ledgers(names)
    return names


def one_by_one(
    availability: Callable[[LedgerId], Availability],
    names: Iterable[LedgerId],
    errors: Errors | None,
) -> Iterator[tuple[LedgerId, Availability]]:
    """Yield what a call for each ledger answers; errors go to `errors`, if that is given.

    `IllegalOperation` and `SystemRefused` are raised in any case: they are about the source, which
    is closed, and the machine.
    """
    for name in names:
        try:
            found = availability(name)
        except (IllegalOperation, SystemRefused):
            raise
        except BkstoreError as error:
            if errors is None:
                raise
            errors[name] = error
        else:
            yield name, found


def answers(
    source: ListsMany, names: Sequence[LedgerId]
) -> Iterator[tuple[LedgerId, Availability | BkstoreError]]:
    """Yield what `source` answers for each of `names`, sorted and distinct: entries or an error.

    For those who write a row a ledger, in order, whatever is wrong with some of them.
    """
    errors: Errors = {}
    listed = source.availability_many(names, errors)
    ahead = next(listed, None)
    for name in names:
        if ahead is not None and ahead[0] == name:
            yield ahead
            ahead = next(listed, None)
        else:
            yield name, errors.pop(name)


def over_parts(
    parts: Sequence[ListsMany],
    home: Callable[[LedgerId], int],
    names: Sequence[LedgerId],
    errors: Errors | None,
) -> Iterator[tuple[LedgerId, Availability]]:
    """Yield what the part that each ledger belongs to answers; `home` tells its number."""
    if len(parts) == 1:
        yield from parts[0].availability_many(names, errors)
        return
    shares: list[list[LedgerId]] = [[] for _ in parts]
    for name in names:
        shares[home(name)].append(name)
    streams = [answers(part, share) for part, share in zip(parts, shares)]
    for name in names:
        yield from told(name, next(streams[home(name)])[1], errors)


def told(
    name: LedgerId, found: Availability | BkstoreError, errors: Errors | None
) -> Iterator[tuple[LedgerId, Availability]]:
    """Yield an answer; put an error into `errors`, raise it where there are none."""
    if not isinstance(found, BkstoreError):
        yield name, found
    elif errors is None:
        raise found
    else:
        errors[name] = found
