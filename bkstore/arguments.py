"""Checks of a caller's arguments: whole numbers, shares, seconds, choices, callables.

A check is built from the allowed values, and called with the argument's name and value; it returns
the value, or raises an `InvalidArgument` that names both. `check_fields` runs a table of checks
over the fields of an options class. A check costs some 0.3 us: too much for single entries.

Messages show invalid numbers, text and paths, of other values only the type: bytes, and objects
with bytes, may be payloads, keys or passwords. `bytes_like` and `password` never show values.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any, Final

from bkstore.errors import InvalidArgument

Check = Callable[[str, Any], Any]
"""A function of an argument's name and value: returns the value, or raises `InvalidArgument`."""

MAX_INT64: Final = 2**63 - 1
"""Default maximum of a whole number: the largest file offset."""


def integer(minimum: int = 0, maximum: int = MAX_INT64, multiple: int = 1) -> Check:
    """Return a check for integers of `minimum`..`maximum`, multiples of `multiple`; returns an int.
    Accepts numpy integers, and everything else with ``__index__``, but not bools and floats.

    >>> integer(1)("batch", 5)
    5
    >>> integer(1)("batch", True)
    Traceback (most recent call last):
    bkstore.errors.InvalidArgument: batch must be a whole number, 1 or more, not True
    """
    allowed = f"{minimum} or more" if maximum == MAX_INT64 else f"{minimum} to {maximum}"
    if multiple > 1:
        allowed += f", a multiple of {multiple}"

    def check(name: str, value: Any) -> int:
        """Return the value as an int, if it is a whole number within the limits."""
        integer: int | None = value
        if type(value) is not int:
            try:
                integer = None if isinstance(value, bool) else operator.index(value)
            except TypeError:
                integer = None
        if integer is None or not minimum <= integer <= maximum or integer % multiple:
            raise _invalid_value(name, f"a whole number, {allowed}", value)
        return integer

    return check


def number(minimum: float = 0, maximum: float = math.inf, *, above: bool = False) -> Check:
    """Return a check for finite numbers from `minimum` to `maximum`; `above` excludes `minimum`.

    >>> number(0, 1)("fpp", float("nan"))
    Traceback (most recent call last):
    bkstore.errors.InvalidArgument: fpp must be a number of 0 to 1, not nan
    """
    if maximum < math.inf:
        allowed = f"above {minimum} up to {maximum}" if above else f"of {minimum} to {maximum}"
    else:
        allowed = f"above {minimum}" if above else f"of {minimum} or more"

    def check(name: str, value: Any) -> float:
        """Return the value, if it is a finite number within the limits."""
        if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
            raise _invalid_value(name, f"a number {allowed}", value)
        try:
            float_value = float(value)
        except (TypeError, ValueError, OverflowError):
            float_value = math.nan
        is_high_enough = float_value > minimum if above else float_value >= minimum
        if not (math.isfinite(float_value) and is_high_enough and float_value <= maximum):
            raise _invalid_value(name, f"a number {allowed}", value)
        return value if type(value) in (int, float) else float_value

    return check


def choice(*words: str | None) -> Check:
    """Return a check for one of the given strings (or None, if it is given).

    >>> choice(None, "bookkeeper")("compat", "typo")
    Traceback (most recent call last):
    bkstore.errors.InvalidArgument: compat must be None or 'bookkeeper', not 'typo'
    """
    allowed = " or ".join(map(repr, words))

    def check(name: str, value: Any) -> Any:
        if not (value is None or type(value) is str) or value not in words:
            raise _invalid_value(name, allowed, value)
        return value

    return check


def boolean(name: str, value: Any) -> bool:
    """Check that an argument is True or False."""
    if type(value) is not bool:
        raise _invalid_value(name, "True or False", value)
    return value


def function(name: str, value: Any) -> Any:
    """Check that an argument can be called."""
    if not callable(value):
        raise _invalid_value(name, "callable", value)
    return value


def instance(*kinds: type) -> Check:
    """Return a check that a value is an instance of these classes; the error names its type.

    >>> instance(dict)("options", ["secret"])
    Traceback (most recent call last):
    bkstore.errors.InvalidArgument: options must be of type dict, not list
    """
    allowed = " or ".join(kind.__name__ for kind in kinds)

    def check(name: str, value: Any) -> Any:
        if not isinstance(value, kinds):
            raise _invalid_type(name, f"of type {allowed}", value)
        return value

    return check


def interface(kind: str, *methods: str) -> Check:
    """Return a check that an object has these methods; the error names `kind` and its type."""

    def check(name: str, value: Any) -> Any:
        if isinstance(value, type) or not all(callable(getattr(value, m, None)) for m in methods):
            raise _invalid_type(name, f"a {kind}", value)
        return value

    return check


