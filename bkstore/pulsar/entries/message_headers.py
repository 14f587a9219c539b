"""The headers of a topic's entries as arrays: publish time, sequence id, messages in the batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bkstore.formats.entry.digest import DIGEST_SIZES
from bkstore.formats.syntax.field_columns import WireType
from bkstore.formats.syntax.framing import Bytes
from bkstore.ids import Int64Array
from bkstore.pulsar.entries.entry_parts import EntryProblem, EntryWalk

COMPRESSIONS = ("none", "LZ4", "ZLIB", "ZSTD", "SNAPPY")
"""The compressions of a payload, by their number."""

_DIGEST_SIZES = tuple(DIGEST_SIZES[each] for each in ("CRC32C", "CRC32", "HMAC", "DUMMY"))
# Pulsar's default first.

_PRODUCER, _SEQUENCE_ID, _PUBLISH_TIME = 1, 2, 3
_COMPRESSION, _UNCOMPRESSED_SIZE, _BATCH_SIZE, _EVENT_TIME = 8, 9, 11, 12
_ENCRYPTION_KEYS, _MARKER_TYPE = 13, 20
_FIELDS: Mapping[int, WireType] = {
    _PRODUCER: "bytes",
    _SEQUENCE_ID: "varint",
    _PUBLISH_TIME: "varint",
    _COMPRESSION: "varint",
    _UNCOMPRESSED_SIZE: "varint",
    _BATCH_SIZE: "varint",
    _EVENT_TIME: "varint",
    _ENCRYPTION_KEYS: "bytes",
    _MARKER_TYPE: "varint",
}


@dataclass(frozen=True)
class MessageHeaders:
    """The headers of entries: columns with an element for each, int64 unless stated otherwise.

    `problem` is an `EntryProblem`, 0 for an entry of a topic; `problem_offset` is where in the
    buffer it lies. `needed` is how many bytes of an entry would be needed, if the buffer has too
    few of them, else 0. With a problem, or if bytes are needed, the other columns mean nothing.

    Times are in milliseconds since 1970. `messages` is 1 if the entry is no batch. `compression` is
    an index of `COMPRESSIONS`. `marker_type` is -1 for messages: markers are the broker's own
    entries. `is_encrypted` (bool) says that the payload is. `broker_time`, `broker_index` are -1
    without metadata of the broker, `compacted_ledger`, `compacted_entry` (whose message it was) are
    -1 outside of ledgers of the compaction, `checksum` is -1 if there is none. The message metadata
    lie at `metadata_offset`, the payload from `payload_offset` to the end of the entry.
    """

    problem: Int64Array
    problem_offset: Int64Array
    needed: Int64Array
    publish_time: Int64Array
    sequence_id: Int64Array
    messages: Int64Array
    compression: Int64Array
    uncompressed_size: Int64Array
    event_time: Int64Array
    marker_type: Int64Array
    is_encrypted: npt.NDArray[np.bool_]
    broker_time: Int64Array
    broker_index: Int64Array
    compacted_ledger: Int64Array
    compacted_entry: Int64Array
    checksum: Int64Array
    metadata_offset: Int64Array
    payload_offset: Int64Array

    @property
    def is_decoded(self) -> npt.NDArray[np.bool_]:
        """Which entries are those of a topic, and had all bytes that are needed, bool[n]."""
        is_decoded: npt.NDArray[np.bool_] = (self.problem == EntryProblem.NONE) & (self.needed == 0)
        return is_decoded


def decode_headers(
    data: Bytes, starts: Int64Array, ends: Int64Array, available: Int64Array | None = None
) -> MessageHeaders:
    """Return the headers of the entries ``data[starts[i]:ends[i]]``: what a client of BookKeeper
    reads, without record header and digest. Of entry i the buffer needs to have the bytes before
    ``available[i]`` only. Checksums are not verified. Cost: some 1 us an entry. Source: Pulsar's
    `Commands` and `PulsarApi.proto`; bytes: `docs/formats/pulsar.md`.

    >>> metadata = bytes.fromhex("0a01 70 1005 18e807 5802")  # producer p, sequence 5, batch of 2
    >>> entry = len(metadata).to_bytes(4, "big") + metadata + b"payload"
    >>> data = np.frombuffer(entry, np.uint8)
    >>> headers = decode_headers(data, np.array([0]), np.array([len(entry)]))
    >>> [each.item() for each in (headers.publish_time, headers.messages, headers.payload_offset)]
    [1000, 2, 14]
    """
    # Each call continues where the last one ended: the parts are read in their order in an entry.
    walk = EntryWalk(data, starts, ends, ends if available is None else available)
    compacted_ledger, compacted_entry = walk.compacted_id()
    broker_time, broker_index = walk.broker_metadata()
    checksum = walk.checksum()
    metadata_offset, payload_offset, fields = walk.message_metadata(_FIELDS)
    batch_size, marker = fields[_BATCH_SIZE], fields[_MARKER_TYPE]
    return MessageHeaders(
        problem=walk.problem,
        problem_offset=walk.problem_offset,
        needed=walk.needed,
        publish_time=fields[_PUBLISH_TIME].value,
        sequence_id=fields[_SEQUENCE_ID].value,
        messages=np.where(batch_size.occurrences > 0, _as_int32(batch_size.value), 1),
        compression=fields[_COMPRESSION].value,
        uncompressed_size=fields[_UNCOMPRESSED_SIZE].value,
        event_time=fields[_EVENT_TIME].value,
        marker_type=np.where(marker.occurrences > 0, _as_int32(marker.value), -1),
        is_encrypted=fields[_ENCRYPTION_KEYS].occurrences > 0,
        broker_time=broker_time,
        broker_index=broker_index,
        compacted_ledger=compacted_ledger,
        compacted_entry=compacted_entry,
        checksum=checksum,
        metadata_offset=metadata_offset,
        payload_offset=payload_offset,
    )


def find_digest_size(data: Bytes, starts: Int64Array, ends: Int64Array) -> int | None:
    """Return the size of the digests before some entries of one ledger, of which the buffer has
    ``data[starts[i]:ends[i]]`` with their digests; None if no size makes them a topic's entries.
    As `find_digest_sizes`."""
    size = int(find_digest_sizes(data, starts, ends, ends, np.zeros(starts.size, np.int64), 1)[0])
    return size if size >= 0 else None


def find_digest_sizes(
    data: Bytes,
    starts: Int64Array,
    ends: Int64Array,
    available: Int64Array,
    ledgers: Int64Array,
    ledger_count: int,
) -> Int64Array:
    """Return the size of the digests in each of `ledger_count` ledgers: that by which most of its
    entries are a topic's, -1 if none is by any. ``ledgers[i]`` is the number of the ledger of entry
    i, which the buffer has with its digest: records of scope 0 do not state the digest type. Other
    parameters are those of `decode_headers`, and the cost is four times its own."""
    best_size = np.full(ledger_count, -1, np.int64)
    best_count = np.zeros(ledger_count, np.int64)
    for size in _DIGEST_SIZES:
        headers = decode_headers(data, np.minimum(starts + size, ends), ends, available)
        # One that needs more bytes may yet turn out to be none.
        points = np.where(headers.problem == EntryProblem.NONE, 1, 0) + headers.is_decoded
        counts = np.bincount(ledgers, points, minlength=ledger_count).astype(np.int64)
        is_better = counts > best_count
        best_size[is_better], best_count[is_better] = size, counts[is_better]
    return best_size


def _as_int32(values: Int64Array) -> npt.NDArray[Any]:
    """Return the values as protobuf reads an int32: the lowest 32 bits, with sign."""
    return values.astype(np.int32).astype(np.int64)
