"""StorageOptions: the settings of a ledger storage, with a bookie's names and defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bkstore.errors import InvalidArgument
from bkstore.formats.idxfile import DEFAULT_PAGE_SIZE, VERSION_1

__all__ = ["Storage", "StorageOptions"]

Storage = Literal["sorted", "interleaved", "db"]

_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class StorageOptions:
    """Settings of `LedgerStorage`. Sizes in bytes.

    `write_cache` is `skipListSizeLimit` (sorted) or `dbStorage_writeCacheMaxSizeMb` (db), which
    is shared by the directories and halved, as two caches take turns. When a cache is full the
    add that finds it so flushes it first; with ``auto_flush=False`` it raises `TooManyRequests`
    and stores nothing. `pending_locations` is how many index rows may wait in memory for a
    flush (a bookie's `pageLimit`, in entries).

    `choose(n)` picks the directory of a new entry log among n; a bookie picks at random, and so
    does the default. ``compat="bookkeeper"`` brings the oddities that `docs/parity.md` lists.
    """

    entry_log_size: int = 1 << 30
    entry_log_per_ledger: bool = False
    write_cache: int = 64 * _MIB
    auto_flush: bool = True
    pending_locations: int = 1 << 20
    max_entry_size: int = 5 * _MIB
    page_size: int = DEFAULT_PAGE_SIZE
    index_header_version: int = VERSION_1
    max_batch_size: int = 5 * _MIB
    choose: Callable[[int], int] | None = None
    compat: Literal["bookkeeper"] | None = None

    def __post_init__(self) -> None:
        for name in ("write_cache", "pending_locations", "max_entry_size", "max_batch_size"):
            if getattr(self, name) < 1:
                raise InvalidArgument(f"{name} must be positive, not {getattr(self, name)}")
