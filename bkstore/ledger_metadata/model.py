"""LedgerMetadata: an immutable value, and the questions that readers and checkers ask of it.

Bytes are the business of `bkstore.formats.metadata`.
Source: `client/LedgerMetadataImpl`, `client/LedgerMetadataBuilder`.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from bkstore.arguments import data, instance
from bkstore.errors import InvalidArgument
from bkstore.ids import MAX_ENTRY_ID, LedgerId, check_integer

NO_ENTRY = -1
"""The last entry id of a ledger that has none, or that is not closed (`INVALID_ENTRY_ID`)."""

NEWEST_VERSION = 3
"""The metadata format version that ledgers get today (`CURRENT_METADATA_FORMAT_VERSION`)."""

State = Literal["OPEN", "IN_RECOVERY", "CLOSED"]

_STATES: tuple[str, ...] = get_args(State)
_check_custom = instance(Mapping)
_DIGESTS = ("CRC32", "HMAC", "CRC32C", "DUMMY")
_LEAST, _MOST = -(2**63), 2**63 - 1
_INTEGERS = [
    *("ensemble_size", "write_quorum_size", "ack_quorum_size", "last_entry_id"),
    *("length", "ctime", "version", "c_token"),
]


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
            put(self, "password", data("password", self.password))
        given = _check_custom("custom_metadata", self.custom_metadata)
        if not all(isinstance(key, str) for key in given):
            raise InvalidArgument("the keys of custom metadata are text")
        custom = {key: data("a value of custom metadata", value) for key, value in given.items()}
        put(self, "custom_metadata", MappingProxyType(custom))
        for name in _INTEGERS:
            value = getattr(self, name)
            if type(value) is not int or not _LEAST <= value <= _MOST:
                put(self, name, _int64(value, name))

    @property
    def closed(self) -> bool:
        """Whether the ledger is closed, so that its last entry is known."""
        return self.state == "CLOSED"

    def __reduce__(self) -> tuple[Any, ...]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values["custom_metadata"] = dict(self.custom_metadata)
        return partial(LedgerMetadata, **values), ()

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

        Sizes, then segments, then the end. O(segments x E). Source: the checks of
        `client/LedgerMetadataBuilder`, `client/LedgerMetadataImpl` and of the client when it
        creates a ledger; what follows from how segments come about
        (`docs/formats/ledgermetadata.md`).

        >>> LedgerMetadata(7, 2, 3, 2, [(0, ["b1", "b2"])]).problems()
        ['write quorum 3 is outside 1..2, the ensemble size']
        """
        return [*_size_problems(self), *_segment_problems(self), *_end_problems(self)]

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
        shown: list[tuple[str, object]] = [
            ("formatVersion", self.version),
            ("ensembleSize", self.ensemble_size),
            ("writeQuorumSize", self.write_quorum_size),
            ("ackQuorumSize", self.ack_quorum_size),
            ("state", self.state),
        ]
        if self.closed:
            shown += [("length", self.length), ("lastEntryId", self.last_entry_id)]
        if self.password is not None:
            name = "MAC" if self.digest_type == "HMAC" else self.digest_type
            shown += [("digestType", name), ("password", "OMITTED")]
        parts = (f"{part.first_entry}=[{', '.join(part.ensemble)}]" for part in self.segments)
        custom = (
            f"{key}=base64:{base64.b64encode(self.custom_metadata[key]).decode('ascii')}"
            for key in _java_order(self.custom_metadata)
        )
        shown += [("ensembles", f"{{{', '.join(parts)}}}")]
        shown += [("customMetadata", f"{{{', '.join(custom)}}}")]
        return f"LedgerMetadata{{{', '.join(f'{name}={value}' for name, value in shown)}}}"


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


# -- what sound metadata keeps to


def _size_problems(metadata: LedgerMetadata) -> Iterator[str]:
    size, write, ack = (
        metadata.ensemble_size,
        metadata.write_quorum_size,
        metadata.ack_quorum_size,
    )
    if size < 1:
        yield f"ensemble size {size} is below 1"
    if not 1 <= write <= size:
        yield f"write quorum {write} is outside 1..{size}, the ensemble size"
    if not 1 <= ack <= write:
        yield f"ack quorum {ack} is outside 1..{write}, the write quorum"
    if metadata.digest_type is None and metadata.password is not None:
        yield "there is a password, but no digest type"
    if not 1 <= metadata.version <= NEWEST_VERSION:
        yield f"metadata format version {metadata.version} is outside 1..{NEWEST_VERSION}"


def _segment_problems(metadata: LedgerMetadata) -> Iterator[str]:
    if not metadata.segments:
        yield "there is no segment"
    before = None
    for first, ensemble in metadata.segments:
        if before is None and first != 0:
            yield f"the first segment begins at entry {first}, not at 0"
        if before is not None and first <= before:
            yield f"segment {first} does not begin after the one before it, {before}"
        if not 0 <= first <= MAX_ENTRY_ID + 1:
            yield f"segment {first} begins outside 0..{MAX_ENTRY_ID + 1}"
        if len(ensemble) != metadata.ensemble_size:
            yield f"segment {first} has {len(ensemble)} bookies, not {metadata.ensemble_size}"
        if len(set(ensemble)) < len(ensemble):
            yield f"segment {first} names a bookie twice"
        if "" in ensemble:
            yield f"segment {first} has a bookie without a name"
        before = first


def _end_problems(metadata: LedgerMetadata) -> Iterator[str]:
    last, length = metadata.last_entry_id, metadata.length
    if not metadata.closed:
        if (last, length) != (NO_ENTRY, 0):
            yield f"{metadata.state}, but with a last entry ({last}) or a length ({length})"
        return
    if not NO_ENTRY <= last <= MAX_ENTRY_ID:
        yield f"last entry {last} is outside -1..{MAX_ENTRY_ID}"
    if length < 0:
        yield f"length {length} is negative"
    if last == NO_ENTRY and length > 0:
        yield f"length {length} without an entry"
    begins = max((part.first_entry for part in metadata.segments), default=0)
    if last + 1 < begins:  # a change of ensemble begins at most one past the last entry
        yield f"last entry {last} lies before segment {begins}"


# -- the order of a Java HashMap


def _java_order(keys: Iterable[str]) -> list[str]:
    """Return keys in the order in which a Java HashMap filled with them is walked."""
    given = list(keys)
    buckets = 16
    while len(given) > buckets * 3 // 4:
        buckets *= 2
    return sorted(given, key=lambda key: _spread_hash(key) % buckets)


def _spread_hash(text: str) -> int:
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) % 2**32
    return value ^ value >> 16
