"""Entries: the record that travels from wire to journal to entry log: `docs/formats/entry.md`.

    version 1 (scope 0, BookKeeper's)      version 2 (other scopes, bkstore's)
    0    i64     ledger                    0    u8      0xA0 | digest number
    8    i64     entry id                  1    i64     scope
    16   i64     last add confirmed        9    i64     ledger
    24   i64     length, this one included 17   i64     entry id
    32   u8[x]   digest                    25   i64     last add confirmed
    32+x u8[]    payload                   33   i64     length
                                           41   u8[x]   digest
                                           41+x u8[]    payload

Big-endian throughout. The digest covers the header and the payload. Version 1 does not say
which digest it carries; version 2 does, in the low half of its first byte. Persisted format: do
not renumber. Sources: `proto/checksum/DigestManager`, BP-35 (the version 2 header: the proposal's
"1 byte of flags, 9 bytes more").
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.entry.digest import (DIGEST_SIZES, Digest, digest_name, master_key, new_digest)
from bkstore.formats.syntax.framing import (words)
from bkstore.ids import MAX_ENTRY_ID, Int64Array, LedgerId, check_entry_id

__all__ = [
    "NO_ENTRY",
    "V1_HEADER",
    "V2_HEADER",
    "Coder",
    "Entry",
    "RecordHeader",
    "decode",
    "decode_explicit_lac",
    "encode",
    "encode_explicit_lac",
    "is_v2",
    "master_key",
    "record_header",
    "record_ids",
]

V1_HEADER = 32
V2_HEADER = 41
NO_ENTRY = -1
"""What a LAC field says when nothing is confirmed (`BookieProtocol.INVALID_ENTRY_ID`)."""

_FLAGS_V2 = 0xA0  # top bit, and version 2 in bits 4-6; bits 0-3 take the digest number
_V1 = struct.Struct(">qqqq")
_V2 = struct.Struct(">Bqqqqq")
_LAC_V1 = struct.Struct(">qq")
_LAC_V2 = struct.Struct(">Bqqq")
_SIGN = 0x80


class Entry(NamedTuple):
    """One entry: ids, the LAC its writer knew, the ledger's payload bytes up to it, its payload.

    `decode` gives `ledger` as a `LedgerId`; `encode` takes an int for scope 0 too.
    """

    ledger: int | LedgerId
    entry_id: int
    lac: int
    length: int
    payload: bytes


class RecordHeader(NamedTuple):
    """The fixed fields of a record, and where they end (where the digest begins).

    `digest` is the number that a version 2 record carries, None in version 1.
    """

    ledger: LedgerId
    entry_id: int
    lac: int
    length: int
    size: int
    digest: int | None


def is_v2(record: bytes | memoryview) -> bool:
    """Return whether a record is of version 2: the top bit of its first byte."""
    return len(record) > 0 and record[0] >= _SIGN


def record_header(record: bytes | memoryview) -> RecordHeader:
    """Return the fixed fields of a record; looks at 32 or 41 bytes, verifies no digest.

    The entry id may be negative (special records of a journal have such ids). Raises
    `CorruptionError` for a record that is too short or names an impossible ledger.

    >>> record_header(encode(Entry(7, 3, 2, 40, b"hello"), "CRC32C", "pw"))[:4]
    (LedgerId(scope=0, ledger=7), 3, 2, 40)
    """
    if is_v2(record):
        return _header_v2(record)
    if len(record) < V1_HEADER:
        raise CorruptionError(None, 0, f"entry of {len(record)} bytes: its header has {V1_HEADER}")
    ledger, entry, lac, length = _V1.unpack_from(record)
    return RecordHeader(LedgerId.of(ledger), entry, lac, length, V1_HEADER, None)


def _header_v2(record: bytes | memoryview) -> RecordHeader:
    if len(record) < V2_HEADER:
        raise CorruptionError(None, 0, f"entry of {len(record)} bytes: its header has {V2_HEADER}")
    flags, scope, ledger, entry, lac, length = _V2.unpack_from(record)
    number = _digest_number(flags)
    return RecordHeader(_scoped(scope, ledger), entry, lac, length, V2_HEADER, number)


def _digest_number(flags: int) -> int:
    """Return the digest number in the first byte of a version 2 record or explicit LAC."""
    number = flags ^ _FLAGS_V2
    if not 1 <= number <= 4:
        raise CorruptionError(None, 0, f"first byte {flags:#04x} is no entry's (V2: 0xa1..0xa4)")
    return number


def _scoped(scope: int, ledger: int) -> LedgerId:
    if scope == 0:
        raise CorruptionError(None, 1, "version 2 record of scope 0, which version 1 is for")
    return LedgerId.from_signed(scope, ledger)


def record_ids(
    data: npt.NDArray[np.uint8], offsets: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return (scope_id, ledger_id, entry_id) of the records that begin at `offsets` of `data`.

    int64[n] each, ids in two's complement. About 15 ns a record. The records must have at
    least 16 bytes (25 in version 2), which is not checked.
    """
    ledger, entry = words(data, offsets), words(data, offsets, 8)
    scope = np.zeros(offsets.size, np.int64)
    wide = ledger < 0
    if wide.any():
        there = offsets[wide]
        scope[wide], ledger[wide], entry[wide] = (words(data, there, at) for at in (1, 9, 17))
    return scope, ledger, entry


