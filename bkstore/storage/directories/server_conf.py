"""Reads a `bk_server.conf` and the files that it includes, as BookKeeper reads it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from bkstore.errors import CorruptionError, InvalidArgument, UnsupportedLayout
from bkstore.files.opening import open_for_reading
from bkstore.formats.syntax.configuration import Configuration, single_or_list
from bkstore.formats.syntax.properties_text import Property, parse_properties
from bkstore.formats.syntax.variables import Lookup, Value, VariableResolver

_MAX_FILE_BYTES = 1 << 20
_MAX_FILES = 100
_URL_PREFIX = re.compile(r"(file|ftp|https?|jar|jrt|mailto):", re.IGNORECASE)
_UNSUPPORTED_LOOKUPS = (
    *("base64Decoder", "base64Encoder", "const", "date", "file", "java", "localhost"),
    *("properties", "resourceBundle", "urlDecoder", "urlEncoder", "xml"),
)
"""Look-ups that BookKeeper supports by default, useless in a bookie's configuration."""


def read_server_conf(path: Path) -> Configuration:
    """Return the properties of a `bk_server.conf` and of the files that it includes.

    Names of included files are relative to the folder of the including file. ``${env:NAME}`` is
    from this process's environment; ``${sys:NAME}`` is supported for the user and the temporary
    folder. Other look-ups raise an error when the value is read. Raises `UnsupportedLayout` if a
    file is not text or missing, or includes itself; `CorruptionError` for an invalid escape.
    """
    loader = _Loader()
    loader.load(path)
    return Configuration(loader.loaded, _LOOKUPS)


def flatten_server_conf(path: Path, without: str = "") -> bytes:
    """Return the bytes of a `bk_server.conf` with included files inserted in their place, without
    the lines of the key `without`. Raises what `read_server_conf` raises."""
    loader = _Loader(without)
    loader.load(path)
    return b"".join(loader.text)


def not_a_conf_error(path: Path, reason: str) -> UnsupportedLayout:
    """Return the error for a file given as a bookie that is not a `bk_server.conf`."""
    return UnsupportedLayout(
        f"{path}: is a file, but not a bk_server.conf (it {reason}): give a bookie's directory or "
        "its bk_server.conf"
    )


class _Loader:
    """The properties of a file and of the files that it includes, in the order of their lines;
    `text` has their bytes, without include lines and the lines of the key `without`."""

    def __init__(self, without: str = "") -> None:
        self.loaded: dict[str, list[str]] = {}
        self.text: list[bytes] = []
        self._excluded_key = without
        self._open_includes: list[Path] = []
        self._file_count = 0

    def load(self, path: Path) -> None:
        """Add a file's properties to `loaded`, its bytes to `text`, those of included files too."""
        self._file_count += 1
        if self._file_count > _MAX_FILES:
            raise UnsupportedLayout(f"{path}: more than {_MAX_FILES} files include each other")
        data, position = _read_content(path), 0
        try:
            for prop in parse_properties(data):
                self.text.append(data[position : prop.begin])  # comments between the properties
                if prop.key.lower() in ("include", "includeoptional"):
                    self._load_included(path, prop)
                else:
                    self.loaded.setdefault(prop.key, []).append(prop.value)
                    if prop.key != self._excluded_key:
                        self.text.append(data[prop.begin : prop.end])
                position = prop.end
        except CorruptionError as error:
            # An error in an included file names that file already.
            raise error if error.file is not None else error.relocate(path) from None
        # What follows the last property is left out: comments, or an unfinished continuation line.
        if not data[:position].endswith((b"\n", b"\r")):
            self.text.append(b"\n")

    def _load_included(self, path: Path, prop: Property) -> None:
        """Load the file that an include line of `path` names; only `includeOptional` permits that
        it is missing. Raises `UnsupportedLayout` if files include each other in a circle."""
        # The value is one file name: a comma is part of it.
        name = self._resolve_variables(path, prop.value)
        included = path.parent / name if name else path  # an empty name means the file itself
        if not _file_exists(included):
            if prop.key.lower() == "include":
                raise UnsupportedLayout(f"{path}: includes {included}, which does not exist")
            return
        # BookKeeper drops the first name of its stack after a file, not the last, and so refuses
        # some files that are included twice. That detects every circle, too.
        if included.resolve() in self._open_includes:
            raise UnsupportedLayout(f"{path}: includes {included}, which is already being read")
        self._open_includes.append(included.resolve())
        self.load(included)
        self._open_includes.pop(0)

    def _resolve_variables(self, path: Path, name: str) -> str:
        """Return the name of an included file, with variables replaced by keys read so far."""
        values: dict[str, Value] = {k: single_or_list(items) for k, items in self.loaded.items()}
        try:
            resolved = VariableResolver(values, _LOOKUPS).replace(name)
        except InvalidArgument as error:
            raise UnsupportedLayout(f"{path}: includes {name}: {error}") from None
        if not isinstance(resolved, str) or _URL_PREFIX.match(resolved) or "\0" in resolved:
            raise UnsupportedLayout(f"{path}: includes {name!r}, which is not a file path")
        return resolved


def _file_exists(path: Path) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _read_content(path: Path) -> bytes:
    """Return the bytes of a configuration file; raises if it is too long, or not text."""
    with open_for_reading(path) as file:
        data = file.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES or b"\0" in data:
        raise not_a_conf_error(path, "is longer" if len(data) > _MAX_FILE_BYTES else "is not text")
    return data


def _user_name() -> str:
    import getpass

    return getpass.getuser()


def _temporary_dir() -> str:
    import tempfile

    return tempfile.gettempdir()


_SYSTEM_PROPERTIES: Mapping[str, Callable[[], str]] = {
    "user.home": lambda: os.path.expanduser("~"),
    "user.dir": os.getcwd,
    "user.name": _user_name,
    "java.io.tmpdir": _temporary_dir,
}


def _system_property(name: str) -> str:
    """Return a property of the JVM that is the same here; raises for any other."""
    if name not in _SYSTEM_PROPERTIES:
        reason = "is a property of the bookie's JVM: replace it by its value"
        raise InvalidArgument(f"${{sys:{name}}} {reason}")
    return _SYSTEM_PROPERTIES[name]()


def _refuse_lookups(prefix: str) -> Lookup:
    def refuse(name: str) -> NoReturn:
        raise InvalidArgument(f"${{{prefix}:{name}}} is not supported: replace it by its value")

    return refuse


_LOOKUPS: dict[str, Lookup] = {
    "env": os.environ.get,
    "sys": _system_property,
    **{prefix: _refuse_lookups(prefix) for prefix in _UNSUPPORTED_LOOKUPS},
}
