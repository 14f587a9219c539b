"""The packet header of a v2 message: a word of version, opcode and flags.

    bits 31-24  version     23-16  opcode     15-0  flags

In version 0 the whole word is the opcode, without flags. A scope is the upper 64 bits of a 128-bit
ledger id; BookKeeper's ledgers are in scope 0. Source: `BookieProtocol.PacketHeader`.
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

from google.protobuf.message import DecodeError

from bkstore.errors import CorruptionError, IllegalOperation, InvalidArgument
from bkstore.ids import LedgerId
from bkstore.wire.v3_schema import PLAIN

CURRENT_VERSION = 2
"""The version that clients send. BookKeeper serves 0, 1 and 2, and others get EBADVERSION."""

MASTER_KEY_LENGTH = 20
_WORD = struct.Struct(">I")


class Opcode(enum.IntEnum):
    """The operation of a message. 4, 5 and 6 have a number, but no layout in v2."""

    ADD_ENTRY = 1
    READ_ENTRY = 2
    AUTH = 3
    READ_LAC = 4
    WRITE_LAC = 5
    GET_BOOKIE_INFO = 6
    BATCH_READ_ENTRY = 7


class Flags(enum.IntFlag):
    """The flags of a request; responses have none."""

    DO_FENCING = 1
    RECOVERY_ADD = 2
    HIGH_PRIORITY = 4


class PacketHeader(NamedTuple):
    """Version, opcode and flags as plain numbers, which may be undefined ones."""

    version: int
    opcode: int
    flags: int = 0

    def to_bytes(self) -> bytes:
        """Return the four bytes. Raises `InvalidArgument` if the fields do not fit.

        >>> PacketHeader(2, Opcode.BATCH_READ_ENTRY, Flags.DO_FENCING).to_bytes().hex()
        '02070001'
        """
        version, opcode, flags = self
        if version == 0:
            if flags or not 0 <= opcode < 2**24:
                raise InvalidArgument(f"version 0 cannot encode opcode {opcode}, flags {flags:#x}")
            return _WORD.pack(opcode)
        if not (0 < version < 2**8 and 0 <= opcode < 2**8 and 0 <= flags < 2**16):
            raise InvalidArgument(f"not a packet header: version, opcode, flags {tuple(self)}")
        return _WORD.pack(version << 24 | opcode << 16 | flags)


def decode_header(data: bytes | memoryview) -> PacketHeader:
    """Return the packet header of a message. Raises `CorruptionError` below four bytes."""
    (word,) = unpack_fields(_WORD, data, 0, "packet header")
    if word < 2**24:
        return PacketHeader(0, word)
    return PacketHeader(word >> 24, word >> 16 & 0xFF, word & 0xFFFF)


def unpack_fields(
    layout: struct.Struct, data: bytes | memoryview, offset: int, part_name: str
) -> tuple[int, ...]:
    """Return the fields at an offset. Raises `CorruptionError` if the message is too short."""
    if len(data) < offset + layout.size:
        reason = f"{part_name} of {layout.size} bytes, but {max(0, len(data) - offset)} are left"
        raise CorruptionError(None, offset, reason)
    return layout.unpack_from(data, offset)


def pack_fields(layout: struct.Struct, *values: int) -> bytes:
    """Return the packed fields. Raises `InvalidArgument` for a value that does not fit."""
    try:
        return layout.pack(*values)
    except struct.error as error:
        raise InvalidArgument(f"{values} in a v2 message: {error}") from None


def ledger_number(ledger: int | LedgerId) -> int:
    """Return the signed ledger number for v2. Raises `IllegalOperation` for a ledger in a scope."""
    if isinstance(ledger, LedgerId):
        if ledger.scope:
            raise IllegalOperation(f"ledger {ledger}: the v2 protocol has no scopes")
        return ledger.ledger
    return ledger


def encode_auth(plugin: bytes, payload: bytes) -> bytes:
    """Return the bytes of an `AuthMessage`, which is the same in both directions."""
    if not (isinstance(plugin, bytes) and isinstance(payload, bytes)):
        raise InvalidArgument("plugin name and payload of an authentication message are bytes")
    message_bytes = PLAIN.AuthMessage(authPluginName=plugin, payload=payload).SerializeToString()
    return bytes(message_bytes)


def decode_auth(data: bytes | memoryview, offset: int) -> tuple[bytes, bytes]:
    """Return plugin name and payload. Raises `CorruptionError` where BookKeeper fails to parse."""
    message = PLAIN.AuthMessage()
    try:
        message.ParseFromString(bytes(data[offset:]))
    except DecodeError as error:
        raise CorruptionError(None, offset, f"not an authentication message: {error}") from None
    if not message.IsInitialized():
        raise CorruptionError(None, offset, "authentication message without name or payload")
    return message.authPluginName, message.payload
