"""The protobuf messages of v3, declared here and compiled when this module is loaded.

Field numbers go over the wire: do not renumber. Source: `BookkeeperProtocol.proto` (proto2).
Strings are declared as bytes, which are the same on the wire, because Java accepts invalid UTF-8.

`EXTENDED` adds proposals that BookKeeper never built: `ledgerScopeId` in each message with a
ledger id (BP-35 gives it no number; 50 is bkstore's) and batch reads (fields as in BP-62; 109 is
bkstore's). In `PLAIN` these are unknown fields, as for BookKeeper's bookies.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from bkstore.formats.syntax.proto_messages import compile_messages, parse_messages

_ENUMS = {
    "ProtocolVersion": "VERSION_ONE 1, VERSION_TWO 2, VERSION_THREE 3",
    "OperationType": (
        "READ_ENTRY 1, ADD_ENTRY 2, RANGE_READ_ENTRY 3, RANGE_ADD_ENTRY 4, AUTH 5, WRITE_LAC 6,"
        "READ_LAC 7, GET_BOOKIE_INFO 8, START_TLS 9, FORCE_LEDGER 10,"
        "GET_LIST_OF_ENTRIES_OF_LEDGER 11, BATCH_READ_ENTRY 12"
    ),
    "StatusCode": (
        "EOK 0, ENOLEDGER 402, ENOENTRY 403, EBADREQ 404, EIO 501, EUA 502, EBADVERSION 503,"
        "EFENCED 504, EREADONLY 505, ETOOMANYREQUESTS 506, EUNKNOWNLEDGERSTATE 507"
    ),
    "ReadFlag": "FENCE_LEDGER 1, ENTRY_PIGGYBACK 2",
    "AddFlag": "RECOVERY_ADD 1",
}

_MESSAGES = """
BKPacketHeader: required ProtocolVersion version 1, required OperationType operation 2,
    required uint64 txnId 3, optional uint32 priority 4
ContextPair: required bytes key 1, required bytes value 2
AuthMessage: required bytes authPluginName 1, required bytes payload 2

ReadRequest: optional ReadFlag flag 100, required int64 ledgerId 1, required int64 entryId 2,
    optional bytes masterKey 3, optional int64 previousLAC 4, optional int64 timeOut 5
AddRequest: optional AddFlag flag 100, required int64 ledgerId 1, required int64 entryId 2,
    required bytes masterKey 3, required bytes body 4, optional int32 writeFlags 5
WriteLacRequest: required int64 ledgerId 1, required int64 lac 2, required bytes masterKey 3,
    required bytes body 4
ReadLacRequest: required int64 ledgerId 1
GetBookieInfoRequest: optional int64 requested 1
StartTLSRequest:
ForceLedgerRequest: required int64 ledgerId 1
GetListOfEntriesOfLedgerRequest: required int64 ledgerId 1
Request: required BKPacketHeader header 1, optional ReadRequest readRequest 100,
    optional AddRequest addRequest 101, optional AuthMessage authRequest 102,
    optional WriteLacRequest writeLacRequest 103, optional ReadLacRequest readLacRequest 104,
    optional GetBookieInfoRequest getBookieInfoRequest 105,
    optional StartTLSRequest startTLSRequest 106,
    optional ForceLedgerRequest forceLedgerRequest 107,
    optional GetListOfEntriesOfLedgerRequest getListOfEntriesOfLedgerRequest 108,
    repeated ContextPair requestContext 200

ReadResponse: required StatusCode status 1, required int64 ledgerId 2, required int64 entryId 3,
    optional bytes body 4, optional int64 maxLAC 5, optional int64 lacUpdateTimestamp 6
AddResponse: required StatusCode status 1, required int64 ledgerId 2, required int64 entryId 3
WriteLacResponse: required StatusCode status 1, required int64 ledgerId 2
ReadLacResponse: required StatusCode status 1, required int64 ledgerId 2,
    optional bytes lacBody 3, optional bytes lastEntryBody 4
GetBookieInfoResponse: required StatusCode status 1, optional int64 totalDiskCapacity 2,
    optional int64 freeDiskSpace 3
StartTLSResponse:
ForceLedgerResponse: required StatusCode status 1, required int64 ledgerId 2
GetListOfEntriesOfLedgerResponse: required StatusCode status 1, required int64 ledgerId 2,
    optional bytes availabilityOfEntriesOfLedger 3
Response: required BKPacketHeader header 1, required StatusCode status 2,
    optional ReadResponse readResponse 100, optional AddResponse addResponse 101,
    optional AuthMessage authResponse 102, optional WriteLacResponse writeLacResponse 103,
    optional ReadLacResponse readLacResponse 104,
    optional GetBookieInfoResponse getBookieInfoResponse 105,
    optional StartTLSResponse startTLSResponse 106,
    optional ForceLedgerResponse forceLedgerResponse 107,
    optional GetListOfEntriesOfLedgerResponse getListOfEntriesOfLedgerResponse 108
"""

_BATCH_MESSAGES = """
BatchReadRequest: optional ReadFlag flag 100, required int64 ledgerId 1,
    required int64 startEntryId 2, required int32 maxCount 3, required int64 maxSize 4,
    optional bytes masterKey 5, optional int64 previousLAC 6, optional int64 timeOut 7
BatchReadResponse: required StatusCode status 1, required int64 ledgerId 2,
    required int64 startEntryId 3, repeated bytes body 4, optional int64 maxLAC 5,
    optional int64 lacUpdateTimestamp 6
"""

_SCOPE = "optional int64 ledgerScopeId 50"
_BATCH_FIELDS = {
    "Request": "optional BatchReadRequest batchReadRequest 109",
    "Response": "optional BatchReadResponse batchReadResponse 109",
}


class MessageClasses(NamedTuple):
    """The message classes of one variant of the protocol."""

    Request: type[Any]
    Response: type[Any]
    AuthMessage: type[Any]


def _extended_messages() -> dict[str, list[str]]:
    """Return the field declarations of all messages, with scopes and batch reads added."""
    messages = parse_messages(_BATCH_MESSAGES + _MESSAGES)
    for name, fields in messages.items():
        if any(" ledgerId " in field for field in fields):
            fields.append(_SCOPE)
        if name in _BATCH_FIELDS:
            fields.append(_BATCH_FIELDS[name])
    return messages


def _compile_classes(package: str, messages: dict[str, list[str]]) -> MessageClasses:
    classes = compile_messages(package, messages, _ENUMS)
    return MessageClasses(*(classes[name] for name in MessageClasses._fields))


PLAIN = _compile_classes("bkstore.wire", parse_messages(_MESSAGES))
"""The messages of BookKeeper's bookies and clients."""

EXTENDED = _compile_classes("bkstore.wire.extended", _extended_messages())
"""The messages with scopes and batch reads added."""
