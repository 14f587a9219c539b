"""Values written by protobuf's own runtime from the text format: old and new fields, and those of
`MLDataFormats.proto` and `SchemaStorageFormat.proto` that are not read here."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from bkstore.pulsar.node_values import (
    CursorValue,
    ListedLedger,
    SchemaVersions,
    decode_cursor,
    decode_managed_ledger,
    decode_schema_locator,
)
from tests.pulsar.samples import CODECS, packed

# Of each message: the fields, as "label type name number".
_PROTO = {
    "KeyValue": "required string key 1; required string value 2",
    "LongProperty": "required string name 1; required int64 value 2",
    "Position": "required int64 ledgerId 1; required int64 entryId 2",
    "Range": "required Position lowerEndpoint 1; required Position upperEndpoint 2",
    "DriverMetadata": "required string name 1; repeated KeyValue properties 2",
    "OffloadContext": "optional int64 uidMsb 1; optional int64 uidLsb 2; optional bool complete 3;"
    " optional bool bookkeeperDeleted 4; optional int64 timestamp 5;"
    " optional DriverMetadata driverMetadata 6",
    "LedgerInfo": "required int64 ledgerId 1; optional int64 entries 2; optional int64 size 3;"
    " optional int64 timestamp 4; optional OffloadContext offloadContext 5;"
    " repeated KeyValue later 15",
    "ManagedLedger": "repeated LedgerInfo ledgerInfo 1; optional Position terminatedPosition 2;"
    " repeated KeyValue properties 3; optional int64 later 200",
    "Cursor": "required int64 cursorsLedgerId 1; optional int64 markDeleteLedgerId 2;"
    " optional int64 markDeleteEntryId 3; repeated Range individualDeletedMessages 4;"
    " repeated LongProperty properties 5; optional int64 lastActive 6;"
    " repeated KeyValue cursorProperties 8; optional string later 99",
    "IndexEntry": "required int64 version 1; required Position position 2; required bytes hash 3",
    "Locator": "required IndexEntry info 1; repeated IndexEntry index 2",
}


def _declare() -> dict[str, Any]:
    """Return the classes of the messages, made by protobuf from their descriptors."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="other.proto", package="other")
    for message, fields in _PROTO.items():
        declared = file.message_type.add(name=message)
        for words in fields.split(";"):
            label, kind, field, number = words.split()
            part = declared.field.add(name=field, number=int(number))
            part.label = getattr(kinds, f"LABEL_{label.upper()}")
            if kind in _PROTO:
                part.type, part.type_name = kinds.TYPE_MESSAGE, f".other.{kind}"
            else:
                part.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        each: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"other.{each}"))
        for each in _PROTO
    }


_CLASSES = _declare()


def _written(message: str, text: str) -> bytes:
    data: bytes = text_format.Parse(text, _CLASSES[message]()).SerializeToString()
    return data


_MANAGED_LEDGER = """
ledgerInfo { ledgerId: 3 entries: 10 size: 100 timestamp: 0 }
ledgerInfo { ledgerId: 4 offloadContext { uidMsb: -1 uidLsb: 7 complete: true
    driverMetadata { name: "aws-s3" properties { key: "bucket" value: "b" } } } }
ledgerInfo { ledgerId: 5 offloadContext { complete: true bookkeeperDeleted: true timestamp: 1 } }
ledgerInfo { ledgerId: 6 offloadContext { uidMsb: 5 uidLsb: 6 } later { key: "k" value: "v" } }
ledgerInfo { ledgerId: 9223372036854775807 }
terminatedPosition { ledgerId: 6 entryId: -1 }
properties { key: "PULSAR.SHADOW_SOURCE" value: "persistent://shop/\303\274/x" }
later: 5
"""
_CURSOR = """
cursorsLedgerId: -1 markDeleteLedgerId: 3 markDeleteEntryId: 9
individualDeletedMessages { lowerEndpoint { ledgerId: 3 entryId: 11 }
    upperEndpoint { ledgerId: 4 entryId: 2 } }
properties { name: "CompactedTopicLedger" value: 8 }
properties { name: "other" value: 77 }
cursorProperties { key: "#pulsar.internal.delayed.bucket_1_2" value: "12" }
later: "x"
"""
_LOCATOR = """
info { version: 4 position { ledgerId: 9 entryId: 0 } hash: "\\001" }
index { version: 3 position { ledgerId: 7 entryId: 0 } hash: "" }
index { version: 4 position { ledgerId: 9 entryId: 0 } hash: "\\001" }
"""


@pytest.mark.parametrize("codec", ["", *CODECS])
def test_all_fields(codec: str) -> None:
    """Plain and in each compression: the ledgers, whatever else the values have."""

    def value(message: str, text: str) -> bytes:
        data = _written(message, text)
        return packed(data, codec) if codec else data

    assert [
        ListedLedger(3),
        ListedLedger(4, offloaded=True),
        ListedLedger(5, offloaded=True, bookkeeper_deleted=True),
        ListedLedger(6),
        ListedLedger(2**63 - 1),
    ] == decode_managed_ledger(value("ManagedLedger", _MANAGED_LEDGER))
    assert CursorValue(None, 8, (12,)) == decode_cursor(value("Cursor", _CURSOR))
    oldest = "cursorsLedgerId: 21 markDeleteLedgerId: 3 markDeleteEntryId: 9"

    assert CursorValue(21) == decode_cursor(value("Cursor", oldest))
    assert [] == decode_managed_ledger(
        value("ManagedLedger", "terminatedPosition { ledgerId: 1 entryId: 1 }")
    )


def test_schema_locator() -> None:
    """The ledgers of the versions, each once, and the lowest version; it is never compressed."""
    assert SchemaVersions((9, 7), 3) == decode_schema_locator(_written("Locator", _LOCATOR))
