"""Configuration: keys with values, read as text, number, boolean or list. Behaves like
commons-configuration 2 with BookKeeper's classes on top: variables are replaced and numbers are
parsed, or refused, only when a key is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from bkstore.errors import InvalidArgument
from bkstore.formats.syntax.java_values import (
    parse_boolean,
    parse_double,
    parse_integer,
    parse_single,
)
from bkstore.formats.syntax.properties_text import split_list
from bkstore.formats.syntax.variables import Lookups, Value, VariableResolver

_R = TypeVar("_R")
_T = TypeVar("_T")


def single_or_list(items: list[str]) -> Value:
    """Return the value of a key with these items: the item itself if it is the only one."""
    return items[0] if len(items) == 1 else items


class Configuration:
    r"""The properties of a `bk_server.conf`, as `ServerConfiguration` has them once it is loaded.

    `loaded` has a key's values, one each time that the file or an included one has the key. Every
    value is split twice, where BookKeeper's configuration takes it over and where that keeps it, so
    that one backslash does not keep a comma: ``a\\,b`` are two items. Read methods return `default`
    for an absent key. They raise `InvalidArgument` for another type and circular variables.

    >>> conf = Configuration({"base": ["/d"], "ledgerDirectories": ["${base}/1", "/2"]})
    >>> conf.strings("ledgerDirectories"), conf.string("ledgerDirectories", None)
    (['/d/1', '/2'], '/d/1')
    >>> conf.integer("bookiePort", 3181)
    3181
    """

    def __init__(self, loaded: Mapping[str, Iterable[str]], lookups: Lookups | None = None) -> None:
        self._values = {key: single_or_list(_split_twice(values)) for key, values in loaded.items()}
        self._variables = VariableResolver(self._values, lookups)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def strings(self, key: str) -> list[str]:
        """Return all items of a key; empty if it is absent."""
        if key not in self._values:
            return []
        value = self._replace_variables(key, self._values[key])
        items = [value] if isinstance(value, str) else value
        replaced = [self._replace_variables(key, item) for item in items]
        return [_as_text(item) for item in replaced]

    def string(self, key: str, default: _T) -> str | _T:
        """Return the first item of a key."""
        return self._read_first(key, default, _unchanged)

    def integer(self, key: str, default: _T, bits: int = 32) -> int | _T:
        """Return the first item as a whole number of 32 bits, or of 64 (a `long`)."""
        return self._read_first(key, default, lambda text: parse_integer(text, bits))

    def double(self, key: str, default: _T) -> float | _T:
        """Return the first item as a number of double precision."""
        return self._read_first(key, default, parse_double)

    def single(self, key: str, default: _T) -> float | _T:
        """Return the first item as a number of single precision (a `float`)."""
        return self._read_first(key, default, parse_single)

    def boolean(self, key: str, default: _T) -> bool | _T:
        """Return the first item as a boolean."""
        return self._read_first(key, default, parse_boolean)

    def _read_first(self, key: str, default: _T, parse: Callable[[str], _R]) -> _R | _T:
        """Return the first item of a key's value, parsed; `default` if the key is absent."""
        if key not in self._values:
            return default
        # Replace variables in the value, or in its first item, and once more in the result, as the
        # Java library does. The result may be a list after all, which only reading as text accepts.
        value = self._replace_variables(key, self._values[key])
        if not isinstance(value, str):
            value = self._replace_variables(key, value[0])
        value = self._replace_variables(key, value)
        if not isinstance(value, str) and parse is not _unchanged:
            raise InvalidArgument(f"{key}: is a list, {_as_text(value)}")
        try:
            return parse(_as_text(value))
        except ValueError as error:
            raise InvalidArgument(f"{key}: {error}") from None

    def _replace_variables(self, key: str, value: Value) -> Value:
        try:
            return self._variables.replace(value)
        except InvalidArgument as error:
            raise InvalidArgument(f"{key}: {error}") from None


def _unchanged(text: str) -> str:
    return text


def _split_twice(values: Iterable[str]) -> list[str]:
    parts = [part for value in values for part in split_list(value)]
    return [item for part in parts for item in split_list(part)]


def _as_text(value: Value) -> str:
    """Return an item as text; a list inside a list is written as in Java."""
    return value if isinstance(value, str) else f"[{', '.join(value)}]"
