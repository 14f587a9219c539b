"""Entry logs (`<hex id>.log`): header, framing, ledgers map, metadata: `docs/formats/entrylog.md`.

    header                                  ledgers map batch, at most 10000 ledgers
    0    u8[4]  "BKLO"                      0    i32  20 + 16 n (24 n in version 2)
    4    i32    version: 0, 1; 2 = bkstore  4    i64  -1
    8    i64    offset of the ledgers map   12   i64  -2 (-3 in version 2)
    16   i32    ledgers in the map          20   i32  n
    20   u8     zero up to 1024             24   n x ([i64 scope,] i64 ledger, i64 bytes)

    entry, from 1024 on: i32 size of the record, then the record (`bkstore.formats.entry`)

Offset and count are 0 until the log is closed. Logs of the direct-IO logger have a header of 4096
bytes (an entry of ledger -1 fills it up) and 0xF0 after each flush, up to a multiple of 4096.
Version 2: some ledger's scope is not 0. Big-endian. Persisted format: do not renumber. Sources:
`DefaultEntryLogger`, `EntryLogMetadata`, `directentrylogger/Header`,
`directentrylogger/LogMetadata`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.ids import LedgerId

HEADER_SIZE = 1024
DIRECT_HEADER_SIZE = 4096
SIZE_FIELD_BYTES = 4
"""Bytes of the size field before each record; a location points after it."""

VERSION_0 = 0
VERSION_1 = 1
VERSION_2 = 2
MAP_FIELDS_OFFSET = 8
_LEDGERS_PER_BATCH = 10_000

_SIGNATURE = b"BKLO"
_HEADER = struct.Struct(">4siqi")
_MAP_FIELDS = struct.Struct(">qi")
_BATCH_HEADER = struct.Struct(">iqqi")
_BATCH_FIELDS_BYTES = _BATCH_HEADER.size - SIZE_FIELD_BYTES
_MAP_LEDGER, _MAP_ENTRY, _SCOPED_MAP_ENTRY = -1, -2, -3
_METADATA, _METADATA_VERSION = struct.Struct(">hqqqq"), 0
"""Version, log id, total bytes, remaining bytes, ledgers; then a ledger and its bytes for each."""

_LOG_NAME = re.compile(r"(0|[1-9a-f][0-9a-f]{0,7})\.log")
_DIRECT_FILLER = struct.pack(">iq", DIRECT_HEADER_SIZE - HEADER_SIZE - SIZE_FIELD_BYTES, -1)


def log_name(log_id: int) -> str:
    """Return the file name of a log: lower-case hex without padding.

    >>> log_name(10)
    'a.log'
    """
    return f"{log_id:x}.log"


def parse_log_name(file_name: str) -> int | None:
    """Return the log id in a file name, None if it is not an entry log's."""
    match = _LOG_NAME.fullmatch(file_name)
    return int(match[1], 16) if match and int(match[1], 16) < 1 << 31 else None


@dataclass(frozen=True, slots=True)
class LogHeader:
    """The first fields of a log. `map_offset` and `ledger_count` are 0 if no map was written."""

    version: int = VERSION_1
    map_offset: int = 0
    ledger_count: int = 0


def encode_header(header: LogHeader, direct: bool = False) -> bytes:
    """Return the header block of an entry log. It has 1024 bytes; with `direct`, as BookKeeper's
    logger with direct I/O writes it, 4096 bytes with a filler entry.

    >>> encode_header(LogHeader())[:8].hex(), len(encode_header(LogHeader(), direct=True))
    ('424b4c4f00000001', 4096)
    """
    fields = _HEADER.pack(_SIGNATURE, header.version, header.map_offset, header.ledger_count)
    block = fields.ljust(HEADER_SIZE, b"\0")
    return (block + _DIRECT_FILLER).ljust(DIRECT_HEADER_SIZE, b"\0") if direct else block


def encode_map_fields(map_offset: int, ledger_count: int) -> bytes:
    """Return the 12 bytes that are patched in at offset 8 when a log is closed."""
    return _MAP_FIELDS.pack(map_offset, ledger_count)


def decode_header(data: bytes | memoryview) -> LogHeader:
    """Return the header in the first bytes of a log. Raises `CorruptionError` for fewer than 20
    bytes or a wrong signature, `UnsupportedLayout` above version 2, which BookKeeper does not
    check."""
    if len(data) < _HEADER.size:
        raise CorruptionError(None, len(data), f"entry log header needs {HEADER_SIZE} bytes")
    signature, version, map_offset, ledgers = _HEADER.unpack_from(data)
    if signature != _SIGNATURE:
        raise CorruptionError(None, 0, f"signature is {signature.hex()}, not 'BKLO'")
    if not VERSION_0 <= version <= VERSION_2:
        raise UnsupportedLayout(f"entry log version {version}, supported are 0 to 2")
    return LogHeader(version, map_offset, ledgers)


def encode_ledgers_map(sizes: Mapping[LedgerId, int]) -> bytes:
    """Return the ledgers map: bytes per ledger (4 + size of each of its records), in batches.
    Version 2 batches if any ledger has a scope other than 0. Empty for no ledgers."""
    is_scoped = any(ledger_id.scope for ledger_id in sizes)
    map_entry = _SCOPED_MAP_ENTRY if is_scoped else _MAP_ENTRY
    id_part = slice(0 if is_scoped else 1, None)  # of (scope, ledger): both, or the ledger alone
    remaining = iter(sizes.items())
    parts = []
    while batch := list(islice(remaining, _LEDGERS_PER_BATCH)):
        rows = [[*tuple(ledger_id.signed)[id_part], size] for ledger_id, size in batch]
        row_bytes = np.array(rows, ">i8").tobytes()
        record_size = _BATCH_FIELDS_BYTES + len(row_bytes)
        parts += [_BATCH_HEADER.pack(record_size, _MAP_LEDGER, map_entry, len(batch)), row_bytes]
    return b"".join(parts)


