"""PendingAppend: an entry that is on its way, for a writer that does not wait for each."""

from __future__ import annotations

from typing import Protocol

from bkstore.arguments import number, optional

_check_seconds = optional(number(0))


class _Confirming(Protocol):
    """A writer as what it has under way sees it."""

    confirmed: int
    broken: BaseException | None

    def wait_for(self, entry: int, seconds: float | None) -> None: ...


class PendingAppend:
    """What `LedgerHandle.append_later` gives: `entry` is the id that the entry has.

    Whoever waits works too: a bookie that failed is replaced by that. Threads: safe.
    """

    def __init__(self, entry: int, writer: _Confirming | None) -> None:
        """Take an entry; without a writer it is appended already."""
        self.entry = entry
        self._writer = writer

    def __repr__(self) -> str:
        """Return the entry, and whether it is done."""
        return f"<PendingAppend {self.entry}{' (done)' if self.done else ''}>"

    @property
    def done(self) -> bool:
        """Whether `result` would not wait: it is appended, or it has failed for good."""
        writer = self._writer
        return writer is None or self.entry <= writer.confirmed or writer.broken is not None

    def result(self, seconds: float | None = None) -> int:
        """Wait until the entry is appended as `LedgerHandle.append` has it, and return its id.

        Raises as `append`; then the entry is never acknowledged. `TimeoutError` after so many
        seconds: it goes on, and may be waited for again.
        """
        _check_seconds("seconds", seconds)
        if self._writer is not None and self.entry > self._writer.confirmed:
            self._writer.wait_for(self.entry, seconds)
        return self.entry
