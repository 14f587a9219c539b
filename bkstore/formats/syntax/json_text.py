"""Parsing untrusted JSON: returns a value or raises `CorruptionError`, for any bytes. Python's
parser accepts more than JSON (NaN, a duplicate key, a lone surrogate, which cannot be written to a
file or terminal later) and fails in three ways on the rest (too deep nesting and too long numbers
raise no `JSONDecodeError`). No I/O: the caller bounds the size."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

from bkstore.errors import CorruptionError

_BOM = "\ufeff"
_WHITESPACE = re.compile(r"[ \t\n\r]*")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(r"\\ud[89ab]..\\ud[c-f]..|(\\ud[89a-f]..)|\\.")
"""A pair of surrogates, a lone one (the group), any other escape; as Python's encoder writes."""


def parse_json(
    data: bytes | str, file: str | os.PathLike[str] | None = None, subject: str = ""
) -> Any:
    """Return the value of a JSON text in UTF-8, with or without a byte order mark. Raises
    `CorruptionError` for anything else: bytes that are not UTF-8 or not JSON, nesting or numbers
    beyond what Python takes, NaN and infinities, a key twice in one object, a lone surrogate (half
    of a character's escape). The error has `file`, and the offset in bytes if it is known; its text
    begins with `subject`.

    >>> parse_json(b'{"ledgers": []}')
    {'ledgers': []}
    >>> parse_json("[" * 100_000, "image.json")
    Traceback (most recent call last):
    ...
    bkstore.errors.CorruptionError: image.json: not JSON: nested too deeply
    """
    prefix = f"{subject} is not JSON" if subject else "not JSON"
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        body = text.removeprefix(_BOM)
        value = _DECODER.decode(body)
        if _SURROGATE.search(body):  # a lone one makes this raise a `UnicodeEncodeError`
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptionError(file, error.start, f"{prefix}: it is not UTF-8") from None
    except UnicodeEncodeError:
        raise CorruptionError(file, None, f"{prefix}: half of a surrogate pair") from None
    except json.JSONDecodeError as error:
        byte_order_mark = text[: len(text) - len(body)]
        before = byte_order_mark + body[: error.pos]
        offset = len(before.encode("utf-8", "surrogatepass"))
        raise CorruptionError(file, offset, f"{prefix}: {error.msg}") from None
    except RecursionError:
        raise CorruptionError(file, None, f"{prefix}: nested too deeply") from None
    except ValueError as error:  # from a number too long for Python, or from the hooks below
        raise CorruptionError(file, None, f"{prefix}: {error}") from None
    return value


def parse_json_rows(
    data: bytes | str, convert: Mapping[str, Callable[[Any, int], Any]], subject: str = ""
) -> Any:
    """Return the value of a JSON text as `parse_json`, but of an object the elements of the lists
    under the keys of `convert` as these functions return them, given the element and its index.
    Each element is converted as soon as it is parsed, so that only the results stay in memory.
    Raises as `parse_json`, for the whole text, and then what the functions raise.

    >>> parse_json_rows(b'{"ids": ["7", "9"]}', {"ids": lambda value, index: int(value)})
    {'ids': [7, 9]}
    """
    with suppress(ValueError, RecursionError, UnicodeError):  # the text is then parsed as a whole
        text = data if isinstance(data, str) else data.decode("ascii")
        if not _SURROGATE.search(text):
            return _parse_rows(text, convert)
    document = parse_json(data, subject=subject)
    if isinstance(document, dict):
        for key, function in convert.items():
            if isinstance(document.get(key), list):
                rows = enumerate(document[key])
                document[key] = [function(value, index) for index, value in rows]
    return document


def _parse_rows(text: str, convert: Mapping[str, Callable[[Any, int], Any]]) -> dict[str, Any]:
    """Return the object of a text, its lists converted; `ValueError` for other texts."""
    members: list[tuple[str, Any]] = []
    position = _pass_mark(text, 0, "{")
    if _skip_whitespace(text, position) == text.find("}", position):
        raise ValueError("an empty object")  # there is nothing to convert: `parse_json` parses it
    while True:
        key, position = _DECODER.raw_decode(text, _skip_whitespace(text, position))
        if not isinstance(key, str):
            raise ValueError("a key that is no text")
        position = _skip_whitespace(text, _pass_mark(text, position, ":"))
        function = convert.get(key)
        if function is not None and text.startswith("[", position):
            value, position = _parse_list(text, position, function)
        else:
            value, position = _DECODER.raw_decode(text, position)
        members.append((key, value))
        position = _skip_whitespace(text, position)
        if not text.startswith(",", position):
            break
        position += 1
    if _skip_whitespace(text, _pass_mark(text, position, "}")) != len(text):
        raise ValueError("more than one value")
    return _make_object(members)


def _parse_list(
    text: str, position: int, function: Callable[[Any, int], Any]
) -> tuple[list[Any], int]:
    """Return the converted elements of the list at a position, and the position after it."""
    elements: list[Any] = []
    position = _skip_whitespace(text, position + 1)
    if text.startswith("]", position):
        return elements, position + 1
    while True:
        value, position = _DECODER.raw_decode(text, _skip_whitespace(text, position))
        elements.append(function(value, len(elements)))
        position = _skip_whitespace(text, position)
        if not text.startswith(",", position):
            return elements, _pass_mark(text, position, "]")
        position += 1


def _skip_whitespace(text: str, position: int) -> int:
    space = _WHITESPACE.match(text, position)
    return position if space is None else space.end()


def _pass_mark(text: str, position: int, mark: str) -> int:
    """Return the position after a punctuation mark; raises `ValueError` if another follows."""
    position = _skip_whitespace(text, position)
    if not text.startswith(mark, position):
        raise ValueError(f"no {mark} at {position}")
    return position + 1


def format_json(value: Any, indent: int | None = None) -> str:
    r"""Return a value as ASCII JSON that any parser accepts. A lone surrogate, as Python has for an
    undecodable byte of a file name, is written as text.

    >>> print(format_json(["caf\udce9", "\U0001f600"]))
    ["caf\\udce9", "\ud83d\ude00"]
    """

    def double_backslash(escape: re.Match[str]) -> str:
        """Return the escape of a lone surrogate, which is group 1, as text; others unchanged."""
        return f"\\{escape[1]}" if escape[1] else escape[0]

    text = json.dumps(value, indent=indent)
    return _ESCAPE.sub(double_backslash, text) if _SURROGATE.search(text) else text


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of a JSON text, given its keys and values; raise `ValueError` for a repeated
    key, of which Python's parser would silently keep the last value."""
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"key {key!r:.60} appears twice in one object")
            seen.add(key)
    return members


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"number {text:.60} exceeds the range of a float")
    return value


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_make_object, parse_float=_parse_float, parse_constant=_refuse_constant
)
