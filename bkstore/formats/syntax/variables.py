"""Variables in values, as commons-configuration 2 replaces them: ``${name}``, ``${name:-else}``.

A variable is another key, or a prefix and what that looks up: ``${env:HOME}``. One that nothing
defines stays as it is written. ``$${name}`` is ``${name}``, literally. No I/O of its own: the
caller gives the look-ups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from bkstore.errors import InvalidArgument

Value: TypeAlias = str | list[str]
"""What a key has: one item, or a list of several."""
Lookup: TypeAlias = Callable[[str], str | None]

_LONGEST = 1 << 20
_DEEPEST = 100
_MOST = 10_000
"""How long a text with its variables replaced may be, how deep they nest, how many they are."""


class Variables:
    """What the variables of a file stand for: its own keys, and look-ups by prefix."""

    def __init__(
        self, values: Mapping[str, Value], lookups: Mapping[str, Lookup] | None = None
    ) -> None:
        self._values = values
        self._lookups = {} if lookups is None else lookups

    def resolve(self, name: str) -> Value | None:
        """Return what a name stands for, None if nothing defines it."""
        prefix, colon, key = name.partition(":")
        if colon and prefix in self._lookups:
            found = self._lookups[prefix](key)
            if found is not None:
                return found
        return self._values.get(name)

    def replace(self, value: Value) -> Value:
        """Return a value with its variables replaced; a list is returned as it is.

        A text that is one variable, of a key with several items, is that list; elsewhere such a
        key gives its first item. Raises `InvalidArgument` for a variable that contains itself,
        and for what nests deeper than 100, has more than 10,000 or becomes longer than a MiB.

        >>> variables = Variables({"base": "/data", "dirs": ["${base}/1", "/b"]})
        >>> variables.replace("${base}/${index:-0}, $${base}, ${unknown}")
        '/data/0, ${base}, ${unknown}'
        >>> variables.replace("${dirs}"), variables.replace("${dirs}/x")
        (['${base}/1', '/b'], '/data/1/x')
        """
        if not isinstance(value, str):
            return value
        if value.startswith("${") and value.find("}", 2) == len(value) - 1:
            found = self.resolve(value[2:-1])
            if found is not None and not isinstance(found, str):
                return found
        return _Replacement(self).of(value, [])


class _Replacement:
    """The replacement of the variables of one value."""

    def __init__(self, variables: Variables) -> None:
        self._variables = variables
        self._count = 0

    def of(self, text: str, inside: list[str]) -> str:
        """Return `text` with its variables replaced, `inside` those whose values it is part of."""
        done, position = "", 0
        while (begin := text.find("${", position)) >= 0:
            end = text.find("}", begin + 2)
            if end < 0:
                break
            done += text[position:begin]
            if done.endswith("$"):  # an escape: it goes, and the variable stays
                done = done[:-1] + "${"
                position = begin + 2
                continue
            done += self._variable(text[begin : end + 1], inside)
            position = end + 1
        return done + text[position:]

    def _variable(self, written: str, inside: list[str]) -> str:
        name, otherwise = _name_and_default(written[2:-1])
        if name in inside:
            raise InvalidArgument("a variable contains itself: " + " -> ".join([*inside, name]))
        self._count += 1
        if len(inside) >= _DEEPEST or self._count > _MOST:
            raise InvalidArgument(f"${{{name}}}: there are too many variables inside each other")
        found = self._variables.resolve(name)
        if found is not None and not isinstance(found, str):
            found = found[0] if found else None
        value = otherwise if found is None else found
        if value is None:
            return written
        replaced = self.of(value, [*inside, name])
        if len(replaced) > _LONGEST:
            raise InvalidArgument(f"${{{name}}} stands for more than {_LONGEST} letters")
        return replaced


def _name_and_default(expression: str) -> tuple[str, str | None]:
    """Return the parts around the first ``:-``, if no variable begins before it."""
    name, mark, otherwise = expression.partition(":-")
    if not mark or "${" in name:
        return expression, None
    return name, otherwise
