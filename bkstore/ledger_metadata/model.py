"""LedgerMetadata: an immutable value, with the queries of readers and checkers. Source:
`client/LedgerMetadataImpl`, `client/LedgerMetadataBuilder`."""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from bkstore.arguments import bytes_like, instance
from bkstore.errors import InvalidArgument
from bkstore.ids import MAX_ENTRY_ID, LedgerId, check_integer
from bkstore.ledger_metadata.java_hash_map import hash_map_order

NO_ENTRY = -1
"""The last entry id of a ledger that is empty or not closed (`INVALID_ENTRY_ID`)."""

NEWEST_VERSION = 3
"""The metadata format version of new ledgers (`CURRENT_METADATA_FORMAT_VERSION`)."""

State = Literal["OPEN", "IN_RECOVERY", "CLOSED"]

_STATES: tuple[str, ...] = get_args(State)
_check_custom = instance(Mapping)
_DIGESTS = ("CRC32", "HMAC", "CRC32C", "DUMMY")
_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1
_INTEGER_FIELDS = [
    *("ensemble_size", "write_quorum_size", "ack_quorum_size", "last_entry_id"),
    *("length", "ctime", "version", "c_token"),
]


class Segment(NamedTuple):
    """Entries from `first_entry` on are written to `ensemble`, a bookie id for each index."""

    first_entry: int
    ensemble: tuple[str, ...]


class SegmentRange(NamedTuple):
    """A segment of a closed ledger with both ends, inclusive."""

    first_entry: int
    last_entry: int
    ensemble: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether the segment has no entries: it was opened, but nothing was written to it."""
        return self.last_entry < self.first_entry


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """The metadata of one ledger. Immutable, hashable, can be pickled.

    `ledger` is an int (scope 0) or a `LedgerId`. `segments` are (first entry, bookies) pairs. A
    ledger that is not closed has last entry -1 and length 0; the decoders ensure that, as
    BookKeeper's. `ctime` is in milliseconds, -1 if unknown; it is written only with `store_ctime`,
    because old readers do not know the field. A store has both `digest_type` and `password` or
    neither; metadata files have no passwords. "MAC" means "HMAC". Only version 3 has `c_token`.

    Raises `InvalidArgument` for invalid values (an unknown state, an id that is not an integer).
    Values that contradict each other are accepted, and reported by `problems` and `validate`.

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
        """Convert the fields to their types. Raises `InvalidArgument` for values that no metadata
        can have; `problems` lists those that contradict each other."""
        set_field = object.__setattr__  # the dataclass is frozen
        set_field(self, "ledger", LedgerId.of(self.ledger))
        set_field(self, "segments", tuple(_to_segments(self.segments)))
        if self.state not in _STATES:
            raise InvalidArgument(f"ledger state {self.state!r} is not one of {', '.join(_STATES)}")
        if self.digest_type is not None:
            digest_type = "HMAC" if self.digest_type == "MAC" else self.digest_type
            if digest_type not in _DIGESTS:
                raise InvalidArgument(f"unknown digest type {self.digest_type!r}")
            set_field(self, "digest_type", digest_type)
        if self.password is not None:
            set_field(self, "password", bytes_like("password", self.password))
        custom_given = _check_custom("custom_metadata", self.custom_metadata)
        # Comparing the set of types is quicker than checking each key and value, and mostly enough.
        is_text = {*map(type, custom_given)} <= {str}
        if not is_text and not all(isinstance(key, str) for key in custom_given):
            raise InvalidArgument("the keys of custom metadata must be text")
        custom_bytes = dict(custom_given)
        if not {*map(type, custom_bytes.values())} <= {bytes}:
            for key, value in custom_given.items():
                custom_bytes[key] = bytes_like("a value of custom metadata", value)
        set_field(self, "custom_metadata", MappingProxyType(custom_bytes))
        for field_name in _INTEGER_FIELDS:
            value = getattr(self, field_name)
            # The full check takes longer, and converts numbers of other types.
            if type(value) is not int or not _MIN_INT64 <= value <= _MAX_INT64:
                set_field(self, field_name, _check_int64(value, field_name))

    @property
    def closed(self) -> bool:
        """Whether the ledger is closed, so that its last entry is known."""
        return self.state == "CLOSED"

    def __reduce__(self) -> tuple[Any, ...]:
        values = {member.name: getattr(self, member.name) for member in fields(self)}
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
        return frozenset(bookie for segment in self.segments for bookie in segment.ensemble)

    def ensemble_at(self, entry_id: int) -> tuple[str, ...]:
        """Return the ensemble of `entry_id` (`getEnsembleAt`): that of the greatest first entry <=
        `entry_id`. Raises `InvalidArgument` if the entry is before all segments. O(segments)."""
        ordered = sorted(self.segments, key=lambda segment: segment.first_entry)
        following = bisect_right(ordered, entry_id, key=lambda segment: segment.first_entry)
        if following == 0:
            raise InvalidArgument(f"ledger {self.ledger}: no segment has entry {entry_id}")
        return ordered[following - 1].ensemble

    def segments_with_ends(self) -> list[SegmentRange]:
        """Return each segment of a closed ledger with its last entry, in the stored order. A
        segment ends before the next one begins, and at the ledger's last entry at the latest. Empty
        segments end before they start. For metadata with `problems` the ends are meaningless.
        Raises `InvalidArgument` if the ledger is not closed."""
        if not self.closed:
            raise InvalidArgument(f"ledger {self.ledger} is {self.state}: its end is unknown")
        ends = [segment.first_entry - 1 for segment in self.segments[1:]] + [self.last_entry_id]
        return [
            SegmentRange(first, min(end, self.last_entry_id), ensemble)
            for (first, ensemble), end in zip(self.segments, ends)
        ]

    def problems(self) -> list[str]:
        """Return the inconsistencies, a sentence each: of sizes, then of segments, then of the end.

        O(segments x E). Source: the checks of `client/LedgerMetadataBuilder`, of
        `client/LedgerMetadataImpl` and of the client when it creates a ledger, and how segments are
        created (`docs/formats/ledgermetadata.md`).

        >>> LedgerMetadata(7, 2, 3, 2, [(0, ["b1", "b2"])]).problems()
        ['write quorum 3 is outside 1..2, the ensemble size']
        """
        return [*_size_problems(self), *_segment_problems(self), *_end_problems(self)]

    def validate(self) -> LedgerMetadata:
        """Return this metadata; raises `InvalidArgument` with all problems if it has any."""
        problems = self.problems()
        if problems:
            raise InvalidArgument(f"ledger {self.ledger}: {'; '.join(problems)}")
        return self

    def to_safe_string(self) -> str:
        """Return the text without the password, as bookie shell prints it. Source:
        `LedgerMetadataImpl.toSafeString`; custom metadata are in Java's HashMap order."""
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
        segment_texts = (f"{first}=[{', '.join(ensemble)}]" for first, ensemble in self.segments)
        custom_texts = (
            f"{key}=base64:{base64.b64encode(self.custom_metadata[key]).decode('ascii')}"
            for key in hash_map_order(self.custom_metadata)
        )
        shown += [("ensembles", f"{{{', '.join(segment_texts)}}}")]
        shown += [("customMetadata", f"{{{', '.join(custom_texts)}}}")]
        return f"LedgerMetadata{{{', '.join(f'{name}={value}' for name, value in shown)}}}"


