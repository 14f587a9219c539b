"""What a load drives: the calls of an index or a storage that operations are made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from bkstore.ids import Int64Array, LedgerId


class LoadTarget(ABC):
    """An open index or storage. Clients call it from several threads at once.

    `prepare` makes what is written, before the clock runs: an index needs locations, a storage
    encoded records.
    """

    row_bytes: int
    """The bytes of one entry that anybody asked for: a key and a location, or a record."""

    @abstractmethod
    def prepare(self, ledger: LedgerId, entry_ids: Int64Array) -> Any:
        """Return what `write` takes for these entries."""

    @abstractmethod
    def prepare_singly(self, ledger: LedgerId, entry_ids: Int64Array) -> list[Any]:
        """Return what `write_one` takes for each of these entries."""

    @abstractmethod
    def write(self, prepared: Any) -> None:
        """Write a batch of entries."""

    @abstractmethod
    def write_one(self, prepared: Any) -> None:
        """Write one entry."""

    @abstractmethod
    def read(self, ledger: LedgerId, entry: int) -> None:
        """Read one entry; raise `BkstoreError` if it is absent."""

    @abstractmethod
    def read_batch(self, ledger: LedgerId, entry_ids: Int64Array) -> int:
        """Read entries in a row by one call; return how many were read."""

    @abstractmethod
    def delete(self, ledger: LedgerId) -> None:
        """Delete a ledger."""

    @abstractmethod
    def flush(self) -> None:
        """Make all writes durable, as a bookie does from time to time."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""
