"""What `CrashFiles` records of files, names and databases, and the tree it builds from that.

The model is described in `bkstore.testing.crash`. A file's durable bytes are not stored whole:
they are its present bytes, with the saved sectors that changed since put back.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import NamedTuple

from bkstore.files.disk_changes import StrPath
from bkstore.index.rocks.files.running_copies import copy_running_database

SECTOR_BYTES = 512
"""Number of bytes that a disk writes whole or not at all."""

FileKey = tuple[int, int]
"""A file or directory: device and inode number."""

NameKey = tuple[FileKey, str]
"""A name in a directory."""

FileOfName = dict[NameKey, FileKey | None]
NamesByDirectory = dict[FileKey, dict[str, FileKey | None]]
"""Names and their files; None: no such name."""


def stat_key(info: os.stat_result) -> FileKey:
    """Return the key of a file from its status."""
    return info.st_dev, info.st_ino


def key_of(path: StrPath) -> FileKey | None:
    """Return the key of the file or directory at a path, or None if there is none."""
    try:
        return stat_key(os.lstat(path))
    except FileNotFoundError:
        return None


def name_key_of(path: StrPath) -> NameKey:
    """Return a path's directory and name. Raises `FileNotFoundError` without the directory."""
    folder, name = os.path.split(os.fspath(path))
    return stat_key(os.stat(folder or ".")), name


# -- bytes


