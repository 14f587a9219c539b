"""RocksDB's log format: the framing of MANIFEST files and write-ahead logs, checked in full.

    block       32768 bytes; less than a header's length at its end is filler
    record      u32 masked CRC-32C of type, log number and payload; u16 length; u8 type
    type        1 whole, 2 first, 3 middle, 4 last; 5..8 the same with a u32 log number, for
                recycled files; 9.. settings of the log, whole

Little-endian. RocksDB forgives more than a reader may who must not lose rows in silence: it
takes a broken length for the end of the file, zeros for preallocated space, and a flipped type
byte can send it into an endless loop (seen). So these files are checked before it opens them.
Source: `db/log_format.h`, `db/log_reader.cc` of RocksDB; `docs/formats/rocksdb.md`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import google_crc32c

from bkstore.errors import CorruptionError
from bkstore.files.opening import opened, past_hole

BLOCK = 32768
HEADER = 7
_RECYCLED_HEADER = 11
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_RECYCLED = frozenset({5, 6, 7, 8, 11, 131})
_SETTINGS = frozenset({9, 10, 11, 130, 131})
_KNOWN = frozenset(range(1, 12)) | {130, 131}
_MASK_DELTA = 0xA282EAD8
_U32 = 0xFFFFFFFF


@dataclass
class FramedLogReader:
    """The logical records of one file, in order, each with the offset where it begins.

    After the iteration `torn_at` is the offset of a last record that the file does not hold
    in full, or of zeros up to its end (a crash leaves both), None if it ends cleanly. Damage
    anywhere else raises
    `CorruptionError` with file and offset. Cost: one read of the file, a block at a time.
    """

    path: Path
    torn_at: int | None = field(default=None, init=False)

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, payload) of each whole record."""
        begun: int | None = None
        parts: list[bytes] = []
        for at, kind, payload in self._fragments():
            if (begun is None) != (kind in (_FULL, _FIRST)):
                raise CorruptionError(self.path, at, f"record piece of type {kind} out of order")
            begun = at if begun is None else begun
            parts.append(payload)
            if kind in (_FULL, _LAST):
                yield begun, b"".join(parts)
                begun, parts = None, []
        if begun is not None:
            self.torn_at = begun

    def _fragments(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield (offset, type 1..4, payload) of each piece."""
        number = _log_number(self.path)
        base = 0
        with opened(self.path) as file:
            while block := file.read(BLOCK):
                at = 0
                while at + HEADER <= len(block):
                    _, length, kind = struct.unpack_from("<IHB", block, at)
                    header = _RECYCLED_HEADER if kind in _RECYCLED else HEADER
                    end = at + header + length
                    if not _valid(block, at, end, header):
                        self._end(block, base, at, file)
                        return
                    if header == _RECYCLED_HEADER and _u32(block, at + HEADER) != number & _U32:
                        return  # left over from the file's former life
                    if kind not in _SETTINGS:
                        yield base + at, (kind - 1) % 4 + 1, block[at + header : end]
                    at = end
                if len(block) < BLOCK:  # the end, also where a writer appends meanwhile
                    self.torn_at = base + at if at < len(block) else None
                    return
                base += BLOCK

    def _end(self, block: bytes, base: int, at: int, file: BinaryIO) -> None:
        """Accept the bytes from `at` on, which are no valid record, as a torn tail, or raise."""
        rest = block[at:]
        cut_off = len(block) < BLOCK and _runs_out(rest) and not _holds_record(rest)
        if cut_off or (not any(rest) and _only_zeros(file)):
            self.torn_at = base + at
            return
        raise CorruptionError(self.path, base + at, _reason(rest))


def _log_number(path: Path) -> int:
    digits = path.name.removeprefix("MANIFEST-").removesuffix(".log")
    return int(digits) if digits.isdecimal() else 0


def _u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _valid(block: bytes, at: int, end: int, header: int) -> bool:
    """Whether a record of a known type lies at `at`, in full and as it was written."""
    if end > len(block) or end < at + header or block[at + 6] not in _KNOWN:
        return False
    crc: int = google_crc32c.value(block[at + 6 : end])
    return (((crc >> 15 | crc << 17) & _U32) + _MASK_DELTA) & _U32 == _u32(block, at)


def _only_zeros(file: BinaryIO) -> bool:
    """Whether nothing but zeros follows: space that was allocated and never written."""
    while (data := past_hole(file.fileno(), file.tell())) is not None:
        file.seek(data)
        chunk = file.read(1 << 20)
        if any(chunk):
            return False
        if not chunk:
            break
    return True


def _runs_out(rest: bytes) -> bool:
    """Whether the file ends before the record that begins `rest` would."""
    if len(rest) < HEADER:
        return True
    length, kind = struct.unpack_from("<HB", rest, 4)
    header = _RECYCLED_HEADER if kind in _RECYCLED else HEADER
    return kind in _KNOWN and header + int(length) > len(rest)


def _holds_record(rest: bytes) -> bool:
    """Whether a valid record begins anywhere behind the start of `rest`: then it is no tail."""
    for at in range(1, len(rest) - HEADER):
        _, length, kind = struct.unpack_from("<IHB", rest, at)
        header = _RECYCLED_HEADER if kind in _RECYCLED else HEADER
        if length and _valid(rest, at, at + header + length, header):
            return True
    return False


def _reason(rest: bytes) -> str:
    if not any(rest[:HEADER]):
        return "zeros where a record begins"
    if len(rest) >= HEADER and rest[6] not in _KNOWN:
        return f"record of unknown type {rest[6]}"
    return "record fails its checksum"


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return (value, offset after it) of a base-128 integer; `CorruptionError` past the end."""
    value = shift = 0
    for position in range(at, min(at + 10, len(data))):
        value |= (data[position] & 0x7F) << shift
        if data[position] < 0x80:
            return value, position + 1
        shift += 7
    raise CorruptionError(None, at, "integer runs past its record")
