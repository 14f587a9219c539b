"""The protobuf messages of Pulsar's metadata, declared in code: the fields that lead to ledgers,
and those that show whether a value is of this kind. Source: Pulsar's `MLDataFormats.proto` and
`SchemaStorageFormat.proto` (proto2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet

from bkstore.formats.metadata.messages import as_text
from bkstore.formats.syntax.proto_messages import declare

_MESSAGES = """
CompressedHead: optional int32 compressionType 1, optional int32 uncompressedSize 2
KeyValue: required string key 1, required string value 2
NestedPositionInfo: required int64 ledgerId 1, required int64 entryId 2
OffloadContext:
    optional int64 uidMsb 1, optional int64 uidLsb 2, optional bool complete 3,
    optional bool bookkeeperDeleted 4, optional int64 timestamp 5
LedgerInfo:
    required int64 ledgerId 1, optional int64 entries 2, optional int64 size 3,
    optional int64 timestamp 4, optional OffloadContext offloadContext 5
ManagedLedgerInfo:
    repeated LedgerInfo ledgerInfo 1, optional NestedPositionInfo terminatedPosition 2,
    repeated KeyValue properties 3
LongProperty: required string name 1, required int64 value 2
StringProperty: required string name 1, required string value 2
ManagedCursorInfo:
    required int64 cursorsLedgerId 1, optional int64 markDeleteLedgerId 2,
    optional int64 markDeleteEntryId 3, repeated LongProperty properties 5,
    optional int64 lastActive 6, repeated StringProperty cursorProperties 8
SchemaPosition: required int64 ledgerId 1, required int64 entryId 2
SchemaIndexEntry:
    required int64 version 1, required SchemaPosition position 2, required bytes hash 3
SchemaLocator: required SchemaIndexEntry info 1, repeated SchemaIndexEntry index 2
"""

MESSAGES = declare("bkstore.pulsar", _MESSAGES)
"""The classes of the messages, by name."""


def misplaced_fields(message: Any) -> Iterator[str]:
    """Yield the fields of a parsed message, and of those inside it, whose wire type is not the
    declared one: the parser keeps them as unknown fields, as those of newer versions. Raises
    `UnicodeDecodeError` for a string that is not UTF-8."""
    known_fields = message.DESCRIPTOR.fields_by_number
    unknown_fields: Any = UnknownFieldSet(message)
    for unknown in unknown_fields:
        if unknown.field_number in known_fields:
            yield known_fields[unknown.field_number].full_name
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            as_text(value)
        if field.message_type is not None:
            for part in value if hasattr(value, "append") else [value]:
                yield from misplaced_fields(part)
