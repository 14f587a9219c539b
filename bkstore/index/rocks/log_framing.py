"""RocksDB's log format: the framing of MANIFEST files and write-ahead logs, checked in full.

    block       32768 bytes; less than a header's length at its end is filler
    record      u32 masked CRC-32C of type, log number and payload; u16 length; u8 type
    type        1 whole, 2 first, 3 middle, 4 last; 5..8 the same with a u32 log number, for
                recycled files; 9.. settings of the log, whole

Little-endian. RocksDB is too tolerant for a reader that must not lose rows silently: it takes a
broken length for the end of the file and zeros for preallocated space, and a flipped type byte
can send it into an endless loop (observed). So these files are checked before it opens them.
Source: `db/log_format.h`, `db/log_reader.cc` of RocksDB; `docs/formats/rocksdb.md`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from bkstore.errors import CorruptionError
from bkstore.files.opening import next_data_offset, open_for_reading
from bkstore.formats.rocksdb.checksums import masked_crc32c

BLOCK_BYTES = 32768
HEADER_BYTES = 7
_RECYCLED_HEADER_BYTES = 11
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_RECYCLED_TYPES = frozenset({5, 6, 7, 8, 11, 131})
_SETTINGS_TYPES = frozenset({9, 10, 11, 130, 131})
_KNOWN_TYPES = frozenset(range(1, 12)) | {130, 131}
_UINT32_MASK = 0xFFFFFFFF


@dataclass
class FramedLogReader:
    """The logical records of one file, in order, each with the offset where it begins. After the
    iteration `torn_offset` is the offset of an incomplete last record, or of zeros up to the end (a
    crash may leave either), None if the file ends cleanly. Damage anywhere else raises
    `CorruptionError` with file and offset. Cost: one read of the file, a block at a time."""

    path: Path
    torn_offset: int | None = field(default=None, init=False)

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Yield (offset of the first fragment, payload) of each whole record; set `torn_offset`."""
        record_offset: int | None = None
        parts: list[bytes] = []
        for fragment_offset, fragment_type, payload in self._fragments():
            if (record_offset is None) != (fragment_type in (_FULL, _FIRST)):  # begun twice, or not
                reason = f"record fragment of type {fragment_type} out of order"
                raise CorruptionError(self.path, fragment_offset, reason)
            if record_offset is None:
                record_offset = fragment_offset
            parts.append(payload)
            if fragment_type in (_FULL, _LAST):
                yield record_offset, b"".join(parts)
                record_offset, parts = None, []
        if record_offset is not None:  # its last fragment is missing
            self.torn_offset = record_offset

    def _fragments(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield (offset, type 1..4, payload) of each fragment; set `torn_offset`."""
        log_number = _log_number(self.path)
        block_offset = 0
        with open_for_reading(self.path) as file:
            while block := file.read(BLOCK_BYTES):
                position = 0
                while position + HEADER_BYTES <= len(block):
                    _, length, fragment_type = struct.unpack_from("<IHB", block, position)
                    header_size = _header_size(fragment_type)
                    end = position + header_size + length
                    if not _is_valid_record(block, position, end, header_size):
                        self._accept_torn_tail(block[position:], block_offset + position, file)
                        return
                    if header_size == _RECYCLED_HEADER_BYTES:
                        written_for = _uint32(block, position + HEADER_BYTES)
                        if written_for != log_number & _UINT32_MASK:
                            return  # left over from the file's previous use, as another log
                    if fragment_type not in _SETTINGS_TYPES:
                        payload = block[position + header_size : end]
                        plain_type = (fragment_type - 1) % 4 + 1  # types 5..8 are 1..4, recycled
                        yield block_offset + position, plain_type, payload
                    position = end
                if len(block) < BLOCK_BYTES:  # the end, even if a writer appends meanwhile
                    self.torn_offset = block_offset + position if position < len(block) else None
                    return
                block_offset += BLOCK_BYTES

    def _accept_torn_tail(self, tail: bytes, offset: int, file: BinaryIO) -> None:
        """Set `torn_offset` if a crash explains a block's `tail`, which begins with an invalid
        record: the file ends inside of that, or has only zeros from there on. Else raise."""
        is_last_block = (offset + len(tail)) % BLOCK_BYTES != 0  # only the last one is shorter
        is_cut = is_last_block and _is_cut_off(tail) and not _holds_record(tail)
        if not is_cut and (any(tail) or not _only_zeros_follow(file)):
            raise CorruptionError(self.path, offset, _describe_damage(tail))
        self.torn_offset = offset


def _log_number(path: Path) -> int:
    digits = path.name.removeprefix("MANIFEST-").removesuffix(".log")
    return int(digits) if digits.isdecimal() else 0


def _uint32(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 4], "little")


def _header_size(record_type: int) -> int:
    return _RECYCLED_HEADER_BYTES if record_type in _RECYCLED_TYPES else HEADER_BYTES


def _is_valid_record(block: bytes, position: int, end: int, header_size: int) -> bool:
    """Return whether there is a complete, valid record of a known type at `position`."""
    type_offset = position + 6
    if end > len(block) or end < position + header_size or block[type_offset] not in _KNOWN_TYPES:
        return False
    return masked_crc32c(block[type_offset:end]) == _uint32(block, position)


def _only_zeros_follow(file: BinaryIO) -> bool:
    """Return whether only zeros follow: space that was allocated and never written."""
    while (data_offset := next_data_offset(file.fileno(), file.tell())) is not None:
        file.seek(data_offset)  # past a hole
        chunk = file.read(1 << 20)
        if any(chunk):
            return False
        if not chunk:
            break
    return True


def _is_cut_off(tail: bytes) -> bool:
    """Return whether the record at the start of `tail`, the end of the file, is longer than it."""
    if len(tail) < HEADER_BYTES:
        return True
    length, record_type = struct.unpack_from("<HB", tail, 4)
    return record_type in _KNOWN_TYPES and _header_size(record_type) + int(length) > len(tail)


def _holds_record(tail: bytes) -> bool:
    """Return whether a valid record begins inside `tail`: then it is damage, not a torn tail."""
    for position in range(1, len(tail) - HEADER_BYTES):
        _, length, record_type = struct.unpack_from("<IHB", tail, position)
        header_size = _header_size(record_type)
        end = position + header_size + length
        if length and _is_valid_record(tail, position, end, header_size):
            return True
    return False


def _describe_damage(tail: bytes) -> str:
    if not any(tail[:HEADER_BYTES]):
        return "zeros where a record begins"
    if len(tail) >= HEADER_BYTES and tail[6] not in _KNOWN_TYPES:
        return f"record of unknown type {tail[6]}"
    return "record fails its checksum"
