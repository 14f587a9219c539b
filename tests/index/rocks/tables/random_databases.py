"""Random databases, written by the binding: overwrites, deletes, levels, logs, ingested files."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    ChecksumType,
    DataBlockIndexType,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    SstFileWriter,
    WriteBatch,
)

COMPRESSIONS: dict[str, Callable[[], DBCompressionType]] = {
    "none": DBCompressionType.none,
    "snappy": DBCompressionType.snappy,
    "zlib": DBCompressionType.zlib,
    "bz2": DBCompressionType.bz2,
    "lz4": DBCompressionType.lz4,
    "lz4hc": DBCompressionType.lz4hc,
    "zstd": DBCompressionType.zstd,
}
CHECKSUMS: dict[str, Callable[[], ChecksumType]] = {
    "none": ChecksumType.no_checksum,
    "crc32c": ChecksumType.crc32c,
    "xxh32": ChecksumType.xxhash,
    "xxh64": ChecksumType.xxhash64,
    "xxh3": ChecksumType.xxh3,
}
INDEX_TYPES: dict[str, Callable[[], BlockBasedIndexType]] = {
    "binary": BlockBasedIndexType.binary_search,
    "two-level": BlockBasedIndexType.two_level_index_search,
}
FORMAT_VERSIONS = [2, 3, 4, 5, 6]


@dataclass(frozen=True)
class TableSettings:
    """How a database's table files are written."""

    format_version: int = 5
    compression: str = "lz4"
    checksum: str = "xxh32"
    index_type: str = "binary"
    block_size: int = 4096
    restart_interval: int = 16
    index_restart_interval: int = 1
    has_hash_index: bool = False
    has_filter: bool = True

    def options(self) -> Options:
        """Return options of the binding with these settings."""
        table_options = BlockBasedOptions()
        table_options.set_format_version(self.format_version)
        table_options.set_checksum_type(CHECKSUMS[self.checksum]())
        table_options.set_block_size(self.block_size)
        table_options.set_block_restart_interval(self.restart_interval)
        table_options.set_index_block_restart_interval(self.index_restart_interval)
        table_options.set_index_type(INDEX_TYPES[self.index_type]())
        table_options.set_metadata_block_size(256)
        if self.has_hash_index:
            table_options.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
        if self.has_filter:
            table_options.set_bloom_filter(10, block_based=False)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(table_options)
        options.set_compression_type(COMPRESSIONS[self.compression]())
        options.set_disable_auto_compactions(True)
        return options


def random_settings(rng: random.Random) -> TableSettings:
    """Return settings drawn from all that a bookie may be configured to."""
    return TableSettings(
        rng.choice(FORMAT_VERSIONS),
        rng.choice(list(COMPRESSIONS)),
        rng.choice(list(CHECKSUMS)),
        rng.choice(list(INDEX_TYPES)),
        rng.choice([64, 256, 1024, 4096, 65536]),
        rng.choice([1, 2, 3, 16, 100]),
        rng.choice([1, 2, 5, 16]),
        rng.random() < 0.3,
        rng.random() < 0.7,
    )


