"""Rows of the `ledgers` RocksDB database: `docs/formats/rocksdb.md`. Ledger rows: key i64 ledger
id, value a protobuf `LedgerData` (declared below, as in BookKeeper's
DbLedgerStorageDataFormats.proto), whose `explicitLac` has ledger, LAC and digest. One more row
holds the storage flags: key i64 -0xeefd, value i64. Persisted format: do not renumber."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from bkstore.errors import CorruptionError
from bkstore.formats.state_checks import state_oddities
from bkstore.formats.syntax.proto_messages import check_complete, declare
from bkstore.ids import LedgerId

FLAGS_KEY = (-0xEEFD).to_bytes(8, "big", signed=True)
"""Key of the storage flags row; negative, so it sorts after every ledger of scope 0."""

NEEDS_INTEGRITY_CHECK = 0x1
"""The one storage flag there is."""

_MESSAGE = """LedgerData:
    required bool exists 1, required bool fenced 2, required bytes masterKey 3,
    optional bytes explicitLac 4, optional bool limbo 5"""
_Message = declare("bkstore", _MESSAGE)["LedgerData"]


@dataclass(frozen=True, slots=True)
class LedgerData:
    """One ledger row. `limbo` None: absent. `unknown_fields` are numbers of undeclared fields."""

    master_key: bytes = field(default=b"", repr=False)
    fenced: bool = False
    explicit_lac: bytes | None = None
    limbo: bool | None = None
    exists: bool = True
    unknown_fields: tuple[int, ...] = ()


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
    """Return the row in `value`; `CorruptionError` if it is not a `LedgerData`."""
    message = _Message()
    try:
        message.ParseFromString(value)
    except DecodeError as error:
        raise CorruptionError(None, 0, f"row is not a LedgerData message: {error}") from error
    check_complete(message, 0, "row is not a LedgerData message:")
    unknown: Any = UnknownFieldSet(message)
    return LedgerData(
        master_key=message.masterKey,
        fenced=message.fenced,
        explicit_lac=message.explicitLac if message.HasField("explicitLac") else None,
        limbo=message.limbo if message.HasField("limbo") else None,
        exists=message.exists,
        unknown_fields=tuple(item.field_number for item in unknown),
    )


def oddities(data: LedgerData, ledger: LedgerId) -> Iterator[str]:
    """Yield a description of each oddity in a ledger's row or in the state it holds."""
    yield from state_oddities(ledger, data.master_key, data.explicit_lac or None)
    if not data.exists:
        yield "the row says that the ledger does not exist"
    if data.unknown_fields:
        yield f"the row has unknown fields: {', '.join(map(str, data.unknown_fields))}"
