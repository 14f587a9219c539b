"""Responses of the v2 protocol, encoded and decoded.

    add         header  i32 status  i64 ledger  i64 entry
    read        header  i32 status  i64 ledger  i64 entry  record
    batch read  header  i32 status  i64 ledger  i64 first entry  i64 request id
                then for each record: i32 size  record
    auth        header  AuthMessage (protobuf)

The header has the request's version and opcode, and no flags. Only answers with EOK have records.
Source: `BookieProtoEncoding.ResponseEnDeCoderPreV3`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from bkstore.errors import CorruptionError
from bkstore.ids import LedgerId
from bkstore.wire.status_codes import Status
from bkstore.wire.v2.header import (
    CURRENT_VERSION,
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
_FIELDS = struct.Struct(">iqq")
_BATCH = struct.Struct(">iqqq")
_SIZE = struct.Struct(">i")


class AddResponse(NamedTuple):
    """The answer to an add."""

    status: Status
    ledger: int | LedgerId
    entry: int
    version: int = CURRENT_VERSION

    def parts(self) -> tuple[bytes, ...]:
        """Return the message in one part."""
        header = PacketHeader(self.version, Opcode.ADD_ENTRY).to_bytes()
        ids = ledger_number(self.ledger), self.entry
        return (header + pack_fields(_FIELDS, self.status.v2, *ids),)


class ReadResponse(NamedTuple):
    """The answer to a read: the record, empty on an error. `entry` is that of the request."""

    status: Status
    ledger: int | LedgerId
    entry: int
    record: bytes = b""
    version: int = CURRENT_VERSION

    def parts(self) -> tuple[bytes, ...]:
        """Return the message in two parts: fields, record."""
        header = PacketHeader(self.version, Opcode.READ_ENTRY).to_bytes()
        fields = pack_fields(_FIELDS, self.status.v2, ledger_number(self.ledger), self.entry)
        return header + fields, self.record


class BatchReadResponse(NamedTuple):
    """The answer to a batch read: records in order of their ids, none on an error."""

    status: Status
    ledger: int | LedgerId
    entry: int
    request_id: int
    records: tuple[bytes, ...] = ()
    version: int = CURRENT_VERSION

    def parts(self) -> tuple[bytes, ...]:
        """Return the message in parts: fields, and for each record its size and the record."""
        header = PacketHeader(self.version, Opcode.BATCH_READ_ENTRY).to_bytes()
        ids = (ledger_number(self.ledger), self.entry, self.request_id)
        parts = [header + pack_fields(_BATCH, self.status.v2, *ids)]
        for record in self.records:
            parts += pack_fields(_SIZE, len(record)), record
        return tuple(parts)


class AuthResponse(NamedTuple):
    """One step of an authentication, from the bookie; it has no status."""

    plugin: bytes
    payload: bytes
    version: int = CURRENT_VERSION

    def parts(self) -> tuple[bytes, ...]:
        """Return the message in two parts."""
        header = PacketHeader(self.version, Opcode.AUTH).to_bytes()
        return header, encode_auth(self.plugin, self.payload)


Response = AddResponse | ReadResponse | BatchReadResponse | AuthResponse


def decode_response(data: bytes | memoryview) -> Response:
    """Return the response in a frame's message. Copies the records.

    Raises `CorruptionError` for an opcode without a layout, an unknown status, or missing bytes.

    >>> decode_response(bytes.fromhex("02010000" "00000068" + "00" * 15 + "07"))[:3]
    (<Status.EFENCED: (104, 504, <class 'bkstore.errors.LedgerFenced'>)>, 0, 7)
    """
    version, opcode, _ = decode_header(data)
    if opcode == Opcode.AUTH:
        return AuthResponse(*decode_auth(data, _HEADER), version)
    if opcode == Opcode.BATCH_READ_ENTRY:
        code, ledger, entry, request_id = unpack_fields(_BATCH, data, _HEADER, "fields of a batch")
        status = Status.from_v2(code, _HEADER)
        records = _decode_records(data, _HEADER + _BATCH.size)
        return BatchReadResponse(status, ledger, entry, request_id, records, version)
    if opcode not in (Opcode.ADD_ENTRY, Opcode.READ_ENTRY):
        raise CorruptionError(None, 0, f"opcode {opcode} has no layout in the v2 protocol")
    code, ledger, entry = unpack_fields(_FIELDS, data, _HEADER, "fields of an answer")
    status = Status.from_v2(code, _HEADER)
    if opcode == Opcode.ADD_ENTRY:
        return AddResponse(status, ledger, entry, version)
    return ReadResponse(status, ledger, entry, bytes(data[_HEADER + _FIELDS.size :]), version)


def _decode_records(data: bytes | memoryview, offset: int) -> tuple[bytes, ...]:
    """Return the records from an offset to the end. Raises `CorruptionError` for a bad size."""
    records = []
    while offset < len(data):
        (size,) = unpack_fields(_SIZE, data, offset, "size of a record")
        begin = offset + _SIZE.size
        if not 0 <= size <= len(data) - begin:
            reason = f"record of {size} bytes, but {len(data) - begin} are left"
            raise CorruptionError(None, offset, reason)
        offset = begin + size
        records.append(bytes(data[begin:offset]))
    return tuple(records)
