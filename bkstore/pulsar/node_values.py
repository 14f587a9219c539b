"""The values of Pulsar's nodes: managed ledgers, cursors, schema locators.

The first two may be compressed: ``47 78``, the size of a header (u32, big-endian), the header
(`CompressedHead`), the compressed message. Source: Pulsar's `MetaStoreImpl`. Page:
`docs/formats/pulsar.md`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import cramjam
from google.protobuf.message import DecodeError

from bkstore.errors import CorruptionError
from bkstore.formats.syntax.proto_messages import check_complete
from bkstore.pulsar.metadata_messages import MESSAGES, misplaced_fields

COMPACTED_LEDGER_PROPERTY = "CompactedTopicLedger"
"""The property of a compaction's cursor that names the compacted ledger."""

COMPACTION_CURSOR = "__compaction"
_BUCKET_PROPERTY = "#pulsar.internal.delayed.bucket"  # and the entries of the bucket
_MAGIC = b"\x47\x78"
_HEAD_SIZE = struct.Struct(">I")
_HEAD_OFFSET = len(_MAGIC) + _HEAD_SIZE.size
_MAX_LEDGER_ID = 2**63 - 1  # of scope 0
_MAX_MESSAGE_BYTES = 256 << 20  # a node's value has at most 1 MiB, compressed
_CODECS = ("none", "LZ4", "ZLIB", "ZSTD", "SNAPPY")
# What a compressed byte may become at most: 255 bytes of a run in LZ4, four repetitions of 258
# bytes in zlib, a quarter of a block of 128 KiB in zstd, a copy of 64 bytes in Snappy.
_MAX_RATIOS = {"none": 1, "LZ4": 255, "ZLIB": 1032, "ZSTD": 1 << 15, "SNAPPY": 64}


class ListedLedger(NamedTuple):
    """A ledger in a topic's list. `offloaded`: a copy in long-term storage is complete.
    `bookkeeper_deleted`: brokers read that copy, and BookKeeper's should be gone."""

    ledger_id: int
    offloaded: bool = False
    bookkeeper_deleted: bool = False


class CursorValue(NamedTuple):
    """A cursor. Ledger ids are None if there is no such ledger. `buckets` are ledgers with an index
    of delayed messages."""

    cursor_ledger: int | None
    compacted_ledger: int | None = None
    buckets: tuple[int, ...] = ()


class SchemaVersions(NamedTuple):
    """A schema's locator: the ledgers of its versions, and the lowest version in it."""

    ledgers: tuple[int, ...]
    lowest_version: int


def decode_managed_ledger(data: bytes) -> list[ListedLedger]:
    """Return the ledgers that a topic lists, in order; an empty value is a new topic's. Raises
    `CorruptionError` for bytes that are not a `ManagedLedgerInfo`. O(bytes).

    >>> decode_managed_ledger(bytes.fromhex("0a0b 0807 10e807 2a04 18012001"))
    [ListedLedger(ledger_id=7, offloaded=True, bookkeeper_deleted=True)]
    """
    if not data:
        return []
    message = _parse_message("ManagedLedgerInfo", data, may_be_compressed=True)
    if any(listed.ledgerId < 0 for listed in message.ledgerInfo):
        raise CorruptionError(None, None, "ManagedLedgerInfo lists a negative ledger id")
    return [
        ListedLedger(
            listed.ledgerId,
            listed.offloadContext.complete,
            listed.offloadContext.bookkeeperDeleted,
        )
        for listed in message.ledgerInfo
    ]


def decode_cursor(data: bytes) -> CursorValue:
    """Return a cursor's ledgers; raises `CorruptionError` for bytes that are not a
    `ManagedCursorInfo`. O(bytes).

    >>> decode_cursor(bytes.fromhex("0809 2a18 0a14") + b"CompactedTopicLedger" + b"\\x10\\x0c")
    CursorValue(cursor_ledger=9, compacted_ledger=12, buckets=())
    """
    message = _parse_message("ManagedCursorInfo", data, may_be_compressed=True)
    compacted = [
        item.value for item in message.properties if item.name == COMPACTED_LEDGER_PROPERTY
    ]
    return CursorValue(
        _ledger_or_none(message.cursorsLedgerId),
        _ledger_or_none(compacted[-1]) if compacted else None,
        tuple(_bucket_ledgers(message)),
    )


def decode_schema_locator(data: bytes) -> SchemaVersions:
    """Return the ledgers of a schema's versions; raises `CorruptionError` for bytes that are not a
    `SchemaLocator`. O(bytes).

    >>> entry = "0802 1204 0806 1000 1a00"
    >>> decode_schema_locator(bytes.fromhex(f"0a0a {entry} 120a {entry}"))
    SchemaVersions(ledgers=(6,), lowest_version=2)
    """
    message = _parse_message("SchemaLocator", data)
    entries = [message.info, *message.index]
    ledgers = {entry.position.ledgerId: None for entry in entries if entry.position.ledgerId >= 0}
    return SchemaVersions(tuple(ledgers), min(entry.version for entry in entries))


