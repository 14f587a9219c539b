"""What one connection sends and takes: a request with the key of its answer, and a dialect.

A dialect is one of the two protocols as a client speaks it: it makes requests, and says to which
request a message from the bookie is the answer. `v2_dialect` and `v3_dialect` have them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from bkstore.errors import BkstoreError, CorruptionError
from bkstore.formats.entry import RecordBatch, ids_of, record_header
from bkstore.ids import LedgerId
from bkstore.wire.status import Status

_T = TypeVar("_T")

LAST_ENTRY = -1
"""In a read: the last entry of the ledger, whichever that is."""


class Request(Generic[_T]):
    """One request: its frame, the key that its answer has, and how that is understood.

    `read` makes the result of an answer's content, or raises `CorruptionError` for one that
    cannot be; `about` says what was asked for (a kind, a ledger, an entry); `patience` are
    seconds that the bookie may take beyond the time-out. Once it is `done` it has an `error`, or
    an `answer`: status and content.
    """

    __slots__ = ("about", "answer", "done", "error", "frame", "key", "patience", "read", "sent")

    def __init__(
        self,
        key: Hashable,
        frame: bytes,
        read: Callable[[Any], _T],
        about: tuple[object, ...],
        patience: float = 0.0,
    ) -> None:
        self.key = key
        self.frame = frame
        self.read = read
        self.about = about
        self.patience = patience
        self.sent = 0.0
        self.done = False
        self.answer: tuple[Status, Any] | None = None
        self.error: BkstoreError | None = None

    def what(self) -> str:
        """Return what was asked for, as text.

        >>> Request(0, b"", bytes, ("read", LedgerId(0, 7), 3)).what()
        'read of entry 3 of ledger 7'
        """
        kind, *rest = self.about
        return " of ".join([str(kind), *(f"entry {entry}" for entry in rest[1:]), *_named(rest)])


def _named(rest: list[object]) -> list[str]:
    return [f"ledger {rest[0]}"] if rest else []


class AuthToken(NamedTuple):
    """An answer to AUTH: the plugin that gave it, and what that says."""

    plugin: bytes
    payload: bytes


class Spoken(NamedTuple):
    """A message of the bookie: the key of the request that it answers, status and content."""

    key: Hashable
    status: Status
    content: Any


class Dialect(Protocol):
    """How one of the protocols is read. Threads: safe."""

    @property
    def repeats_keys(self) -> bool:
        """Whether a later request may have the key of one that got no answer: v2 has no
        transaction ids."""
        ...

    def auth(self, payload: bytes) -> Request[AuthToken]:
        """Return a request that is one step of an authentication."""
        ...

    def decode(self, message: bytes) -> Spoken:
        """Return what a frame's message says; `CorruptionError` for one that says nothing."""
        ...


def checked_record(record: bytes, ledger: LedgerId, entry: int) -> bytes:
    """Return an answer's record; `CorruptionError` unless its ids are those asked for.

    For `LAST_ENTRY` any entry will do.
    """
    found = record_header(record)
    if found.ledger != ledger or entry not in (found.entry_id, LAST_ENTRY):
        told = f"entry {found.entry_id} of ledger {found.ledger}"
        raise CorruptionError(None, 0, f"the record that came is {told}")
    return record


def checked_batch(batch: RecordBatch, ledger: LedgerId, start: int, max_count: int) -> RecordBatch:
    """Return an answer's records with their entry ids; `CorruptionError` unless it may be one.

    It has at least a record and not more than asked for, of this ledger, with consecutive ids
    from `start` on (any, for the last entry). About 30 ns a record.
    """
    count = len(batch)
    if not count or 0 < max_count < count:
        raise CorruptionError(None, None, f"{count} records where {max_count} were asked for")
    ids = ids_of(batch)
    if ids.entries.size < count:
        raise CorruptionError(None, None, f"record {ids.entries.size} of the batch is no entry")
    scope, number = ledger.signed
    first = int(ids.entries[0]) if start == LAST_ENTRY else start
    fits = (ids.scopes == scope) & (ids.ledgers == number)
    fits &= ids.entries == np.arange(first, first + count)
    if not fits.all():
        at = int((~fits).argmax())
        told = f"entry {ids.entries[at]} of ledger {ids.ledgers[at]}"
        raise CorruptionError(None, None, f"record {at} of the batch is {told}")
    return RecordBatch.of_frames(ids.entries, batch.buffer, batch.offsets, batch.sizes)
