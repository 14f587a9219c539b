"""The responses of several bookies to one request, and the error that they add up to.

It is "no such entry" only if every bookie returned that: an unreachable one may have the entry, and
so may one with damaged data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from bkstore.cluster.client.bookie_client import BookieClient
from bkstore.errors import (
    BkstoreError,
    BookieUnavailable,
    CorruptionError,
    DataUnknown,
    NoSuchEntry,
    NoSuchLedger,
    UnauthorizedAccess,
)

_T = TypeVar("_T")

NOT_FOUND_ERRORS = (NoSuchEntry, NoSuchLedger)
"""Errors by which a bookie states that it does not have the entry or the ledger."""


class BookieAnswer(NamedTuple, Generic[_T]):
    """One bookie's answer: a value, or the error that came instead."""

    bookie: str
    value: _T | None
    error: BkstoreError | None

    @property
    def is_not_found(self) -> bool:
        """Whether the bookie stated that it does not have the entry or the ledger."""
        return isinstance(self.error, NOT_FOUND_ERRORS)


@runtime_checkable
class AddressRefresher(Protocol):
    """A mapping of bookies whose addresses may change: callers report unreachable ones."""

    def mark_unreachable(self, bookie_id: str) -> None:
        """Look up this bookie's address again before its next use."""

    def refresh_addresses(self, bookie_ids: Iterable[str]) -> bool:
        """Look up the doubted bookies among these now; return whether one has a new address."""


def call_bookie(
    bookies: Mapping[str, BookieClient], bookie_id: str, request: Callable[[BookieClient], _T]
) -> BookieAnswer[_T]:
    """Call `request` with the client of the bookie `bookie_id`; return its result or its error. It
    is called once more if the bookie cannot be reached and has a new address by now."""
    answer, client = _call_bookie(bookies, bookie_id, request)
    if isinstance(answer.error, BookieUnavailable) and isinstance(bookies, AddressRefresher):
        bookies.mark_unreachable(bookie_id)
        if client is not None and bookies.get(bookie_id) not in (None, client):
            answer, _ = _call_bookie(bookies, bookie_id, request)
    return answer


def _call_bookie(
    bookies: Mapping[str, BookieClient], bookie_id: str, request: Callable[[BookieClient], _T]
) -> tuple[BookieAnswer[_T], BookieClient | None]:
    """Return the answer, and the client that was used; None if there is none for this bookie."""
    client = None
    try:
        client = bookies.get(bookie_id)
        if client is None:
            raise BookieUnavailable(f"{bookie_id} is unknown to this client")
        return BookieAnswer(bookie_id, request(client), None), client
    except BkstoreError as error:
        return BookieAnswer(bookie_id, None, error), client


def describe_answers(answers: Sequence[BookieAnswer[_T]]) -> str:
    """Describe each bookie's answer, in one line.

    >>> error = NoSuchEntry("not here")
    >>> describe_answers([BookieAnswer("b1", b"", None), BookieAnswer("b2", None, error)])
    'b1: OK; b2: NoSuchEntry: not here'
    """
    return "; ".join(
        f"{bookie_id}: {'OK' if error is None else f'{type(error).__name__}: {error}'}"
        for bookie_id, _, error in answers
    )


def combine_errors(request: str, answers: Sequence[BookieAnswer[_T]]) -> BkstoreError:
    """Return the error to raise if no bookie returned a value: `NoSuchEntry` if every bookie stated
    that it has nothing, else the first of these that one of them gave: `UnauthorizedAccess`,
    `BookieUnavailable`, `CorruptionError`, `DataUnknown`. For any other mixture it is
    `BookieUnavailable`: a later attempt may succeed."""
    message = f"{request}: {describe_answers(answers)}"
    if answers and all(answer.is_not_found for answer in answers):
        return NoSuchEntry(message)
    errors = [answer.error for answer in answers]
    for error_type in (UnauthorizedAccess, BookieUnavailable):
        if any(isinstance(error, error_type) for error in errors):
            return error_type(message)
    corruption = next((error for error in errors if isinstance(error, CorruptionError)), None)
    if corruption is not None:
        return CorruptionError(corruption.file, corruption.offset, message)
    if any(isinstance(error, DataUnknown) for error in errors):
        return DataUnknown(message)
    return BookieUnavailable(message)
