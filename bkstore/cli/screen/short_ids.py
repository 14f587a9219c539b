"""Short forms of 128-bit ledger ids for tables, or the full ids if two would look alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bkstore.ids import LedgerId, unsigned64

_SHORT_ID_DIGITS = 8  # hex digits of each half of a short id


def short_ledger_id(scope: int, ledger: int, separator: str = "…") -> str:
    """Return a ledger id in decimal in scope 0, else the ends of scope and ledger in hex.

    A half of up to 8 hex digits is complete, without leading zeros. Both are signed, as in tables.

    >>> short_ledger_id(0, 7), short_ledger_id(1, 255)
    ('7', '1…ff')
    >>> short_ledger_id(*LedgerId.parse("c0ffee00-feed-4bad-9e55-0123456789ab").signed)
    'c0ffee00…456789ab'
    """
    if scope == 0:
        return str(ledger)
    high, low = f"{unsigned64(scope):x}", f"{unsigned64(ledger):x}"
    high = high if len(high) <= _SHORT_ID_DIGITS else f"{high:0>16}"[:_SHORT_ID_DIGITS]
    return f"{high}{separator}{low[-_SHORT_ID_DIGITS:]}"


def ledger_cells(scopes: Iterable[Any], ledgers: Iterable[Any], separator: str) -> list[str]:
    """Return ledger ids in short form, or all in full if two short ones would be equal."""
    scoped_ids = list(zip(scopes, ledgers))
    if not any(scope for scope, _ in scoped_ids):
        return ["-" if ledger is None else str(ledger) for _, ledger in scoped_ids]
    present = {(scope, ledger) for scope, ledger in scoped_ids if ledger is not None}
    texts = {scoped_id: short_ledger_id(*scoped_id, separator) for scoped_id in present}
    if len({*texts.values()}) < len(texts):
        texts = {scoped_id: str(LedgerId.from_signed(*scoped_id)) for scoped_id in present}
    return [texts.get(scoped_id, "-") for scoped_id in scoped_ids]
