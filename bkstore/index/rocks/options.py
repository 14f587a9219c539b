"""RocksDB options: those of a database that a bookie creates, and those for reading. Source:
`KeyValueStorageRocksDB`, defaults of the ``dbStorage_rocksDB_*`` keys, except two:
`cache_index_and_filter_blocks` is off, as with a cache too small for one shard a get becomes
hundreds of times slower (it changes no byte on disk); the block cache is a constant."""

from __future__ import annotations

import os
from pathlib import Path

from rocksdict import (
    BlockBasedOptions,
    Cache,
    ChecksumType,
    DBCompressionType,
    DBRecoveryMode,
    Options,
)

from bkstore.index.rocks.files import after_fork

_MIB = 1 << 20
BLOCK_CACHE_BYTES = 64 * _MIB

_MAX_LEVELS = 64
"""For reading: RocksDB refuses a database with more levels (`dbStorage_rocksDB_numLevels`)."""


def _base_options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    return options


def _table_options(block_size: int | None, bloom_bits: int | None) -> BlockBasedOptions:
    """Return a bookie's options for table files. With `block_size` None the blocks have RocksDB's
    default size, with `bloom_bits` (bits per key) None there is no bloom filter."""
    table_options = BlockBasedOptions()
    table_options.set_format_version(5)
    table_options.set_checksum_type(ChecksumType.xxhash())
    table_options.set_block_cache(Cache(BLOCK_CACHE_BYTES))
    table_options.set_cache_index_and_filter_blocks(False)
    if block_size is not None:
        table_options.set_block_size(block_size)
    if bloom_bits is not None:
        table_options.set_bloom_filter(bloom_bits, block_based=False)
    return table_options


def location_options() -> Options:
    """Return the options of a `locations` database, as a bookie creates it."""
    options = _base_options()
    options.set_block_based_table_factory(_table_options(block_size=64 << 10, bloom_bits=10))
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_size(64 * _MIB)
    options.set_max_write_buffer_number(4)
    options.set_level_zero_file_num_compaction_trigger(4)
    options.set_max_bytes_for_level_base(256 * _MIB)
    options.set_target_file_size_base(64 * _MIB)
    options.set_max_total_wal_size(512 * _MIB)
    options.set_level_compaction_dynamic_level_bytes(True)
    return options


def metadata_options() -> Options:
    """Return the options of a `ledgers` database, as a bookie creates it."""
    options = _base_options()
    options.set_block_based_table_factory(_table_options(block_size=None, bloom_bits=None))
    return options


def database_options(kind: str) -> Options:
    """Return the options of a database by its name: `locations` or `ledgers`."""
    return location_options() if kind == "locations" else metadata_options()


def reading_options() -> Options:
    """Return options for reading any database. With them a write-ahead log that is damaged before
    its last record is an error: RocksDB's default silently drops everything after the damage."""
    options = location_options()
    options.create_if_missing(False)
    options.set_num_levels(_MAX_LEVELS)  # RocksDB refuses a database that has more levels
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    return options


def count_opening_threads(database: Path) -> int:
    """Return how many threads should open the table files: one for each four, at most 16. RocksDB's
    default (`max_file_opening_threads`) is always 16, which takes longer for a small database. With
    1, the caller opens them: a forked child has no others."""
    if after_fork.has_lost_threads():
        return 1
    table_count = sum(file_name.endswith(".sst") for file_name in os.listdir(database))
    return min(max(table_count // 4, 1), 16)