@dataclass
class RandomDatabase:
    """A database that is written at random: `steps` writes, flushes, ingestions, compactions and
    reopenings. `key_bytes` is the width of keys. Few ledgers and ids, so that keys meet often."""

    path: Path
    rng: random.Random
    settings: TableSettings
    key_bytes: int = 16
    max_rows: int = 300
    _ledgers: list[bytes] = field(default_factory=list)

    def write(self, steps: int) -> None:
        """Write it, and close it: rows may remain in its write-ahead log."""
        prefix_bytes = self.key_bytes - 8
        numbers = [self.rng.choice([0, 1, 255, 256, 2**31, 2**63 - 1]) for _ in range(3)]
        self._ledgers = [number.to_bytes(prefix_bytes, "big") for number in numbers]
        if self.key_bytes > 16:
            self._ledgers.append(self.rng.randbytes(prefix_bytes))
        database = self._open()
        for _ in range(steps):
            action = self.rng.choices(
                [self._put, self._delete, self._delete_range, self._flush, self._ingest],
                [6, 3, 2, 3, 2],
            )[0]
            action(database)
            if self.rng.random() < 0.08:
                database.compact_range(None, None)
            if self.rng.random() < 0.1:
                database.close()
                database = self._open()
        # A closed database has flushed its rows; a copy made before has them in its log.
        self._copy_with_log(database)
        database.close()

    def write_file(self, keys: list[bytes], is_compacted: bool = True) -> None:
        """Write a database with these keys in one file, of level 0 if it is not compacted."""
        database = self._open()
        batch = WriteBatch(raw_mode=True)
        for key in keys:
            batch.put(key, self.rng.randbytes(8))
        database.write(batch)
        database.flush()
        if is_compacted:
            database.compact_range(None, None)
        database.close()
        (self.path / "written").rename(self.path / "database")

    def add_to_file(self, keys: list[bytes], deleted: tuple[bytes, bytes]) -> None:
        """Add a file of level 0 with these keys and a range delete to what `write_file` wrote."""
        (self.path / "database").rename(self.path / "written")
        database = self._open()
        batch = WriteBatch(raw_mode=True)
        for key in keys:
            batch.put(key, self.rng.randbytes(8))
        batch.delete_range(*deleted)
        database.write(batch)
        database.flush()
        database.close()
        (self.path / "written").rename(self.path / "database")

    def _open(self) -> Rdict:
        options = self.settings.options()
        return Rdict(str(self.path / "written"), options, {"default": options})

    def _copy_with_log(self, database: Rdict) -> None:
        database.flush_wal(True)
        shutil.copytree(self.path / "written", self.path / "database")

    def random_key(self) -> bytes:
        """Return a key of one of the ledgers, often one that has a row."""
        ledger = self.rng.choice(self._ledgers)
        if self.rng.random() < 0.1:
            entry_id = self.rng.choice([0, 2**63 - 1, 2**63 - 2, 2**32, 65535])
        else:
            entry_id = self.rng.randrange(600)
        return ledger + entry_id.to_bytes(8, "big")

    def _run(self) -> list[bytes]:
        """Return keys of a run of entries, or of a few at random."""
        if self.rng.random() < 0.5:
            return [self.random_key() for _ in range(self.rng.randrange(1, 20))]
        ledger = self.rng.choice(self._ledgers)
        first, count = self.rng.randrange(600), self.rng.randrange(1, self.max_rows)
        return [ledger + (first + i).to_bytes(8, "big") for i in range(count)]

    def _put(self, database: Rdict) -> None:
        batch = WriteBatch(raw_mode=True)
        for key in self._run():
            batch.put(key, self.rng.randbytes(8))
        database.write(batch)

    def _delete(self, database: Rdict) -> None:
        batch = WriteBatch(raw_mode=True)
        for key in self._run():
            batch.delete(key)
        database.write(batch)

    def _delete_range(self, database: Rdict) -> None:
        batch = WriteBatch(raw_mode=True)
        if self.rng.random() < 0.5:
            ledger = self.rng.choice(self._ledgers)
            batch.delete_range(ledger + bytes(8), ledger + (2**63 - 1).to_bytes(8, "big"))
        else:
            batch.delete_range(*sorted([self.random_key(), self.random_key()]))
        database.write(batch)

    def _flush(self, database: Rdict) -> None:
        database.flush()

    def _ingest(self, database: Rdict) -> None:
        file = self.path / f"ingested-{self.rng.randrange(1 << 40)}.sst"
        writer = SstFileWriter(self.settings.options())
        writer.open(str(file))
        for key in sorted(set(self._run())):
            writer[key] = self.rng.randbytes(8)
        writer.finish()
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        database.ingest_external_file([str(file)], options)


def read_by_binding(path: Path) -> list[tuple[bytes, bytes]]:
    """Return all rows, read by the binding from a copy."""
    copy = path.parent / f"{path.name}-read"
    shutil.copytree(path, copy)
    options = TableSettings().options()
    options.set_num_levels(64)
    database = Rdict(str(copy), options, {"default": options})
    rows = list(database.items())
    database.close()
    shutil.rmtree(copy)
    return rows
