"""Look-ups of single keys in the sorted runs of a database: one block of each run that may have the
key is read, and searched by its restart points. The rows of whole blocks, as `block_rows` decodes
them, would take ten times as long.

Checked are the checksum of a block, its first and its last row, and what a look-up decodes. A
look-up that meets anything else than regular rows raises `CorruptionError` or `UnsupportedLayout`,
without the range of keys that is unknown: a read of the same range as rows reports that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from bkstore.errors import CorruptionError, UnsupportedLayout
from bkstore.formats.rocksdb.checksums import ChecksumType
from bkstore.formats.rocksdb.keys import DELETIONS, ValueType
from bkstore.formats.rocksdb.table.entries import FoundRow, SearchableBlock
from bkstore.index.rocks.tables.block_cache import BlockCache
from bkstore.index.rocks.tables.key_order import WORD_BYTES
from bkstore.index.rocks.tables.table_reader import TableReader, block_handle

_CACHED_BYTES = 8 << 20


class KeyLookups:
    """Look-ups in table files. Each of the `runs` has files in the order of keys, which do not
    overlap. Threads: may be shared. Memory: 8 MiB of blocks that were searched last."""

    def __init__(self, runs: list[list[TableReader]]) -> None:
        self._runs = runs
        # By run: the lowest key that each file may have.
        self._first_keys = [[table.key_bounds[0] for table in run] for run in runs]
        self._cache: BlockCache[SearchableBlock] = BlockCache(_CACHED_BYTES)

    def find_versions(self, key: bytes) -> Iterator[FoundRow]:
        """Yield the newest row of a key in each run that has one. Of these, the one with the
        highest sequence number counts."""
        for run, first_keys in zip(self._runs, self._first_keys):
            # Rows of one key may be in several files: the first of these has the newest.
            number = bisect_right(first_keys, key) - 1
            while number > 0 and _may_have(run[number - 1], key):
                number -= 1
            for table in run[max(number, 0) :]:
                if not _may_have(table, key):
                    break
                row = self._find_newest(table, key)
                if row is not None:
                    yield row
                    break

    def last_key_before(self, stop: bytes) -> bytes | None:
        """Return the highest key below `stop` that any file has a row of, which may be deleted;
        None if there is none."""
        last_keys = [
            self._last_key_of_run(run, first_keys, stop)
            for run, first_keys in zip(self._runs, self._first_keys)
        ]
        return max((key for key in last_keys if key is not None), default=None)

    def _last_key_of_run(
        self, run: list[TableReader], first_keys: list[bytes], stop: bytes
    ) -> bytes | None:
        """Return the highest key below `stop` in the files of a run, None if there is none.
        `first_keys` has the first key of each file."""
        # A file may have range deletes only below `stop`: then the one before it has the last key.
        for table in reversed(run[: bisect_left(first_keys, stop)]):
            key = self._last_key_of_table(table, stop)
            if key is not None:
                return key
        return None

    # -- one file

    def _find_newest(self, table: TableReader, key: bytes) -> FoundRow | None:
        """Return the newest row of a key in a file, None if it has none."""
        block = bisect_left(table.index.separators, key)
        if block == len(table.index):
            return None
        row = self._block(table, block).find_newest(key)
        return None if row is None else _checked(table, row)

    def _last_key_of_table(self, table: TableReader, stop: bytes) -> bytes | None:
        """Return the highest key below `stop` in a file, None if all are above."""
        # Go backwards from the block that `stop` may be in. The key is in it or in the one before.
        separators = table.index.separators
        for block in range(min(bisect_left(separators, stop), len(separators) - 1), -1, -1):
            key = self._block(table, block).last_key_before(stop)
            if key is not None:
                return key
        return None

    def _block(self, table: TableReader, block: int) -> SearchableBlock:
        """Return a data block, read and verified unless it is in the cache."""
        searchable = self._cache.get((table.path, block))
        if searchable is None:
            if table.footer.checksum_type is ChecksumType.NONE:
                raise UnsupportedLayout(f"{table.path}: blocks without checksums are read whole")
            searchable = SearchableBlock(table.read_block(block_handle(table.index, block)))
            _check_ends(table, block, searchable)
            self._cache.put((table.path, block), searchable)
        return searchable


def _may_have(table: TableReader, key: bytes) -> bool:
    """Return whether a key is in a file's range of keys."""
    first, end = table.key_bounds
    return first <= key and (end is None or key < end)


def _check_ends(table: TableReader, block: int, searchable: SearchableBlock) -> None:
    """Raise `CorruptionError` if the first and the last row of a block are not where the index and
    the manifest have them: then another block is in its place, and keys would not be found."""
    first, last = (_checked(table, row) for row in searchable.end_rows())
    separators = table.index.separators
    is_low = block > 0 and (
        first.key < separators[block - 1]
        or (first.key == separators[block - 1] and not table.index.may_continue)
    )
    if is_low or last.key > separators[block]:
        offset = int(table.index.offsets[block])
        raise CorruptionError(
            table.path, offset, "rows of the block are not where the index has them"
        )


def _checked(table: TableReader, row: FoundRow) -> FoundRow:
    """Return a row with the sequence number that counts. Raises unless it is a value of a location
    or a deletion, and among the sequence numbers that the manifest states for the file."""
    if table.sequence_of_all is not None:  # an ingested file: one number for all rows
        if row.sequence:
            raise CorruptionError(table.path, None, "row of an ingested file has a sequence number")
        row = row._replace(sequence=table.sequence_of_all)
    if row.code != ValueType.VALUE and row.code not in DELETIONS:
        raise UnsupportedLayout(f"{table.path}: row of type {row.code}")
    if len(row.value) != (WORD_BYTES if row.code == ValueType.VALUE else 0):
        raise CorruptionError(table.path, None, f"row has a value of {len(row.value)} bytes")
    table.check_listed((row.key, row.key), (row.sequence, row.sequence))
    return row
