"""Nodes of underreplication: marks, locks, votes, check times, delay, layout. Marks, and the
holders of locks and votes, are in protobuf's text format, check times are binary protobuf, the
delay is plain text. Pages: `docs/formats/zookeeper.md`, `docs/formats/ledgermetadata.md` (marks).
Source: `ZkLedgerUnderreplicationManager`, `ZkLedgerAuditorManager`, `DataFormats.proto`."""

from __future__ import annotations

import re
from typing import NamedTuple

from google.protobuf.internal import decoder, encoder
from google.protobuf.message import DecodeError

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.metadata.messages import UnderreplicatedLedgerFormat, as_text
from bkstore.formats.syntax import proto_text
from bkstore.formats.syntax.proto_messages import check_complete, declare
from bkstore.ids import LedgerId

BASIC_LAYOUT = b'type: "BASIC"\nversion: 1\n'
"""The only layout of underreplication that has ever existed."""

_FIELD_1_TAG = 8
_MAX_QUOTED = 64
_DELAY = re.compile(rb"[0-9]{1,10}")
_LOCKS = "/underreplication/locks"
_MARKS = "/underreplication/ledgers"
_MARK = re.compile(_MARKS + r"(?:/S([0-9a-f]{16}))?((?:/[0-9a-f]{4}){4})/urL([0-9]{10,20})")

_Holder = declare("bkstore", "LockDataFormat: required string bookieId 1")["LockDataFormat"]


class UnderreplicatedMark(NamedTuple):
    """An underreplicated mark: when it was set (unix seconds, None = not kept), and for whom."""

    marked_at: float | None = None
    missing_bookies: tuple[str, ...] = ()


def mark_path(ledger: int | LedgerId) -> str:
    """Return the path of a ledger's underreplicated mark (that it needs repair): four levels of hex
    digits, then the decimal id. A scope other than 0, which BookKeeper does not have, is a level
    before them.

    >>> mark_path(4660)
    '/underreplication/ledgers/0000/0000/0000/1234/urL0000004660'
    """
    ledger_id = LedgerId.of(ledger)
    digits = f"{ledger_id.ledger:016x}"
    levels = f"{digits[:4]}/{digits[4:8]}/{digits[8:12]}/{digits[12:]}"
    return f"{_MARKS}{_scope_level(ledger_id)}/{levels}/urL{ledger_id.ledger:010d}"


def _scope_level(ledger_id: LedgerId) -> str:
    return f"/S{ledger_id.scope:016x}" if ledger_id.scope else ""


def parse_mark_path(path: str) -> LedgerId | None:
    """Return the ledger whose mark has this path; None for other paths."""
    match = _MARK.fullmatch(path)
    if not match:
        return None
    try:
        ledger = LedgerId(int(match[1] or "0", 16), int(match[3]))
    except InvalidArgument:
        return None
    return ledger if mark_path(ledger) == path else None


def lock_path(ledger: int | LedgerId) -> str:
    """Return the path of the lock of a ledger's mark, which a repairing process holds. A scope
    other than 0, which BookKeeper does not have, is a level before it.

    >>> lock_path(4660)
    '/underreplication/locks/urL0000004660'
    """
    ledger_id = LedgerId.of(ledger)
    return f"{_LOCKS}{_scope_level(ledger_id)}/urL{ledger_id.ledger:010d}"


def decode_mark(data: bytes) -> UnderreplicatedMark:
    r"""Return an underreplicated mark; `CorruptionError` if the bytes are invalid.

    >>> decode_mark(b'replica: "b1"\nctime: 1700000000500\n')
    UnderreplicatedMark(marked_at=1700000000.5, missing_bookies=('b1',))
    """
    message = UnderreplicatedLedgerFormat()
    proto_text.parse_into(data, 0, message, "underreplicated mark")
    try:
        bookies = tuple(map(as_text, message.replica))
    except UnicodeDecodeError as error:
        raise CorruptionError(None, None, "a mark has a name that is not UTF-8") from error
    marked_at = message.ctime / 1000 if message.HasField("ctime") and message.ctime >= 0 else None
    return UnderreplicatedMark(marked_at, bookies)


def encode_mark(mark: UnderreplicatedMark) -> bytes:
    """Return a mark as `markLedgerUnderreplicated` writes it; time is rounded to milliseconds."""
    message = UnderreplicatedLedgerFormat(replica=mark.missing_bookies)
    if mark.marked_at is not None:
        message.ctime = round(mark.marked_at * 1000)
    return proto_text.to_bytes(message)


def encode_check_time(milliseconds: int) -> bytes:
    """Return the bytes of the time of the last check, in milliseconds since 1970; -1 means never.

    >>> encode_check_time(1700000000001).hex()
    '0881d095ffbc31'
    """
    if not -(2**63) <= milliseconds < 2**63:
        raise InvalidArgument(f"{milliseconds} milliseconds are beyond 64 bits")
    value: bytes = encoder._VarintBytes(milliseconds % 2**64)  # type: ignore[attr-defined]
    return bytes([_FIELD_1_TAG]) + value


def decode_check_time(data: bytes) -> int:
    """Return the time of the last check in milliseconds since 1970, -1 if the field is absent.
    Raises `CorruptionError` for other bytes."""
    if not data:
        return -1
    try:  # the value is behind the tag, which has one byte
        value, end = decoder._DecodeVarint(data, 1)  # type: ignore[attr-defined]
    except (IndexError, DecodeError):
        value, end = 0, -1  # -1 is not the end of the data, so the next check raises
    if data[0] != _FIELD_1_TAG or end != len(data):
        raise CorruptionError(None, 0, f"not a check time: {data[:16].hex()}")
    milliseconds = int(value)
    return milliseconds - 2**64 if milliseconds >= 2**63 else milliseconds


def encode_holder(bookie_id: str) -> bytes:
    r"""Return the value of a lock or a vote: its holder.

    >>> encode_holder("worker-1")
    b'bookieId: "worker-1"\n'
    """
    return proto_text.to_bytes(_Holder(bookieId=bookie_id))


def decode_holder(data: bytes) -> str:
    """Return the holder of a lock or a vote; `CorruptionError` for invalid bytes."""
    message = _Holder()
    proto_text.parse_into(data, 0, message, "holder")
    check_complete(message, 0, "holder")
    return str(message.bookieId)


def encode_delay(seconds: int) -> bytes:
    """Return the value of the recovery delay."""
    if not 0 <= seconds < 2**31:
        raise InvalidArgument(f"a delay of {seconds} seconds is outside 0..2147483647")
    return b"%d" % seconds


def decode_delay(data: bytes) -> int:
    """Return the recovery delay in seconds; `CorruptionError` if it is not a number."""
    if not _DELAY.fullmatch(data):
        raise CorruptionError(None, 0, f"recovery delay is not a number: {data[:_MAX_QUOTED]!r}")
    return int(data)
