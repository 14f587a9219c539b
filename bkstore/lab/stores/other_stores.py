"""Stores of sorted rows to compare RocksDB with: lmdb and LevelDB, if they are installed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bkstore.ids import Int64Array
from bkstore.lab.experiment import Context


class Store(Protocol):
    """The interface of a store of sorted rows; `Database` implements it."""

    def put_list(self, keys: list[bytes], values: list[bytes], per_batch: int) -> None:
        """Store many rows."""

    def sync(self) -> None:
        """Make the stored rows durable."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""

    def keys(self, lo: bytes, hi: bytes, words: int) -> Int64Array:
        """Return the keys from `lo` to below `hi`, int64[words, n]."""

    def seek_for_prev(self, key: bytes) -> bytes | None:
        """Return the greatest key at or below `key`."""

    def compact(self) -> None:
        """Rewrite the files into their final form."""

    def close(self) -> None:
        """Close the store."""


def _key_columns(keys: Iterable[bytes], words: int) -> Int64Array:
    """Return keys of `words` * 8 bytes as int64[words, n], as `Database.keys` does."""
    lines = np.fromiter(keys, f"S{8 * words}").view(">i8").reshape(-1, words)
    return lines.T.astype(np.int64)


class Lmdb:
    """Rows in lmdb: a tree of pages in one file."""

    def __init__(self, module: Any, top: Path) -> None:
        self._env = module.open(str(top), map_size=1 << 32, sync=False, metasync=False)

    def put_list(self, keys: list[bytes], values: list[bytes], per_batch: int) -> None:
        """Store many rows, each batch in a transaction."""
        for start in range(0, len(keys), per_batch):
            rows = slice(start, start + per_batch)
            with self._env.begin(write=True) as transaction, transaction.cursor() as cursor:
                cursor.putmulti(zip(keys[rows], values[rows]))

    def sync(self) -> None:
        """Make the stored rows durable."""
        self._env.sync(True)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        with self._env.begin() as transaction:
            value: bytes | None = transaction.get(key)
        return value

    def keys(self, lo: bytes, hi: bytes, words: int) -> Int64Array:
        """Return the keys from `lo` to below `hi`, int64[words, n]."""
        with self._env.begin() as transaction, transaction.cursor() as cursor:
            cursor.set_range(lo)
            rows = takewhile(hi.__gt__, cursor.iternext(values=False))
            return _key_columns(rows, words)

    def seek_for_prev(self, key: bytes) -> bytes | None:
        """Return the greatest key at or below `key`, None if there is none. LMDB itself seeks only
        the smallest key at or above: unless that is `key`, it is the one before."""
        with self._env.begin() as transaction, transaction.cursor() as cursor:
            if not cursor.set_range(key):
                is_found = cursor.last()
            else:
                is_found = cursor.key() == key or cursor.prev()
            return bytes(cursor.key()) if is_found else None

    def compact(self) -> None:
        """Do nothing: a tree of pages has no compaction."""

    def close(self) -> None:
        """Close the store."""
        self._env.close()


class LevelDb:
    """Rows in LevelDB, RocksDB's ancestor, by plyvel."""

    def __init__(self, module: Any, top: Path) -> None:
        self._db = module.DB(str(top), create_if_missing=True, bloom_filter_bits=10)
        self.get = self._db.get

    def put_list(self, keys: list[bytes], values: list[bytes], per_batch: int) -> None:
        """Store many rows, each batch in a write batch."""
        for start in range(0, len(keys), per_batch):
            rows = slice(start, start + per_batch)
            with self._db.write_batch() as batch:
                for key, value in zip(keys[rows], values[rows]):
                    batch.put(key, value)

    def sync(self) -> None:
        """Make the rows durable: a synced write syncs the log up to it."""
        self._db.delete(b"", sync=True)

    def keys(self, lo: bytes, hi: bytes, words: int) -> Int64Array:
        """Return the keys from `lo` to below `hi`, int64[words, n]."""
        rows = self._db.iterator(start=lo, stop=hi, include_value=False)
        return _key_columns(rows, words)

    def seek_for_prev(self, key: bytes) -> bytes | None:
        """Return the greatest key at or below `key`."""
        rows = self._db.iterator(stop=key, include_stop=True, reverse=True, include_value=False)
        return next(rows, None)

    def compact(self) -> None:
        """Merge all levels."""
        self._db.compact_range()

    def close(self) -> None:
        """Close the store."""
        self._db.close()


OtherStore = Lmdb | LevelDb


def other_store_openers(context: Context) -> dict[str, Callable[[Path], OtherStore]]:
    """Return the opener of each installed store by name; `context` notes the missing ones."""
    classes: dict[str, Callable[[Any, Path], OtherStore]] = {"lmdb": Lmdb, "plyvel": LevelDb}
    modules = {name: context.import_optional(name) for name in classes}
    return {name: partial(classes[name], module) for name, module in modules.items() if module}
