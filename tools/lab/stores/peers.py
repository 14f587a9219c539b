"""Stores of sorted rows to compare RocksDB with: lmdb and LevelDB, where they are installed."""

from __future__ import annotations

from collections.abc import Callable, Sized
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tools.lab.experiment import Context


class Store(Protocol):
    """What is asked of a store of sorted rows; `Database` is one."""

    def put_list(self, keys: list[bytes], values: list[bytes], per_batch: int) -> None:
        """Store many rows."""

    def sync(self) -> None:
        """Make them durable."""

    def get(self, key: bytes) -> bytes | None:
        """Return one value."""

    def keys(self, lo: bytes, hi: bytes, width: int) -> Sized:
        """Return the keys of lo..hi as an array."""

    def last_below(self, key: bytes) -> bytes | None:
        """Return the greatest key at or below `key`."""

    def compact(self) -> None:
        """Bring its files into their final form."""

    def close(self) -> None:
        """Close it."""


class Lmdb:
    """Rows in lmdb: a tree of pages in one file."""

    def __init__(self, module: Any, top: Path) -> None:
        self._env = module.open(str(top), map_size=1 << 32, sync=False, metasync=False)

    def put_list(self, keys: list[bytes], values: list[bytes], per_batch: int) -> None:
        """Store many rows, a transaction a batch."""
        for at in range(0, len(keys), per_batch):
            part = slice(at, at + per_batch)
            with self._env.begin(write=True) as change, change.cursor() as cursor:
                cursor.putmulti(zip(keys[part], values[part]))

    def sync(self) -> None:
        """Make them durable."""
        self._env.sync(True)

    def get(self, key: bytes) -> bytes | None:
        """Return one value."""
        with self._env.begin() as view:
            found: bytes | None = view.get(key)
        return found

    def keys(self, lo: bytes, hi: bytes, width: int) -> Sized:
        """Return the keys of lo..hi as an array."""
        with self._env.begin() as view, view.cursor() as cursor:
            cursor.set_range(lo)
            rows = takewhile(hi.__gt__, cursor.iternext(values=False))
            return np.fromiter(rows, f"S{width}")

    def last_below(self, key: bytes) -> bytes | None:
        """Return the greatest key at or below `key`."""
        with self._env.begin() as view, view.cursor() as cursor:
            if not cursor.set_range(key):
                found = cursor.last()
            else:
                found = cursor.key() == key or cursor.prev()
            return bytes(cursor.key()) if found else None

    def compact(self) -> None:
        """Nothing to do: its pages stay as they are."""

    def close(self) -> None:
        """Close it."""
        self._env.close()


class LevelDb:
    """Rows in LevelDB, RocksDB's ancestor, by plyvel."""

    def __init__(self, module: Any, top: Path) -> None:
        self._db = module.DB(str(top), create_if_missing=True, bloom_filter_bits=10)
        self.get = self._db.get

    def put_list(self, keys: list[bytes], values: list[bytes], per_batch: int) -> None:
        """Store many rows, a write batch each."""
        for at in range(0, len(keys), per_batch):
            with self._db.write_batch() as batch:
                for key, value in zip(keys[at : at + per_batch], values[at : at + per_batch]):
                    batch.put(key, value)

    def sync(self) -> None:
        """Make them durable: a synced write syncs the log before it."""
        self._db.delete(b"", sync=True)

    def keys(self, lo: bytes, hi: bytes, width: int) -> Sized:
        """Return the keys of lo..hi as an array."""
        rows = self._db.iterator(start=lo, stop=hi, include_value=False)
        return np.fromiter(rows, f"S{width}")

    def last_below(self, key: bytes) -> bytes | None:
        """Return the greatest key at or below `key`."""
        rows = self._db.iterator(stop=key, include_stop=True, reverse=True, include_value=False)
        return next(rows, None)

    def compact(self) -> None:
        """Merge all levels."""
        self._db.compact_range()

    def close(self) -> None:
        """Close it."""
        self._db.close()


Peer = Lmdb | LevelDb


def peer_stores(context: Context) -> dict[str, Callable[[Path], Peer]]:
    """Return what opens each of them in a directory, by name; those that are not here are noted."""
    makers: dict[str, Callable[[Any, Path], Peer]] = {"lmdb": Lmdb, "plyvel": LevelDb}
    found = {name: (make, context.peer(name)) for name, make in makers.items()}
    return {name: partial(make, module) for name, (make, module) in found.items() if module}
