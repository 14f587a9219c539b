"""Requests of a connection, the interface of dialects, and checks of answered records.

A dialect is the client side of one of the two protocols: it makes requests, and decodes a message
from the bookie to the key of the request that it answers. See `v2_dialect` and `v3_dialect`. A
scope is the upper 64 bits of a 128-bit ledger id; BookKeeper's ledgers are in scope 0.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from bkstore.errors import BkstoreError, CorruptionError
from bkstore.formats.entry import RecordBatch, read_batch_ids, record_header
from bkstore.ids import LedgerId
from bkstore.wire.status_codes import Status

_T = TypeVar("_T")

Subject = tuple[str] | tuple[str, LedgerId] | tuple[str, LedgerId, int]
"""What a request is about: its kind (such as "read"), then a ledger and an entry if it has them."""

LAST_ENTRY = -1
"""The entry id that stands for the last entry of the ledger in a read."""


@dataclass(slots=True, eq=False)
class PendingRequest(Generic[_T]):
    """One request: its frame, the key of its answer, and the function that reads the answer.

    `decode_result` returns the result from an answer's content, or raises `CorruptionError` if
    invalid. `subject` describes the request in errors. `extra_seconds` is the seconds that a bookie
    may take beyond the timeout. Once `is_done` it has an `error`, or an `answer`: status and
    content.
    """

    key: Hashable
    frame: bytes
    decode_result: Callable[[Any], _T]
    subject: Subject
    extra_seconds: float = 0.0
    sent_at: float = field(default=0.0, init=False)
    is_done: bool = field(default=False, init=False)
    answer: tuple[Status, Any] | None = field(default=None, init=False)
    error: BkstoreError | None = field(default=None, init=False)

    def describe(self) -> str:
        """Return a description of the request.

        >>> PendingRequest(0, b"", bytes, ("read", LedgerId(0, 7), 3)).describe()
        'read of entry 3 of ledger 7'
        """
        # the subject is (kind), (kind, ledger) or (kind, ledger, entry)
        labeled_parts = zip(("", "ledger ", "entry "), self.subject)
        kind, *ids = [f"{label}{part}" for label, part in labeled_parts]
        return " of ".join([kind, *reversed(ids)])  # the entry before its ledger


class AuthToken(NamedTuple):
    """An answer to AUTH: the name of the plugin, and its token."""

    plugin: bytes
    payload: bytes


class DecodedResponse(NamedTuple):
    """A decoded message of the bookie: the key of the request it answers, status and content."""

    key: Hashable
    status: Status
    content: Any


class Dialect(Protocol):
    """The client side of one of the protocols. Threads: safe."""

    @property
    def repeats_keys(self) -> bool:
        """Whether a later request may have the same key as one without an answer, as in v2,
        which has no transaction ids."""
        ...

    def auth(self, payload: bytes) -> PendingRequest[AuthToken]:
        """Return a request for one step of an authentication."""
        ...

    def decode(self, message: bytes) -> DecodedResponse:
        """Return the decoded message of a frame. Raises `CorruptionError` if it is invalid."""
        ...


def verify_record_ids(record: bytes, ledger_id: LedgerId, entry_id: int) -> bytes:
    """Return an answer's record. Raises `CorruptionError` if its ids are not those requested; for
    `LAST_ENTRY` any entry is valid."""
    header = record_header(record)
    if header.ledger != ledger_id or entry_id not in (header.entry_id, LAST_ENTRY):
        record_ids = f"entry {header.entry_id} of ledger {header.ledger}"
        raise CorruptionError(None, 0, f"the received record is {record_ids}")
    return record


def verify_batch(batch: RecordBatch, ledger_id: LedgerId, start: int, limit: int) -> RecordBatch:
    """Return the records of an answer to a batch read, with their entry ids. Raises
    `CorruptionError` unless there are one to `limit` records (0: no limit), all of this ledger,
    with consecutive ids from `start` on. If `start` is `LAST_ENTRY`, the first record may have any
    id, because the client does not know the last one's. About 30 ns a record."""
    count = len(batch)
    if not count or 0 < limit < count:
        raise CorruptionError(None, None, f"{count} records, {limit} were requested")
    ids = read_batch_ids(batch)
    if ids.entries.size < count:
        raise CorruptionError(None, None, f"record {ids.entries.size} of the batch is not an entry")
    scope, ledger_number = ledger_id.signed
    first_entry = int(ids.entries[0]) if start == LAST_ENTRY else start
    is_expected = (ids.scopes == scope) & (ids.ledgers == ledger_number)
    is_expected &= ids.entries == np.arange(first_entry, first_entry + count)
    if not is_expected.all():
        bad_row = int((~is_expected).argmax())
        record_ids = f"entry {ids.entries[bad_row]} of ledger {ids.ledgers[bad_row]}"
        raise CorruptionError(None, None, f"record {bad_row} of the batch is {record_ids}")
    return RecordBatch.of_frames(ids.entries, batch.buffer, batch.offsets, batch.sizes)
