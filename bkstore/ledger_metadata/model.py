"""LedgerMetadata: an immutable value, and the questions that readers and checkers ask of it.

Bytes are the business of `bkstore.formats.metadata`.
Source: `client/LedgerMetadataImpl`, `client/LedgerMetadataBuilder`.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from bkstore.errors import InvalidArgument
from bkstore.ledger_metadata.fields import MetadataFields
from bkstore.ledger_metadata.printing import safe_string
from bkstore.ledger_metadata.rules import problems


class SegmentRange(NamedTuple):
    """A segment of a closed ledger with both ends, inclusive."""

    first_entry: int
    last_entry: int
    ensemble: tuple[str, ...]

    @property
    def empty(self) -> bool:
        """Whether no entry lies in it: it was opened, and nothing was written to it."""
        return self.last_entry < self.first_entry


@dataclass(frozen=True, slots=True)
class LedgerMetadata(MetadataFields):
    """What the metadata store knows of one ledger. Immutable, hashable, can be pickled.

    `ledger` is an int (scope 0) or a `LedgerId`. `segments` are (first entry, bookies) pairs.
    A ledger that is not closed has last entry -1 and length 0; the readers of bytes see to that,
    as upstream's does. `ctime` is in milliseconds, -1 if not known; it is written only with
    `store_ctime`, as old readers do not know the field. In a store `digest_type` and `password`
    come together or not at all; a metadata file tells no passwords. "MAC" is taken for "HMAC".
    `c_token` is in version 3 only.

    Raises `InvalidArgument` for values that are none (a state nobody knows, an id that is no
    integer); values that contradict each other are for `problems` and `checked`.

    >>> ledger = LedgerMetadata(7, 3, 2, 2, [(0, ["b1", "b2", "b3"]), (10, ["b1", "b4", "b3"])],
    ...                         state="CLOSED", last_entry_id=25)
    >>> ledger.ensemble_at(12)
    ('b1', 'b4', 'b3')
    >>> [(part.first_entry, part.last_entry) for part in ledger.segments_with_ends()]
    [(0, 9), (10, 25)]
    >>> ledger.problems()
    []
    """

    def __reduce__(self) -> tuple[Any, ...]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return _remade, (values | {"custom_metadata": dict(self.custom_metadata)},)

    @property
    def scope_id(self) -> int:
        """The ledger's scope, unsigned."""
        return self.ledger.scope

    @property
    def ledger_id(self) -> int:
        """The ledger's number in its scope, unsigned."""
        return self.ledger.ledger

    @property
    def bookies(self) -> frozenset[str]:
        """Every bookie of every segment."""
        return frozenset(bookie for part in self.segments for bookie in part.ensemble)

    def ensemble_at(self, entry: int) -> tuple[str, ...]:
        """Return the ensemble of `entry`: that of the greatest first entry <= `entry`.

        `InvalidArgument` if the entry lies before all segments. O(segments). Source:
        `getEnsembleAt`.
        """
        ordered = sorted(self.segments, key=lambda part: part.first_entry)
        at = bisect_right(ordered, entry, key=lambda part: part.first_entry)
        if at == 0:
            raise InvalidArgument(f"ledger {self.ledger}: no segment has entry {entry}")
        return ordered[at - 1].ensemble

    def segments_with_ends(self) -> list[SegmentRange]:
        """Return each segment of a closed ledger with its last entry, in the order kept.

        A segment ends before the next one begins, the last one at the ledger's last entry;
        none goes beyond that. Empty ones are there too, with an end before the start. Of
        metadata with `problems` the ends mean nothing. `InvalidArgument` if not closed.
        """
        if not self.closed:
            raise InvalidArgument(f"ledger {self.ledger} is {self.state}: its end is not known")
        ends = [part.first_entry - 1 for part in self.segments[1:]] + [self.last_entry_id]
        return [
            SegmentRange(part.first_entry, min(end, self.last_entry_id), part.ensemble)
            for part, end in zip(self.segments, ends)
        ]

    def problems(self) -> list[str]:
        """Return what contradicts itself, a sentence each; empty if the metadata is sound.

        >>> LedgerMetadata(7, 2, 3, 2, [(0, ["b1", "b2"])]).problems()
        ['write quorum 3 is outside 1..2, the ensemble size']
        """
        return list(problems(self))

    def checked(self) -> LedgerMetadata:
        """Return this metadata; `InvalidArgument` naming every problem if it has any."""
        found = self.problems()
        if found:
            raise InvalidArgument(f"ledger {self.ledger}: {'; '.join(found)}")
        return self

    def safe_string(self) -> str:
        """Return the printable form without the password, as bookie shell prints it.

        Source: `LedgerMetadataImpl.toSafeString`; custom metadata in the order of a Java HashMap.
        """
        return safe_string(self)


def _remade(values: dict[str, Any]) -> LedgerMetadata:
    return LedgerMetadata(**values)
