"""What differs between two sides, ledger by ledger: a merge of two ordered listings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from bkstore.availability import Availability
from bkstore.errors import BkstoreError
from bkstore.formats.entry import explicit_lac_entry
from bkstore.ids import LedgerId
from bkstore.index.api import Finding
from bkstore.offline.diff.sides import Held, Kept, Side

Kind = Literal["ledger", "entries", "fenced", "limbo", "explicit_lac", "master_key"]
Where = Literal["a", "b"]
Watch = Callable[[LedgerId, bool], None]
"""Called with each ledger, and whether something of it differs."""

_STATES: tuple[Kind, ...] = ("fenced", "limbo", "explicit_lac", "master_key")


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that the two sides do not have alike.

    "ledger": only side `only_in` knows it, and has `entries` of it (None: they cannot be read).
    "entries": only side `only_in` has these `entries` of a ledger that both know. The others are
    parts of the state; `a` and `b` say what each side has, but for "master_key", which is never
    told.
    """

    kind: Kind
    ledger: LedgerId
    only_in: Where | None = None
    entries: Availability | None = None
    a: str | None = None
    b: str | None = None


def diff(
    a: Side,
    b: Side,
    findings: list[Finding],
    only: LedgerId | None = None,
    watch: Watch | None = None,
) -> Iterator[Difference]:
    """Yield what differs, in unsigned order of ledgers: nothing where the sides are alike.

    Ledgers, their entries by set operations on sequence groups, and states are compared; where
    records lie is not, nor what is in them. What one side cannot read of a ledger is not compared:
    it is appended to `findings`, as damage. Limbo counts where both sides keep it. `only` compares
    one ledger, `watch` is told of each.

    Memory: an answer of each side, and what the sides take. Cost: what listing both takes.
    Raises what the sides raise.

    >>> import tempfile
    >>> from bkstore import BookieDir
    >>> from bkstore.index.hierarchical import HierarchicalIndex
    >>> from bkstore.offline.diff import DirectorySide
    >>> with tempfile.TemporaryDirectory() as top:
    ...     for name, last in (("a", 9), ("b", 7)):
    ...         with HierarchicalIndex(f"{top}/{name}", writable=True) as index:
    ...             index.put_many(7, range(last), range(1028, 1028 + last))
    ...     with BookieDir(f"{top}/a") as a, BookieDir(f"{top}/b") as b:
    ...         (found,) = diff(DirectorySide(a), DirectorySide(b), [])
    >>> found.kind, found.only_in, found.entries.ranges().tolist()
    ('entries', 'a', [[7, 8]])
    """
    for left, right in _side_by_side(a.ledgers(only), b.ledgers(only)):
        held = left or right
        assert held is not None
        differs = False
        for found in _of_ledger(left, right, (a.name, b.name), findings):
            differs = True
            yield found
        if watch is not None:
            watch(held.ledger, differs)


def _side_by_side(
    a: Iterator[Held], b: Iterator[Held]
) -> Iterator[tuple[Held | None, Held | None]]:
    """Yield what the sides have of each ledger; None where one does not know it."""
    left, right = next(a, None), next(b, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left.ledger < right.ledger):
            yield left, None
            left = next(a, None)
        elif left is None or right.ledger < left.ledger:
            yield None, right
            right = next(b, None)
        else:
            yield left, right
            left, right = next(a, None), next(b, None)


def _of_ledger(
    left: Held | None, right: Held | None, names: tuple[str, str], findings: list[Finding]
) -> Iterator[Difference]:
    for side, held in zip(names, (left, right)):
        if held is not None:
            findings += _unread(side, held)
    if left is None or right is None:
        held = left or right
        assert held is not None
        here = None if isinstance(held.here, BkstoreError) else held.here
        yield Difference("ledger", held.ledger, "a" if right is None else "b", here)
        return
    if not isinstance(left.here, BkstoreError) and not isinstance(right.here, BkstoreError):
        yield from _entries(left.ledger, left.here, right.here)
    if isinstance(left.state, Kept) and isinstance(right.state, Kept):
        yield from _states(left.ledger, left.state, right.state)


def _unread(side: str, held: Held) -> list[Finding]:
    """Return why entries and state of a ledger are not compared."""
    found: list[Finding] = []
    for what, part in (("entries are", held.here), ("state is", held.state)):
        if isinstance(part, BkstoreError):
            told = Finding.of(part, held.ledger)
            detail = f"ledger {held.ledger}: its {what} not compared: {told.detail}"
            found.append(replace(told, detail=detail if told.file else f"{side}: {detail}"))
    return found


def _entries(ledger: LedgerId, a: Availability, b: Availability) -> Iterator[Difference]:
    if only := a - b:
        yield Difference("entries", ledger, "a", only)
    if only := b - a:
        yield Difference("entries", ledger, "b", only)


def _states(ledger: LedgerId, a: Kept, b: Kept) -> Iterator[Difference]:
    for kind in _STATES:
        one, other = getattr(a, kind), getattr(b, kind)
        if one == other or (kind == "limbo" and None in (one, other)):
            continue
        if kind == "master_key":
            yield Difference(kind, ledger)
        elif kind == "explicit_lac":
            yield Difference(kind, ledger, None, None, *_lacs(one, other))
        else:
            yield Difference(kind, ledger, None, None, _yes(one), _yes(other))


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _lacs(a: bytes | None, b: bytes | None) -> tuple[str, str]:
    """Return what two explicit LACs say: the entries, and where those are alike the bytes."""
    said = tuple(map(_lac, (a, b)))
    if said[0] == said[1] and a is not None and b is not None:
        return a.hex(), b.hex()
    return said[0], said[1]


def _lac(body: bytes | None) -> str:
    if body is None:
        return "none"
    entry = explicit_lac_entry(body)
    return body.hex() if entry is None else f"entry {entry}"
