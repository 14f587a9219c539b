"""The names in the metadata of a single message: producer, properties, encryption keys."""

from __future__ import annotations

from typing import Any, NamedTuple

import google_crc32c
from google.protobuf.message import DecodeError

from bkstore.errors import CorruptionError
from bkstore.formats.syntax.proto_messages import declare

_NamedMetadata = declare(
    "bkstore.pulsar.entries",
    """
NamedValue: optional bytes key 1
NamedMetadata:
    optional bytes producerName 1, repeated NamedValue properties 4,
    repeated NamedValue encryptionKeys 13
""",
)["NamedMetadata"]
# Names are bytes here: one that is not UTF-8 is no reason to refuse the message.


class EntryNames(NamedTuple):
    """The producer of a message, the names of its properties and of the keys with which its payload
    is encrypted, each once, in the order of the message."""

    producer: str
    properties: tuple[str, ...] = ()
    encryption_keys: tuple[str, ...] = ()


def read_names(metadata: bytes) -> EntryNames:
    """Return the names in the bytes of a `MessageMetadata`, of a batch only those of the batch;
    raises `CorruptionError` for other bytes. Names that are not UTF-8 have escapes.

    >>> read_names(bytes.fromhex("0a0170 2206 0a0263611200 6a05 0a036b6579"))
    EntryNames(producer='p', properties=('ca',), encryption_keys=('key',))
    """
    message: Any = _NamedMetadata()
    try:
        message.ParseFromString(metadata)
    except DecodeError as error:
        raise CorruptionError(None, None, f"no message metadata: {error}") from None
    return EntryNames(
        _text(message.producerName),
        tuple(dict.fromkeys(_text(each.key) for each in message.properties)),
        tuple(dict.fromkeys(_text(each.key) for each in message.encryptionKeys)),
    )


def verify_checksum(data: Any, metadata_offset: int, end: int, checksum: int) -> bool:
    """Return whether an entry in `data`, whose message metadata lie at `metadata_offset`, has this
    CRC-32C: it covers the size of the metadata, the metadata, and the payload."""
    covered = bytes(data[metadata_offset - 4 : end])
    return int(google_crc32c.value(covered)) == checksum


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