class Coder:
    """Encodes and verifies the entries of one ledger password and digest type.

    Keeps the HMAC key, so that many entries cost no more than their digests. Stateless else.

    >>> coder = Coder("CRC32C", "pw")
    >>> coder.decode(coder.encode(Entry(7, 0, -1, 5, b"hello"))).payload
    b'hello'
    """

    def __init__(self, digest_type: str | int, password: bytes | str | None = None) -> None:
        self.digest: Digest = new_digest(digest_type, password)

    def encode(self, entry: Entry) -> bytes:
        """Return the record. Raises `InvalidArgument` for ids or numbers out of range."""
        header = _encoded_header(entry, self.digest.number)
        return b"".join((header, self.digest.of(header, entry.payload), entry.payload))

    def encode_many(
        self,
        ledger: int | LedgerId,
        entries: Iterable[int],
        payloads: Sequence[bytes],
        *,
        lac: int = NO_ENTRY,
        length: int = 0,
    ) -> list[bytes]:
        """Return the records of a writer that sends `entries` in this order.

        `lac` and `length` are the ledger's before the first; each entry carries the highest
        id sent before it as LAC, and the payload bytes up to and including its own.
        """
        records = []
        for entry, payload in zip(entries, payloads, strict=True):
            length += len(payload)
            records.append(self.encode(Entry(ledger, entry, lac, length, payload)))
            lac = max(lac, entry)
        return records

    def decode(
        self,
        record: bytes | memoryview,
        ledger: int | LedgerId | None = None,
        entry_id: int | None = None,
    ) -> Entry:
        """Return the verified entry. Raises `CorruptionError` otherwise.

        Checked in the order of `DigestManager.verifyDigest`: length, digest, ledger, entry id.
        """
        data = bytes(record)
        header = record_header(data)
        start = header.size + self.digest.size
        if header.digest not in (None, self.digest.number):
            said = digest_name(header.digest or 0)
            raise CorruptionError(None, 0, f"entry has digest {said}, not {self.digest.name}")
        if len(data) < start:
            detail = f"header and {self.digest.name} digest take {start}"
            raise CorruptionError(None, 0, f"entry of {len(data)} bytes: {detail}")
        payload = data[start:]
        if self.digest.of(data[: header.size], payload) != data[header.size : start]:
            reason = f"{self.digest.name} digest of entry {header.entry_id} does not match"
            raise CorruptionError(None, header.size, reason)
        if ledger is not None and header.ledger != LedgerId.of(ledger):
            raise CorruptionError(None, 0, f"entry of ledger {header.ledger}, not {ledger}")
        if entry_id is not None and header.entry_id != entry_id:
            raise CorruptionError(None, 0, f"entry {header.entry_id}, not {entry_id}")
        return Entry(*header[:4], payload)


