"""Cache sizes that a bookie needs for a directory: formulas; class names are BookKeeper's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bkstore.formats.syntax.framing import SIZE_FIELD_BYTES
from bkstore.offline.usage.index_size import IndexPart

DEFAULT_READ_AHEAD = 100
"""`dbStorage_readAheadCacheBatchSize`, in entries."""

_CACHE_LINE_BYTES = 64  # the read cache aligns each entry to cache lines, in bytes (`ReadCache`)

_Unit = Literal["bytes", "MiB", "pages", "files"]
"""The unit of a setting: those whose names end in ``Mb`` are in whole MiB."""

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class CacheNeed:
    """The value that a bookie's setting should have for one purpose. `value` is in the setting's
    own `unit`, rounded up, as in `bk_server.conf`; None if an input of the formula is not known.
    `default` describes the setting's default."""

    setting: str
    purpose: str
    value: int | None
    unit: _Unit
    default: str
    formula: str
    source: str


def cache_needs(
    parts: Sequence[IndexPart],
    mean_record_bytes: float | None,
    directories: int = 1,
    readers: int = 1,
    read_ahead: int = DEFAULT_READ_AHEAD,
) -> list[CacheNeed]:
    """Return the cache needs of the index, and of read-ahead for `readers` concurrent readers.
    `parts` is the result of `Usage.index`; `mean_record_bytes` the mean size of a record including
    its 4-byte length, None if not known; `directories` the number of ledger directories."""
    if all(part.sizes is None for part in parts):
        return _page_cache_needs(parts)
    read_ahead_need = _read_ahead_need(mean_record_bytes, directories, readers, read_ahead)
    return [*_block_cache_needs(parts), read_ahead_need]


def _page_cache_needs(parts: Sequence[IndexPart]) -> list[CacheNeed]:
    """Return the needs of interleaved and sorted storage: index pages and open index files."""
    pages = sum(part.pages or 0 for part in parts)
    files = sum(part.files for part in parts)
    default = "a third of direct memory"
    source = "IndexInMemPageMgr"
    return [
        CacheNeed(
            setting="pageLimit",
            purpose="every page of the index in memory",
            value=pages,
            unit="pages",
            default=default,
            formula="sum of (file bytes - 1024) / pageSize, rounded up by file",
            source=source,
        ),
        CacheNeed(
            setting="pageLimit",
            purpose="all ledgers written at the same time",
            value=files,
            unit="pages",
            default=default,
            formula="one page per ledger: that of its last entries",
            source=source,
        ),
        CacheNeed(
            setting="openFileLimit",
            purpose="no index file opened twice",
            value=files,
            unit="files",
            default="20000",
            formula="one per ledger",
            source="IndexPersistenceMgr",
        ),
    ]


def _block_cache_needs(parts: Sequence[IndexPart]) -> list[CacheNeed]:
    """Return the needs of the block caches: one per directory, all of the same size."""
    locations = [part for part in parts if part.part.startswith("locations") and part.sizes]
    overhead_bytes: Counter[int] = Counter()
    total_bytes: Counter[int] = Counter()
    for part in locations:
        assert part.sizes is not None
        part_overhead = part.sizes.index_block_bytes + part.sizes.filter_block_bytes
        overhead_bytes[part.dir_index] += part_overhead
        total_bytes[part.dir_index] += part_overhead + part.sizes.row_bytes
    setting, default = "dbStorage_rocksDB_blockCacheSize", "direct memory / directories / 10"
    source = "KeyValueStorageRocksDB"
    return [
        CacheNeed(
            setting=setting,
            purpose="no lookup rereads a filter or index block",
            value=max(overhead_bytes.values(), default=0),
            unit="bytes",
            default=default,
            formula="index and filter blocks of locations, of the directory with the most: they "
            "are kept in the block cache (cache_index_and_filter_blocks)",
            source=source,
        ),
        CacheNeed(
            setting=setting,
            purpose="the whole index in memory",
            value=max(total_bytes.values(), default=0),
            unit="bytes",
            default=default,
            formula="the same, and uncompressed keys and values of all rows, plus 8 bytes per key",
            source=source,
        ),
    ]


def _read_ahead_need(
    mean_record_bytes: float | None, directories: int, readers: int, read_ahead: int
) -> CacheNeed:
    """Return the size of the read-ahead cache, which all directories of a bookie share."""
    mebibytes = None
    if mean_record_bytes is not None:  # includes the size field, which is not cached
        mean_bytes = max(mean_record_bytes - SIZE_FIELD_BYTES, 0)
        aligned_bytes = -(-mean_bytes // _CACHE_LINE_BYTES) * _CACHE_LINE_BYTES  # rounded up
        mebibytes = -(-int(2 * directories * readers * read_ahead * aligned_bytes) // _MIB)
    return CacheNeed(
        setting="dbStorage_readAheadCacheMaxSizeMb",
        purpose="entries read ahead for each reader stay until they are read",
        value=mebibytes,
        unit="MiB",
        default="a quarter of direct memory",
        formula=f"2 x {directories} directories x {readers} readers x {read_ahead} entries x mean "
        "record, rounded up to 64: directories share it, readers may all be in one, and the oldest "
        "half is dropped at once",
        source="SingleDirectoryDbLedgerStorage, ReadCache",
    )
