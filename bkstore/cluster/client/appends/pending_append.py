"""PendingAppend: an append in flight, for callers that do not wait for each entry."""

from __future__ import annotations

from typing import Protocol

from bkstore.arguments import number, optional

_check_seconds = optional(number(0))


class _Writer(Protocol):
    last_confirmed: int
    failure: BaseException | None

    def wait_for(self, entry_id: int, seconds: float | None) -> None: ...


class PendingAppend:
    """The result of `LedgerHandle.append_later`; `entry` is the id that the entry gets. Waiting
    also replaces bookies that failed, in the waiting thread. Thread-safe."""

    def __init__(self, entry: int, writer: _Writer | None) -> None:
        self.entry = entry
        self._writer = writer

    def __repr__(self) -> str:
        return f"<PendingAppend {self.entry}{' (done)' if self.is_done else ''}>"

    @property
    def is_done(self) -> bool:
        """Whether `result` returns or raises at once: the entry is appended, or it has failed."""
        writer = self._writer
        return writer is None or self.entry <= writer.last_confirmed or writer.failure is not None

    def result(self, seconds: float | None = None) -> int:
        """Wait until A bookies (the ack quorum) have the entry; return its id. Raises what
        `LedgerHandle.append` raises; then the entry is never acknowledged. Raises `TimeoutError`
        after `seconds`; the append goes on then, and may be waited for again."""
        _check_seconds("seconds", seconds)
        # Without a writer, the entry was appended before this object was made.
        if self._writer is not None and self.entry > self._writer.last_confirmed:
            self._writer.wait_for(self.entry, seconds)
        return self.entry
