"""RocksDB indexes with other options than a bookie's: block size, compression, bloom bits, buffer.
The index calls `Files.database_opened` with the options of each database before it opens it for
writing. `TunedFiles` changes the options there; the index is the same otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options

from bkstore.files.disk_changes import Files, StrPath

Change = Callable[[Options], None]


class TunedFiles(Files):
    """The operating system's files, with changes to the options of `locations` databases."""

    def __init__(self, *changes: Change) -> None:
        self.changes = changes

    def database_opened(self, path: StrPath, options: Options | None = None) -> None:
        """Apply the changes if the database holds locations."""
        if options is not None and Path(path).name.startswith("locations"):
            for change in self.changes:
                change(options)


def table_format(block_size: int = 64 << 10, bloom_bits: int | None = 10) -> Change:
    """Return a change of RocksDB's options: the block size in bytes and the bits per key of the
    bloom filter (None for no filter). The other options of table files stay those of a bookie."""

    def change(options: Options) -> None:
        """Replace all options of table files, as RocksDB takes them together."""
        block_options = BlockBasedOptions()
        block_options.set_format_version(5)
        block_options.set_block_cache(Cache(64 << 20))
        block_options.set_block_size(block_size)
        if bloom_bits is not None:
            per_block = False  # one filter for a whole table file
            block_options.set_bloom_filter(bloom_bits, per_block)
        options.set_block_based_table_factory(block_options)

    return change


def compression(algorithm: str) -> Change:
    """Return a change of the compression algorithm: none, lz4 or zstd."""
    return lambda options: options.set_compression_type(getattr(DBCompressionType, algorithm)())


def write_buffer(size: int) -> Change:
    """Return a change of the memtable size, in bytes, at which the database flushes."""
    return lambda options: options.set_write_buffer_size(size)
