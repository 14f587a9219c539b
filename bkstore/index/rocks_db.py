"""One RocksDB database: opened raw, read in arrays, every silent end checked.

Two things rocksdict leaves to its caller are done here. Its iterators stop *silently* at a
block that fails its checksum, so each scan ends with a look past its last row. Its errors are
plain exceptions with text, so they are turned into ours, with the file they name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rocksdict import AccessType, Options, Rdict, ReadOptions, WriteBatch

from bkstore.errors import BkstoreError, CorruptionError, DirectoryInUse, UnsupportedLayout
from bkstore.index import rocks_files
from bkstore.index.rocks_options import reading_options

__all__ = ["Database"]

_SIDE_FILE = "rocksdict-config.json"
_PLACE = re.compile(r"in (\S+?\.(?:sst|log|blob)|\S*MANIFEST-\d+)(?: offset (\d+))?")
_DAMAGE = ("Corruption", "No such file", "truncated", "Bad table magic", "not found")
_LIVE_TRIES = 5

Rows = npt.NDArray[Any]


class Database:
    """A raw-mode RocksDB database, read-only or read-write.

    Read-only goes through a scratch directory (`rocks_files.link_copy`) and is a snapshot.
    Threads: reads are safe beside each other; iterators hold the interpreter lock. Fork: no.
    """

    def __init__(self, path: Path, options: Options | None = None, live: bool = False) -> None:
        """Open for writing with `options`, or for reading with None (`live`: while in use)."""
        self.path = path
        self._stack = ExitStack()
        self._db: Rdict | None = None
        self._writes = options is not None
        try:
            with self._translated():
                self._db = self._open_writing(options) if options else self._open_reading(live)
        except BaseException:
            self._stack.close()
            raise

    def _open_writing(self, options: Options) -> Rdict:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        rocks_files.check_not_in_use(self.path) if self.path.is_dir() else None
        db = Rdict(str(self.path), options, column_families={"default": options})
        rocks_files.claim(self.path)
        self._stack.callback(rocks_files.release, self.path)
        return db

    def _open_reading(self, live: bool) -> Rdict:
        rocks_files.require_database(self.path)
        if not live:
            rocks_files.check_not_in_use(self.path)
        for attempt in range(_LIVE_TRIES if live else 1):
            stack = ExitStack()
            try:
                scratch = stack.enter_context(rocks_files.link_copy(self.path))
                options = reading_options()
                access = AccessType.read_only(False)
                db = Rdict(str(scratch), options, {"default": options}, access)
            except Exception:
                stack.close()
                # A live database may drop a table file between the copy and the open.
                if attempt + 1 >= (_LIVE_TRIES if live else 1):
                    raise
            else:
                self._stack = stack
                return db
        raise AssertionError("unreachable")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn RocksDB's textual errors into ours; name the original file, not the scratch."""
        try:
            yield
        except (BkstoreError, OSError):
            raise
        except Exception as error:
            text = str(error)
            if "lock" in text.lower() and "IO error" in text:
                raise DirectoryInUse(f"{self.path}: {text}") from error
            if "omparator" in text:
                raise UnsupportedLayout(f"{self.path}: not a bookie's database: {text}") from error
            if not any(sign in text for sign in _DAMAGE):
                raise
            place = _PLACE.search(text)
            file = self.path / Path(place[1]).name if place else self.path
            offset = int(place[2]) if place and place[2] else None
            raise CorruptionError(file, offset, _without_paths(text)) from error

    @property
    def _handle(self) -> Rdict:
        if self._db is None:
            raise UnsupportedLayout(f"{self.path}: the database is closed")
        return self._db

    # -- reading

    def get(self, key: bytes) -> bytes | None:
        """Return one value, None if absent."""
        with self._translated():
            value: bytes | None = self._handle.get(key)
            return value

    def get_list(self, keys: list[bytes]) -> list[bytes | None]:
        """Return a value or None for each key; sorted keys are twice as fast."""
        with self._translated():
            found: list[bytes | None] = self._handle.get(keys)
            return found

    def keys(self, lo: bytes, hi: bytes, width: int) -> Rows:
        """Return the keys of [lo, hi) as a bytes array of `width`, about 140 ns a key.

        Look at it through a view only: numpy strips trailing zeros from "S" scalars.
        """
        with self._translated():
            bounds = _bounds(hi)
            rows = np.fromiter(
                self._handle.keys(from_key=lo, read_opt=bounds), np.dtype(f"S{width}")
            )
            last = rows[-1:].tobytes() if rows.size else None
            self._check_end(lo, last, hi)
        return rows

    def items(self, lo: bytes, hi: bytes, width: int, batch: int) -> Iterator[Rows]:
        """Yield (k, v) rows of [lo, hi), v of 8 bytes, in arrays of at most `batch` rows."""
        dtype = np.dtype([("k", f"S{width}"), ("v", "S8")])
        with self._translated():
            rows = iter(self._handle.items(from_key=lo, read_opt=_bounds(hi)))
        last: bytes | None = None
        while True:
            with self._translated():
                part = np.fromiter(_take(rows, batch), dtype)
                if part.size < batch:
                    last = part["k"][-1:].tobytes() if part.size else last
                    self._check_end(lo, last, hi)
            if part.size:
                last = part["k"][-1:].tobytes()
                yield part
            if part.size < batch:
                return

    def _check_end(self, lo: bytes, last: bytes | None, hi: bytes) -> None:
        """Raise if the scan of [lo, hi) that returned `last` as its last key ended early."""
        walk = self._handle.iter(_bounds(hi))
        walk.seek(lo if last is None else last)
        if last is not None and walk.valid() and walk.key() == last:
            walk.next()
        walk.status()
        if walk.valid():
            detail = f"scan ended before key {bytes(walk.key()).hex()}"
            raise CorruptionError(self.path, None, detail)

    def rows(self) -> list[tuple[bytes, bytes]]:
        """Return every row; for the small `ledgers` databases."""
        with self._translated():
            found: list[tuple[bytes, bytes]] = list(self._handle.items())
            last = found[-1][0] if found else None
            walk = self._handle.iter()
            walk.seek(last) if last is not None else walk.seek_to_first()
            walk.next() if last is not None and walk.valid() else None
            walk.status()
            if walk.valid():
                raise CorruptionError(self.path, None, "scan of all rows ended early")
            return found

    def first_at(self, key: bytes) -> bytes | None:
        """Return the lowest key at or above `key`, None if there is none."""
        return self._seek("seek", key)

    def last_below(self, key: bytes) -> bytes | None:
        """Return the greatest key at or below `key`, None if there is none."""
        return self._seek("seek_for_prev", key)

    def ends(self) -> list[tuple[bytes, bytes]]:
        """Return the first and the last row, or nothing."""
        with self._translated():
            walk = self._handle.iter()
            found = []
            for seek in (walk.seek_to_first, walk.seek_to_last):
                seek()
                walk.status()
                if walk.valid():
                    found.append((bytes(walk.key()), bytes(walk.value())))
            return found

    def _seek(self, how: str, key: bytes) -> bytes | None:
        with self._translated():
            walk = self._handle.iter()
            getattr(walk, how)(key)
            walk.status()
            return bytes(walk.key()) if walk.valid() else None

    # -- writing

    def put(self, key: bytes, value: bytes) -> None:
        """Store one row, without sync."""
        with self._translated():
            self._handle[key] = value

    def delete(self, key: bytes) -> None:
        """Remove one row."""
        with self._translated():
            self._handle.delete(key)

    def delete_range(self, lo: bytes, hi: bytes) -> None:
        """Remove the rows of [lo, hi)."""
        with self._translated():
            batch = WriteBatch(raw_mode=True)
            batch.delete_range(lo, hi)
            self._handle.write(batch)

    def put_list(self, keys: list[bytes], values: list[bytes], per_batch: int) -> None:
        """Store many rows, in write batches of `per_batch`, without sync."""
        with self._translated():
            for at in range(0, len(keys), per_batch):
                batch = WriteBatch(raw_mode=True)
                put = batch.put
                for key, value in zip(keys[at : at + per_batch], values[at : at + per_batch]):
                    put(key, value)
                self._handle.write(batch)

    def ingest(self, file: Path) -> None:
        """Take over a sorted table file; it is moved into the database."""
        from rocksdict import IngestExternalFileOptions

        options = IngestExternalFileOptions()
        options.set_move_files(True)
        with self._translated():
            self._handle.ingest_external_file([str(file)], options)

    def sync(self) -> None:
        """Make everything written durable."""
        with self._translated():
            self._handle.flush_wal(True)

    def close(self) -> None:
        """Close; idempotent. Removes the scratch directory, or rocksdict's side file."""
        if self._db is not None:
            self._db.close()
            self._db = None
            if self._writes:
                (self.path / _SIDE_FILE).unlink(missing_ok=True)
            self._stack.close()


def _bounds(hi: bytes) -> ReadOptions:
    options = ReadOptions()
    options.set_iterate_upper_bound(hi)
    return options


def _take(rows: Iterator[tuple[bytes, bytes]], count: int) -> Iterator[tuple[bytes, bytes]]:
    for _, row in zip(range(count), rows):
        yield row


def _without_paths(text: str) -> str:
    return re.sub(r"/\S*/(?=[\w.-]+)", "", text)
