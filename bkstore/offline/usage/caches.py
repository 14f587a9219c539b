"""What a bookie's caches need to hold for this directory: stated formulas, with their sources.

Class names are BookKeeper's. No workload is measured: how many readers there are is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bkstore.offline.usage.index_size import IndexPart

DEFAULT_READ_AHEAD = 100
"""`dbStorage_readAheadCacheBatchSize`, in entries."""

_ALIGNMENT = 64
"""The read cache gives each entry whole cache lines (`ReadCache`)."""

_Unit = Literal["bytes", "MiB", "pages", "files"]
"""What a setting counts in: those whose names end in ``Mb`` take whole MiB."""

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class CacheNeed:
    """How large a bookie's setting should be for one purpose.

    `value` is in the setting's own `unit`, rounded up, as a `bk_server.conf` takes it. It is None
    where the numbers that the formula asks for are not known. `default` is the setting's own, in
    words.
    """

    setting: str
    purpose: str
    value: int | None
    unit: _Unit
    default: str
    formula: str
    source: str


def cache_needs(
    parts: Sequence[IndexPart],
    mean_record: float | None,
    directories: int = 1,
    readers: int = 1,
    read_ahead: int = DEFAULT_READ_AHEAD,
) -> list[CacheNeed]:
    """Return what the index, and reading ahead of `readers` at once, need.

    `parts` are those of `Usage.index`, `mean_record` is the size of a record with its 4 bytes of
    length, None if it is not known; `directories` are ledger directories.
    """
    if all(part.sizes is None for part in parts):
        return _index_files(parts)
    return [*_databases(parts), _reading(mean_record, directories, readers, read_ahead)]


def _index_files(parts: Sequence[IndexPart]) -> list[CacheNeed]:
    pages = sum(part.pages or 0 for part in parts)
    files = sum(part.files for part in parts)
    default = "a third of direct memory"
    source = "IndexInMemPageMgr"
    return [
        CacheNeed(
            "pageLimit",
            "every page of the index in memory",
            pages,
            "pages",
            default,
            "sum of (file bytes - 1024) / pageSize, rounded up by file",
            source,
        ),
        CacheNeed(
            "pageLimit",
            "each ledger written to at once",
            files,
            "pages",
            default,
            "one page a ledger: that of its last entries",
            source,
        ),
        CacheNeed(
            "openFileLimit",
            "no index file opened twice",
            files,
            "files",
            "20000",
            "one a ledger",
            "IndexPersistenceMgr",
        ),
    ]


def _databases(parts: Sequence[IndexPart]) -> list[CacheNeed]:
    """Return what the block cache needs: each directory has one, and all are of one size."""
    found = [part for part in parts if part.part.startswith("locations") and part.sizes]
    least: dict[int, int] = {}
    rows: dict[int, int] = {}
    for part in found:
        assert part.sizes is not None
        beside = part.sizes.index_block_bytes + part.sizes.filter_block_bytes
        least[part.dir_index] = least.get(part.dir_index, 0) + beside
        rows[part.dir_index] = rows.get(part.dir_index, 0) + beside + part.sizes.row_bytes
    setting, default = "dbStorage_rocksDB_blockCacheSize", "direct memory / directories / 10"
    source = "KeyValueStorageRocksDB"
    return [
        CacheNeed(
            setting,
            "no look-up reads a filter or an index block again",
            max(least.values(), default=0),
            "bytes",
            default,
            "index and filter blocks of locations, of the directory with the most: they are kept "
            "in the block cache (cache_index_and_filter_blocks)",
            source,
        ),
        CacheNeed(
            setting,
            "the whole index in memory",
            max(rows.values(), default=0),
            "bytes",
            default,
            "the same, and keys and values of all rows as they are uncompressed, 8 bytes a key "
            "added",
            source,
        ),
    ]


def _reading(
    mean_record: float | None, directories: int, readers: int, read_ahead: int
) -> CacheNeed:
    value = None
    if mean_record is not None:
        entry = -(-max(mean_record - 4, 0) // _ALIGNMENT) * _ALIGNMENT
        value = -(-int(2 * directories * readers * read_ahead * entry) // _MIB)
    return CacheNeed(
        "dbStorage_readAheadCacheMaxSizeMb",
        "what was read ahead for each reader stays until it is read",
        value,
        "MiB",
        "a quarter of direct memory",
        f"2 x {directories} directories x {readers} readers x {read_ahead} entries x mean record, "
        "rounded up to 64: directories share it, readers may all be in one, and the oldest half "
        "is dropped at once",
        "SingleDirectoryDbLedgerStorage, ReadCache",
    )