class UnsyncedBytes:
    """The changes of one file since its last sync, and the sectors that they replaced."""

    def __init__(self, size: int) -> None:
        self.size = size
        """The durable length."""
        self._changes: list[tuple[int, bytes | None]] = []  # offset, data; None: truncated
        self._sectors: dict[int, bytes] = {}  # durable bytes of changed sectors

    def write(self, fd: int, offset: int, data: bytes) -> None:
        """Record a write before it is done."""
        self._save_sectors(fd, offset, offset + len(data))
        self._changes.append((offset, data))

    def truncate(self, fd: int, size: int) -> None:
        """Record a truncation or extension before it is done."""
        self._save_sectors(fd, size, self.size)
        self._changes.append((size, None))

    def _save_sectors(self, fd: int, start: int, stop: int) -> None:
        stop = min(stop, self.size)  # there is nothing durable beyond
        for sector in range(start // SECTOR_BYTES, -(-stop // SECTOR_BYTES)):
            if sector not in self._sectors:
                offset = sector * SECTOR_BYTES
                self._sectors[sector] = os.pread(fd, min(SECTOR_BYTES, self.size - offset), offset)

    def restore(self, fd: int) -> None:
        """Turn a copy of the present file into the durable version."""
        for sector, data in self._sectors.items():
            os.pwrite(fd, data, sector * SECTOR_BYTES)
        os.ftruncate(fd, self.size)

    def apply_surviving(self, fd: int, rng: random.Random) -> None:
        """Apply a random choice of the changes to the durable version; all have the same chance."""
        chance = rng.random()
        lost_sectors: set[int] = set()
        for offset, data in self._changes:
            if data is not None:
                _apply_surviving_sectors(fd, offset, data, lost_sectors, rng, chance)
            elif rng.random() < chance:
                os.ftruncate(fd, offset)
            else:
                return  # a lost truncation takes all later changes with it


def _apply_surviving_sectors(
    fd: int, offset: int, data: bytes, lost_sectors: set[int], rng: random.Random, chance: float
) -> None:
    """Apply one write: all or none of it, its first sectors, or some, but no sector of which an
    earlier write was lost. Add the sectors lost now to `lost_sectors`."""
    end = offset + len(data)
    sectors = range(offset // SECTOR_BYTES, -(-end // SECTOR_BYTES))
    # Choose what survives: everything, the first sectors, or each sector by chance.
    pattern = rng.choice(("all or none", "prefix", "scattered"))
    keep_all, prefix_length = rng.random() < chance, rng.randint(0, len(sectors))
    all_or_none = len(sectors) if keep_all else 0
    kept_count = prefix_length if pattern == "prefix" else all_or_none
    for i, sector in enumerate(sectors):
        survives = rng.random() < chance if pattern == "scattered" else i < kept_count
        if not survives:
            lost_sectors.add(sector)
        elif sector not in lost_sectors:
            start, stop = max(offset, sector * SECTOR_BYTES), min(end, (sector + 1) * SECTOR_BYTES)
            os.pwrite(fd, data[start - offset : stop - offset], start)
    if rng.random() < chance / 4 and os.fstat(fd).st_size < end:  # the length without the bytes
        os.ftruncate(fd, end)


# -- names


class NameChange(NamedTuple):
    """One change: the new files of names, and all names and files that it involves."""

    new_files: FileOfName
    touched: frozenset[object]


class UnsyncedNames:
    """The changed names that are not durable, by directory."""

    def __init__(self) -> None:
        self.durable: NamesByDirectory = {}
        """The durable file of each name with pending changes."""
        self._pending_changes: dict[int, NameChange] = {}  # by number, in order
        self._pending_numbers_in: dict[FileKey, list[int]] = {}
        self._change_numbers = count()

    def add(self, new_files: FileOfName, old_files: FileOfName) -> None:
        """Record one change: the files that names have now, None for a removal. `old_files` has the
        files of those names that existed: durable unless the names have pending changes."""
        change_number = next(self._change_numbers)
        touched = {*new_files, *new_files.values(), *old_files.values()} - {None}
        self._pending_changes[change_number] = NameChange(new_files, frozenset(touched))
        for name_key in new_files:
            folder, name = name_key
            self.durable.setdefault(folder, {}).setdefault(name, old_files.get(name_key))
            self._pending_numbers_in.setdefault(folder, []).append(change_number)

    def make_durable(self, folder: FileKey, last_change: float = float("inf")) -> None:
        """Make the changes in a directory durable, up to the number `last_change`. A rename from or
        to another directory makes the earlier changes there durable, too."""
        # Take the pending changes of this directory up to the last one; keep the later ones.
        pending = self._pending_numbers_in.pop(folder, [])
        later = [number for number in pending if number > last_change]
        # For each other directory that these changes touch: the number of the last that does.
        last_settled_in: dict[FileKey, int] = {}
        for number in pending[: len(pending) - len(later)]:
            change = self._pending_changes.pop(number, None)  # None: settled by the other directory
            for (parent, name), key in change.new_files.items() if change else ():
                self.durable.setdefault(parent, {})[name] = key
                if parent != folder:
                    last_settled_in[parent] = number
        # `durable` has only names with pending changes: drop the others of this directory.
        names = self.durable.pop(folder, {})
        if later:
            self._pending_numbers_in[folder] = later
            changed = {key for number in later for key in self._pending_changes[number].new_files}
            own_names = [name for parent, name in changed if parent == folder]
            self.durable[folder] = {name: names[name] for name in own_names}
        for parent, number in last_settled_in.items():
            self.make_durable(parent, number)

    def referenced_files(self) -> set[FileKey | None]:
        """Return the files that may have a changed name after a crash."""
        keys = {key for names in self.durable.values() for key in names.values()}
        keys.update(*(change.new_files.values() for change in self._pending_changes.values()))
        return keys

    def choose_surviving(self, rng: random.Random | None) -> NamesByDirectory:
        """Return the names after a power loss: the durable ones, changed by a random choice of the
        pending changes (none without `rng`)."""
        surviving = {folder: dict(names) for folder, names in self.durable.items()}
        if rng is None:
            return surviving
        chance = rng.random()
        lost_names_and_files: set[object] = set()
        for change in self._pending_changes.values():
            if lost_names_and_files & change.touched or rng.random() >= chance:
                lost_names_and_files |= change.touched  # later changes of these are lost, too
                continue
            for (folder, name), key in change.new_files.items():
                surviving[folder][name] = key
        return surviving


# -- databases


def log_lengths(path: StrPath) -> dict[str, int]:
    """Return the lengths of a database's write-ahead logs, by name."""
    return {log.name: log.stat().st_size for log in Path(path).glob("*.log")}


def _truncate_logs(folder: Path, synced_lengths: dict[str, int], rng: random.Random | None) -> None:
    """Truncate write-ahead logs to their synced lengths; with `rng`, some keep unsynced bytes, too.
    A log keeps any only if all earlier ones are whole.

    Names stay: RocksDB syncs the directory after opening a database, and before a manifest drops
    the previous log (seen by tracing 9.8.4). Until then an empty log is as good as none.
    """
    earlier_logs_whole = True
    for log in sorted(folder.glob("*.log")):
        size = log.stat().st_size
        kept_size = min(synced_lengths.get(log.name, 0), size)
        if rng is not None and earlier_logs_whole:
            kept_size = rng.choice((kept_size, size, rng.randint(kept_size, size)))
        earlier_logs_whole = kept_size == size
        os.truncate(log, kept_size)


# -- the tree that is left


@dataclass
class UnsyncedState:
    """Everything that is not durable."""

    bytes_of_file: dict[FileKey, UnsyncedBytes] = field(default_factory=dict)
    names: UnsyncedNames = field(default_factory=UnsyncedNames)
    nameless_fds: dict[FileKey, int] = field(default_factory=dict)
    """Open descriptors of files without a name."""
    databases: dict[FileKey, tuple[str, dict[str, int]]] = field(default_factory=dict)
    """The paths of databases (or of their copies), and the durable lengths of their logs."""

    def move_databases(self, source: str, target: str) -> None:
        """Record a new name of a directory, for the databases in it."""
        for key, (path, lengths) in self.databases.items():
            if path == source or path.startswith(source + os.sep):
                self.databases[key] = (target + path[len(source) :], lengths)


class CrashImage:
    """One power loss: the names that survive, and their files. `rng` chooses unsynced changes."""

    def __init__(self, state: UnsyncedState, root: str, rng: random.Random | None) -> None:
        """Choose which names survive, and note where each file is now."""
        self._state = state
        self._rng = rng
        self._surviving_names = state.names.choose_surviving(rng)
        self._directory_paths: dict[FileKey, str] = {}
        self._file_paths: dict[FileKey, str] = {}
        for folder, _, names in os.walk(root):  # present paths: not all names survive
            self._directory_paths[stat_key(os.stat(folder))] = folder
            for name in names:
                path = os.path.join(folder, name)
                self._file_paths[stat_key(os.lstat(path))] = path
        self._built_files: dict[FileKey, Path] = {}  # for further names of the same file

    def build(self, source: str, target: Path) -> None:
        """Build in `target` what a power loss leaves of the directory `source`."""
        source_key = stat_key(os.stat(source))
        if source_key in self._state.databases:
            path, synced_lengths = self._state.databases[source_key]
            copy_running_database(path, target)
            _truncate_logs(target, synced_lengths, self._rng)
            return
        # The present names, with the surviving version of those that have unsynced changes.
        names = {name: key_of(os.path.join(source, name)) for name in os.listdir(source)}
        names.update(self._surviving_names.get(source_key, {}))
        for name, key in sorted(names.items()):
            if key in self._directory_paths:
                (target / name).mkdir()
                self.build(self._directory_paths[key], target / name)
            elif key in self._built_files:
                os.link(self._built_files[key], target / name)
            elif key is not None:  # None: the name does not survive
                self._build_file(key, target / name)

    def _build_file(self, key: FileKey, target: Path) -> None:
        """Copy a file's present bytes, take back its unsynced changes, and redo those that survive.
        A file that has no name any more is read from its held descriptor."""
        held_fd, path = self._state.nameless_fds.get(key), self._file_paths.get(key, "")
        if held_fd is None and not os.path.isfile(path):
            return  # a socket or the like, or removed bypassing the layer
        source_fd = os.open(path, os.O_RDONLY) if held_fd is None else os.dup(held_fd)
        try:
            target_fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                _copy_sparse(source_fd, target_fd)
                unsynced = self._state.bytes_of_file.get(key)
                if unsynced is not None:
                    unsynced.restore(target_fd)
                    if self._rng is not None:
                        unsynced.apply_surviving(target_fd, self._rng)
            finally:
                os.close(target_fd)
        finally:
            os.close(source_fd)
        self._built_files[key] = target


def _copy_sparse(source: int, target: int) -> None:
    """Copy a file; holes stay holes."""
    size, start = os.fstat(source).st_size, 0
    os.ftruncate(target, size)
    while start < size:
        try:
            start = os.lseek(source, start, os.SEEK_DATA)
        except OSError:  # only a hole is left
            return
        data = os.pread(source, min(1 << 20, os.lseek(source, start, os.SEEK_HOLE) - start), start)
        os.pwrite(target, data, start)
        start += len(data)