def bytes_like(name: str, value: Any) -> bytes:
    """Return the bytes of a payload, record or key: bytes unchanged, other buffers copied.

    >>> bytes_like("payload", bytearray(b"hi"))
    b'hi'
    >>> bytes_like("payload", "my secret")
    Traceback (most recent call last):
    bkstore.errors.InvalidArgument: payload must be bytes, not str
    """
    if type(value) is bytes:
        return value
    try:
        view = memoryview(value)
    except TypeError:
        raise _invalid_type(name, "bytes", value) from None
    if not view.ndim:  # a numpy scalar
        raise _invalid_type(name, "bytes", value)
    return bytes(view)


def password(name: str, value: Any) -> bytes:
    """Return a password's bytes; text is encoded as UTF-8."""
    if isinstance(value, str):
        try:
            return value.encode("utf-8")
        except UnicodeError:
            raise InvalidArgument(f"{name} must be text that UTF-8 can encode") from None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise _invalid_type(name, "bytes or text", value)


def text(name: str, value: Any) -> str:
    """Check that an argument is text; the error names the type of anything else."""
    if not isinstance(value, str):
        raise _invalid_type(name, "text", value)
    return value


def iterable(name: str, values: Any) -> Any:
    """Check that an argument is iterable, but not text or bytes."""
    if isinstance(values, (str, bytes, bytearray)) or not isinstance(values, Iterable):
        raise _invalid_type(name, "an iterable", values)
    return values


def optional(check: Check) -> Check:
    """Return a check that also accepts None."""
    return lambda name, value: None if value is None else check(name, value)


def sequence_of(check: Check) -> Check:
    """Return a check for a tuple or list whose items all pass `check`; returns a tuple."""

    def checked(name: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (tuple, list)):
            raise _invalid_value(name, "a tuple or a list", value)
        return tuple(check(f"{name}[{index}]", item) for index, item in enumerate(value))

    return checked


def pair(check: Check) -> Check:
    """Return a check for (low, high), both of which pass `check`, low not above high."""
    check_items = sequence_of(check)

    def checked(name: str, value: Any) -> tuple[Any, ...]:
        """Return the two items, if they are in order."""
        bounds: tuple[Any, ...] = check_items(name, value)
        if len(bounds) != 2 or bounds[0] > bounds[1]:
            raise _invalid_value(name, "two numbers, the second not below the first", value)
        return bounds

    return checked


def path(name: str, value: Any) -> Path:
    """Return the path in a text, bytes or os.PathLike argument; does not access the file.

    >>> path("path", 5)
    Traceback (most recent call last):
    bkstore.errors.InvalidArgument: path must be text, bytes or os.PathLike, not 5
    """
    try:
        text = os.fsdecode(value)
    except (TypeError, UnicodeError):
        raise _invalid_value(name, "text, bytes or os.PathLike", value) from None
    if "\0" in text:
        raise _invalid_value(name, "without NUL bytes, as paths are", value)
    return Path(text)


def host_name(name: str, value: Any) -> str:
    """Return a host name or address if a look-up of it is possible; looks nothing up.

    >>> host_name("host", "a..b")
    Traceback (most recent call last):
    bkstore.errors.InvalidArgument: host must be a host name or address, not 'a..b'
    """
    try:
        if isinstance(value, str) and "\0" not in value:
            value.encode("idna")  # a look-up would do so too, and fail with a UnicodeError
            return value
    except UnicodeError:
        pass
    raise _invalid_value(name, "a host name or address", value)


def paths(name: str, value: Any) -> list[Path]:
    """Return the paths in one path argument, or in an iterable of them."""
    single = isinstance(value, (str, bytes, os.PathLike)) or not isinstance(value, Iterable)
    return [path(name, item) for item in ([value] if single else value)]


def check_fields(options: object, checks: Mapping[str, Check]) -> None:
    """Check fields of a frozen dataclass by name, in the order of `checks`. A value that its check
    converts (a numpy integer to an int) is stored converted."""
    for name, check in checks.items():
        value = getattr(options, name)
        checked = check(name, value)
        if checked is not value:
            object.__setattr__(options, name, checked)


def describe_value(value: object) -> str:
    """Return the text for an invalid argument in a message: numbers, text, paths, else the type.

    >>> [describe_value(value) for value in (1.5, b"payload", [b"payload"])]
    ['1.5', 'bytes', 'list']
    >>> describe_value("x" * 100)[-6:]
    'xxx...'
    """
    if value is not None and not isinstance(value, (bool, int, float, str, PurePath)):
        return type(value).__name__
    value_text = repr(value)
    return value_text if len(value_text) <= 80 else value_text[:80] + "..."


def _invalid_value(name: str, allowed: str, value: object) -> InvalidArgument:
    return InvalidArgument(f"{name} must be {allowed}, not {describe_value(value)}")


def _invalid_type(name: str, allowed: str, value: object) -> InvalidArgument:
    type_name = "None" if value is None else type(value).__name__
    return InvalidArgument(f"{name} must be {allowed}, not {type_name}")


check_compat = choice(None, "bookkeeper")
"""``check_compat("compat", compat)``: for functions that take ``compat="bookkeeper"``."""

check_batch = integer(1)
"""``check_batch("batch", batch)``: the number of rows or items in a batch."""
