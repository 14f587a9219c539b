"""Journal files (.txn) and lastMark: `docs/formats/journal.md`.

    header                                 record
    0    u8[4]  "BKLG"                     0    i32     length n
    4    i32    version 1..6               4    u8[n]   an entry, or a special record
    8    u8     zero, to 512 (from 5 on)

    special record (scope 0)               special record (other scopes, bkstore's)
    0    i64    ledger                     0    u8      0xA0
    8    i64    -0x1000, -0x2000, -0x8000  1    i64     scope
    16   i32    length n of the body       9    i64     ledger
    20   u8[n]  master key or explicit LAC 17   i64     -0x1000, -0x2000, -0x8000
                (a fence ends at 16)       25   i32, u8[n] as beside it

    padding (from 5 on)                    lastMark
    0    i32    -0x100                     0    i64     journal id
    4    i32    length p                   8    i64     position in that file
    8    u8[p]  zero

Big-endian throughout. A length of 0 ends the file's data. Persisted format: do not renumber.
Sources: `bookie/Journal`, `bookie/JournalChannel`, `bookie/LogMark`, `bookie/BookieImpl`.
"""

from __future__ import annotations

import struct
from typing import Literal, NamedTuple

import numpy as np

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.entry import V1_HEADER, V2_HEADER, is_v2, record_header
from bkstore.formats.entry.explicit_lac import MIN_EXPLICIT_LAC_BYTES
from bkstore.formats.entry.header import FLAGS_V2, V2_BIT
from bkstore.formats.syntax.framing import Bytes, read_int64s
from bkstore.ids import Int64Array, LedgerId

RecordKind = Literal["add", "master_key", "fence", "explicit_lac", "unknown"]

NEWEST_VERSION = 6
OLDEST_WRITABLE_VERSION = 4
PADDED_VERSION = 5
"""The first version with padding records and a header of 512 bytes."""

PADDING_MASK = -0x100
ALIGNMENT = 512
LAST_MARK_SIZE = 16
SPECIAL_IDS: dict[str, int] = {"master_key": -0x1000, "fence": -0x2000, "explicit_lac": -0x8000}
SPECIAL_VERSIONS: dict[str, int] = {"master_key": 3, "fence": 4, "explicit_lac": 6}
"""The first file version in which each special record is allowed."""

_MAGIC = b"BKLG"
_SHORT_HEADER = 8
_LONG_HEADER = 512
_MIN_RECORD_BYTES = 16
_MAX_RECORD_BYTES = (1 << 31) - 1
_DIGEST_COUNT = 4  # in its first byte a version 2 entry has its digest's number, a special record 0
_KINDS: dict[int, RecordKind] = {-0x1000: "master_key", -0x2000: "fence", -0x8000: "explicit_lac"}
_IDS_V1 = struct.Struct(">qq")
_IDS_V2 = struct.Struct(">Bqqq")
_MARK_STRUCT = struct.Struct(">qq")


class LogMark(NamedTuple):
    """A position in a journal: file id and offset. Sorts in the order of writing.

    >>> LogMark(7, 512) < LogMark(7, 1024) < LogMark(8, 512)
    True
    """

    journal_id: int
    position: int


class JournalHeader(NamedTuple):
    """A file's version, and the offset where its records begin."""

    version: int
    size: int


class JournalRecord(NamedTuple):
    """One record. The meaning of `body` depends on `kind`. add: the whole record, which is the
    entry. master_key: the key. explicit_lac: the LAC body (ledger, LAC, digest). fence: empty.
    unknown (another negative entry id): the bytes after the ids. `lac` and `length` are None in
    special records. The repr does not show a key."""

    kind: RecordKind
    ledger: LedgerId
    entry_id: int
    body: bytes
    lac: int | None = None
    length: int | None = None

    def __repr__(self) -> str:
        body = f"<{len(self.body)} bytes>" if self.kind == "master_key" else repr(self.body)
        return (
            f"JournalRecord(kind={self.kind!r}, ledger={self.ledger!r}, "
            f"entry_id={self.entry_id}, body={body}, lac={self.lac}, length={self.length})"
        )


def encode_header(version: int) -> bytes:
    """Return the header of a new file: 8 bytes in version 4, 512 in 5 and 6.

    >>> encode_header(4).hex()
    '424b4c4700000004'
    """
    if not OLDEST_WRITABLE_VERSION <= version <= NEWEST_VERSION:
        raise InvalidArgument(f"journal version {version} cannot be written, only 4, 5 or 6")
    return (_MAGIC + struct.pack(">i", version)).ljust(_header_size(version), b"\0")


def _header_size(version: int) -> int:
    if version == 1:
        return 0
    return _LONG_HEADER if version >= PADDED_VERSION else _SHORT_HEADER


