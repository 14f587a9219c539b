"""RocksDB indexes with other options than a bookie's: block size, compression, bloom bits, buffer.

`Files` is told of each database before it is opened for writing, with the options that it is
opened with. Here they are changed then; nothing else of the index is another.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options

from bkstore.files.disk_changes import Files, StrPath

Change = Callable[[Options], None]


class TunedFiles(Files):
    """The operating system's files; the options of a `locations` database are changed first."""

    def __init__(self, *changes: Change) -> None:
        self.changes = changes

    def database_opened(self, path: StrPath, options: Options | None = None) -> None:
        """Change the options of the databases that hold locations."""
        if options is not None and Path(path).name.startswith("locations"):
            for change in self.changes:
                change(options)


def tables(block_size: int = 64 << 10, bloom_bits: int | None = 10) -> Change:
    """Return a change of the table format: bytes of a block, bits a key of the filter (or none)."""

    def change(options: Options) -> None:
        table = BlockBasedOptions()
        table.set_format_version(5)
        table.set_block_cache(Cache(64 << 20))
        table.set_block_size(block_size)
        if bloom_bits is not None:
            table.set_bloom_filter(bloom_bits, False)
        options.set_block_based_table_factory(table)

    return change


def compressed(how: str) -> Change:
    """Return a change of the compression: none, lz4 or zstd."""
    return lambda options: options.set_compression_type(getattr(DBCompressionType, how)())


def write_buffer(size: int) -> Change:
    """Return a change of the bytes that a database collects in memory before it writes a table."""
    return lambda options: options.set_write_buffer_size(size)
