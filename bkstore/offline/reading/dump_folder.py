"""The folder of a dump, local or remote: reading its text files, locating the others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.files.opening import read_file
from bkstore.files.os_errors import convert_read_errors
from bkstore.offline.reading.file_locations import is_remote, local_path, remote_file_system


class DumpFolder:
    """A folder at a path, a ``file:`` URI or another URI; raises as `remote_file_system` does."""

    def __init__(self, location: str | os.PathLike[str]) -> None:
        text = os.fspath(location)
        self.is_remote = is_remote(text)
        self.location = text.rstrip("/") if self.is_remote else local_path(text)
        """The URI, or the path."""
        if self.is_remote:
            self._system, self._path = remote_file_system(self.location)

    def __str__(self) -> str:
        return self.location

    def absolute(self) -> str:
        """Return the URI, or the absolute path."""
        return self.location if self.is_remote else os.path.abspath(self.location)

    def has(self, name: str) -> bool:
        """Return whether the folder has a file or folder of this name."""
        if not self.is_remote:
            return os.path.lexists(Path(self.location) / name)
        return bool(self._file_type(f"{self._path.rstrip('/')}/{name}") != "NotFound")

    def locate_file(self, relative_path: Any, manifest: str) -> str:
        """Return the path or URI of a file from its path in the dump, as `manifest` has it.

        Raises `CorruptionError` for a path that leaves the dump: absolute, upward, or through a
        local symbolic link.
        """
        parts = relative_path.split("/") if isinstance(relative_path, str) else []
        if not parts or "\0" in relative_path or any(part in ("", ".", "..") for part in parts):
            reason = f"{relative_path!r:.80} is not a path in the dump"
            raise CorruptionError(self.locate(manifest), None, reason)
        if self.is_remote:
            return self.locate(relative_path)
        path = Path(self.absolute(), *parts)
        real_path, real_folder = os.path.realpath(path), os.path.realpath(self.location)
        if os.path.commonpath([real_path, real_folder]) != real_folder:
            reason = f"{relative_path!r:.80} leads outside the dump: to {real_path}"
            raise CorruptionError(self.locate(manifest), None, reason)
        return str(path)

    def locate(self, name: str) -> str:
        """Return the path or URI of a name in the folder."""
        if not self.is_remote:
            return os.path.join(self.location, name)
        base, question_mark, options = self.location.partition("?")
        return f"{base.rstrip('/')}/{name}{question_mark}{options}"

    def read(self, name: str, max_bytes: int) -> bytes:
        """Return the bytes of a text file of at most `max_bytes` bytes.

        Raises `InvalidArgument` if it does not exist, and as `read_file` does.
        """
        with convert_read_errors(self.locate(name)):
            try:
                if not self.is_remote:
                    return read_file(self.locate(name), max_bytes, text=True)
                return self._read_remote(name, max_bytes)
            except (FileNotFoundError, NotADirectoryError):
                raise self.missing_file_error(name) from None

    def _read_remote(self, name: str, limit: int) -> bytes:
        with self._system.open_input_file(f"{self._path.rstrip('/')}/{name}") as file:
            if file.size() > limit:
                reason = f"is longer than the limit of {limit} bytes"
                raise CorruptionError(self.locate(name), limit, reason)
            return bytes(file.read())

    def missing_file_error(self, name: str) -> InvalidArgument:
        """Return the error for a folder that is not a dump because it lacks `name`."""
        if not self.is_remote:
            return not_a_dump_error(self.location, name)
        file_type = self._file_type(self._path)
        if file_type == "NotFound":
            return InvalidArgument(f"{self.location}: no such directory")
        if file_type == "File":
            return InvalidArgument(f"{self.location}: is not a directory, as a dump must be")
        return InvalidArgument(f"{self.location}: not a dump: it has no {name}")

    def _file_type(self, path: str) -> str:
        with convert_read_errors(self.location):
            return str(self._system.get_file_info(path).type.name)


def not_a_dump_error(path: str | os.PathLike[str], missing_name: str) -> InvalidArgument:
    """Return the error for a path that is missing, a file, or a folder without `missing_name`.

    >>> str(not_a_dump_error("nowhere", "manifest.json"))
    'nowhere: no such directory'
    """
    if not os.path.lexists(path):
        return InvalidArgument(f"{path}: no such directory")
    if not os.path.isdir(path):
        return InvalidArgument(f"{path}: is not a directory, as a dump must be")
    return InvalidArgument(f"{path}: not a dump: it has no {missing_name}")
