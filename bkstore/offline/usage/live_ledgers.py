"""Which ledgers are live: those in the index that are also in a list of live ledgers, if given."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.files.opening import check_regular, open_for_reading
from bkstore.files.os_errors import convert_read_errors
from bkstore.ids import LedgerId
from bkstore.index.api import UnknownLedgers

_MAX_LINE_BYTES = 200  # maximum length of a line in bytes: any form of an id, with blanks around it


def read_live_list(path: str | os.PathLike[str]) -> set[LedgerId]:
    """Return the ledgers that a file lists, one id per line, in any form `LedgerId.parse` takes.
    Blank lines are skipped. Raises `CorruptionError` with file and offset for a line that is not an
    id, and `InvalidArgument` for an empty list, by which all ledgers would be garbage."""
    ledger_ids: set[LedgerId] = set()
    with convert_read_errors(path):
        check_regular(path)
    with convert_read_errors(path), open_for_reading(path) as file:
        line_offset = 0
        while line := file.readline(_MAX_LINE_BYTES):
            text = line.decode("ascii", "replace").strip()
            try:
                if text:
                    ledger_ids.add(LedgerId.parse(text))
            except InvalidArgument as error:
                reason = f"is not a list of ledgers: {error}"
                raise CorruptionError(path, line_offset, reason) from None
            line_offset += len(line)
    if not ledger_ids:
        raise InvalidArgument(f"{path}: lists no ledgers")
    return ledger_ids


class LiveLedgers:
    """Tells live ledgers from garbage, directory by directory as garbage collection does.

    A ledger is live if the index knows it and a list of live ledgers, if given, has it; with
    several `directories` (db storage), only in its own one, number ``L mod directories``. A ledger
    of which damage hides whether the index knows it (`unknown`) counts as known.

    >>> live = LiveLedgers([LedgerId.of(3), LedgerId.of(4)], listed=[LedgerId.of(3)])
    >>> live.is_live_in(LedgerId.of(3), 0), live.is_live_in(LedgerId.of(4), 0)
    (True, False)
    """

    def __init__(
        self,
        known: Iterable[LedgerId],
        listed: Iterable[LedgerId] | None = None,
        directories: int = 1,
        unknown: Sequence[UnknownLedgers] = (),
    ) -> None:
        self._live = set(known)
        self._unknown = unknown
        self._listed: set[LedgerId] | None = None
        self.unknown_count = 0
        """Number of listed ledgers that the index does not know."""
        if listed is not None:
            self._listed = set(listed)
            missing = self._listed - self._live
            self.unknown_count = sum(not self._may_be_known(ledger) for ledger in missing)
            self._live &= self._listed
        self._directories = directories

    def _may_be_known(self, ledger: LedgerId) -> bool:
        """Return whether damage hides if the index knows the ledger."""
        return any(unknown.includes(ledger) for unknown in self._unknown)

    def __contains__(self, ledger: LedgerId) -> bool:
        if ledger in self._live:
            return True
        is_listed = self._listed is None or ledger in self._listed
        return is_listed and self._may_be_known(ledger)

    def is_live_in(self, ledger: LedgerId, dir_index: int) -> bool:
        """Return whether the bytes of a ledger in this directory are live."""
        is_own_directory = self._directories == 1 or ledger.ledger % self._directories == dir_index
        return is_own_directory and ledger in self