def decode_header(data: bytes | memoryview) -> JournalHeader:
    """Return the header in the first bytes of a file; 8 are enough. A file without the signature,
    or of fewer than 8 bytes, is of version 1, which has no header. Raises `CorruptionError` for a
    version outside 2..6 after the signature.

    >>> decode_header(encode_header(6)), decode_header(b"")
    (JournalHeader(version=6, size=512), JournalHeader(version=1, size=0))
    """
    if len(data) < _SHORT_HEADER or bytes(data[:4]) != _MAGIC:
        return JournalHeader(1, 0)
    version = int.from_bytes(data[4:8], "big", signed=True)
    if not 2 <= version <= NEWEST_VERSION:
        raise CorruptionError(None, 4, f"journal version {version} is outside 2..{NEWEST_VERSION}")
    return JournalHeader(version, _header_size(version))


def encode_record(data: bytes) -> bytes:
    """Return a record with its length before it. `InvalidArgument` below 16 bytes or above i32.

    >>> encode_record(bytes(16)).hex()[:10]
    '0000001000'
    """
    check_record_size(len(data))
    return len(data).to_bytes(4, "big") + data


def check_record_size(size: int) -> None:
    """Raise `InvalidArgument` for a record that a journal cannot hold. An empty one would read as
    the end of the file; fewer than 16 bytes hold no ids."""
    if not _MIN_RECORD_BYTES <= size <= _MAX_RECORD_BYTES:
        limits = f"{_MIN_RECORD_BYTES}..{_MAX_RECORD_BYTES}"
        raise InvalidArgument(f"journal record of {size} bytes: {limits}")


def padding_record(position: int, alignment: int = ALIGNMENT) -> bytes:
    """Return the padding record that fills a journal from `position` up to a multiple of
    `alignment`; b"" if `position` is one. The record is a marker, the number of zeros, and these
    zeros. A gap too small for the first eight bytes is extended by one alignment unit.

    >>> len(padding_record(1000)), len(padding_record(1020)), len(padding_record(1024))
    (24, 516, 0)
    """
    past_alignment = position % alignment
    if not past_alignment:
        return b""
    gap = alignment - past_alignment
    zeros = alignment - (8 - gap) if gap < 8 else gap - 8
    return struct.pack(">ii", PADDING_MASK, zeros) + bytes(zeros)


def encode_special(kind: str, ledger: int | LedgerId, body: bytes = b"") -> bytes:
    """Return a special record, which has a fixed negative id in place of an entry id. Kinds are
    "master_key" (its body is the key), "fence" (without a body) and "explicit_lac". A ledger in a
    scope other than 0 gets a record of version 2. Raises `InvalidArgument` for another kind, a
    fence with a body, or an explicit LAC body of less than 16 bytes.

    >>> encode_special("fence", 7).hex()
    '0000000000000007ffffffffffffe000'
    """
    if kind not in SPECIAL_IDS:
        raise InvalidArgument(f"special record {kind!r} is not one of {', '.join(SPECIAL_IDS)}")
    if kind == "fence" and body:
        raise InvalidArgument("a fence record has no body")
    if kind == "explicit_lac" and len(body) < MIN_EXPLICIT_LAC_BYTES:
        raise InvalidArgument(f"explicit LAC body of {len(body)} bytes: at least 16 are needed")
    ledger_id = LedgerId.of(ledger)
    if ledger_id.scope == 0:
        ids = _IDS_V1.pack(ledger_id.ledger, SPECIAL_IDS[kind])
    else:
        ids = _IDS_V2.pack(FLAGS_V2, *ledger_id.signed, SPECIAL_IDS[kind])
    return ids if kind == "fence" else ids + struct.pack(">i", len(body)) + body


def decode_record(data: bytes, version: int = NEWEST_VERSION) -> JournalRecord:
    """Return the record of a file of `version`, its length not included. No digest is verified.
    Raises `CorruptionError` for a record that is too short, has an impossible ledger id, is of a
    kind that the version does not have, or whose body does not have the stated length.

    >>> decode_record(encode_special("master_key", 7, b"secret"))[:4]
    ('master_key', LedgerId(scope=0, ledger=7), -4096, b'secret')
    """
    if len(data) < _MIN_RECORD_BYTES:
        raise CorruptionError(None, 0, f"journal record of {len(data)} bytes is too short for ids")
    # `version` is the file's; an entry has a header V1, or V2 with a scope.
    if not is_v2(data):
        number, entry = _IDS_V1.unpack_from(data)
        if entry < 0:  # a special record
            return _decode_special(LedgerId.of(number), entry, data, _IDS_V1.size, version)
    elif data[0] == FLAGS_V2:
        return _decode_special_v2(data, version)
    header = record_header(data)
    if header.entry_id < 0:  # in an entry header V2, which has the entry id at byte 17
        raise CorruptionError(None, 17, f"entry of negative id {header.entry_id}")
    return JournalRecord("add", header.ledger, header.entry_id, data, header.lac, header.length)


