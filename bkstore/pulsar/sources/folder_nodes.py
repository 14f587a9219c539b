"""FolderNodes: Pulsar's metadata in a folder that was copied from its metadata store."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from bkstore.errors import CorruptionError
from bkstore.files.opening import read_file
from bkstore.files.os_errors import convert_read_errors, is_absent
from bkstore.pulsar.sources.nodes import NodeValue, has_long_name, name_too_long

OWN_VALUE = ".data"
"""The file in a node's directory that has the node's own value."""

_MAX_VALUE_BYTES = 16 << 20


class FolderNodes:
    """Nodes of a folder: a node is a file with its value, or a directory with its children, whose
    file `OWN_VALUE` has the node's own value. Without that file the node's value is unknown, not
    empty; so is a node whose name is too long for a file. A tree that the folder does not have
    counts as left out of the copy. Raises `CorruptionError` for file names that are not UTF-8."""

    is_live = False
    is_complete = False

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder)
        self._newest_seconds: float | None = None

    @property
    def read_at(self) -> int | None:
        """The time of the newest file that has been read, as that of the copy."""
        return None if self._newest_seconds is None else int(self._newest_seconds * 1000)

    def list_children(self, paths: Iterable[str]) -> Iterator[list[str] | None]:
        """As `PulsarNodes.list_children`."""
        for path in paths:
            file = self.location_of(path)
            with convert_read_errors(file):
                try:
                    names = sorted({*os.listdir(file)} - {OWN_VALUE})
                except NotADirectoryError:
                    names = []
                except OSError as error:
                    if not is_absent(error):
                        raise
                    names = None
            yield None if names is None else _require_text(names, file)

    def read_many(self, paths: Iterable[str]) -> Iterator[NodeValue | CorruptionError | None]:
        """As `PulsarNodes.read_many`."""
        for path in paths:
            yield self._read(path)

    def _read(self, path: str) -> NodeValue | CorruptionError | None:
        """Return a node's value, None without such a node, or the error that it cannot be read."""
        file = self.location_of(path)
        with convert_read_errors(file):
            try:
                value_file = f"{file}/{OWN_VALUE}" if os.path.isdir(file) else file
                data = read_file(value_file, _MAX_VALUE_BYTES)
                modified = os.stat(value_file).st_mtime
                self._newest_seconds = max(self._newest_seconds or modified, modified)
                return NodeValue(data)
            except (FileNotFoundError, NotADirectoryError):
                if not os.path.isdir(file):
                    # Beneath a folder that is absent too, the system does not look at the name.
                    return name_too_long(file) if has_long_name(path) else None
                reason = f"the node's own value is not in the copy: no file {OWN_VALUE}"
                return CorruptionError(file, None, reason)
            except CorruptionError as error:
                return error
            except OSError as error:
                if error.errno != errno.ENAMETOOLONG:
                    raise
                return name_too_long(file)

    def location_of(self, path: str) -> str:
        """Return the path of the node's file or directory."""
        return f"{self.path}{path}"

    def close(self) -> None:
        """Do nothing."""


def _require_text(names: list[str], folder: str) -> list[str]:
    """Return the names of files; raises `CorruptionError` if one is not UTF-8."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            reason = f"the name of the file {name!r} is not UTF-8"
            raise CorruptionError(folder, None, reason) from None
    return names
