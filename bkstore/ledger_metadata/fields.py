"""The fields of ledger metadata, each brought to its type: a value, and nothing asked of it yet.

`model` asks questions of it, `rules` and `printing` work on the fields alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from bkstore.arguments import data, instance
from bkstore.errors import InvalidArgument
from bkstore.ids import LedgerId, check_integer

NO_ENTRY = -1
"""The last entry id of a ledger that has none, or that is not closed (`INVALID_ENTRY_ID`)."""

NEWEST_VERSION = 3
"""The metadata format version that ledgers get today (`CURRENT_METADATA_FORMAT_VERSION`)."""

State = Literal["OPEN", "IN_RECOVERY", "CLOSED"]

_STATES: tuple[str, ...] = get_args(State)
_check_custom = instance(Mapping)
_DIGESTS = ("CRC32", "HMAC", "CRC32C", "DUMMY")


class Segment(NamedTuple):
    """From `first_entry` on the entries go to `ensemble`, a bookie id for each index."""

    first_entry: int
    ensemble: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetadataFields:
    """What is kept of one ledger; `LedgerMetadata` says what each field means."""

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


_LEAST, _MOST = -(2**63), 2**63 - 1
_INTEGERS = [
    *("ensemble_size", "write_quorum_size", "ack_quorum_size", "last_entry_id"),
    *("length", "ctime", "version", "c_token"),
]


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
