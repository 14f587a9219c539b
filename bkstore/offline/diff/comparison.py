"""The differences between two bookies, ledger by ledger: a merge of two ordered listings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from bkstore.availability import Availability
from bkstore.errors import BkstoreError
from bkstore.formats.entry import explicit_lac_or_none
from bkstore.ids import LedgerId
from bkstore.index.api import Finding, UnknownLedgers
from bkstore.index.damage_runs import add_unreported
from bkstore.offline.diff.ledger_sides import (
    ComparedLedger,
    ComparedState,
    DamageableSide,
    DiffSide,
)

DifferenceKind = Literal["ledger", "entries", "fenced", "limbo", "explicit_lac", "master_key"]
SideLetter = Literal["a", "b"]
OnLedger = Callable[[LedgerId, bool], None]
"""Called with each ledger, and whether it differs."""

_STATES: tuple[DifferenceKind, ...] = ("fenced", "limbo", "explicit_lac", "master_key")


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between the two sides. "ledger": only side `only_in` knows the ledger, and has
    these `entries` (None: unreadable). "entries": only side `only_in` has these `entries` of a
    ledger that both know. Other kinds are parts of the state, with each side's value in `a` and
    `b`, except for "master_key": never shown."""

    kind: DifferenceKind
    ledger: LedgerId
    only_in: SideLetter | None = None
    entries: Availability | None = None
    a: str | None = None
    b: str | None = None


def diff(
    a: DiffSide,
    b: DiffSide,
    findings: list[Finding],
    only_ledger: LedgerId | None = None,
    on_ledger: OnLedger | None = None,
    ledgers: Collection[LedgerId] | None = None,
) -> Iterator[Difference]:
    """Yield the differences between two sides, each a bookie's directories or a dump of them, in
    unsigned order of ledgers.

    Compares ledgers, their entries (by set operations on sequence groups) and their states, but not
    the location or content of records. If one side cannot read the entries or the state of a
    ledger, these are not compared, and the error is appended to `findings`. The limbo state is
    compared if both sides store it. A ledger that only one side lists is not compared if damage may
    hide it on the other; that damage is a finding, too. With `only_ledger`, just that one is
    compared, with `ledgers` just these. `on_ledger` is called with each ledger and whether it
    differs.

    Memory: one ledger of each side, and what the sides need. Cost: listing both. Raises as they do.

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
    chosen = ledgers if only_ledger is None else (only_ledger,)
    hidden = [_relevant_damage(side, chosen, findings) for side in (a, b)]
    for left, right in _merge_sides(a.ledgers(chosen), b.ledgers(chosen)):
        either = left or right
        assert either is not None
        if any(
            ledger is None and any(unknown.includes(either.ledger) for unknown in unknown_ledgers)
            for ledger, unknown_ledgers in zip((left, right), hidden)
        ):
            continue
        differs = False
        for difference in _compare_ledger(left, right, (a.name, b.name), findings):
            differs = True
            yield difference
        if on_ledger is not None:
            on_ledger(either.ledger, differs)


def _relevant_damage(
    side: DiffSide, chosen: Collection[LedgerId] | None, findings: list[Finding]
) -> list[UnknownLedgers]:
    """Return the ranges of ledgers that damage hides on a side, without those that have none of the
    chosen ledgers, and append the damage to `findings`."""
    if not isinstance(side, DamageableSide):
        return []
    hidden = [
        (unknown, finding)
        for unknown, finding in side.hidden_ledgers()
        if chosen is None or any(map(unknown.includes, chosen))
    ]
    add_unreported(findings, [finding for _, finding in hidden])
    return [unknown for unknown, _ in hidden]


def _merge_sides(
    a: Iterator[ComparedLedger], b: Iterator[ComparedLedger]
) -> Iterator[tuple[ComparedLedger | None, ComparedLedger | None]]:
    """Yield (ledger of `a`, the same ledger of `b`) for each ledger that either side knows, in
    order; None for a side that does not know it. Both sides are in the order of ledgers."""
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


def _compare_ledger(
    left: ComparedLedger | None,
    right: ComparedLedger | None,
    side_names: tuple[str, str],
    findings: list[Finding],
) -> Iterator[Difference]:
    """Yield the differences of one ledger. A side is None if it does not know the ledger: this is
    one difference. Entries and states that a side cannot read are added to `findings`."""
    for side_name, ledger in zip(side_names, (left, right)):
        if ledger is not None:
            findings += _unread_findings(side_name, ledger)
    if left is None or right is None:
        only = left or right
        assert only is not None
        entries = None if isinstance(only.entries, BkstoreError) else only.entries
        yield Difference("ledger", only.ledger, "a" if right is None else "b", entries)
        return
    if not isinstance(left.entries, BkstoreError) and not isinstance(right.entries, BkstoreError):
        yield from _compare_entries(left.ledger, left.entries, right.entries)
    if isinstance(left.state, ComparedState) and isinstance(right.state, ComparedState):
        yield from _compare_states(left.ledger, left.state, right.state)


def _unread_findings(side_name: str, compared: ComparedLedger) -> list[Finding]:
    """Return findings for the unreadable entries and state of a ledger, which are not compared."""
    findings: list[Finding] = []
    ledger = compared.ledger
    for subject, value in (("entries are", compared.entries), ("state is", compared.state)):
        if isinstance(value, BkstoreError):
            finding = Finding.of(value, ledger)
            prefix = "" if finding.file else f"{side_name}: "
            detail = f"{prefix}ledger {ledger}: its {subject} not compared: {finding.detail}"
            findings.append(replace(finding, detail=detail))
    return findings


def _compare_entries(ledger: LedgerId, a: Availability, b: Availability) -> Iterator[Difference]:
    """Yield the entries that only one side has."""
    if surplus := a - b:
        yield Difference("entries", ledger, "a", surplus)
    if surplus := b - a:
        yield Difference("entries", ledger, "b", surplus)


def _compare_states(ledger: LedgerId, a: ComparedState, b: ComparedState) -> Iterator[Difference]:
    """Yield a difference for each part of a ledger's state that differs."""
    for kind in _STATES:
        a_value, b_value = getattr(a, kind), getattr(b, kind)
        if a_value == b_value:
            continue
        if kind == "limbo" and None in (a_value, b_value):  # only one side stores limbo
            continue
        if kind == "master_key":  # a secret, so without the values
            yield Difference(kind, ledger)
        elif kind == "explicit_lac":
            a_text, b_text = _explicit_lac_texts(a_value, b_value)
            yield Difference(kind, ledger, a=a_text, b=b_text)
        else:
            yield Difference(kind, ledger, a=_yes_or_no(a_value), b=_yes_or_no(b_value))


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


def _explicit_lac_texts(a: bytes | None, b: bytes | None) -> tuple[str, str]:
    """Return the texts of two explicit LACs: their entries, or their bytes if the entries agree."""
    text_a, text_b = _explicit_lac_text(a), _explicit_lac_text(b)
    if text_a == text_b and a is not None and b is not None:
        return a.hex(), b.hex()
    return text_a, text_b


def _explicit_lac_text(body: bytes | None) -> str:
    if body is None:
        return "none"
    entry = explicit_lac_or_none(body)
    return body.hex() if entry is None else f"entry {entry}"