def decode_map_batch(record: bytes | memoryview) -> list[tuple[LedgerId, int]]:
    """Return (ledger, bytes) pairs of one batch, given without its 4-byte size. Raises
    `CorruptionError` for wrong ids, or if count and length do not match."""
    if len(record) < _BATCH_FIELDS_BYTES:
        raise CorruptionError(None, 0, f"ledgers map batch of {len(record)} bytes")
    ledger, entry, count = struct.unpack_from(">qqi", record)
    if ledger != _MAP_LEDGER or entry not in (_MAP_ENTRY, _SCOPED_MAP_ENTRY):
        raise CorruptionError(None, 0, f"ids ({ledger}, {entry}) are not those of a ledgers map")
    width = 3 if entry == _SCOPED_MAP_ENTRY else 2  # rows are [scope,] ledger, bytes
    if count < 0 or len(record) != _BATCH_FIELDS_BYTES + 8 * width * count:
        detail = f"ledgers map batch of {count} ledgers has {len(record)} bytes"
        raise CorruptionError(None, 16, detail)
    numbers = np.frombuffer(record, ">i8", width * count, _BATCH_FIELDS_BYTES)
    rows = numbers.reshape(count, width).tolist()
    for row in rows:
        *scope, number, size = row
        if size < 0 or (number < 0 and not any(scope)):  # ids of other scopes are unsigned
            raise CorruptionError(None, 20, f"ledgers map names ledger or size {row}")
    if width == 2:
        return [(LedgerId.of(number), size) for number, size in rows]
    return [(LedgerId.from_signed(scope, number), size) for scope, number, size in rows]


@dataclass
class LogMetadata:
    """The bytes of each ledger in a log (4 + record), from which garbage collection decides.
    `total_size` is what was added, `remaining_size` what `remove_ledger` left (`EntryLogMetadata`).

    >>> metadata = LogMetadata(5)
    >>> metadata.add(LedgerId(ledger=1), 300); metadata.add(LedgerId(ledger=2), 100)
    >>> metadata.remove_ledger(LedgerId(ledger=2)); metadata.usage
    0.75
    """

    log_id: int
    total_size: int = 0
    remaining_size: int = 0
    ledgers: dict[LedgerId, int] = field(default_factory=dict)

    def add(self, ledger: LedgerId, size: int) -> None:
        """Count `size` bytes of a ledger."""
        self.total_size += size
        self.remaining_size += size
        self.ledgers[ledger] = self.ledgers.get(ledger, 0) + size

    def add_all(self, sizes: Iterable[tuple[LedgerId, int]]) -> None:
        """Count the bytes of several ledgers."""
        for ledger, size in sizes:
            self.add(ledger, size)

    def remove_ledger(self, ledger: LedgerId) -> None:
        """Subtract a deleted ledger's bytes; does nothing if it has none here."""
        self.remaining_size -= self.ledgers.pop(ledger, 0)

    @property
    def usage(self) -> float:
        """The share of bytes that is still in use; 0.0 for a log without entries."""
        return self.remaining_size / self.total_size if self.total_size else 0.0

    def to_bytes(self) -> bytes:
        """Return the value of a row in a bookie's `metadata-cache` database, which keeps what is
        known of entry logs. Raises `UnsupportedLayout` for ledgers in scopes other than 0, as the
        format has no field for a scope."""
        if any(ledger_id.scope for ledger_id in self.ledgers):
            raise UnsupportedLayout("entry log metadata rows have no field for a scope")
        sizes = (self.total_size, self.remaining_size, len(self.ledgers))
        rows = [(ledger_id.ledger, size) for ledger_id, size in self.ledgers.items()]
        fields = _METADATA.pack(_METADATA_VERSION, self.log_id, *sizes)
        return fields + np.array(rows, ">i8").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> LogMetadata:
        """Return the metadata in a row; `CorruptionError` if it is invalid."""
        if len(data) < _METADATA.size:
            raise CorruptionError(None, 0, f"entry log metadata of {len(data)} bytes")
        version, log_id, total, remaining, count = _METADATA.unpack_from(data)
        if version != _METADATA_VERSION:
            raise CorruptionError(None, 0, f"entry log metadata version {version}, supported is 0")
        if count < 0 or len(data) != _METADATA.size + 16 * count:
            raise CorruptionError(None, 26, f"{count} ledgers in {len(data)} bytes of metadata")
        if min(log_id, total, remaining) < 0:
            raise CorruptionError(None, 2, f"log {log_id} of {total} and {remaining} bytes")
        rows = np.frombuffer(data, ">i8", 2 * count, _METADATA.size).reshape(count, 2)
        ledgers: dict[LedgerId, int] = {}
        for number, size in rows.tolist():
            if number < 0 or size < 0:
                raise CorruptionError(None, _METADATA.size, f"ledger {number} has {size} bytes")
            ledgers[LedgerId.of(number)] = size
        return cls(log_id, total, remaining, ledgers)
