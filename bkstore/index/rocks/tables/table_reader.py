"""One table file: footer, properties, index and range deletes, checked when it is opened. Its rows
are read by `block_rows`. Format: `docs/formats/rocksdb.md`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bkstore import forks
from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.files.opening import open_regular, read_fully
from bkstore.files.os_errors import convert_read_errors
from bkstore.formats.rocksdb.keys import MAX_SEQUENCE
from bkstore.formats.rocksdb.manifest.table_file import TableFileMetadata
from bkstore.formats.rocksdb.table.block import unpack_block
from bkstore.formats.rocksdb.table.entries import block_entries
from bkstore.formats.rocksdb.table.footer import (
    FOOTER_BYTES,
    TRAILER_BYTES,
    BlockHandle,
    Footer,
    check_handle,
    decode_footer,
    read_handle,
)
from bkstore.formats.rocksdb.table.index import (
    BlockIndex,
    IndexFormat,
    decode_index,
    join_indexes,
)
from bkstore.formats.rocksdb.table.properties import (
    IndexType,
    TableProperties,
    decode_properties,
    find_global_sequence,
)
from bkstore.formats.rocksdb.table.range_deletes import RangeDelete, decode_range_deletes
from bkstore.formats.rocksdb.table.rows import UInt64Array
from bkstore.formats.rocksdb.table.unique_id import make_unique_id
from bkstore.index.rocks.tables.damage import UnknownRange
from bkstore.index.rocks.tables.key_order import WORD_BYTES, as_words, next_of_width

_PROPERTIES, _INDEX, _RANGE_DELETES = b"rocksdb.properties", b"rocksdb.index", b"rocksdb.range_del"
_DICTIONARY = b"rocksdb.compression_dict"
_KEY_SUFFIX_BYTES = 8  # sequence number and type
_MAX_META_BYTES = 1 << 30


class TableReader:
    """A table file, open for reading. Opening reads and checks footer, properties and range
    deletes, some 200 us; the first use of `index` reads that, 2 us a data block. `listed` is what
    the manifest has about the file, None if there is no manifest; the file is compared with it.
    `largest_sequence`, if not from there, is the sequence number of an ingested file's rows.

    Raises `CorruptionError` with file and offset for damage, also if it is not the file that is
    listed, and `UnsupportedLayout` for a file with something that is not read here. `key_bounds`
    are first key and exclusive end, the widest if not known. Threads: may be shared. Close it.
    """

    def __init__(
        self,
        path: Path,
        largest_sequence: int | None = None,
        listed: TableFileMetadata | None = None,
    ) -> None:
        """Open a table file and read all of it but its data blocks and their index. `listed` is
        what the manifest states about the file, None if it is read by itself."""
        self.path = path
        self._listed = listed
        self.key_bounds: tuple[bytes, bytes | None] = (b"", None)
        if listed is not None:
            largest_sequence = listed.largest_sequence
            self.key_bounds = listed.smallest_key, listed.end_key
        self.newest_sequence = MAX_SEQUENCE if largest_sequence is None else largest_sequence
        self._words_of_separators: dict[int, UInt64Array] = {}
        with convert_read_errors(path):
            self._fd: int | None = open_regular(path)
        try:
            with convert_read_errors(path):
                self.file_bytes = os.fstat(self._fd).st_size
            self._open(largest_sequence)
        except CorruptionError as error:
            self.close()
            if error.file is None:
                raise error.relocate(path) from None
            raise
        except UnsupportedLayout as error:
            self.close()
            raise UnsupportedLayout(f"{path}: {error}") from None
        except BaseException:
            self.close()
            raise

    def _open(self, largest_sequence: int | None) -> None:
        """Read the footer and the meta blocks. Each read depends on the earlier ones: the footer
        has the offset of the metaindex, and that the offsets of the other blocks."""
        tail_start = max(self.file_bytes - FOOTER_BYTES, 0)
        tail = self.read_span(tail_start, self.file_bytes - tail_start)
        self.footer: Footer = decode_footer(tail, self.file_bytes)
        self.meta_blocks = self._read_metaindex()
        if _DICTIONARY in self.meta_blocks:
            raise UnsupportedLayout("table file with a compression dictionary is not supported")
        self.properties: TableProperties = self._read_properties()
        self.sequence_of_all = self._sequence_of_all(largest_sequence)
        self.range_deletes: list[RangeDelete] = self._read_range_deletes()
        if self._listed is not None:
            self._check_is_listed(self._listed)

    def close(self) -> None:
        """Close the file. Idempotent."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def __enter__(self) -> TableReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- bytes and blocks

    def read_span(self, offset: int, size: int) -> bytes:
        """Return `size` bytes of the file; `CorruptionError` if it ends before."""
        if self._fd is None:
            raise forks.closed_error(f"{self.path}: the table file")
        with convert_read_errors(self.path):
            data = read_fully(self._fd, size, offset)
        if len(data) != size:
            raise CorruptionError(self.path, offset + len(data), "file ends inside a block")
        return data

    def read_stored(self, handle: BlockHandle) -> bytes:
        """Return a block as stored, with its trailer."""
        try:
            check_handle(handle, self.file_bytes - FOOTER_BYTES)
        except CorruptionError as error:
            raise error.relocate(self.path) from None
        return self.read_span(handle.offset, handle.size + TRAILER_BYTES)

    def read_block(self, handle: BlockHandle) -> bytes:
        """Return the contents of a block, verified and decompressed."""
        try:
            return unpack_block(self.read_stored(handle), handle.offset, self.footer)
        except CorruptionError as error:
            raise error if error.file else error.relocate(self.path) from None

    # -- meta blocks

    def _read_metaindex(self) -> dict[bytes, BlockHandle]:
        """Return the handles of the meta blocks by name."""
        handle = self.footer.metaindex
        try:
            return {
                entry.key: read_handle(entry.value, 0)[0]
                for entry in block_entries(self.read_block(handle))
            }
        except CorruptionError as error:
            raise self._in_block(error, handle) from None

    def _in_block(self, error: CorruptionError, handle: BlockHandle) -> CorruptionError:
        """Return an error from a block's contents as one at the block's offset in the file."""
        return error if error.file else CorruptionError(self.path, handle.offset, error.reason)

    def _read_properties(self) -> TableProperties:
        """Return the properties. RocksDB writes a sequence number into the block when it ingests
        the file, and leaves the checksum as it was: then it is that of the block with 0 there."""
        handle = self.meta_blocks.get(_PROPERTIES)
        if handle is None:
            raise CorruptionError(self.path, self.footer.metaindex.offset, "no properties")
        stored = self.read_stored(handle)
        try:
            try:
                return decode_properties(unpack_block(stored, handle.offset, self.footer))
            except CorruptionError:
                offset = _global_sequence_offset(stored)
                if offset is None:
                    raise
            before_ingestion = stored[:offset] + bytes(8) + stored[offset + 8 :]
            unpack_block(before_ingestion, handle.offset, self.footer)  # raises if this fails too
            return decode_properties(stored[:-TRAILER_BYTES])
        except CorruptionError as error:
            raise self._in_block(error, handle) from None

    def _sequence_of_all(self, largest_sequence: int | None) -> int | None:
        """Return the sequence number that counts for all rows of an ingested file, None if the file
        was not ingested. Rows of an ingested file have the number 0 themselves; the manifest has
        theirs, and older versions of RocksDB write it into the properties too."""
        written = self.properties.written_sequence
        if self.properties.external_version != 2:  # the version of files with one number for all
            return None
        if largest_sequence is None:
            return written
        if written not in (0, largest_sequence):
            handle = self.meta_blocks[_PROPERTIES]
            reason = f"has sequence number {written}, the manifest {largest_sequence}"
            raise CorruptionError(self.path, handle.offset, reason)
        return min(largest_sequence, MAX_SEQUENCE)

    def _check_is_listed(self, listed: TableFileMetadata) -> None:
        """Raise `CorruptionError` if the file is not the one that the manifest lists: if it has
        another size, or another unique id (which RocksDB writes since 7.3; 0: none)."""
        if self.file_bytes != listed.size:
            reason = f"has {self.file_bytes} bytes, the manifest {listed.size}"
            raise CorruptionError(self.path, min(self.file_bytes, listed.size), reason)
        unique_id = make_unique_id(self.properties.values)
        if any(listed.unique_id) and unique_id != listed.unique_id:
            stated = f"its unique id is {unique_id.hex()}, in the manifest {listed.unique_id.hex()}"
            reason = f"is not the file that the manifest lists: {stated}"
            raise CorruptionError(self.path, self.meta_blocks[_PROPERTIES].offset, reason)

    def _index_handle(self) -> BlockHandle:
        """Return where the index block is; raises `CorruptionError` if the file has none."""
        handle = self.footer.index or self.meta_blocks.get(_INDEX)
        if handle is None:
            raise CorruptionError(self.path, self.footer.metaindex.offset, "no index")
        return handle

    @cached_property
    def index(self) -> BlockIndex:
        """The index of the data blocks, read at the first use; raises as the constructor."""
        try:
            index = self._read_index()
        except UnsupportedLayout as error:
            raise UnsupportedLayout(f"{self.path}: {error}") from None
        if len(index) != self.properties.data_blocks:
            reason = f"index lists {len(index)} data blocks of {self.properties.data_blocks}"
            raise CorruptionError(self.path, self._index_handle().offset, reason)
        # The manifest has the last key of the file, unless that is the end of a range delete.
        listed = self._listed
        has_last_key = listed is not None and not listed.has_exclusive_end and len(index) > 0
        if listed is not None and has_last_key and index.separators[-1] < listed.largest_key:
            reason = f"index ends before the manifest's last key, {listed.largest_key.hex()}"
            raise CorruptionError(self.path, self._index_handle().offset, reason)
        return index

    def separators(self, words: int) -> UInt64Array:
        """Return the separators of the index as words: uint64[words, n], as by `as_words`."""
        if words not in self._words_of_separators:
            self._words_of_separators[words] = as_words(self.index.separators, words)
        return self._words_of_separators[words]

    def estimate_rows(self, prefixes: Sequence[bytes]) -> npt.NDArray[np.float64]:
        """Return about how many rows have keys with each of the `prefixes`, which are sorted,
        distinct and of one width: float64[n], from the index alone. Rows are spread over blocks by
        their sizes, those of a block evenly over the prefixes that may be in it; deleted and
        replaced rows count too. Cost: a binary search for each block."""
        # The change of the estimate from each prefix to the next one; one more for the end.
        changes = np.zeros(len(prefixes) + 1)
        index, (first_key, end_key) = self.index, self.key_bounds
        if prefixes and len(index):  # a file of range deletes alone has no blocks
            # A block has keys from the separator before it up to its own. The last separator may
            # be far above the last key.
            last = index.separators[-1]
            bounds = [first_key, *index.separators[:-1], min(last, end_key or last)]
            width = len(prefixes[0])
            starts_and_ends = np.array([key[:width] for key in bounds], f"S{width}")
            in_order = np.array(prefixes, f"S{width}")
            first = np.searchsorted(in_order, starts_and_ends[:-1], "left")
            stop = np.searchsorted(in_order, starts_and_ends[1:], "right")
            has_some = stop > first
            first, stop = first[has_some], stop[has_some]
            rows = self.properties.entries * (index.sizes / index.sizes.sum())[has_some]
            np.add.at(changes, first, rows / (stop - first))
            np.subtract.at(changes, stop, rows / (stop - first))
        return np.cumsum(changes[:-1])

    def check_listed(self, keys: tuple[bytes, bytes], sequences: tuple[int, int]) -> None:
        """Raise `CorruptionError` if rows are outside of what the manifest states for the file.
        `keys` and `sequences` are the lowest and the highest key and sequence number of rows."""
        (lowest_key, highest_key), (oldest, newest) = keys, sequences
        if newest > self.newest_sequence:
            after = f"after the newest, {self.newest_sequence}"
            raise CorruptionError(None, None, f"row has sequence number {newest}, {after}")
        if self._listed is None:
            return
        if oldest < self._listed.smallest_sequence:
            before = f"before the oldest, {self._listed.smallest_sequence}"
            raise CorruptionError(None, None, f"row has sequence number {oldest}, {before}")
        if lowest_key < self._listed.smallest_key or highest_key >= self._listed.end_key:
            within = f"{self._listed.smallest_key.hex()} to {self._listed.largest_key.hex()}"
            outside = f"rows {lowest_key.hex()} to {highest_key.hex()}"
            reason = f"{outside} are not in the manifest's: {within}"
            raise CorruptionError(None, None, reason)

    def unknown_block(self, block: int, error: CorruptionError) -> UnknownRange:
        """Return the range of keys that are unknown because a data block cannot be read. Each block
        has the keys above the separator of the block before it, up to its own separator; the first
        and the last block extend to the bounds that the manifest states for the file."""
        separators = self.index.separators
        file_start, file_end = self.key_bounds
        is_last = block + 1 == len(separators)
        # A key with a zero byte appended is the next key in order; if all keys are of one width, it
        # is the next one of that width.
        start = separators[block - 1] + b"\0" if block else file_start
        if (width := self._key_width()) is not None:
            start = next_of_width(start, width)
        stop = file_end if is_last else separators[block] + b"\0"
        offset = int(self.index.offsets[block])
        return self.unknown(error, offset, start, stop)

    def _key_width(self) -> int | None:
        """Return the width of all keys, None if they may have several. The mean width is that of
        each key of a bookie's database: if there are two, the mean is between them."""
        properties = self.properties
        width, remainder = divmod(properties.key_bytes, max(properties.entries, 1))
        is_whole = not remainder and (width - _KEY_SUFFIX_BYTES) % WORD_BYTES == 0
        return width - _KEY_SUFFIX_BYTES if is_whole and width > _KEY_SUFFIX_BYTES else None

    def unknown(
        self, error: CorruptionError, offset: int | None, start: bytes, stop: bytes | None
    ) -> UnknownRange:
        """Return [start, stop) as unknown for the reason of an error at `offset` of this file."""
        file = str(self.path)
        return UnknownRange(file, offset, error.reason, start, stop, self.newest_sequence)

    def _read_index(self) -> BlockIndex:
        """Return the index of the data blocks. An index of two levels has a top block, whose
        entries lead to the blocks of the index itself (its partitions); these are joined."""
        properties, handle = self.properties, self._index_handle()
        index_format = IndexFormat(
            has_user_keys=properties.has_user_keys,
            has_deltas=properties.has_index_deltas,
            has_first_keys=properties.index_type is IndexType.WITH_FIRST_KEYS,
        )
        top = self._read_index_block(handle, index_format)
        if properties.index_type is not IndexType.TWO_LEVEL:
            return top
        parts = [
            self._read_index_block(block_handle(top, part), index_format)
            for part in range(len(top))
        ]
        try:
            return join_indexes(parts)
        except CorruptionError as error:
            raise self._in_block(error, handle) from None

    def _read_index_block(self, handle: BlockHandle, index_format: IndexFormat) -> BlockIndex:
        """Return the entries of one index block; an error gets the block's offset in the file."""
        contents = self.read_block(handle)
        try:
            return decode_index(contents, index_format)
        except CorruptionError as error:
            raise self._in_block(error, handle) from None

    def _read_range_deletes(self) -> list[RangeDelete]:
        """Return the range deletes of the file. Raises `CorruptionError` unless they are as many as
        the properties state."""
        handle, deletes = self.meta_blocks.get(_RANGE_DELETES), list[RangeDelete]()
        if handle is not None:
            try:
                deletes = decode_range_deletes(self.read_block(handle))
            except CorruptionError as error:
                raise self._in_block(error, handle) from None
        if len(deletes) != self.properties.range_deletions:
            reason = f"has {len(deletes)} range deletes of {self.properties.range_deletions}"
            raise CorruptionError(self.path, handle.offset if handle else None, reason)
        if self.sequence_of_all is not None:
            deletes = [delete._replace(sequence=self.sequence_of_all) for delete in deletes]
        return deletes


def block_handle(index: BlockIndex, block: int) -> BlockHandle:
    """Return the handle of one of an index's blocks."""
    return BlockHandle(int(index.offsets[block]), int(index.sizes[block]))


def _global_sequence_offset(stored: bytes) -> int | None:
    """Return the offset in a stored properties block at which an ingestion may have written a
    sequence number; None if there is no such property."""
    if stored[-TRAILER_BYTES]:  # compressed, which a block with this property never is
        return None
    try:
        return find_global_sequence(stored[:-TRAILER_BYTES])
    except (CorruptionError, UnsupportedLayout):
        return None
