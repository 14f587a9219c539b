"""Requests of the v2 protocol, encoded and decoded.

    add         header  u8[20] master key   record
    read        header  i64 ledger  i64 entry  [u8[20] master key]
    batch read  header  i64 ledger  i64 first entry  i64 request id  i32 most records
                i64 most bytes  [u8[20] master key]
    auth        header  AuthMessage (protobuf)

A read has a master key if it fences and its version is 2 or more. Bytes after the fields of a read
are ignored, as in BookKeeper. A scope is the upper 64 bits of a 128-bit ledger id; BookKeeper's
ledgers are in scope 0. Source: `BookieProtoEncoding.RequestEnDeCoderPreV3`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from bkstore.errors import CorruptionError, IllegalOperation, InvalidArgument
from bkstore.ids import LedgerId
from bkstore.wire.v2.header import (
    CURRENT_VERSION,
    MASTER_KEY_LENGTH,
    Flags,
    Opcode,
    PacketHeader,
    decode_auth,
    decode_header,
    encode_auth,
    ledger_number,
    pack_fields,
    unpack_fields,
)

_HEADER = 4
_FENCING = int(Flags.DO_FENCING)  # a plain int, because IntFlag operations are slow
_RECORD = _HEADER + MASTER_KEY_LENGTH
_KEY = struct.Struct(f"{MASTER_KEY_LENGTH}x")
_IDS = struct.Struct(">qq")
_BATCH = struct.Struct(">qqqiq")
_SCOPED_RECORD_TYPES = range(0xA1, 0xA5)  # first bytes of records in a scope


class AddRequest(NamedTuple):
    """Add a record unchanged, whose first 16 bytes are ledger and entry id. `flags` may have
    `Flags.RECOVERY_ADD` and `Flags.HIGH_PRIORITY`."""

    master_key: bytes
    record: bytes
    flags: int = 0
    version: int = CURRENT_VERSION

    @property
    def ledger(self) -> int:
        """The signed ledger id in the header of a record of version 1 (without a scope)."""
        return int(_IDS.unpack_from(self.record)[0])

    @property
    def entry(self) -> int:
        """The signed entry id in the header of a record of version 1 (without a scope)."""
        return int(_IDS.unpack_from(self.record)[1])

    @property
    def has_scope(self) -> bool:
        """Whether the record has version 2, so is in a scope: it is answered with EBADREQ."""
        return self.record[0] in _SCOPED_RECORD_TYPES

    def parts(self) -> tuple[bytes, ...]:
        """Return the message in parts: header and key, record. Raises `InvalidArgument` for a key
        not of 20 bytes or a record without ids, `IllegalOperation` for a record in a scope."""
        if len(self.record) < _IDS.size:
            raise InvalidArgument(f"record of {len(self.record)} bytes has no ids")
        if self.has_scope:
            raise IllegalOperation("record of another scope, but the v2 protocol has no scopes")
        header = PacketHeader(self.version, Opcode.ADD_ENTRY, self.flags).to_bytes()
        return header + _check_key_length(self.master_key), self.record


class ReadRequest(NamedTuple):
    """Read an entry (-1: the last one); with `Flags.DO_FENCING` and a master key, fence first."""

    ledger: int | LedgerId
    entry: int
    flags: int = 0
    master_key: bytes | None = None
    version: int = CURRENT_VERSION

    def parts(self) -> tuple[bytes, ...]:
        """Return the message, in one part. Raises `InvalidArgument` for a key without fence, or the
        reverse."""
        header = PacketHeader(self.version, Opcode.READ_ENTRY, self.flags)
        ids = pack_fields(_IDS, ledger_number(self.ledger), self.entry)
        return (header.to_bytes() + ids + _encode_key(header, self.master_key),)


class BatchReadRequest(NamedTuple):
    """Read consecutive entries from `entry` on; `storage.batch_limits` decides how many are
    returned."""

    ledger: int | LedgerId
    entry: int
    request_id: int
    max_count: int
    max_size: int
    flags: int = 0
    master_key: bytes | None = None
    version: int = CURRENT_VERSION

    def parts(self) -> tuple[bytes, ...]:
        """Return the message, in one part. Raises `InvalidArgument` for a key without fence, or the
        reverse."""
        header = PacketHeader(self.version, Opcode.BATCH_READ_ENTRY, self.flags)
        fields = pack_fields(
            _BATCH,
            ledger_number(self.ledger),
            self.entry,
            self.request_id,
            self.max_count,
            self.max_size,
        )
        return (header.to_bytes() + fields + _encode_key(header, self.master_key),)


class AuthRequest(NamedTuple):
    """One step of an authentication; `plugin` is its name in UTF-8."""

    plugin: bytes
    payload: bytes
    flags: int = 0
    version: int = CURRENT_VERSION

    def parts(self) -> tuple[bytes, ...]:
        """Return the message in two parts."""
        header = PacketHeader(self.version, Opcode.AUTH, self.flags).to_bytes()
        return header, encode_auth(self.plugin, self.payload)


Request = AddRequest | ReadRequest | BatchReadRequest | AuthRequest


def decode_request(data: bytes | memoryview) -> Request:
    """Return the request in a frame's message, of any version. Copies the bytes.

    Raises `CorruptionError` for an opcode without a layout and for a message that ends too soon;
    BookKeeper's bookie then closes the connection.

    >>> decode_request(bytes.fromhex("02020000" "0000000000001234" "0000000000000003"))[:3]
    (4660, 3, 0)
    """
    header = decode_header(data)
    version, opcode, flags = header
    if opcode == Opcode.ADD_ENTRY:
        unpack_fields(_IDS, data, _RECORD, "ids of a record")
        return AddRequest(bytes(data[_HEADER:_RECORD]), bytes(data[_RECORD:]), flags, version)
    if opcode == Opcode.READ_ENTRY:
        ledger, entry = unpack_fields(_IDS, data, _HEADER, "ledger and entry")
        key = _decode_key(header, data, _HEADER + _IDS.size)
        return ReadRequest(ledger, entry, flags, key, version)
    if opcode == Opcode.BATCH_READ_ENTRY:
        fields = unpack_fields(_BATCH, data, _HEADER, "fields of a batch read")
        ledger, first, request_id, max_count, max_size = fields
        key = _decode_key(header, data, _HEADER + _BATCH.size)
        return BatchReadRequest(ledger, first, request_id, max_count, max_size, flags, key, version)
    if opcode == Opcode.AUTH:
        return AuthRequest(*decode_auth(data, _HEADER), flags, version)
    raise CorruptionError(None, 0, f"opcode {opcode} has no layout in the v2 protocol")


def _has_key(header: PacketHeader) -> bool:
    """Return whether a read with this header has a master key."""
    return bool(header.flags & _FENCING) and header.version >= 2


def _encode_key(header: PacketHeader, key: bytes | None) -> bytes:
    """Return the key's bytes, b"" for none. Raises `InvalidArgument` for a key where the header has
    none, or no key where it needs one."""
    if (key is not None) != _has_key(header):
        raise InvalidArgument("a read has a master key if and only if it fences in version 2")
    return b"" if key is None else _check_key_length(key)


def _check_key_length(key: bytes) -> bytes:
    """Return the key; raises `InvalidArgument` unless it has 20 bytes."""
    if len(key) != MASTER_KEY_LENGTH:
        reason = f"master key of {len(key)} bytes, v2 messages have {MASTER_KEY_LENGTH}"
        raise InvalidArgument(reason)
    return key


def _decode_key(header: PacketHeader, data: bytes | memoryview, offset: int) -> bytes | None:
    """Return the master key at `offset`, None if the header says there is none."""
    if not _has_key(header):
        return None
    unpack_fields(_KEY, data, offset, "master key")
    return bytes(data[offset : offset + MASTER_KEY_LENGTH])
