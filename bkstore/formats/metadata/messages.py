"""The protobuf messages of ledger metadata and underreplicated marks, declared in code. Field
numbers and enum values are persisted by BookKeeper: do not renumber. Source: `DataFormats.proto`
(proto2); table in `docs/formats/ledgermetadata.md`."""

from __future__ import annotations

from bkstore.formats.syntax.proto_messages import declare

_ENUMS = {
    "LedgerMetadataFormat.State": "OPEN 1, IN_RECOVERY 2, CLOSED 3",
    "LedgerMetadataFormat.DigestType": "CRC32 1, HMAC 2, CRC32C 3, DUMMY 4",
}
_MESSAGES = """
LedgerMetadataFormat:
    required int32 quorumSize 1, required int32 ensembleSize 2, required int64 length 3,
    optional int64 lastEntryId 4, required LedgerMetadataFormat.State state 5,
    repeated LedgerMetadataFormat.Segment segment 6,
    optional LedgerMetadataFormat.DigestType digestType 7, optional bytes password 8,
    optional int32 ackQuorumSize 9, optional int64 ctime 10,
    repeated LedgerMetadataFormat.cMetadataMapEntry customMetadata 11, optional int64 cToken 12
LedgerMetadataFormat.Segment: repeated string ensembleMember 1, required int64 firstEntryId 2
LedgerMetadataFormat.cMetadataMapEntry: optional string key 1, optional bytes value 2
UnderreplicatedLedgerFormat: repeated string replica 1, optional int64 ctime 2
"""

_classes = declare("bkstore.metadata", _MESSAGES, _ENUMS)

LedgerMetadataFormat = _classes["LedgerMetadataFormat"]
"""The message that versions 2 and 3 of ledger metadata hold."""

UnderreplicatedLedgerFormat = _classes["UnderreplicatedLedgerFormat"]
"""An underreplicated mark."""


def as_text(value: str | bytes) -> str:
    """Return a string of a message; raises `UnicodeDecodeError` if it is not UTF-8: then some
    builds of the library give bytes, and others raise by themselves."""
    return value.decode("utf-8") if isinstance(value, bytes) else value