def _encoded_header(entry: Entry, number: int) -> bytes:
    name = LedgerId.of(entry.ledger)
    entry_id = check_entry_id(entry.entry_id)
    if not NO_ENTRY <= entry.lac <= MAX_ENTRY_ID or not 0 <= entry.length < 1 << 63:
        raise InvalidArgument(f"entry {entry_id}: LAC {entry.lac} or length {entry.length}")
    if name.scope == 0:
        return _V1.pack(name.ledger, entry_id, entry.lac, entry.length)
    flags = _FLAGS_V2 | number
    return _V2.pack(flags, *name.signed, entry_id, entry.lac, entry.length)


def encode(entry: Entry, digest_type: str | int, password: bytes | str | None = None) -> bytes:
    """Return the record of an entry: version 1 for scope 0, else version 2.

    >>> encode(Entry(1, 0, -1, 5, b"hello"), "CRC32C", "testPasswd").hex()[64:]
    'e3a5f74d68656c6c6f'
    """
    return Coder(digest_type, password).encode(entry)


def decode(
    record: bytes | memoryview,
    digest_type: str | int | None = None,
    password: bytes | str | None = None,
) -> Entry:
    """Return the entry that a record holds; a digest that does not match is `CorruptionError`.

    Without a digest type nothing is verified, and what stands behind the header of a version 1
    record comes as the payload, digest included: the record does not say how long that is.
    """
    if digest_type is not None:
        return Coder(digest_type, password).decode(record)
    header = record_header(record)
    skip = 0 if header.digest is None else DIGEST_SIZES[digest_name(header.digest)]
    return Entry(*header[:4], bytes(record[header.size + skip :]))


def encode_explicit_lac(
    ledger: int | LedgerId, lac: int, digest_type: str | int, password: bytes | str | None = None
) -> bytes:
    """Return the body of an explicit LAC: ledger, LAC, digest (25 bytes first for scopes).

    >>> encode_explicit_lac(1, 4, "DUMMY").hex()
    '00000000000000010000000000000004'
    """
    name, digest = LedgerId.of(ledger), new_digest(digest_type, password)
    if not NO_ENTRY <= lac <= MAX_ENTRY_ID:
        raise InvalidArgument(f"explicit LAC {lac} is outside -1..{MAX_ENTRY_ID}")
    if name.scope == 0:
        header = _LAC_V1.pack(name.ledger, lac)
    else:
        header = _LAC_V2.pack(_FLAGS_V2 | digest.number, *name.signed, lac)
    return header + digest.of(header, b"")


def decode_explicit_lac(
    body: bytes, digest_type: str | int | None = None, password: bytes | str | None = None
) -> tuple[LedgerId, int]:
    """Return (ledger, LAC) of an explicit LAC body; verified if a digest type is given."""
    wide = is_v2(body)
    layout = _LAC_V2 if wide else _LAC_V1
    if len(body) < layout.size:
        raise CorruptionError(None, 0, f"explicit LAC of {len(body)} bytes, {layout.size} needed")
    fields = layout.unpack_from(body)
    name = _scoped(fields[1], fields[2]) if wide else LedgerId.of(fields[0])
    if wide:
        _digest_number(fields[0])
    if digest_type is not None:
        digest, header = new_digest(digest_type, password), bytes(body[: layout.size])
        if digest.of(header, b"") != bytes(body[layout.size :]):
            reason = f"{digest.name} digest of the explicit LAC does not match"
            raise CorruptionError(None, layout.size, reason)
    return name, int(fields[-1])
