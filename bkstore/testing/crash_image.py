"""What `CrashFiles` remembers of files, names and databases, and the tree it makes of that.

The model is described in `bkstore.testing.crash`. A file's durable bytes are not kept: they are
the bytes it has, with the sectors put back that changed since.
"""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import NamedTuple

from bkstore.files.disk_changes import StrPath
from bkstore.index.rocks.scratch_links import in_use

SECTOR = 512
"""Bytes that a disk writes whole or not at all."""

_LIVE_TRIES = 20

Key = tuple[int, int]
"""A file or directory: device and inode number."""

Place = tuple[Key, str]
"""A name in a directory."""


def stat_key(info: os.stat_result) -> Key:
    """Return the key of what was asked for."""
    return info.st_dev, info.st_ino


def key_of(path: StrPath) -> Key | None:
    """Return the key of what a path names, None if that is nothing."""
    try:
        return stat_key(os.lstat(path))
    except FileNotFoundError:
        return None


def place_of(path: StrPath) -> Place:
    """Return a path's directory and name; `FileNotFoundError` without a directory."""
    folder, name = os.path.split(os.fspath(path))
    return stat_key(os.stat(folder or ".")), name


# -- bytes


class Unsynced:
    """What changed in one file since its last sync, and what it was then."""

    def __init__(self, size: int) -> None:
        self.size = size
        """The durable length."""
        self._changes: list[tuple[int, bytes | None]] = []  # None: cut at the offset
        self._sectors: dict[int, bytes] = {}  # the durable ones that changed

    def write(self, fd: int, offset: int, data: bytes) -> None:
        """Note a write that is about to be done."""
        self._save(fd, offset, offset + len(data))
        self._changes.append((offset, data))

    def cut(self, fd: int, size: int) -> None:
        """Note a new length that is about to be set."""
        self._save(fd, size, self.size)
        self._changes.append((size, None))

    def _save(self, fd: int, first: int, stop: int) -> None:
        stop = min(stop, self.size)
        for sector in range(first // SECTOR, -(-stop // SECTOR)):
            if sector not in self._sectors:
                at = sector * SECTOR
                self._sectors[sector] = os.pread(fd, min(SECTOR, self.size - at), at)

    def restore(self, fd: int) -> None:
        """Turn a copy of the file as it is into the durable one."""
        for sector, data in self._sectors.items():
            os.pwrite(fd, data, sector * SECTOR)
        os.ftruncate(fd, self.size)

    def survive(self, fd: int, keep: random.Random) -> None:
        """Let some of the changes survive in the durable file."""
        chance = keep.random()
        lost: set[int] = set()
        for offset, data in self._changes:
            if data is not None:
                _survive_write(fd, offset, data, lost, keep, chance)
            elif keep.random() < chance:
                os.ftruncate(fd, offset)
            else:
                return


def _survive_write(
    fd: int, offset: int, data: bytes, lost: set[int], keep: random.Random, chance: float
) -> None:
    """Write the sectors that survive, but for those that lost an earlier write."""
    end = offset + len(data)
    sectors = range(offset // SECTOR, -(-end // SECTOR))
    how = keep.choice(("whole or not", "prefix", "scattered"))
    whole, prefix = keep.random() < chance, keep.randint(0, len(sectors))
    for at, sector in enumerate(sectors):
        kept = whole
        if how == "prefix":
            kept = at < prefix
        elif how == "scattered":
            kept = keep.random() < chance
        if not kept:
            lost.add(sector)
        elif sector not in lost:
            first, stop = max(offset, sector * SECTOR), min(end, (sector + 1) * SECTOR)
            os.pwrite(fd, data[first - offset : stop - offset], first)
    if keep.random() < chance / 4 and os.fstat(fd).st_size < end:
        os.ftruncate(fd, end)


# -- names


class NameChange(NamedTuple):
    """One change of names, and the names and files that it has to do with."""

    names: dict[Place, Key | None]
    touched: frozenset[object]


class Names:
    """Which names changed and are not durable; by directory."""

    def __init__(self) -> None:
        self.durable: dict[Key, dict[str, Key | None]] = {}
        """What names with changes pending durably stand for; None: there is no such name."""
        self._pending: dict[int, NameChange] = {}  # in order
        self._pending_in: dict[Key, list[int]] = {}
        self._numbers = count()

    def change(self, names: dict[Place, Key | None], before: dict[Place, Key | None]) -> None:
        """Note one change; `before` is what the names stood for, where for anything."""
        number = next(self._numbers)
        touched = {*names, *names.values(), *before.values()} - {None}
        self._pending[number] = NameChange(names, frozenset(touched))
        for place in names:
            folder, name = place
            self.durable.setdefault(folder, {}).setdefault(name, before.get(place))
            self._pending_in.setdefault(folder, []).append(number)

    def settle(self, folder: Key, upto: float = float("inf")) -> None:
        """Make the changes in a directory durable.

        A rename from another directory takes what came before it there along.
        """
        waiting = self._pending_in.pop(folder, [])
        later = [number for number in waiting if number > upto]
        others: dict[Key, int] = {}
        for number in waiting[: len(waiting) - len(later)]:
            change = self._pending.pop(number, None)
            for (where, name), key in change.names.items() if change else ():
                self.durable.setdefault(where, {})[name] = key
                if where != folder:
                    others[where] = number
        names = self.durable.pop(folder, {})
        if later:
            self._pending_in[folder] = later
            places = {place for number in later for place in self._pending[number].names}
            self.durable[folder] = {name: names[name] for at, name in places if at == folder}
        for where, number in others.items():
            self.settle(where, number)

    def mentioned(self) -> set[Key | None]:
        """Return the files that have a name now or may have one after a crash."""
        found = {key for names in self.durable.values() for key in names.values()}
        found.update(key for change in self._pending.values() for key in change.names.values())
        return found

    def after(self, keep: random.Random | None) -> dict[Key, dict[str, Key | None]]:
        """Return `durable` as a power loss leaves it, with the changes that survive."""
        left = {folder: dict(names) for folder, names in self.durable.items()}
        if keep is None:
            return left
        chance = keep.random()
        lost: set[object] = set()
        for change in self._pending.values():
            if lost & change.touched or keep.random() >= chance:
                lost |= change.touched
                continue
            for (folder, name), key in change.names.items():
                left[folder][name] = key
        return left


# -- databases


def log_lengths(path: StrPath) -> dict[str, int]:
    """Return the lengths of a database's write-ahead logs, by name."""
    return {log.name: log.stat().st_size for log in Path(path).glob("*.log")}


def copy_database(source: str, target: str) -> None:
    """Copy a database; again where RocksDB made, changed or removed a file meanwhile.

    `DirectoryInUse` where it never rests.
    """
    for _ in range(_LIVE_TRIES):
        for name in os.listdir(target):
            os.unlink(os.path.join(target, name))
        try:
            before = _stamp(source)
            for name in before:
                shutil.copyfile(os.path.join(source, name), os.path.join(target, name))
            if before == _stamp(source):
                return
        except FileNotFoundError:
            continue
    raise in_use(Path(source), "changes faster than it can be copied")


def _stamp(folder: str) -> dict[str, int]:
    """Return the files of a database and their lengths, but for logs, which may grow."""
    found = {}
    for name in os.listdir(folder):
        if not name.startswith("LOG"):  # RocksDB's diary
            size = os.stat(os.path.join(folder, name)).st_size
            found[name] = 0 if name.endswith(".log") else size
    return found


def _cut_logs(folder: Path, durable: dict[str, int], keep: random.Random | None) -> None:
    """Cut write-ahead logs back; a log keeps unsynced bytes only behind whole ones.

    The name stays: RocksDB syncs the directory when it opened a database, and before a manifest
    drops the log before (seen by tracing 9.8.4). Until then an empty log is as good as none.
    """
    whole = True
    for log in sorted(folder.glob("*.log")):
        size = log.stat().st_size
        kept = min(durable.get(log.name, 0), size)
        if keep is not None and whole:
            kept = keep.choice((kept, size, keep.randint(kept, size)))
        whole = kept == size
        os.truncate(log, kept)


# -- the tree that is left


@dataclass
class Remembered:
    """Everything that is not durable."""

    unsynced: dict[Key, Unsynced] = field(default_factory=dict)
    names: Names = field(default_factory=Names)
    held: dict[Key, int] = field(default_factory=dict)
    """Descriptors of files without a name."""
    databases: dict[Key, tuple[str, dict[str, int]]] = field(default_factory=dict)
    """Where databases are (or were put aside), and how much of their logs is durable."""

    def move_databases(self, source: str, target: str) -> None:
        """Note that a folder, and the databases in it, have another name."""
        for key, (path, lengths) in self.databases.items():
            if path == source or path.startswith(source + os.sep):
                self.databases[key] = (target + path[len(source) :], lengths)


class Image:
    """One power loss: which names survive, and the files behind them."""

    def __init__(self, state: Remembered, root: str, keep: random.Random | None) -> None:
        self._state = state
        self._keep = keep
        self._names = state.names.after(keep)
        self._folders: dict[Key, str] = {}
        self._paths: dict[Key, str] = {}
        for folder, _, names in os.walk(root):
            self._folders[stat_key(os.stat(folder))] = folder
            for name in names:
                path = os.path.join(folder, name)
                self._paths[stat_key(os.lstat(path))] = path
        self._built: dict[Key, Path] = {}

    def build(self, source: str, target: Path) -> None:
        """Build what is left of the directory `source`, in `target`."""
        own = stat_key(os.stat(source))
        if own in self._state.databases:
            path, lengths = self._state.databases[own]
            copy_database(path, str(target))
            _cut_logs(target, lengths, self._keep)
            return
        names = {name: key_of(os.path.join(source, name)) for name in os.listdir(source)}
        names.update(self._names.get(own, {}))
        for name, key in sorted(names.items()):
            if key in self._folders:
                (target / name).mkdir()
                self.build(self._folders[key], target / name)
            elif key in self._built:
                os.link(self._built[key], target / name)
            elif key is not None:
                self._file(key, target / name)

    def _file(self, key: Key, target: Path) -> None:
        held, path = self._state.held.get(key), self._paths.get(key, "")
        if held is None and not os.path.isfile(path):
            return  # a socket or the like, or removed by another way than the layer
        source = os.open(path, os.O_RDONLY) if held is None else os.dup(held)
        try:
            fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                _copy_bytes(source, fd)
                unsynced = self._state.unsynced.get(key)
                if unsynced is not None:
                    unsynced.restore(fd)
                    if self._keep is not None:
                        unsynced.survive(fd, self._keep)
            finally:
                os.close(fd)
        finally:
            os.close(source)
        self._built[key] = target


def _copy_bytes(source: int, target: int) -> None:
    """Copy a file; holes stay holes."""
    size, at = os.fstat(source).st_size, 0
    os.ftruncate(target, size)
    while at < size:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
        except OSError:  # only a hole is left
            return
        data = os.pread(source, min(1 << 20, os.lseek(source, at, os.SEEK_HOLE) - at), at)
        os.pwrite(target, data, at)
        at += len(data)
