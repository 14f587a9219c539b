"""Where a database cannot be read: a block or file, and the keys whose rows are unknown there."""

from __future__ import annotations

from dataclasses import dataclass

from bkstore.errors import CorruptionError


@dataclass(frozen=True, slots=True)
class UnknownRange:
    """Rows that are unknown, because a block of `file` at `offset` (None: the file itself) failed
    for `reason`: those with keys in [start, stop), or from `start` on if `stop` is None, written up
    to `newest_sequence`. A row of another file there may have been changed or deleted by them.
    Messages name the rows as in `subject`, or by their keys if that is None."""

    file: str
    offset: int | None
    reason: str
    start: bytes
    stop: bytes | None
    newest_sequence: int
    subject: str | None = None

    def overlaps(self, start: bytes | None, stop: bytes | None) -> bool:
        """Return whether a key of [start, stop) (None: no limit) is in the range.

        >>> unknown = UnknownRange("000008.sst", 0, "damaged", b"b", b"d", 9)
        >>> [unknown.overlaps(*keys) for keys in ((b"a", b"b"), (b"a", b"c"), (b"d", None))]
        [False, True, False]
        """
        begins_before = stop is None or self.start < stop
        return begins_before and (self.stop is None or start is None or start < self.stop)

    def __contains__(self, key: bytes) -> bool:
        """Return whether a key is in the range."""
        return self.start <= key and (self.stop is None or key < self.stop)

    def error(self) -> CorruptionError:
        """Return the error for a reader that needs all rows."""
        end = "the last key" if self.stop is None else self.stop.hex()
        keys = f"rows from key {self.start.hex() or 'the first'} up to {end}"
        return CorruptionError(
            self.file, self.offset, f"{self.reason}: {self.subject or keys} are unknown"
        )


Damage = list[UnknownRange] | None
"""Where a reader appends the ranges that it passes over; None: it raises instead."""


def odd_row(file: str, offset: int | None, row: tuple[bytes, bytes], sequence: int) -> UnknownRange:
    """Return the range of one row (key, value) whose widths no bookie's row has."""
    key, value = row
    sizes = f"a key of {len(key)} and a value of {len(value)} bytes: {key[:40].hex()}"
    return UnknownRange(file, offset, f"not a bookie's row: {sizes}", key, key + b"\0", sequence)


def report(unknown: UnknownRange, damage: Damage) -> None:
    """Append a range to `damage`, or raise its error."""
    if damage is None:
        raise unknown.error() from None
    damage.append(unknown)
