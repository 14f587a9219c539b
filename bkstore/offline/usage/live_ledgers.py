"""Whose bytes are live: ledgers that the index knows, and that a list of live ones names."""

from __future__ import annotations

import os
from collections.abc import Iterable

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.files.opening import check_regular, opened
from bkstore.files.os_errors import readable
from bkstore.ids import LedgerId

_LONGEST = 200
"""Bytes of a line: any form of an id, and blanks around it."""


def read_live_list(path: str | os.PathLike[str]) -> set[LedgerId]:
    """Return the ledgers that a file lists, an id a line, in any form `LedgerId.parse` takes.

    Blank lines are passed over. Raises `CorruptionError` with file and offset for a line that is
    no id, `InvalidArgument` for a file that lists none: then all would be garbage.
    """
    found: set[LedgerId] = set()
    with readable(path):
        check_regular(path)
    with readable(path), opened(path) as file:
        at = 0
        while line := file.readline(_LONGEST):
            text = line.decode("ascii", "replace").strip()
            try:
                if text:
                    found.add(LedgerId.parse(text))
            except InvalidArgument as error:
                raise CorruptionError(path, at, f"is no list of ledgers: {error}") from None
            at += len(line)
    if not found:
        raise InvalidArgument(f"{path}: lists no ledger")
    return found


class LiveLedgers:
    """Tells live ledgers from garbage, directory by directory as garbage collection does.

    A ledger is live where the index knows it, and a list of live ones, if there is one, names it.
    With db storage it is live in its own directory only, number ``L mod directories``: what
    another directory has of it is nobody's.

    >>> live = LiveLedgers([LedgerId.of(3), LedgerId.of(4)], listed=[LedgerId.of(3)])
    >>> live.in_directory(LedgerId.of(3), 0), live.in_directory(LedgerId.of(4), 0)
    (True, False)
    """

    def __init__(
        self,
        known: Iterable[LedgerId],
        listed: Iterable[LedgerId] | None = None,
        directories: int = 1,
    ) -> None:
        self._live = set(known)
        self.unknown = 0
        """How many ledgers of the list the index does not know."""
        if listed is not None:
            wanted = set(listed)
            self.unknown = len(wanted - self._live)
            self._live &= wanted
        self._directories = directories

    def __contains__(self, ledger: LedgerId) -> bool:
        return ledger in self._live

    def in_directory(self, ledger: LedgerId, number: int) -> bool:
        """Return whether the bytes of a ledger in this directory are live."""
        here = self._directories == 1 or ledger.ledger % self._directories == number
        return here and ledger in self._live
