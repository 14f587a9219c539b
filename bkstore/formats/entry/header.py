"""The header of a record: ids, LAC and length, and the layout of the rest.

    version 1 (scope 0, BookKeeper's)      version 2 (other scopes, bkstore's)
    0    i64     ledger                    0    u8      0xA0 | digest number
    8    i64     entry id                  1    i64     scope
    16   i64     last add confirmed        9    i64     ledger
    24   i64     length, this one included 17   i64     entry id
    32   u8[x]   digest                    25   i64     last add confirmed
    32+x u8[]    payload                   33   i64     length
                                           41   u8[x]   digest
                                           41+x u8[]    payload

Big-endian. The digest covers header and payload. Only version 2 has its digest type, in the low
half of its first byte. Persisted format: do not renumber. Sources: `proto/checksum/DigestManager`,
BP-35 (the version 2 header: the proposal's "1 byte of flags, 9 bytes more").
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from bkstore.arguments import instance
from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.syntax.framing import Bytes, read_int64s
from bkstore.ids import MAX_ENTRY_ID, Int64Array, LedgerId, check_entry_id, check_integer

V1_HEADER = 32
V2_HEADER = 41
NO_ENTRY = -1
"""The value of a LAC field when nothing is confirmed (`BookieProtocol.INVALID_ENTRY_ID`)."""

FLAGS_V2 = 0xA0  # top bit, and version 2 in bits 4-6; bits 0-3 take the digest number
_STRUCT_V1 = struct.Struct(">qqqq")
_STRUCT_V2 = struct.Struct(">Bqqqqq")
V2_BIT = 0x80
_check_record = instance(bytes, bytearray, memoryview)


class Entry(NamedTuple):
    """One entry: ids, its writer's LAC, the ledger's payload bytes up to and including it, payload.
    `decode` gives `ledger` as a `LedgerId`; `encode` takes an int for scope 0 too."""

    ledger: int | LedgerId
    entry_id: int
    lac: int
    length: int
    payload: bytes


class RecordHeader(NamedTuple):
    """The fixed fields of a record, and where they end (where the digest begins). `digest` is the
    number that a version 2 record carries, None in version 1."""

    ledger: LedgerId
    entry_id: int
    lac: int
    length: int
    size: int
    digest: int | None


def is_v2(record: bytes | memoryview) -> bool:
    """Return whether a record is of version 2: the top bit of its first byte."""
    if type(record) is not bytes:
        _check_record("record", record)
    return len(record) > 0 and record[0] >= V2_BIT


def record_header(record: bytes | memoryview) -> RecordHeader:
    """Return the fixed fields of a record, from its first 32 or 41 bytes; verifies no digest. The
    entry id may be negative, as in a journal's special records. Raises `CorruptionError` if too
    short, or for an impossible ledger.

    >>> record_header(encode_header(Entry(7, 3, 2, 40, b"hello"), 3))[:4]
    (LedgerId(scope=0, ledger=7), 3, 2, 40)
    """
    version_2 = is_v2(record)
    size = V2_HEADER if version_2 else V1_HEADER
    if len(record) < size:
        raise CorruptionError(None, 0, f"entry of {len(record)} bytes: its header needs {size}")
    if not version_2:
        ledger, entry, lac, length = _STRUCT_V1.unpack_from(record)
        return RecordHeader(LedgerId.of(ledger), entry, lac, length, size, None)
    flags, scope, ledger, entry, lac, length = _STRUCT_V2.unpack_from(record)
    digest = digest_number(flags)
    return RecordHeader(scoped_id(scope, ledger), entry, lac, length, size, digest)


def digest_number(flags: int) -> int:
    """Return the digest number in the first byte of a version 2 record or explicit LAC."""
    number = flags ^ FLAGS_V2
    if not 1 <= number <= 4:
        reason = f"first byte {flags:#04x} is not an entry's (V2: 0xa1..0xa4)"
        raise CorruptionError(None, 0, reason)
    return number


def scoped_id(scope: int, ledger: int) -> LedgerId:
    """Return the ledger that a version 2 record names; `CorruptionError` for scope 0."""
    if scope == 0:
        raise CorruptionError(None, 1, "version 2 record of scope 0, which must be version 1")
    return LedgerId.from_signed(scope, ledger)


def record_ids(data: Bytes, offsets: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return (scope_id, ledger_id, entry_id) of the records that begin at `offsets` of `data`:
    int64[n] each, ids in two's complement. About 15 ns a record. The records must have at least 16
    bytes (25 in version 2), which is not checked."""
    # Version 1 begins with ledger and entry. A negative ledger is the set first bit of version 2,
    # which has flags (one byte), scope, ledger, entry.
    ledger, entry = read_int64s(data, offsets), read_int64s(data, offsets, 8)
    scope = np.zeros(offsets.size, np.int64)
    version_2 = ledger < 0
    if version_2.any():
        offsets_v2 = offsets[version_2]
        scope[version_2], ledger[version_2], entry[version_2] = (
            read_int64s(data, offsets_v2, field_offset) for field_offset in (1, 9, 17)
        )
    return scope, ledger, entry


def encode_header(entry: Entry, number: int) -> bytes:
    """Return the header of an entry: of version 1 for scope 0, else of version 2. `number` is the
    digest's, which version 2 stores. Raises `InvalidArgument` for ids or numbers out of range."""
    ledger_id = LedgerId.of(entry.ledger)
    entry_id = check_entry_id(entry.entry_id)
    lac, length = entry.lac, entry.length
    if type(lac) is not int or type(length) is not int:
        lac, length = check_integer(lac, "LAC"), check_integer(length, "length")
    if not NO_ENTRY <= lac <= MAX_ENTRY_ID or not 0 <= length < 1 << 63:
        raise InvalidArgument(f"entry {entry_id}: LAC {lac} or length {length}")
    if ledger_id.scope == 0:
        return _STRUCT_V1.pack(ledger_id.ledger, entry_id, lac, length)
    flags = FLAGS_V2 | number
    return _STRUCT_V2.pack(flags, *ledger_id.signed, entry_id, lac, length)
