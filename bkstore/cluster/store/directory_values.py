"""Versioned values in a directory: a file a key, replaced whole.

A file has one line, ``BKSTORE-VALUE``, format version, value version and a CRC32, with TABs
between them, then the value. The CRC32 is over key, value version and value, so that a flipped
bit, a cut file and one in a wrong place are all found. ``BKSTORE-METADATA`` in the directory
says what it is; ``lock`` is held by whoever changes a value. Page:
`docs/formats/ledgermetadata.md`.
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
from bkstore.files.lock_files import held_lock, let_go
from bkstore.files.opening import read_whole
from bkstore.files.os_errors import readable, writing

MARKER = "BKSTORE-METADATA"
VERSION = 1
KINDS = ("tree", "keys")
LOCK = "lock"
_SCRATCH = ".tmp"
VALUE_LIMIT = 16 << 20
"""Bytes that a value's file may have; upstream's stores take some 1 MiB."""
_MARKER_LIMIT = 1 << 16

_HEAD = re.compile(rb"BKSTORE-VALUE\t([0-9]{1,9})\t([0-9]{1,18})\t([0-9a-f]{8})\n")
_KEY = re.compile(r"(?:/(?!\.\.?(?:/|$))[!-.0-~]+)+")


def _crc(key: str, version: int, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(f"{key}\n{version}\n".encode("ascii")))


def encode_value(key: str, version: int, data: bytes) -> bytes:
    """Return the bytes of the file that keeps a value."""
    head = f"BKSTORE-VALUE\t{VERSION}\t{version}\t{_crc(key, version, data):08x}\n"
    return head.encode("ascii") + data


def decode_value(key: str, content: bytes) -> Value:
    """Return the value in a file's bytes; `CorruptionError` if they are not what was written."""
    found = _HEAD.match(content)
    if not found:
        raise CorruptionError(None, 0, "no value file: its first line is another")
    if int(found[1]) != VERSION:
        raise UnsupportedLayout(f"value file of format {int(found[1])}, known is {VERSION}")
    version, data = int(found[2]), content[found.end() :]
    if _crc(key, version, data) != int(found[3], 16):
        raise CorruptionError(None, found.start(3), "checksum of key, version and value differs")
    return Value(data, version, base=found.end())


def is_store(path: str | os.PathLike[str]) -> bool:
    """Return whether a directory says that it is a metadata store."""
    return os.path.lexists(Path(path) / MARKER)


class DirectoryValues:
    """`KeyValues` in a directory. Threads and processes may share it; keeps nothing open.

    A call reads or writes one file; `keys` reads the directories below its prefix. `kind` is
    what the layout of its keys is called, as the directory says.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: str | None = None,
        *,
        sync: bool = True,
        read_only: bool = False,
        files: Files = OS_FILES,
    ) -> None:
        self.path = Path(path)
        self.read_only = read_only
        self._sync = sync
        self._files = files
        if kind not in (None, *KINDS):
            raise InvalidArgument(f"unknown layout {kind!r}: {' or '.join(KINDS)}")
        if not is_store(self.path):
            self._make(kind or KINDS[0])
        self.kind = self._read_marker()
        if kind not in (None, self.kind):
            raise UnsupportedLayout(f"{self.path} has the layout {self.kind}, not {kind}")

    def _make(self, kind: str) -> None:
        if self.read_only or (self.path.exists() and not self._empty()):
            raise UnsupportedLayout(f"{self.path} is no metadata store: it has no {MARKER}")
        with writing(self.path):
            self._files.makedirs(self.path)
            text = f"{MARKER}\n{VERSION}\n{kind}\n"
            self._files.write_file(self.path / MARKER, text.encode("ascii"))

    def _empty(self) -> bool:
        with readable(self.path):
            return not set(os.listdir(self.path)) - {MARKER + _SCRATCH}

    def _read_marker(self) -> str:
        path = self.path / MARKER
        with readable(path):
            lines = read_whole(path, _MARKER_LIMIT).split(b"\n")
        if len(lines) != 4 or lines[0] != MARKER.encode("ascii") or not lines[1].isdigit():
            raise CorruptionError(path, 0, f"marker does not say {MARKER}, version and layout")
        if lines[1] != b"%d" % VERSION or lines[2].decode("latin-1") not in KINDS:
            raise UnsupportedLayout(f"{path}: version or layout is not known: {lines[1:3]!r:.80}")
        return lines[2].decode("ascii")

    def where(self, key: str) -> str:
        """Return the path of the key's file; `InvalidArgument` for what is no key."""
        if not _KEY.fullmatch(key) or key.endswith(_SCRATCH):
            raise InvalidArgument(f"not a key: {key!r}")
        return f"{self.path}{key}"

    def get(self, key: str) -> Value | None:
        """As `KeyValues.get`."""
        file = self.where(key)
        with readable(file):
            try:
                content = read_whole(file, VALUE_LIMIT)
            except FileNotFoundError:
                return None
        try:
            return decode_value(key, content)._replace(file=file)
        except CorruptionError as error:
            raise error.within(file) from None

    def put(self, key: str, data: bytes, expected: int | None) -> int:
        """As `KeyValues.put`."""
        file = self.where(key)
        with self._locked():
            there = self.get(key)
            check_version(key, None if there is None else there.version, expected)
            version = 0 if there is None else there.version + 1
            with writing(file):
                self._files.makedirs(os.path.dirname(file))
                self._files.write_file(file, encode_value(key, version, data), self._sync)
        return version

    def delete(self, key: str, expected: int | None) -> bool:
        """As `KeyValues.delete`; any version may be asked for of a value that is damaged."""
        file = self.where(key)
        with self._locked():
            if expected is not None:
                there = self.get(key)
                if there is None:
                    return False
                check_version(key, there.version, expected)
            with writing(file):
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
        found = (f"{top}/{name}" for name in walk(f"{self.path}{top}"))
        own = {f"/{MARKER}", f"/{LOCK}"}
        return sorted(key for key in found if key.startswith(prefix) and key not in own)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of all who change values, threads of this process included."""
        if self.read_only:
            raise ReadOnlyError(f"{self.path} is open for reading")
        path = self.path / LOCK
        fd = held_lock(path, f"{self.path} is being changed", wait=True)
        try:
            yield
        finally:
            let_go(fd)


def walk(top: str) -> Iterator[str]:
    """Yield the paths of files below `top`, and of empty folders, which may stand for one.

    A folder that is not there has none.
    """
    with readable(top):
        try:
            entries = list(os.scandir(top))
        except FileNotFoundError:
            return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            below = [f"{entry.name}/{name}" for name in walk(entry.path)]
            yield from below or [entry.name]
        elif not entry.name.endswith(_SCRATCH):
            yield entry.name