def _ledger_or_none(ledger_id: int) -> int | None:
    return ledger_id if ledger_id >= 0 else None


def _bucket_ledgers(message: Any) -> Iterator[int]:
    """Yield the ledgers of delayed messages that a cursor's properties name."""
    for item in message.cursorProperties:
        if item.name.startswith(_BUCKET_PROPERTY):
            if not item.value.isascii() or not item.value.isdigit():
                reason = f"ManagedCursorInfo: bucket {item.name!r:.80} has no ledger"
                raise CorruptionError(None, None, reason)
            ledger_id = int(item.value)
            if ledger_id > _MAX_LEDGER_ID:
                reason = f"ManagedCursorInfo: bucket {item.name!r:.80} has ledger {ledger_id}"
                raise CorruptionError(None, None, reason)
            yield ledger_id


def _parse_message(kind: str, data: bytes, *, may_be_compressed: bool = False) -> Any:
    """Return the message of this kind; raises `CorruptionError` for other bytes, also if they parse
    by accident: with fields of other types, or only with fields that are unknown."""
    offset = None
    if may_be_compressed and data.startswith(_MAGIC):
        data = _decompress(kind, data)
    else:
        offset = 0
    message = MESSAGES[kind]()
    try:
        message.ParseFromString(data)
        fields = list(misplaced_fields(message))
    except (DecodeError, UnicodeDecodeError) as error:
        raise CorruptionError(None, offset, f"{kind} does not parse: {error}") from None
    if fields:
        raise CorruptionError(None, offset, f"{kind} has {fields[0]} with another type")
    if data and not message.ListFields():
        raise CorruptionError(None, offset, f"{kind} has no known field")
    check_complete(message, offset or 0, kind)
    return message


def _decompress(kind: str, data: bytes) -> bytes:
    """Return the message in a compressed value; allocates the stated size, which is limited."""
    # A header of the stated size, then the body.
    if len(data) < _HEAD_OFFSET:
        raise CorruptionError(None, len(_MAGIC), f"compressed {kind} ends in the size of its head")
    (head_size,) = _HEAD_SIZE.unpack_from(data, len(_MAGIC))
    body_offset = _HEAD_OFFSET + head_size
    if body_offset > len(data):
        reason = f"head of {head_size} bytes, {len(data) - _HEAD_OFFSET} are there"
        raise CorruptionError(None, len(_MAGIC), f"compressed {kind}: {reason}")
    head = MESSAGES["CompressedHead"]()
    try:
        head.ParseFromString(data[_HEAD_OFFSET:body_offset])
    except DecodeError as error:
        reason = f"compressed {kind}: head does not parse: {error}"
        raise CorruptionError(None, _HEAD_OFFSET, reason) from None
    size, body = head.uncompressedSize, data[body_offset:]
    if not 0 <= head.compressionType < len(_CODECS):
        reason = f"compressed {kind}: unknown compression type {head.compressionType}"
        raise CorruptionError(None, _HEAD_OFFSET, reason)
    codec = _CODECS[head.compressionType]
    # A size that the body cannot have is not allocated, either.
    if not 0 <= size <= min(_MAX_MESSAGE_BYTES, _MAX_RATIOS[codec] * len(body)):
        reason = f"size {size} is not valid for {len(body)} bytes ({codec})"
        raise CorruptionError(None, _HEAD_OFFSET, f"compressed {kind}: {reason}")
    try:
        message = _decompress_body(codec, body, size)
    except (cramjam.DecompressionError, zlib.error, OSError, ValueError) as error:
        reason = f"compressed {kind} cannot be decompressed ({codec}): {error}"
        raise CorruptionError(None, body_offset, reason) from None
    if len(message) != size:
        reason = f"compressed {kind}: {len(message)} bytes ({codec}), the head states {size}"
        raise CorruptionError(None, body_offset, reason)
    return message


def _decompress_body(codec: str, body: bytes, size: int) -> bytes:
    """Return the decompressed bytes, at most one more than `size`; a shorter result is possible."""
    if codec == "none":
        return body
    if codec == "ZLIB":
        inflater = zlib.decompressobj()
        message = inflater.decompress(body, size + 1)
        if not inflater.eof:
            raise ValueError("it ends early, or is too long")
        return message
    output = bytearray(size)
    if codec == "LZ4":
        written = cramjam.lz4.decompress_block_into(body, output)
    elif codec == "ZSTD":
        written = cramjam.zstd.decompress_into(body, output)
    else:
        written = cramjam.snappy.decompress_raw_into(body, output)
    return bytes(output[:written])
