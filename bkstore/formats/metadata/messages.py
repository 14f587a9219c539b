"""The protobuf messages of ledger metadata and underreplicated marks, declared in code.

Field numbers and enum values are persisted by BookKeeper: do not renumber. Source:
`DataFormats.proto` (proto2); table in `docs/formats/ledgermetadata.md`.
"""

from __future__ import annotations

from bkstore.formats.syntax.proto_messages import declare_file

_FILE = """
name: "bkstore/ledgermetadata.proto"
package: "bkstore.metadata"
syntax: "proto2"
message_type {
  name: "LedgerMetadataFormat"
  field { name: "quorumSize" number: 1 type: TYPE_INT32 label: LABEL_REQUIRED }
  field { name: "ensembleSize" number: 2 type: TYPE_INT32 label: LABEL_REQUIRED }
  field { name: "length" number: 3 type: TYPE_INT64 label: LABEL_REQUIRED }
  field { name: "lastEntryId" number: 4 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field {
    name: "state" number: 5 type: TYPE_ENUM label: LABEL_REQUIRED
    type_name: ".bkstore.metadata.LedgerMetadataFormat.State" default_value: "OPEN"
  }
  field {
    name: "segment" number: 6 type: TYPE_MESSAGE label: LABEL_REPEATED
    type_name: ".bkstore.metadata.LedgerMetadataFormat.Segment"
  }
  field {
    name: "digestType" number: 7 type: TYPE_ENUM label: LABEL_OPTIONAL
    type_name: ".bkstore.metadata.LedgerMetadataFormat.DigestType"
  }
  field { name: "password" number: 8 type: TYPE_BYTES label: LABEL_OPTIONAL }
  field { name: "ackQuorumSize" number: 9 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "ctime" number: 10 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field {
    name: "customMetadata" number: 11 type: TYPE_MESSAGE label: LABEL_REPEATED
    type_name: ".bkstore.metadata.LedgerMetadataFormat.cMetadataMapEntry"
  }
  field { name: "cToken" number: 12 type: TYPE_INT64 label: LABEL_OPTIONAL }
  nested_type {
    name: "Segment"
    field { name: "ensembleMember" number: 1 type: TYPE_STRING label: LABEL_REPEATED }
    field { name: "firstEntryId" number: 2 type: TYPE_INT64 label: LABEL_REQUIRED }
  }
  nested_type {
    name: "cMetadataMapEntry"
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_BYTES label: LABEL_OPTIONAL }
  }
  enum_type {
    name: "State"
    value { name: "OPEN" number: 1 }
    value { name: "IN_RECOVERY" number: 2 }
    value { name: "CLOSED" number: 3 }
  }
  enum_type {
    name: "DigestType"
    value { name: "CRC32" number: 1 }
    value { name: "HMAC" number: 2 }
    value { name: "CRC32C" number: 3 }
    value { name: "DUMMY" number: 4 }
  }
}
message_type {
  name: "UnderreplicatedLedgerFormat"
  field { name: "replica" number: 1 type: TYPE_STRING label: LABEL_REPEATED }
  field { name: "ctime" number: 2 type: TYPE_INT64 label: LABEL_OPTIONAL }
}
"""

LedgerMetadataFormat, UnderreplicatedLedgerFormat = declare_file(
    _FILE, "LedgerMetadataFormat", "UnderreplicatedLedgerFormat"
)
"""The classes of the message that versions 2 and 3 hold, and of an underreplicated mark."""


def as_text(value: str | bytes) -> str:
    """Return a string of a message; raises `UnicodeDecodeError` if it is not UTF-8: then some
    builds of the library give bytes, and others raise by themselves."""
    return value.decode("utf-8") if isinstance(value, bytes) else value
