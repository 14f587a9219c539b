"""Variables in values, as commons-configuration 2 replaces them: ``${name}``, ``${name:-else}``. A
variable is another key, or a prefix and a name to look up: ``${env:HOME}``. An undefined one stays
as written. ``$${name}`` is a literal ``${name}``. The caller passes the look-ups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from bkstore.errors import InvalidArgument

Value: TypeAlias = str | list[str]
"""The value of a key: one item, or a list of several."""
Lookup: TypeAlias = Callable[[str], str | None]
Lookups: TypeAlias = Mapping[str, Lookup]

_MAX_LETTERS = 1 << 20
_MAX_DEPTH = 100
_MAX_VARIABLES = 10_000
"""Limits: the length of a text after replacement, the nesting, and the number of variables."""


class VariableResolver:
    """Resolves the variables of a file: by its own keys, and by look-ups with a prefix."""

    def __init__(self, values: Mapping[str, Value], lookups: Lookups | None = None) -> None:
        self._values = values
        self._lookups = {} if lookups is None else lookups

    def resolve(self, name: str) -> Value | None:
        """Return the value of a variable, None if it is undefined. A name such as ``env:HOME`` is
        looked up by the prefix's own function first."""
        prefix, colon, key = name.partition(":")
        if colon and prefix in self._lookups:
            value = self._lookups[prefix](key)
            if value is not None:
                return value
        return self._values.get(name)

    def replace(self, value: Value) -> Value:
        """Return a value with its variables replaced; a list is returned as it is. If the value of
        a variable is a list, the result is that list if the text consists of the variable alone;
        elsewhere the list's first item is inserted. Raises `InvalidArgument` for a variable that
        contains itself, for nesting deeper than 100, more than 10,000 variables, and a result above
        a MiB.

        >>> variables = VariableResolver({"base": "/data", "dirs": ["${base}/1", "/b"]})
        >>> variables.replace("${base}/${index:-0}, $${base}, ${unknown}")
        '/data/0, ${base}, ${unknown}'
        >>> variables.replace("${dirs}"), variables.replace("${dirs}/x")
        (['${base}/1', '/b'], '/data/1/x')
        """
        if not isinstance(value, str):
            return value
        if value.startswith("${") and value.find("}", 2) == len(value) - 1:  # one variable alone
            resolved = self.resolve(value[2:-1])
            if resolved is not None and not isinstance(resolved, str):
                return resolved
        return _Replacement(self).replace_in(value, [])


class _Replacement:
    def __init__(self, variables: VariableResolver) -> None:
        self._variables = variables
        self._count = 0

    def replace_in(self, text: str, enclosing: list[str]) -> str:
        """Return `text` with its variables replaced. `enclosing` are the names of the variables in
        whose values it was found, the outermost first."""
        result, position = "", 0
        while (begin := text.find("${", position)) >= 0:
            end = text.find("}", begin + 2)
            if end < 0:
                break
            result += text[position:begin]
            if result.endswith("$"):  # "$${": an escape, so that the variable is not replaced
                result = result[:-1] + "${"
                position = begin + 2
                continue
            result += self._replace_one(text[begin : end + 1], enclosing)
            position = end + 1
        return result + text[position:]

    def _replace_one(self, written: str, enclosing: list[str]) -> str:
        """Return the value of the variable `written`, which is ``${name}`` or
        ``${name:-default}``, with its own variables replaced; `written` itself if it has neither a
        value nor a default. `enclosing` has the names of the variables in whose values it was
        found."""
        name, default = _name_and_default(written[2:-1])
        if name in enclosing:
            raise InvalidArgument("a variable refers to itself: " + " -> ".join([*enclosing, name]))
        self._count += 1
        if len(enclosing) >= _MAX_DEPTH or self._count > _MAX_VARIABLES:
            raise InvalidArgument(f"${{{name}}}: too many nested variables")
        resolved = self._variables.resolve(name)
        if resolved is not None and not isinstance(resolved, str):  # a list: its first item
            resolved = resolved[0] if resolved else None
        value = default if resolved is None else resolved
        if value is None:
            return written
        replaced = self.replace_in(value, [*enclosing, name])
        if len(replaced) > _MAX_LETTERS:
            raise InvalidArgument(f"${{{name}}} expands to more than {_MAX_LETTERS} letters")
        return replaced


def _name_and_default(expression: str) -> tuple[str, str | None]:
    """Return the parts around the first ``:-``, if no variable begins before it."""
    name, separator, default = expression.partition(":-")
    if not separator or "${" in name:
        return expression, None
    return name, default
