"""The first word of a v2 message: version, opcode, flags.

    bits 31-24  version     23-16  opcode     15-0  flags

In version 0 the whole word is the opcode, and there are no flags. Source:
`BookieProtocol.PacketHeader`.
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

from google.protobuf.message import DecodeError

from bkstore.errors import CorruptionError, IllegalOperation, InvalidArgument
from bkstore.ids import LedgerId
from bkstore.wire.schema import PLAIN

CURRENT = 2
"""The version that clients send; a real bookie answers 0, 1 and 2, others with EBADVERSION."""

MASTER_KEY = 20
_WORD = struct.Struct(">I")


class Opcode(enum.IntEnum):
    """What a message is about; 4, 5 and 6 have a number and no layout."""

    ADD_ENTRY = 1
    READ_ENTRY = 2
    AUTH = 3
    READ_LAC = 4
    WRITE_LAC = 5
    GET_BOOKIE_INFO = 6
    BATCH_READ_ENTRY = 7


class Flags(enum.IntFlag):
    """Flags of a request; responses have none."""

    DO_FENCING = 1
    RECOVERY_ADD = 2
    HIGH_PRIORITY = 4


class PacketHeader(NamedTuple):
    """Version, opcode and flags, as numbers: also those that nobody gave a meaning."""

    version: int
    opcode: int
    flags: int = 0

    def to_bytes(self) -> bytes:
        """Return the four bytes; `InvalidArgument` for what they cannot say.

        >>> PacketHeader(2, Opcode.BATCH_READ_ENTRY, Flags.DO_FENCING).to_bytes().hex()
        '02070001'
        """
        version, opcode, flags = self
        if version == 0:
            if flags or not 0 <= opcode < 2**24:
                raise InvalidArgument(f"version 0 cannot say opcode {opcode}, flags {flags:#x}")
            return _WORD.pack(opcode)
        if not (0 < version < 2**8 and 0 <= opcode < 2**8 and 0 <= flags < 2**16):
            raise InvalidArgument(f"no packet header: version, opcode, flags {tuple(self)}")
        return _WORD.pack(version << 24 | opcode << 16 | flags)


def decode_header(data: bytes | memoryview) -> PacketHeader:
    """Return the header that a message begins with; `CorruptionError` below four bytes."""
    (word,) = unpack(_WORD, data, 0, "packet header")
    if word < 2**24:
        return PacketHeader(0, word)
    return PacketHeader(word >> 24, word >> 16 & 0xFF, word & 0xFFFF)


def unpack(
    layout: struct.Struct, data: bytes | memoryview, offset: int, what: str
) -> tuple[int, ...]:
    """Return the fields at an offset; `CorruptionError` if the message ends before they do."""
    if len(data) < offset + layout.size:
        reason = f"{what} of {layout.size} bytes, {max(0, len(data) - offset)} are there"
        raise CorruptionError(None, offset, reason)
    return layout.unpack_from(data, offset)


def pack(layout: struct.Struct, *values: int) -> bytes:
    """Return fields as bytes; `InvalidArgument` for a value that its field cannot hold."""
    try:
        return layout.pack(*values)
    except struct.error as error:
        raise InvalidArgument(f"{values} in a v2 message: {error}") from None


def ledger_number(ledger: int | LedgerId) -> int:
    """Return a ledger as v2 says it, a signed number; `IllegalOperation` for another scope."""
    if isinstance(ledger, LedgerId):
        if ledger.scope:
            raise IllegalOperation(f"ledger {ledger}: the v2 protocol cannot say a scope")
        return ledger.ledger
    return ledger


def auth_body(plugin: bytes, payload: bytes) -> bytes:
    """Return the bytes of an authentication message, the same in both directions."""
    if not (isinstance(plugin, bytes) and isinstance(payload, bytes)):
        raise InvalidArgument("plugin name and payload of an authentication message are bytes")
    found = PLAIN.AuthMessage(authPluginName=plugin, payload=payload).SerializeToString()
    return bytes(found)


def decode_auth(data: bytes | memoryview, offset: int) -> tuple[bytes, bytes]:
    """Return plugin name and payload; `CorruptionError` if a real bookie would not parse it."""
    message = PLAIN.AuthMessage()
    try:
        message.ParseFromString(bytes(data[offset:]))
    except DecodeError as error:
        raise CorruptionError(None, offset, f"no authentication message: {error}") from None
    if not message.IsInitialized():
        raise CorruptionError(None, offset, "authentication message without name or payload")
    return message.authPluginName, message.payload
