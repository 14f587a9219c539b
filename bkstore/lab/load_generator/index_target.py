"""An index under load: entries are rows of ledger, entry and location."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bkstore.errors import NoSuchEntry
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import EntryIndex
from bkstore.lab.load_generator.target import LoadTarget

_FIRST_LOCATION = (1 << 32) | 1024


class PreparedRows(NamedTuple):
    """Rows of one ledger, to be put by one call."""

    ledger: LedgerId
    entry_ids: Int64Array
    locations: Int64Array


class IndexTarget(LoadTarget):
    """An index, whose locations are those of entries of `value_size` bytes in one log."""

    row_bytes = 24  # a key of ledger and entry, and a location

    def __init__(self, index: EntryIndex, value_size: int) -> None:
        self._index, self._value_size = index, value_size

    def prepare(self, ledger: LedgerId, entry_ids: Int64Array) -> PreparedRows:
        """Return rows with their locations."""
        return PreparedRows(ledger, entry_ids, _FIRST_LOCATION + entry_ids * self._value_size)

    def prepare_singly(
        self, ledger: LedgerId, entry_ids: Int64Array
    ) -> list[tuple[LedgerId, int, int]]:
        """Return (ledger, entry, location) of each entry: the arguments of `write_one`."""
        rows = self.prepare(ledger, entry_ids)
        return [
            (ledger, entry, location)
            for entry, location in zip(entry_ids.tolist(), rows.locations.tolist())
        ]

    def write(self, prepared: PreparedRows) -> None:
        """Call `put_many`."""
        self._index.put_many(*prepared)

    def write_one(self, prepared: tuple[LedgerId, int, int]) -> None:
        """Call `put`."""
        self._index.put(*prepared)

    def read(self, ledger: LedgerId, entry: int) -> None:
        """Call `get`."""
        if self._index.get(ledger, entry) is None:
            raise NoSuchEntry(f"ledger {ledger}: entry {entry} was put and is absent")

    def read_batch(self, ledger: LedgerId, entry_ids: Int64Array) -> int:
        """Call `get_many`."""
        return int(np.count_nonzero(self._index.get_many(ledger, entry_ids)))

    def delete(self, ledger: LedgerId) -> None:
        """Call `delete`."""
        self._index.delete(ledger)

    def flush(self) -> None:
        """Call `flush`."""
        self._index.flush()

    def close(self) -> None:
        """Close the index."""
        self._index.close()
