"""Reading a `bk_server.conf`, and the files that it includes, as BookKeeper reads it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from bkstore.errors import CorruptionError, InvalidArgument, UnsupportedLayout
from bkstore.files.opening import opened
from bkstore.formats.syntax.configuration import Configuration, value_of
from bkstore.formats.syntax.properties_text import Property, parse_properties
from bkstore.formats.syntax.variables import Lookup, Value, Variables

_LIMIT = 1 << 20
_MOST_FILES = 100
_URL = re.compile(r"(file|ftp|https?|jar|jrt|mailto):", re.IGNORECASE)
_NOT_LOOKED_UP = [
    "base64Decoder",
    "base64Encoder",
    "const",
    "date",
    "file",
    "java",
    "localhost",
    "properties",
    "resourceBundle",
    "urlDecoder",
    "urlEncoder",
    "xml",
]
"""Look-ups that a JVM makes by default, of no use in a bookie's configuration."""


def read_server_conf(path: Path) -> Configuration:
    """Return the properties of a `bk_server.conf` and of what it includes.

    A relative name of an included file is taken from the folder of the file that includes it.
    ``${env:NAME}`` is of this process's environment; ``${sys:NAME}`` is known for the user and
    the temporary folder, and others are refused where they are read, as are all other look-ups.

    Raises `UnsupportedLayout` for what is no text, for an included file that is not there and
    for files that include each other; `CorruptionError` for an escape that is none.
    """
    loader = _Loader()
    loader.load(path)
    return Configuration(loader.loaded, _LOOKUPS)


def flat_server_conf(path: Path, without: str = "") -> bytes:
    """Return the bytes of a `bk_server.conf` with those that it includes in their place.

    The lines of the key `without` are left out. Raises as `read_server_conf`.
    """
    loader = _Loader(without)
    loader.load(path)
    return b"".join(loader.text)


def no_conf(path: Path, why: str) -> UnsupportedLayout:
    """Return the error for a file that is given for a bookie."""
    return UnsupportedLayout(
        f"{path}: is a file, and no bk_server.conf (it {why}): a bookie's directory is wanted, or "
        "its bk_server.conf"
    )


class _Loader:
    """The properties of a file and of those that it includes, in the order of their lines.

    `text` are their bytes, but for the lines of the key `without` and for those that include.
    """

    def __init__(self, without: str = "") -> None:
        self.loaded: dict[str, list[str]] = {}
        self.text: list[bytes] = []
        self._without = without
        self._seen: list[Path] = []
        self._files = 0

    def load(self, path: Path) -> None:
        """Add a file's properties, and where it includes others theirs."""
        self._files += 1
        if self._files > _MOST_FILES:
            raise UnsupportedLayout(f"{path}: more than {_MOST_FILES} files include each other")
        data, position = _content(path), 0
        try:
            for found in parse_properties(data):
                self.text.append(data[position : found.begin])
                if found.key.lower() in ("include", "includeoptional"):
                    self._include(path, found)
                else:
                    self.loaded.setdefault(found.key, []).append(found.value)
                    if found.key != self._without:
                        self.text.append(data[found.begin : found.end])
                position = found.end
        except CorruptionError as error:
            raise error if error.file is not None else error.within(path) from None
        # Behind the last property are comments, and a line whose continuation does not come.
        if not data[:position].endswith((b"\n", b"\r")):
            self.text.append(b"\n")

    def _include(self, path: Path, found: Property) -> None:
        # One file: a comma is part of its name.
        name = self._replaced(path, found.value)
        included = path.parent / name if name else path
        if not _is_there(included):
            if found.key.lower() == "include":
                raise UnsupportedLayout(f"{path}: includes {included}, which is not there")
            return
        # Upstream drops the name that it saw first, not the one that it has just read, so it
        # refuses some files that are included twice. Every circle is found by that too.
        if included.resolve() in self._seen:
            raise UnsupportedLayout(f"{path}: includes {included}, which is being read already")
        self._seen.append(included.resolve())
        self.load(included)
        self._seen.pop(0)

    def _replaced(self, path: Path, name: str) -> str:
        """Return the name of an included file; its variables are the keys read before it."""
        values: dict[str, Value] = {key: value_of(items) for key, items in self.loaded.items()}
        try:
            found = Variables(values, _LOOKUPS).replace(name)
        except InvalidArgument as error:
            raise UnsupportedLayout(f"{path}: includes {name}: {error}") from None
        if not isinstance(found, str) or _URL.match(found) or "\0" in found:
            raise UnsupportedLayout(f"{path}: includes {name!r}, which is no path of a file")
        return found


def _is_there(path: Path) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _content(path: Path) -> bytes:
    with opened(path) as file:
        data = file.read(_LIMIT + 1)
    if len(data) > _LIMIT or b"\0" in data:
        raise no_conf(path, "is longer" if len(data) > _LIMIT else "is no text")
    return data


def _user() -> str:
    import getpass

    return getpass.getuser()


def _temporary() -> str:
    import tempfile

    return tempfile.gettempdir()


_SYSTEM: Mapping[str, Callable[[], str]] = {
    "user.home": lambda: os.path.expanduser("~"),
    "user.dir": os.getcwd,
    "user.name": _user,
    "java.io.tmpdir": _temporary,
}


def _system_property(name: str) -> str:
    if name not in _SYSTEM:
        raise InvalidArgument(
            f"${{sys:{name}}} is of the bookie's JVM, and is not known here: write what it is"
        )
    return _SYSTEM[name]()


def _refusing(prefix: str) -> Lookup:
    def refuse(name: str) -> NoReturn:
        raise InvalidArgument(f"${{{prefix}:{name}}} is not looked up here: write what it is")

    return refuse


_LOOKUPS: dict[str, Lookup] = {
    "env": os.environ.get,
    "sys": _system_property,
    **{prefix: _refusing(prefix) for prefix in _NOT_LOOKED_UP},
}