def _check_int64(value: int, what: str) -> int:
    number = check_integer(value, what)
    if not _MIN_INT64 <= number <= _MAX_INT64:
        raise InvalidArgument(f"{what} {number} does not fit 64 bits")
    return number


def _to_segments(pairs: Iterable[tuple[int, Iterable[str]]]) -> Iterator[Segment]:
    """Yield the segments of (first entry, ensemble) pairs; raises `InvalidArgument` for others."""
    for first, ensemble in pairs:
        bookies = () if isinstance(ensemble, str) else tuple(ensemble)
        if isinstance(ensemble, str) or not {*map(type, bookies)} <= {str}:
            raise InvalidArgument(f"an ensemble must be a list of bookie ids, not {ensemble!r}")
        if type(first) is not int or not _MIN_INT64 <= first <= _MAX_INT64:
            first = _check_int64(first, "first entry")
        yield Segment(first, bookies)


def _size_problems(metadata: LedgerMetadata) -> Iterator[str]:
    """Yield what is wrong with quorums, digest and version."""
    size, write, ack = metadata.ensemble_size, metadata.write_quorum_size, metadata.ack_quorum_size
    if size < 1:
        yield f"ensemble size {size} is below 1"
    if not 1 <= write <= size:
        yield f"write quorum {write} is outside 1..{size}, the ensemble size"
    if not 1 <= ack <= write:
        yield f"ack quorum {ack} is outside 1..{write}, the write quorum"
    if metadata.digest_type is None and metadata.password is not None:
        yield "a password requires a digest type"
    if not 1 <= metadata.version <= NEWEST_VERSION:
        yield f"metadata format version {metadata.version} is outside 1..{NEWEST_VERSION}"


def _segment_problems(metadata: LedgerMetadata) -> Iterator[str]:
    """Yield what is wrong with the segments: they ascend from 0, each of a whole ensemble."""
    if not metadata.segments:
        yield "no segment"
    previous = None
    for first, ensemble in metadata.segments:
        if previous is None and first != 0:
            yield f"the first segment begins at entry {first}, not at 0"
        if previous is not None and first <= previous:
            yield f"segment {first} does not begin after the previous one, {previous}"
        if not 0 <= first <= MAX_ENTRY_ID + 1:
            yield f"segment {first} begins outside 0..{MAX_ENTRY_ID + 1}"
        if len(ensemble) != metadata.ensemble_size:
            yield f"segment {first} has {len(ensemble)} bookies, not {metadata.ensemble_size}"
        if len(set(ensemble)) < len(ensemble):
            yield f"segment {first} names a bookie twice"
        if "" in ensemble:
            yield f"segment {first} has a bookie with an empty id"
        previous = first


def _end_problems(metadata: LedgerMetadata) -> Iterator[str]:
    """Yield what is wrong with last entry and length: only a closed ledger has them."""
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
    last_start = max((segment.first_entry for segment in metadata.segments), default=0)
    if last + 1 < last_start:  # a change of ensemble begins at most one past the last entry
        yield f"last entry {last} is before segment {last_start}"
