"""Which ledgers have their index file below a folder of ``current/``: those that are hidden where
something else is in its place. Rule: `bkstore.formats.idxfile.index_path`."""

from __future__ import annotations

from typing import NamedTuple

from bkstore.errors import CorruptionError
from bkstore.ids import LedgerId
from bkstore.index.api import Finding, UnknownLedgers

SCOPED_DIGITS = 8
"""Hex digits in the name of a folder of scoped ledgers, those of other scopes than 0."""

_NO_LEDGERS = UnknownLedgers(LedgerId(0, 0), LedgerId(0, 0), low_16_bits=range(0))


class LostFolder(NamedTuple):
    """Something else in the place of a folder of index files: the error of reading it, and the
    ledgers that may have had their file below."""

    error: CorruptionError
    unknown: UnknownLedgers

    def finding(self) -> Finding:
        """Return the error as a finding."""
        return Finding.of(self.error)

    def may_hide(self, scope: int | None) -> bool:
        """Return whether ledgers of `scope` may have been there (None: of any scope)."""
        return scope is None or self.unknown.first.scope <= scope <= self.unknown.last.scope


def ledgers_below(parts: tuple[str, ...]) -> UnknownLedgers:
    """Return the ledgers whose index file is below the folder with the path `parts` in
    ``current/``; none if a bookie names no folder so.

    >>> below = ledgers_below(("1", "f4"))
    >>> [below.includes(LedgerId(0, number)) for number in (0x1F4, 0x1F5, 0x701F4)]
    [True, False, True]
    """
    if len(parts[0]) == SCOPED_DIGITS:
        return _scoped_ledgers_below(parts)
    numbers = [int(part, 16) for part in parts]
    if not all(each < 0x100 and f"{each:x}" == part for each, part in zip(numbers, parts)):
        return _NO_LEDGERS
    # The two folders are named by the second lowest and the lowest byte of the ledger id.
    low_16_bits = range(numbers[0] << 8, (numbers[0] + 1) << 8)
    if len(numbers) == 2:
        low_16_bits = low_16_bits[numbers[1] : numbers[1] + 1]
    return UnknownLedgers(LedgerId(0, 0), LedgerId(0, (1 << 63) - 1), low_16_bits=low_16_bits)


def _scoped_ledgers_below(parts: tuple[str, ...]) -> UnknownLedgers:
    """Return the ledgers of other scopes than 0 below a folder: the scope is in the names of the
    first two folders, and the upper half of the ledger in that of the third."""
    digits = "".join(parts)
    first, last = (int(digits.ljust(32, fill), 16) for fill in "0f")
    first = max(first, 1 << 64)  # the first id of scope 1
    if first > last or not all(len(part) == SCOPED_DIGITS for part in parts):
        return _NO_LEDGERS
    first_ledger, last_ledger = (LedgerId(*divmod(each, 1 << 64)) for each in (first, last))
    return UnknownLedgers(first_ledger, last_ledger)
