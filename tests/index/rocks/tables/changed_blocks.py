"""Blocks of table files with other contents and valid checksums, as no RocksDB writes them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path

from bkstore.formats.rocksdb.checksums import checksum_of
from bkstore.index.rocks.tables.table_reader import TableReader

Change = Callable[[bytearray], None]


def change_block(file: Path, offset: int, size: int, change: Change) -> None:
    """Change the contents of an uncompressed block, to others of the same size; make its checksum
    valid again. The format version of the file is below 6."""
    with TableReader(file) as table:
        checksum_type = table.footer.checksum_type
    data = bytearray(file.read_bytes())
    contents = data[offset : offset + size]
    change(contents)
    data[offset : offset + size] = contents
    checksum = checksum_of(checksum_type, bytes(data[offset : offset + size + 1]))
    data[offset + size + 1 : offset + size + 5] = checksum.to_bytes(4, "little")
    file.write_bytes(data)


def change_row(file: Path, key: bytes, change: Callable[[bytearray, int], None]) -> int:
    """Change the row of a key that is whole in its block: `change` gets the contents of the block,
    and the offset of the row's trailer there. Return the block's offset in the file."""
    with TableReader(file) as table:
        block = bisect_left(table.index.separators, key)
        offset, size = int(table.index.offsets[block]), int(table.index.sizes[block])

    def change_contents(contents: bytearray) -> None:
        change(contents, contents.index(key) + len(key))

    change_block(file, offset, size, change_contents)
    return offset
