"""MANIFEST files and write-ahead logs on disk: their records, a block at a time, and the rows of a
log. The rules, and what counts as a torn end, are those of `bkstore.formats.rocksdb.log`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.files.opening import next_data_offset, open_for_reading
from bkstore.files.os_errors import convert_read_errors
from bkstore.formats.rocksdb.log.framing import BLOCK_BYTES, LogRecordReader
from bkstore.formats.rocksdb.log.write_batch import BatchRows, decode_batches

_CHUNK_BYTES = 1 << 20


@dataclass
class FramedLogReader:
    """The logical records of one file, in order, each with the offset where it begins. After the
    iteration `torn_offset` is the offset of an incomplete last record, or of zeros up to the end (a
    crash may leave either), None if the file ends cleanly; in a file that was used before,
    `is_reused`, it may be that of older bytes. Damage anywhere else raises
    `CorruptionError` with file and offset, a compressed log `UnsupportedLayout`, a read that fails
    what `read_error` returns. Cost: one read of the file, a block at a time. With `file`, which is
    open at `path`, it is read even if it was removed."""

    path: Path
    file: BinaryIO | None = None
    torn_offset: int | None = field(default=None, init=False)
    is_reused: bool = field(default=False, init=False)

    @property
    def torn_detail(self) -> str:
        """The text of the finding for a write-ahead log that ends inside a write."""
        if self.is_reused:
            return (
                "write-ahead log in a file that was used before: bytes of that use follow, or a"
                " damaged last write, which is lost"
            )
        return "write-ahead log ends inside a record: its last write is lost, as in a crash"

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Yield (offset of the first fragment, payload) of each whole record. At the end, set
        `torn_offset` to the offset of a record that the file ends inside, None if there is none."""
        with open_for_reading(self.path) if self.file is None else nullcontext(self.file) as file:
            file.seek(0)
            blocks = iter(lambda: self._read(file, BLOCK_BYTES), b"")
            reader = LogRecordReader(
                blocks, _log_number(self.path), lambda: self._only_zeros_follow(file)
            )
            try:
                yield from reader
            except CorruptionError as error:
                raise error.relocate(self.path) from None
            except UnsupportedLayout as error:
                raise UnsupportedLayout(f"{self.path}: {error}") from None
        self.torn_offset, self.is_reused = reader.torn_offset, reader.is_reused

    def _read(self, file: BinaryIO, size: int) -> bytes:
        with convert_read_errors(self.path):
            return file.read(size)

    def _only_zeros_follow(self, file: BinaryIO) -> bool:
        """Return whether only zeros follow the file's position, that is, space that was allocated
        and never written. Holes are passed over without reading them."""
        while True:
            with convert_read_errors(self.path):
                data_offset = next_data_offset(file.fileno(), file.tell())
                if data_offset is None:
                    return True
                file.seek(data_offset)  # past a hole
            chunk = self._read(file, _CHUNK_BYTES)
            if not chunk:
                return True
            if any(chunk):
                return False

    def rows(self, chunk_bytes: int = _CHUNK_BYTES) -> Iterator[BatchRows]:
        """Yield the rows of a write-ahead log, of some `chunk_bytes` of records at a time; set
        `torn_offset`. Raises as `records`, after the rows before the damage, and for batches as
        `decode_batches`, with the offset of the record."""
        offsets: list[int] = []
        batches: list[bytes] = []
        size = 0
        try:
            for offset, batch in self.records():
                offsets.append(offset)
                batches.append(batch)
                size += len(batch)
                if size >= chunk_bytes:
                    yield from self._decode(offsets, batches)
                    offsets, batches, size = [], [], 0
        except (CorruptionError, UnsupportedLayout):
            yield from self._decode(offsets, batches)
            raise
        yield from self._decode(offsets, batches)

    def _decode(self, offsets: list[int], batches: list[bytes]) -> Iterator[BatchRows]:
        """Yield the rows of the write batches that are the records at `offsets`. If one is invalid,
        yield the rows of those before it, then raise with its offset."""
        if not batches:
            return
        try:
            rows = decode_batches(batches)
        except (CorruptionError, UnsupportedLayout):
            # Find the invalid batch: decode them one by one.
            for index, batch in enumerate(batches):
                try:
                    decode_batches([batch])
                except CorruptionError as error:
                    if index:
                        yield decode_batches(batches[:index])
                    raise CorruptionError(self.path, offsets[index], error.reason) from None
                except UnsupportedLayout as error:
                    raise UnsupportedLayout(f"{self.path}: {error}") from None
            raise
        yield rows


def _log_number(path: Path) -> int:
    """Return the number in a log's name, 0 if there is none. Records of a log file that RocksDB
    uses again have it: one with another number is a leftover of the file's former life."""
    digits = path.name.removeprefix("MANIFEST-").removesuffix(".log")
    return int(digits) if digits.isdecimal() else 0
