"""What several bookies answered to one question, and what that comes to.

One rule matters most: "no such entry" is the sum of the answers only if every bookie said so.
One that cannot be reached, or whose bytes cannot be read, may well have it.
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

NEGATIVE = (NoSuchEntry, NoSuchLedger)
"""Answers that say for certain that something is not there."""


class Answer(NamedTuple, Generic[_T]):
    """One bookie's answer: a value, or the error that came instead."""

    bookie: str
    value: _T | None
    error: BkstoreError | None

    @property
    def negative(self) -> bool:
        """Whether the bookie said for certain that it is not there."""
        return isinstance(self.error, NEGATIVE)


@runtime_checkable
class Doubting(Protocol):
    """Bookies that may have moved: they are told which one could not be reached."""

    def doubt(self, name: str) -> None:
        """Look where this bookie is before it is asked again."""
        ...

    def moved(self, names: Iterable[str]) -> bool:
        """Look at once where doubted ones of these are; return whether one is elsewhere now."""
        ...


def ask(
    bookies: Mapping[str, BookieClient], name: str, work: Callable[[BookieClient], _T]
) -> Answer[_T]:
    """Return what `work` gets from the bookie `name`, or the error that it raised.

    One that cannot be reached, and is elsewhere by now, is asked there: `work` may be called twice.
    """
    answer, asked = _asked(bookies, name, work)
    if isinstance(answer.error, BookieUnavailable) and isinstance(bookies, Doubting):
        bookies.doubt(name)
        if asked is not None and bookies.get(name) not in (None, asked):
            answer, _ = _asked(bookies, name, work)
    return answer


def _asked(
    bookies: Mapping[str, BookieClient], name: str, work: Callable[[BookieClient], _T]
) -> tuple[Answer[_T], BookieClient | None]:
    client = None
    try:
        client = bookies.get(name)
        if client is None:
            return Answer(name, None, BookieUnavailable(f"{name} is not known here")), None
        return Answer(name, work(client), None), client
    except BkstoreError as error:
        return Answer(name, None, error), client


def told(answers: Sequence[Answer[_T]]) -> str:
    """Return a line that says what each bookie answered.

    >>> told([Answer("b1", b"", None), Answer("b2", None, NoSuchEntry("not here"))])
    'b1: OK; b2: NoSuchEntry: not here'
    """
    lines = []
    for name, _, error in answers:
        lines.append(f"{name}: {'OK' if error is None else f'{type(error).__name__}: {error}'}")
    return "; ".join(lines)


def verdict(what: str, answers: Sequence[Answer[_T]]) -> BkstoreError:
    """Return the error for answers of which none is a value.

    `NoSuchEntry` if all bookies said so. Else the first kind of these that occurs:
    `UnauthorizedAccess`, `BookieUnavailable` (it may come back), `CorruptionError`, `DataUnknown`;
    any other error of a bookie counts as no answer from it.
    """
    text = f"{what}: {told(answers)}"
    if answers and all(answer.negative for answer in answers):
        return NoSuchEntry(text)
    errors = [answer.error for answer in answers]
    for kind in (UnauthorizedAccess, BookieUnavailable):
        if any(isinstance(error, kind) for error in errors):
            return kind(text)
    damage = next((error for error in errors if isinstance(error, CorruptionError)), None)
    if damage is not None:
        return CorruptionError(damage.file, damage.offset, text)
    if any(isinstance(error, DataUnknown) for error in errors):
        return DataUnknown(text)
    return BookieUnavailable(text)
