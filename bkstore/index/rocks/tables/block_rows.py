"""The rows of a table file's data blocks, in batches of arrays. Every block is checked: checksum,
lengths, the order of its keys, and their place between the separators of the index. A read of the
whole file also compares the number of rows with the properties, so that none is missing silently.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.keys import ValueType
from bkstore.formats.rocksdb.table.block import describe_block, unpack_into, verify_block
from bkstore.formats.rocksdb.table.footer import TRAILER_BYTES
from bkstore.formats.rocksdb.table.rows import (
    PADDING_BYTES,
    VersionedRows,
    decode_rows,
    empty_rows,
    join_rows,
)
from bkstore.ids import Int64Array
from bkstore.index.rocks.tables.any_rows import Version, block_versions, split_versions
from bkstore.index.rocks.tables.block_cache import BlockCache
from bkstore.index.rocks.tables.damage import Damage, odd_row, report
from bkstore.index.rocks.tables.key_order import (
    WORD_BYTES,
    BoolArray,
    as_words,
    compare_keys,
    is_ascending,
    rows_between,
)
from bkstore.index.rocks.tables.table_reader import TableReader

BATCH_BYTES = 1 << 20
"""Contents of blocks that are decoded together: the arrays of their rows fit into a CPU's cache."""

_MAX_GAP_BYTES = 1 << 16


