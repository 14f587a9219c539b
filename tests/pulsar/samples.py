"""Values of Pulsar's nodes, written field by field from the .proto files, and worlds of them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping

import cramjam
import google_crc32c

from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.ledger_metadata import LedgerMetadata
from bkstore.pulsar.sources.nodes import NodeValue

DAY = 24 * 60 * 60 * 1000
NOW = 1_790_000_000_000
OLD, YOUNG = NOW - 10 * DAY, NOW - DAY // 2
CODECS = {
    "none": (0, bytes),
    "lz4": (1, lambda data: bytes(cramjam.lz4.compress_block(data, store_size=False))),
    "zlib": (2, zlib.compress),
    "zstd": (3, lambda data: bytes(cramjam.zstd.compress(data))),
    "snappy": (4, lambda data: bytes(cramjam.snappy.compress_raw(data))),
}
"""The number of each compression, and what compresses as Pulsar does: raw blocks."""


def varint(value: int) -> bytes:
    """Return the varint of an int64."""
    value %= 2**64
    digits = []
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


def field(number: int, value: int | bytes | str) -> bytes:
    """Return a field: a varint, or bytes with their size before them."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def listed(ledger: int, *, offloaded: bool | None = None, deleted: bool = False) -> bytes:
    """Return a `LedgerInfo`, with an `OffloadContext` if it is offloaded or deleted; by default a
    deleted one is offloaded."""
    offloaded = deleted if offloaded is None else offloaded
    context = field(1, 5) + field(2, -6) + field(3, int(offloaded)) + field(4, int(deleted))
    info = field(1, ledger) + field(2, 10) + field(3, 1000) + field(4, OLD)
    return info + (field(5, context) if offloaded or deleted else b"")


def managed_ledger(*ledgers: int | bytes) -> bytes:
    """Return a `ManagedLedgerInfo` of ledgers, or of `LedgerInfo`s."""
    infos = (each if isinstance(each, bytes) else listed(each) for each in ledgers)
    return b"".join(field(1, info) for info in infos)


def cursor(ledger: int = -1, compacted: int | None = None, **texts: str) -> bytes:
    """Return a `ManagedCursorInfo`; `texts` are string properties."""
    data = field(1, ledger) + field(2, 3) + field(3, 4)
    if compacted is not None:
        data += field(5, field(1, "CompactedTopicLedger") + field(2, compacted))
    data += field(6, NOW)
    return data + b"".join(field(8, field(1, key) + field(2, text)) for key, text in texts.items())


def locator(*ledgers: int, first_version: int = 0) -> bytes:
    """Return a `SchemaLocator` whose versions are in these ledgers."""
    entries = [
        field(1, version) + field(2, field(1, ledger) + field(2, 0)) + field(3, b"hash")
        for version, ledger in enumerate(ledgers, first_version)
    ]
    return field(1, entries[-1]) + b"".join(field(2, entry) for entry in entries)


def packed(data: bytes, codec: str) -> bytes:
    """Return a value compressed as Pulsar does."""
    number, compress = CODECS[codec]
    head = field(1, number) + field(2, len(data))
    return b"\x47\x78" + struct.pack(">I", len(head)) + head + compress(data)


def topic_path(topic: str, cursor_name: str = "") -> str:
    """Return the path of a topic of shop/orders, or of one of its cursors."""
    return f"/managed-ledgers/shop/orders/persistent/{topic}" + f"/{cursor_name}".rstrip("/")


def owned(topic: str = "paid", cursor_name: str | None = None) -> dict[str, bytes]:
    """Return the custom metadata of a ledger of a topic of shop/orders, or of its cursor."""
    custom = {"application": b"pulsar", "component": b"managed-ledger"}
    custom["pulsar/managed-ledger"] = f"shop/orders/persistent/{topic}".encode()
    return custom if cursor_name is None else {**custom, "pulsar/cursor": cursor_name.encode()}


def compacted_of(topic: str = "paid") -> dict[str, bytes]:
    """Return the custom metadata of a compacted ledger of a topic of shop/orders."""
    url = f"persistent://shop/orders/{topic}".encode()
    return {
        "application": b"pulsar",
        "component": b"compacted-ledger",
        "pulsar/compactedTopic": url,
    }


def schema_of(topic: str = "paid") -> dict[str, bytes]:
    """Return the custom metadata of a ledger with the schema of a topic of shop/orders."""
    schema = f"shop/orders/{topic}".encode()
    return {"application": b"pulsar", "component": b"schema", "pulsar/schemaId": schema}


def ledger(number: int, custom: Mapping[str, bytes], ctime: int = OLD) -> LedgerMetadata:
    """Return a closed ledger's metadata."""
    return LedgerMetadata(
        number,
        1,
        1,
        1,
        [(0, ["b1"])],
        state="CLOSED",
        last_entry_id=9,
        length=1000,
        ctime=ctime,
        store_ctime=ctime >= 0,
        custom_metadata=custom,
    )


def store_of(ledgers: Iterable[LedgerMetadata]) -> MemoryStore:
    """Return a store in memory that has these ledgers."""
    store = MemoryStore()
    for metadata in ledgers:
        store.create(metadata)
    return store


def node_values(values: Mapping[str, bytes | NodeValue]) -> dict[str, NodeValue]:
    """Return nodes with these values."""
    return {
        path: value if isinstance(value, NodeValue) else NodeValue(value)
        for path, value in values.items()
    }


def message_metadata(
    sequence_id: int = 5, publish_time: int = NOW, *, batch: int | None = None, more: bytes = b""
) -> bytes:
    """Return a `MessageMetadata`; `more` are further fields."""
    metadata = field(1, "producer-1") + field(2, sequence_id) + field(3, publish_time) + more
    return metadata if batch is None else metadata + field(11, batch)


def message_entry(
    metadata: bytes,
    payload: bytes = b"secret",
    *,
    checksum: bool = True,
    broker: tuple[int, int] | None = None,
    compacted: tuple[int, int] | None = None,
) -> bytes:
    """Return an entry of a topic, or of a compaction: what a broker writes. `broker` are the time
    and index of its metadata, `compacted` are the ledger and entry that a message was in."""
    entry = struct.pack(">I", len(metadata)) + metadata + payload
    if checksum:
        entry = struct.pack(">HI", 0x0E01, google_crc32c.value(entry)) + entry
    if broker is not None:
        part = field(1, broker[0]) + field(2, broker[1])
        entry = struct.pack(">HI", 0x0E02, len(part)) + part + entry
    if compacted is not None:
        part = field(1, compacted[0]) + field(2, compacted[1]) + field(3, -1)
        entry = struct.pack(">I", len(part)) + part + struct.pack(">I", len(entry)) + entry
    return entry
