"""Rows of the `ledgers` RocksDB database: `docs/formats/rocksdb.md`.

Ledger rows: key i64 ledger id, value a protobuf `LedgerData`. One more row holds the storage
flags: key i64 -0xeefd, value i64. The message is upstream's DbLedgerStorageDataFormats.proto
(proto2); it is declared here through the protobuf library, without generated code.

    field         number  type   label
    exists        1       bool   required
    fenced        2       bool   required
    masterKey     3       bytes  required
    explicitLac   4       bytes  optional; ledger, LAC, digest
    limbo         5       bool   optional

Persisted format: do not renumber.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from bkstore.errors import CorruptionError

__all__ = ["FLAGS_KEY", "NEEDS_INTEGRITY_CHECK", "LedgerData", "decode", "encode"]

FLAGS_KEY = (-0xEEFD).to_bytes(8, "big", signed=True)
"""Key of the storage flags row; negative, so it sorts after every ledger of scope 0."""

NEEDS_INTEGRITY_CHECK = 0x1
"""The one storage flag there is."""

# Name, number, descriptor type (8 bool, 12 bytes), label (2 required, 1 optional).
_FIELDS = (
    ("exists", 1, 8, 2),
    ("fenced", 2, 8, 2),
    ("masterKey", 3, 12, 2),
    ("explicitLac", 4, 12, 1),
    ("limbo", 5, 8, 1),
)


def _declare() -> type[Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="bkstore/ledger_data.proto", package="bkstore", syntax="proto2"
    )
    message = file.message_type.add(name="LedgerData")
    for name, number, kind, label in _FIELDS:
        message.field.add(name=name, number=number, type=kind, label=label)  # type: ignore[arg-type]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[no-untyped-call]
    found = pool.FindMessageTypeByName("bkstore.LedgerData")  # type: ignore[no-untyped-call]
    return message_factory.GetMessageClass(found)


_Message = _declare()


@dataclass(frozen=True, slots=True)
class LedgerData:
    """One ledger row. `limbo` None means that the field is not there."""

    master_key: bytes = b""
    fenced: bool = False
    explicit_lac: bytes | None = None
    limbo: bool | None = None
    exists: bool = True


def encode(data: LedgerData) -> bytes:
    """Return the row's value.

    >>> encode(LedgerData(b"k")).hex()
    '080110001a016b'
    """
    message = _Message(exists=data.exists, fenced=data.fenced, masterKey=data.master_key)
    if data.explicit_lac is not None:
        message.explicitLac = data.explicit_lac
    if data.limbo is not None:
        message.limbo = data.limbo
    value: bytes = message.SerializeToString(deterministic=True)
    return value


def decode(value: bytes) -> LedgerData:
    """Return the row that `value` says; `CorruptionError` if it is not a `LedgerData`."""
    message = _Message()
    try:
        message.ParseFromString(value)
    except DecodeError as error:
        raise CorruptionError(None, 0, f"row is no LedgerData message: {error}") from error
    if not message.IsInitialized():
        lacking = ", ".join(message.FindInitializationErrors())
        raise CorruptionError(None, 0, f"row is no LedgerData message: lacks {lacking}")
    return LedgerData(
        message.masterKey,
        message.fenced,
        message.explicitLac if message.HasField("explicitLac") else None,
        message.limbo if message.HasField("limbo") else None,
        message.exists,
    )