class TableRows:
    """The rows of `table` with keys in [start, stop) (None: no limit), all of `words` * 8 bytes.
    Iteration yields `VersionedRows` in order, of blocks with together some `batch_bytes` of
    contents; one block at least. The first batch has `first_batch_bytes`, the next ones each twice
    as many, up to `batch_bytes`. Memory: some six times that. Single blocks are kept in `cache`.

    With `damage`, ranges of blocks that fail are appended there, and iteration goes on; else the
    first one raises `CorruptionError` with file, offset and the keys that are unknown. So does a
    row that is no bookie's, by its widths: its key alone is unknown. Blocks with rows of other
    kinds than values and deletions, or with another compression, are reported likewise; without
    `damage` they raise `UnsupportedLayout`."""

    def __init__(
        self,
        table: TableReader,
        words: int,
        start: bytes | None = None,
        stop: bytes | None = None,
        *,
        damage: Damage = None,
        batch_bytes: int = BATCH_BYTES,
        first_batch_bytes: int = BATCH_BYTES,
        cache: BlockCache[VersionedRows] | None = None,
    ) -> None:
        """Choose the blocks that may have keys of [start, stop); nothing is read yet."""
        self._table = table
        self._words = words
        self._bounds = start, stop
        self._start = None if start is None else as_words([start], words)[:, 0]
        self._stop = None if stop is None else as_words([stop], words)[:, 0]
        self._damage = damage
        self._batch_bytes = batch_bytes
        self._next_batch_bytes = min(first_batch_bytes, batch_bytes)
        self._cache = cache
        self._separators = table.separators(words)
        # A block has keys up to its separator, so the first with a separator >= `start` is the
        # first to read, and that with a separator >= `stop` the last.
        separators = table.index.separators
        self._first = 0 if start is None else bisect_left(separators, start)
        last = len(separators) if stop is None else bisect_left(separators, stop)
        self._end = min(last + 1, len(separators))

    def __iter__(self) -> Iterator[VersionedRows]:
        """Yield the rows in batches, and check at their end that none is missing."""
        row_count = deletion_count = 0
        is_all_sound, last_row = True, None  # sound: without damage
        block = self._first
        while block < self._end:
            batch_end = self._batch_end(block)
            rows, is_sound = self._read(block, batch_end)
            is_all_sound &= is_sound
            row_count += len(rows)
            deletion_count += int((rows.types != ValueType.VALUE).sum())
            if len(rows):
                if last_row is not None:
                    self._check_continues(last_row, rows, block)
                last_row = rows.take(slice(-1, None))
                yield rows_between(rows, self._start, self._stop)
            block = batch_end
        # The properties count the rows of all blocks: compare only if all were read.
        if is_all_sound and (self._first, self._end) == (0, len(self._table.index)):
            self._check_counts(row_count, deletion_count)

    def _batch_end(self, block: int) -> int:
        """Return the end of the batch of blocks that begins with `block`. How large the contents of
        a compressed block are is not known before it is read: they are taken for three times the
        stored bytes, as is usual with LZ4. Each batch is twice as large as the one before, up to a
        limit, so that a caller who needs few rows reads few."""
        sizes = self._table.index.sizes
        total, end = int(sizes[block]), block + 1
        while end < self._end and 3 * total < self._next_batch_bytes:
            total += int(sizes[end])
            end += 1
        self._next_batch_bytes = min(2 * self._next_batch_bytes, self._batch_bytes)
        return end

    # -- blocks

    def _read(self, first: int, end: int) -> tuple[VersionedRows, bool]:
        """Return (rows of the blocks first..end - 1, whether all of them are without damage). If
        one of several fails, each is read by itself, so that only the rows of damaged blocks are
        lost. Only single blocks are cached, as look-ups read them."""
        key = self._table.path, first, self._words
        cached = None if self._cache is None or end > first + 1 else self._cache.get(key)
        if cached is not None:
            return cached, True
        try:
            rows = self._decode(first, end)
        except UnsupportedLayout as error:
            if self._damage is None:
                raise UnsupportedLayout(f"{self._table.path}: {error}") from None
            if end == first + 1:
                unread = CorruptionError(None, None, str(error))
                report(self._table.unknown_block(first, unread), self._damage)
                return empty_rows(self._words), False
        except CorruptionError as error:
            if end == first + 1:
                return self._read_each(first, error), False
        else:
            if self._cache is not None and end == first + 1:
                self._cache.put(key, rows)
            return rows, True
        # Several blocks, and something is wrong in one: read each by itself.
        parts = [self._read(block, block + 1) for block in range(first, end)]
        sound_rows = [rows for rows, _ in parts if len(rows)]
        return join_rows(sound_rows, self._words), all(is_sound for _, is_sound in parts)

    def _read_each(self, block: int, error: CorruptionError) -> VersionedRows:
        """Return the rows of a block that could not be decoded as arrays for `error`. If its rows
        can be read one by one, and some have widths other than a bookie's, these are reported as
        unknown rows, and the others returned. Otherwise the whole block is reported as unknown."""
        odd_versions: list[Version] = []
        try:
            rows, odd_versions = split_versions(block_versions(self._table, block), self._words)
        except CorruptionError as block_error:
            error = block_error
        if not odd_versions:  # widths are not what is wrong
            report(self._table.unknown_block(block, error), self._damage)
            return empty_rows(self._words)
        offset = int(self._table.index.offsets[block])
        for key, sequence, code, value in odd_versions:
            unknown = odd_row(str(self._table.path), offset, (key, value), sequence)
            # A deletion of a key that no bookie's row has hides nothing.
            is_relevant = code == ValueType.VALUE or len(key) == WORD_BYTES * self._words
            if is_relevant and unknown.overlaps(*self._bounds):
                report(unknown, self._damage)
        return rows

    def _decode(self, first: int, end: int) -> VersionedRows:
        """Return the rows of the blocks first..end - 1. Raises `CorruptionError` unless checksums,
        order of keys, separators and the limits that the manifest states are all right."""
        contents, starts, ends = self._unpack(first, end)
        rows, rows_of_block = decode_rows(contents, starts, ends, self._words)
        if not is_ascending(rows):
            raise CorruptionError(None, None, "keys of rows are out of order")
        self._check_separators(rows, rows_of_block, first)
        if self._table.sequence_of_all is not None:
            if rows.sequences.any():
                raise CorruptionError(None, None, "row of an ingested file has a sequence number")
            sequences = np.full(len(rows), self._table.sequence_of_all)
            rows = replace(rows, sequences=sequences)
        self._table.check_listed(
            (rows.key_at(0), rows.key_at(-1)),
            (int(rows.sequences.min()), int(rows.sequences.max())),
        )
        return rows

    def _unpack(
        self, first: int, end: int
    ) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint8]], Int64Array, Int64Array]:
        """Return (buffer, starts, ends) of the contents of blocks, verified and decompressed."""
        footer, offsets = self._table.footer, self._table.index.offsets[first:end].tolist()
        stored = self._read_stored(offsets, self._table.index.sizes[first:end].tolist())
        # Verify all blocks. The sizes of their contents determine where each begins in the buffer,
        # which has some bytes before and after them, so that 8-byte reads stay inside.
        descriptions = []
        for block, offset in zip(stored, offsets):
            verify_block(block, offset, footer)
            descriptions.append(describe_block(block, offset))
        sizes = np.array([each.contents_size for each in descriptions], np.int64)
        ends = PADDING_BYTES + np.cumsum(sizes)
        starts = ends - sizes
        contents = np.zeros(int(ends[-1]) + PADDING_BYTES, np.uint8)
        outputs = [contents[start:end] for start, end in zip(starts.tolist(), ends.tolist())]
        for block, offset, described, output in zip(stored, offsets, descriptions, outputs):
            unpack_into(block, offset, described.compression, described.data_offset, output)
        return contents, starts, ends

    def _read_stored(self, offsets: list[int], sizes: list[int]) -> list[memoryview]:
        """Return the blocks as stored, with their trailers (compression type and checksum). Blocks
        that lie together are read at once."""
        end = self._table.file_bytes
        for offset, size in zip(offsets, sizes):
            if offset + size + TRAILER_BYTES > end:
                reason = f"block of {size} bytes at {offset} is not inside the file"
                raise CorruptionError(self._table.path, offset, reason)
        # Blocks that lie together, with small gaps at most, are cut out of one read.
        first, last = offsets[0], offsets[-1] + sizes[-1] + TRAILER_BYTES
        total = sum(sizes) + TRAILER_BYTES * len(sizes)
        if min(offsets) == first and total <= last - first <= total + _MAX_GAP_BYTES:
            data = memoryview(self._table.read_span(first, last - first))
            return [
                data[offset - first : offset - first + size + TRAILER_BYTES]
                for offset, size in zip(offsets, sizes)
            ]
        return [
            memoryview(self._table.read_span(offset, size + TRAILER_BYTES))
            for offset, size in zip(offsets, sizes)
        ]

    # -- checks

    def _check_separators(self, rows: VersionedRows, rows_of_block: Int64Array, first: int) -> None:
        """Raise `CorruptionError` if the rows of a block do not lie between the separators before
        and after it, which are the index's keys that divide the blocks. The blocks are those from
        `first` on, with ``rows_of_block[i]`` rows each."""
        if not rows_of_block.all():
            raise CorruptionError(None, None, "data block has no rows")
        row_ends = np.cumsum(rows_of_block)
        separators = self._separators[:, first : first + rows_of_block.size]
        # The last row of each block is at or below the separator of the block.
        lower, equal = compare_keys(rows.keys[:, row_ends - 1], separators)
        are_inside = bool((lower | equal).all())
        # The first row of each block is above the separator before it; block 0 has none before it.
        first_rows = (row_ends - rows_of_block)[0 if first else 1 :]
        if first_rows.size:
            before = slice(max(first - 1, 0), max(first - 1, 0) + first_rows.size)
            above, equal = compare_keys(self._separators[:, before], rows.keys[:, first_rows])
            are_inside &= bool((above | (equal & self._may_repeat(before))).all())
        if not are_inside:
            raise CorruptionError(None, None, "rows of the block are not where the index has them")

    def _may_repeat(self, blocks: slice) -> BoolArray:
        """Return for each block whether the one after it may begin with the same key as its
        separator in words: if the index permits it, or if the separator is shorter than a key and
        was padded by `as_words`."""
        width, separators = WORD_BYTES * self._words, self._table.index.separators[blocks]
        may_continue = self._table.index.may_continue
        return np.array([may_continue or len(key) < width for key in separators], np.bool_)

    def _check_continues(self, last_row: VersionedRows, rows: VersionedRows, block: int) -> None:
        """Raise if the rows of a batch do not follow those of the one before."""
        pair = join_rows([last_row, rows.take(slice(0, 1))], self._words)
        if not is_ascending(pair):
            offset = int(self._table.index.offsets[block])
            raise CorruptionError(self._table.path, offset, "keys of rows are out of order")

    def _check_counts(self, rows: int, deletions: int) -> None:
        """Raise `CorruptionError` if the file has not as many rows and deletions as its properties
        state. These count range deletes as both, which are not among the rows given."""
        properties, range_deletes = self._table.properties, len(self._table.range_deletes)
        rows, deletions = rows + range_deletes, deletions + range_deletes
        if (rows, deletions) != (properties.entries, properties.deletions):
            stated = f"{properties.entries} rows and {properties.deletions} deletions"
            reason = f"has {rows} rows and {deletions} deletions, its properties {stated}"
            raise CorruptionError(self._table.path, None, reason)
