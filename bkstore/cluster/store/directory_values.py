"""Versioned values in a directory: one file for each key, replaced atomically.

A file starts with a line of ``BKSTORE-VALUE``, format version, value version and a CRC32, separated
by TABs; the value follows. The CRC32 covers key, value version and value: it detects a flipped bit,
a truncated file and a wrong name. ``BKSTORE-METADATA`` marks the directory as a store; ``lock`` is
held while a value is changed. Page: `docs/formats/ledgermetadata.md`.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bkstore.cluster.store.api import Value
from bkstore.cluster.store.memory_values import check_version
from bkstore.errors import CorruptionError, InvalidArgument, ReadOnlyError, UnsupportedLayout
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.lock_files import acquire_lock, release_lock
from bkstore.files.opening import read_file
from bkstore.files.os_errors import convert_read_errors, convert_write_errors

MARKER_NAME = "BKSTORE-METADATA"
FORMAT_VERSION = 1
LAYOUTS = ("tree", "keys")
LOCK_FILE_NAME = "lock"
_TEMPORARY_SUFFIX = ".tmp"
MAX_VALUE_BYTES = 16 << 20
"""Maximum bytes of a value's file; BookKeeper's stores accept about 1 MiB."""
_MAX_MARKER_BYTES = 1 << 16

_HEAD_PATTERN = re.compile(rb"BKSTORE-VALUE\t([0-9]{1,9})\t([0-9]{1,18})\t([0-9a-f]{8})\n")
_KEY_PATTERN = re.compile(r"(?:/(?!\.\.?(?:/|$))[!-.0-~]+)+")


def _value_crc(key: str, version: int, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(f"{key}\n{version}\n".encode("ascii")))


def encode_value(key: str, version: int, data: bytes) -> bytes:
    """Return the content of a value's file."""
    head = f"BKSTORE-VALUE\t{FORMAT_VERSION}\t{version}\t{_value_crc(key, version, data):08x}\n"
    return head.encode("ascii") + data


def decode_value(key: str, content: bytes) -> Value:
    """Return the value in a file's content; raises `CorruptionError` if it is damaged."""
    head_match = _HEAD_PATTERN.match(content)
    if not head_match:
        raise CorruptionError(None, 0, "not a value file: its first line is different")
    file_format, version, stored_crc = head_match.groups()
    if int(file_format) != FORMAT_VERSION:
        message = f"value file has format {int(file_format)}, supported is {FORMAT_VERSION}"
        raise UnsupportedLayout(message)
    version, data = int(version), content[head_match.end() :]
    if _value_crc(key, version, data) != int(stored_crc, 16):
        reason = "checksum of key, version and value does not match"
        raise CorruptionError(None, head_match.start(3), reason)
    return Value(data, version, data_offset=head_match.end())


def is_store(path: str | os.PathLike[str]) -> bool:
    """Return whether a directory is marked as a metadata store."""
    return os.path.lexists(Path(path) / MARKER_NAME)


