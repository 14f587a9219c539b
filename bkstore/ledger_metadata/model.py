"""LedgerMetadata: an immutable value, and the questions that readers and checkers ask of it.

Bytes are the business of `bkstore.formats.metadata`.
Source: `client/LedgerMetadataImpl`, `client/LedgerMetadataBuilder`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from bkstore.errors import InvalidArgument
from bkstore.ids import LedgerId, check_integer
from bkstore.ledger_metadata.printing import safe_string
from bkstore.ledger_metadata.rules import NEWEST_VERSION, NO_ENTRY, problems

__all__ = ["LedgerMetadata", "Segment", "SegmentRange", "State"]

State = Literal["OPEN", "IN_RECOVERY", "CLOSED"]

_STATES: tuple[str, ...] = get_args(State)
_DIGESTS = ("CRC32", "HMAC", "CRC32C", "DUMMY")


class Segment(NamedTuple):
    """From `first_entry` on the entries go to `ensemble`, a bookie id for each index."""

    first_entry: int
    ensemble: tuple[str, ...]


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
class LedgerMetadata:
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

    ledger: LedgerId
    ensemble_size: int
    write_quorum_size: int
    ack_quorum_size: int
    segments: tuple[Segment, ...]
    state: State = "OPEN"
    last_entry_id: int = NO_ENTRY
    length: int = 0
    digest_type: str | None = None
    password: bytes | None = field(default=None, repr=False)
    ctime: int = -1
    store_ctime: bool = False
    custom_metadata: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    version: int = NEWEST_VERSION
    c_token: int = 0

    def __post_init__(self) -> None:
        """Bring each field to its type."""
        put = object.__setattr__
        put(self, "ledger", LedgerId.of(self.ledger))
        put(self, "segments", tuple(_segments(self.segments)))
        if self.state not in _STATES:
            raise InvalidArgument(f"ledger state {self.state!r} is none of {', '.join(_STATES)}")
        if self.digest_type is not None:
            name = "HMAC" if self.digest_type == "MAC" else self.digest_type
            if name not in _DIGESTS:
                raise InvalidArgument(f"unknown digest type {self.digest_type!r}")
            put(self, "digest_type", name)
        if self.password is not None:
            put(self, "password", bytes(self.password))
        custom = {key: bytes(value) for key, value in self.custom_metadata.items()}
        if not all(isinstance(key, str) for key in custom):
            raise InvalidArgument("the keys of custom metadata are text")
        put(self, "custom_metadata", MappingProxyType(custom))
        for name in _INTEGERS:
            value = getattr(self, name)
            if type(value) is not int or not _LEAST <= value <= _MOST:
                put(self, name, _int64(value, name))

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
    def closed(self) -> bool:
        """Whether the ledger is closed, so that its last entry is known."""
        return self.state == "CLOSED"

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


_LEAST, _MOST = -(2**63), 2**63 - 1
_INTEGERS = [
    *("ensemble_size", "write_quorum_size", "ack_quorum_size", "last_entry_id"),
    *("length", "ctime", "version", "c_token"),
]


def _remade(values: dict[str, Any]) -> LedgerMetadata:
    return LedgerMetadata(**values)


def _int64(value: int, what: str) -> int:
    number = check_integer(value, what)
    if not _LEAST <= number <= _MOST:
        raise InvalidArgument(f"{what} {number} does not fit 64 bits")
    return number


def _segments(given: Iterable[tuple[int, Iterable[str]]]) -> Iterator[Segment]:
    for first, ensemble in given:
        bookies = () if isinstance(ensemble, str) else tuple(ensemble)
        if isinstance(ensemble, str) or not {*map(type, bookies)} <= {str}:
            raise InvalidArgument(f"an ensemble is a list of bookie ids, not {ensemble!r}")
        yield Segment(_int64(first, "first entry"), bookies)
