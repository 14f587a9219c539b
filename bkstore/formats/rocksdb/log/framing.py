"""RocksDB's log format: the framing of MANIFEST files and write-ahead logs, checked in full.

    block       32768 bytes; less than a header's length at its end is filler
    record      u32 masked CRC-32C of type, log number and payload; u16 length; u8 type
    type        1 whole, 2 first, 3 middle, 4 last; 5..8 the same with a u32 log number, for
                recycled files; 9.. settings of the log, whole

Little-endian. RocksDB is too tolerant for a reader that must not lose rows silently: it takes a
broken length for the end of the file and zeros for preallocated space, and a flipped type byte
can send it into an endless loop (observed). So here only what a crash leaves counts as a torn end.
A file that RocksDB uses again (`recycle_log_file_num`) has bytes of its earlier log behind its last
record, often from inside a record on. They count as a torn end, too, if no record of this log
follows: a reader cannot distinguish them from a damaged last record.
Source: `db/log_format.h`, `db/log_reader.cc` of RocksDB; `docs/formats/rocksdb.md`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.checksums import masked_crc32c

BLOCK_BYTES = 32768
HEADER_BYTES = 7
RECYCLABLE_HEADER_BYTES = 11
MAX_FRAGMENT_BYTES = BLOCK_BYTES - HEADER_BYTES
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
_SET_COMPRESSION = 9
_RECYCLABLE_TYPES = frozenset({5, 6, 7, 8, 11, 131})
_SETTINGS_TYPES = frozenset({9, 10, 11, 130, 131})
_KNOWN_TYPES = frozenset(range(1, 12)) | {130, 131}


class LogRecordReader:
    """The logical records of one file, in order, each with the offset where it begins.

    `blocks` are the file's blocks, all of `BLOCK_BYTES` except the last; `log_number` is the number
    in the file's name; `only_zeros_follow` returns whether the file has only zeros after the last
    block that was read. After the iteration `torn_offset` is the offset of an incomplete last
    record, or of zeros up to the end (a crash may leave either), None if the file ends cleanly; of
    a file that was used before, `is_reused`, it may be that of older bytes. Iterating raises
    `CorruptionError`, without a file, for damage anywhere else, after the records before it;
    `UnsupportedLayout` if records are compressed. Memory: a block, and a record.

    >>> file_bytes = encode_records([b"edit"])
    >>> blocks = [file_bytes, b""]
    >>> reader = LogRecordReader(blocks, log_number=5, only_zeros_follow=lambda: True)
    >>> list(reader), reader.torn_offset
    ([(0, b'edit')], None)
    """

    def __init__(
        self,
        blocks: Iterable[bytes],
        log_number: int,
        only_zeros_follow: Callable[[], bool],
    ) -> None:
        """Read nothing yet; the class has the arguments. Recycled files have the lower 32 bits of
        their number in each record."""
        self._blocks = blocks
        self._log_number = log_number & 0xFFFFFFFF
        self._only_zeros_follow = only_zeros_follow
        self.torn_offset: int | None = None
        self.is_reused = False

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Yield (offset of the first fragment, payload) of each whole record. A record is one FULL
        fragment, or FIRST, any number of MIDDLE, and LAST. `torn_offset` is set at the end, if the
        file ends inside a record."""
        record_offset: int | None = None  # None: between two records
        parts: list[bytes] = []
        for fragment_offset, fragment_type, payload in self._fragments():
            # A record must begin between two records, and only there.
            if (record_offset is None) != (fragment_type in (FULL, FIRST)):
                reason = f"record fragment of type {fragment_type} out of order"
                raise CorruptionError(None, fragment_offset, reason)
            if record_offset is None:
                record_offset = fragment_offset
            parts.append(payload)
            if fragment_type in (FULL, LAST):
                yield record_offset, b"".join(parts)
                record_offset, parts = None, []
        if record_offset is not None:  # its last fragment is missing
            self.torn_offset = record_offset

    def _fragments(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield (offset, type, payload) of each fragment, types being FULL, FIRST, MIDDLE or LAST.
        `torn_offset` is set if the last fragment is incomplete."""
        block_offset = 0
        blocks = iter(self._blocks)
        for block in blocks:
            position = 0
            while position + HEADER_BYTES <= len(block):
                _, length, fragment_type = struct.unpack_from("<IHB", block, position)
                header_size = _header_size(fragment_type)
                end = position + header_size + length
                if not _is_valid_record(block, position, end, header_size):
                    if self.is_reused:
                        self._accept_older_bytes(block[position:], blocks, block_offset + position)
                    else:
                        self._accept_torn_tail(block[position:], block_offset + position)
                    return
                if header_size == RECYCLABLE_HEADER_BYTES:
                    number = _uint32(block, position + HEADER_BYTES)
                    if number != self._log_number:
                        self._check_is_older(number, block_offset + position)
                        return  # RocksDB reuses files: this is left over from an older log
                    self.is_reused = True
                payload = block[position + header_size : end]
                if fragment_type not in _SETTINGS_TYPES:
                    plain_type = (fragment_type - 1) % 4 + 1  # types 5..8 are 1..4, recycled
                    yield block_offset + position, plain_type, payload
                elif fragment_type == _SET_COMPRESSION and any(payload):
                    raise UnsupportedLayout("a compressed write-ahead log (wal_compression)")
                position = end
            if len(block) < BLOCK_BYTES:  # the end, even if a writer appends meanwhile
                self.torn_offset = block_offset + position if position < len(block) else None
                return
            block_offset += BLOCK_BYTES

    def _accept_torn_tail(self, tail: bytes, offset: int) -> None:
        """Set `torn_offset` if a crash explains the `tail` of a block, which begins with an invalid
        record at `offset`; otherwise raise `CorruptionError`. A crash leaves a record that the end
        of the file cuts off, or zeros up to the end. Records are appended in order, so if a valid
        one follows, the invalid one is damage."""
        is_last_block = (offset + len(tail)) % BLOCK_BYTES != 0  # only the last one is shorter
        is_cut = is_last_block and _is_cut_off(tail) and not _holds_record(tail)
        if not is_cut:
            is_zeros = not any(tail) and self._only_zeros_follow()
            if not is_zeros:
                raise CorruptionError(None, offset, _describe_damage(tail))
        self.torn_offset = offset

    def _accept_older_bytes(self, tail: bytes, blocks: Iterator[bytes], offset: int) -> None:
        """Set `torn_offset` to `offset`, where in a file that was used before something else than a
        record begins: the `tail` of a block, before the other `blocks`. Raise `CorruptionError` if
        a record of this log follows: records are appended in order, so that one is missing."""
        rest_of_file = chain([tail[1:]], blocks)
        if any(_holds_record_of(block, self._log_number) for block in rest_of_file):
            raise CorruptionError(None, offset, _describe_damage(tail))
        self.torn_offset = offset

    def _check_is_older(self, number: int, offset: int) -> None:
        """Raise `CorruptionError` if a record of log `number` is of a newer log than this one: then
        the file was used again while it was read, or is in the wrong place. Numbers are compared
        modulo 2^32."""
        if (number - self._log_number) & 0xFFFFFFFF < 1 << 31:
            raise CorruptionError(None, offset, f"record of a newer log, {number}")


def encode_records(payloads: Iterable[bytes]) -> bytes:
    """Return the bytes of a file with these records. A record is cut into fragments at the ends of
    the file's blocks; the end of a block that is too short for a fragment is filled with zeros.

    >>> encode_records([b""]).hex(" ")
    '05 2b 28 43 00 00 01'
    """
    data = bytearray()
    for payload in payloads:
        position, is_first = 0, True
        while is_first or position < len(payload):
            room = BLOCK_BYTES - len(data) % BLOCK_BYTES
            if room < HEADER_BYTES:
                data += bytes(room)
                continue
            fragment = payload[position : position + room - HEADER_BYTES]
            position += len(fragment)
            is_last = position == len(payload)
            fragment_type = (
                (FULL if is_last else FIRST) if is_first else (LAST if is_last else MIDDLE)
            )
            checked = bytes([fragment_type]) + fragment  # the checksum covers the type too
            data += struct.pack("<IH", masked_crc32c(checked), len(fragment)) + checked
            is_first = False
    return bytes(data)


def _uint32(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 4], "little")


def _header_size(record_type: int) -> int:
    return RECYCLABLE_HEADER_BYTES if record_type in _RECYCLABLE_TYPES else HEADER_BYTES


def _is_valid_record(block: bytes, position: int, end: int, header_size: int) -> bool:
    """Return whether there is a complete, valid record of a known type at `position`."""
    type_offset = position + 6  # behind the checksum (4 bytes) and the length (2)
    if end > len(block) or end < position + header_size or block[type_offset] not in _KNOWN_TYPES:
        return False
    return masked_crc32c(block[type_offset:end]) == _uint32(block, position)


def _is_cut_off(tail: bytes) -> bool:
    """Return whether the record at the start of `tail`, the end of the file, is longer than it."""
    if len(tail) < HEADER_BYTES:
        return True
    length, record_type = struct.unpack_from("<HB", tail, 4)
    return record_type in _KNOWN_TYPES and _header_size(record_type) + int(length) > len(tail)


def _holds_record(tail: bytes) -> bool:
    """Return whether a valid record begins anywhere inside `tail`, after its first byte. A record
    without payload does not count: its header may be there by chance."""
    for position in range(1, len(tail) - HEADER_BYTES):
        _, length, record_type = struct.unpack_from("<IHB", tail, position)
        header_size = _header_size(record_type)
        end = position + header_size + length
        if length and _is_valid_record(tail, position, end, header_size):
            return True
    return False


def _holds_record_of(data: bytes, log_number: int) -> bool:
    """Return whether a valid record of a log begins anywhere in `data`, if it has the log's number:
    that is searched for, and a record must be around it."""
    pattern = log_number.to_bytes(4, "little")
    found_at = data.find(pattern, HEADER_BYTES)
    while found_at >= 0:
        start = found_at - HEADER_BYTES
        _, length, record_type = struct.unpack_from("<IHB", data, start)
        end = start + RECYCLABLE_HEADER_BYTES + length
        is_recyclable = record_type in _RECYCLABLE_TYPES
        if is_recyclable and _is_valid_record(data, start, end, RECYCLABLE_HEADER_BYTES):
            return True
        found_at = data.find(pattern, found_at + 1)
    return False


def _describe_damage(tail: bytes) -> str:
    """Return what is wrong with the record that `tail` begins with."""
    if not any(tail[:HEADER_BYTES]):
        return "zeros where a record begins"
    if len(tail) >= HEADER_BYTES and tail[6] not in _KNOWN_TYPES:
        return f"record of unknown type {tail[6]}"
    return "record fails its checksum"