class DirectoryValues:
    """`KeyValues` in a directory. Threads and processes may share it; it keeps no file open.

    A call reads or writes one file; `keys` reads the directories below its prefix. `layout` is the
    layout of the keys, from the directory's marker.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        layout: str | None = None,
        *,
        sync: bool = True,
        read_only: bool = False,
        files: Files = OS_FILES,
    ) -> None:
        """Open the store, or create it if there is none."""
        self.path = Path(path)
        self.read_only = read_only
        self._sync = sync
        self._files = files
        if layout not in (None, *LAYOUTS):
            raise InvalidArgument(f"unknown layout {layout!r}: {' or '.join(LAYOUTS)}")
        if not is_store(self.path):
            self._create_store(layout or LAYOUTS[0])
        self.layout = self._read_marker()
        if layout not in (None, self.layout):
            raise UnsupportedLayout(f"{self.path} has the layout {self.layout}, not {layout}")

    def _create_store(self, layout: str) -> None:
        if self.read_only or (self.path.exists() and not self._is_empty()):
            raise UnsupportedLayout(f"{self.path} is not a metadata store: it has no {MARKER_NAME}")
        with convert_write_errors(self.path):
            self._files.makedirs(self.path)
            text = f"{MARKER_NAME}\n{FORMAT_VERSION}\n{layout}\n"
            self._files.write_file(self.path / MARKER_NAME, text.encode("ascii"))

    def _is_empty(self) -> bool:
        with convert_read_errors(self.path):
            return not set(os.listdir(self.path)) - {MARKER_NAME + _TEMPORARY_SUFFIX}

    def _read_marker(self) -> str:
        """Return the layout that the store's marker file states. Raises `CorruptionError` if it is
        damaged, `UnsupportedLayout` for another format version or an unknown layout."""
        path = self.path / MARKER_NAME
        with convert_read_errors(path):
            lines = read_file(path, _MAX_MARKER_BYTES).split(b"\n")
        # Three lines (see `_create_store`), and nothing after them.
        if len(lines) != 4 or lines[0] != MARKER_NAME.encode("ascii") or not lines[1].isdigit():
            reason = f"marker does not state {MARKER_NAME}, version and layout"
            raise CorruptionError(path, 0, reason)
        if lines[1] != b"%d" % FORMAT_VERSION or lines[2].decode("latin-1") not in LAYOUTS:
            message = f"{path}: version or layout is not supported: {lines[1:3]!r:.80}"
            raise UnsupportedLayout(message)
        return lines[2].decode("ascii")

    def location_of(self, key: str) -> str:
        """Return the path of the key's file; raises `InvalidArgument` for an invalid key."""
        if not _KEY_PATTERN.fullmatch(key) or key.endswith(_TEMPORARY_SUFFIX):
            raise InvalidArgument(f"not a key: {key!r}")
        return f"{self.path}{key}"

    def get(self, key: str) -> Value | None:
        """Return the value in the file of a key, None if there is none."""
        file = self.location_of(key)
        with convert_read_errors(file):
            try:
                content = read_file(file, MAX_VALUE_BYTES)
            except FileNotFoundError:
                return None
        try:
            return decode_value(key, content)._replace(file=file)
        except CorruptionError as error:
            raise error.relocate(file) from None

    def put(self, key: str, data: bytes, expected: int | None) -> int:
        """Write a value into the file of its key and return its version. Raises `BadVersion` unless
        the stored version is `expected` (None: there is no value)."""
        file = self.location_of(key)
        with self._hold_lock():
            current = self.get(key)
            check_version(key, None if current is None else current.version, expected)
            version = 0 if current is None else current.version + 1
            with convert_write_errors(file):
                self._files.makedirs(os.path.dirname(file))
                self._files.write_file(file, encode_value(key, version, data), self._sync)
        return version

    def delete(self, key: str, expected: int | None) -> bool:
        """Remove the file of a key; return whether it was there. Raises `BadVersion` unless the
        stored version is `expected`; None removes any value, also a damaged one."""
        file = self.location_of(key)
        with self._hold_lock():
            if expected is not None:
                current = self.get(key)
                if current is None:
                    return False
                check_version(key, current.version, expected)
            with convert_write_errors(file):
                try:
                    self._files.unlink(file)
                except FileNotFoundError:
                    return False
                if self._sync:
                    self._files.sync_dir(os.path.dirname(file))
        return True

    def keys(self, prefix: str) -> list[str]:
        """As `KeyValues.keys`."""
        top = prefix.rpartition("/")[0]
        all_keys = (f"{top}/{name}" for name in walk_files(f"{self.path}{top}"))
        store_files = {f"/{MARKER_NAME}", f"/{LOCK_FILE_NAME}"}
        return sorted(key for key in all_keys if key.startswith(prefix) and key not in store_files)

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Hold the lock for changes, also against other threads of this process."""
        if self.read_only:
            raise ReadOnlyError(f"{self.path} is open for reading")
        path = self.path / LOCK_FILE_NAME
        fd = acquire_lock(path, f"{self.path} is being changed", wait=True)
        try:
            yield
        finally:
            release_lock(fd)


def walk_files(top: str) -> Iterator[str]:
    """Yield relative paths of files below `top`, if it exists, and of empty folders, each of which
    stands for a node without a value."""
    with convert_read_errors(top):
        try:
            entries = list(os.scandir(top))
        except FileNotFoundError:
            return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            child_paths = [f"{entry.name}/{name}" for name in walk_files(entry.path)]
            yield from child_paths or [entry.name]
        elif not entry.name.endswith(_TEMPORARY_SUFFIX):
            yield entry.name
