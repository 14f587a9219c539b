"""Where a database cannot be read: a block or file, and the keys whose rows are unknown there."""

from __future__ import annotations

from dataclasses import dataclass

from bkstore.errors import CorruptionError


@dataclass(frozen=True, slots=True)
class UnknownRange:
    """Rows that are unknown, because a block of `file` at `offset` (None: the file itself) failed
    for `reason`: those with keys in [start, stop), or from `start` on if `stop` is None, written up
    to `newest_sequence`. A row of another file there may have been changed or deleted by them."""

    file: str
    offset: int | None
    reason: str
    start: bytes
    stop: bytes | None
    newest_sequence: int

    def error(self) -> CorruptionError:
        """Return the error for a reader that needs all rows."""
        end = "the last key" if self.stop is None else self.stop.hex()
        keys = f"rows from key {self.start.hex() or 'the first'} up to {end} are unknown"
        return CorruptionError(self.file, self.offset, f"{self.reason}: {keys}")


Damage = list[UnknownRange] | None
"""Where a reader appends the ranges that it passes over; None: it raises instead."""