def entry_ids_of_records(data: Bytes, offsets: Int64Array, sizes: Int64Array) -> Int64Array:
    """Return the entry id of each record that is an entry (`decode_record` kind "add"), and -1 for
    each other record: int64[n]. The records must be complete in `data`. About 15 ns a record.

    >>> data = bytes(32) + encode_special("fence", 7)
    >>> entry_ids_of_records(np.frombuffer(data, np.uint8), np.array([0, 32]), np.array([32, 16]))
    array([ 0, -1])
    """
    # Version 1 begins with ledger and entry id; a special record has an entry id below -1.
    first_bytes = data[offsets]
    is_v1 = (sizes >= V1_HEADER) & (first_bytes < V2_BIT)
    if is_v1.all():
        return np.maximum(read_int64s(data, offsets, field_offset=8), -1)
    entry_ids = np.full(offsets.size, -1, np.int64)
    entry_ids[is_v1] = np.maximum(read_int64s(data, offsets[is_v1], field_offset=8), -1)
    # Version 2 begins with flags, scope, ledger and entry id. The flags have the number of the
    # digest type, 0 in a special record.
    has_v2_flags = (first_bytes > FLAGS_V2) & (first_bytes <= FLAGS_V2 + _DIGEST_COUNT)
    is_v2_entry = has_v2_flags & (sizes >= V2_HEADER)
    offsets_v2 = offsets[is_v2_entry]
    scopes = read_int64s(data, offsets_v2, field_offset=1)
    entries = read_int64s(data, offsets_v2, field_offset=17)
    entry_ids[is_v2_entry] = np.where(scopes == 0, -1, np.maximum(entries, -1))
    return entry_ids


def _decode_special_v2(data: bytes, version: int) -> JournalRecord:
    """Return a special record of version 2, which is of a ledger in a scope other than 0. `version`
    is that of the file."""
    if len(data) < _IDS_V2.size:
        reason = f"special record of {len(data)} bytes: its ids need {_IDS_V2.size}"
        raise CorruptionError(None, 0, reason)
    _, scope, number, entry = _IDS_V2.unpack_from(data)
    if scope == 0:
        raise CorruptionError(None, 1, "version 2 record of scope 0, which must be version 1")
    if entry >= 0:
        raise CorruptionError(None, 17, f"special record of entry id {entry}")
    return _decode_special(LedgerId.from_signed(scope, number), entry, data, _IDS_V2.size, version)


def _decode_special(
    ledger: LedgerId, entry: int, data: bytes, ids_end: int, version: int
) -> JournalRecord:
    """Return a special record. Its kind is determined by its negative entry id, its body begins
    behind the ids, which end at `ids_end`. `version` is that of the file."""
    kind = _KINDS.get(entry, "unknown")
    if kind == "unknown":
        return JournalRecord(kind, ledger, entry, data[ids_end:])
    first_version = SPECIAL_VERSIONS[kind]
    if version < first_version:
        reason = f"{kind} record in a file of version {version}, allowed from {first_version} on"
        raise CorruptionError(None, ids_end - 8, reason)
    # A fence has ids only; the others have a body with its length before it.
    if kind == "fence":
        excess = len(data) - ids_end
        if excess:
            raise CorruptionError(None, ids_end, f"fence record with {excess} excess bytes")
        return JournalRecord(kind, ledger, entry, b"")
    body = data[ids_end + 4 :]
    size = int.from_bytes(data[ids_end : ids_end + 4], "big", signed=True)
    if len(data) < ids_end + 4 or size != len(body):
        reason = f"{kind} record says {size} bytes of body, {len(body)} are there"
        raise CorruptionError(None, ids_end, reason)
    if kind == "explicit_lac" and size < MIN_EXPLICIT_LAC_BYTES:
        raise CorruptionError(None, ids_end, f"explicit LAC body of {size} bytes: 16 are needed")
    return JournalRecord(kind, ledger, entry, body)


def encode_mark(mark: LogMark) -> bytes:
    """Return the 16 bytes of a lastMark file.

    >>> encode_mark(LogMark(1, 512)).hex()
    '00000000000000010000000000000200'
    """
    if not (0 <= mark[0] < 1 << 63 and 0 <= mark[1] < 1 << 63):
        raise InvalidArgument(f"not a position in a journal: id {mark[0]}, position {mark[1]}")
    return _MARK_STRUCT.pack(*mark)


def decode_mark(data: bytes) -> LogMark:
    """Return the mark in the first 16 bytes; `CorruptionError` if cut short or negative."""
    if len(data) < LAST_MARK_SIZE:
        raise CorruptionError(None, 0, f"lastMark of {len(data)} bytes: {LAST_MARK_SIZE} needed")
    mark = LogMark(*_MARK_STRUCT.unpack_from(data))
    if min(mark) < 0:
        bad_offset = 0 if mark.journal_id < 0 else 8
        raise CorruptionError(None, bad_offset, f"lastMark is negative: {tuple(mark)}")
    return mark
