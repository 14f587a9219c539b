"""JSON as it comes from outside: a value, or a `CorruptionError`, whatever the bytes are.

Python's parser takes more than JSON has (NaN, a key twice, half of a surrogate pair, which
no file or terminal takes later) and fails in three ways on the rest (nesting and numbers without
end are no `JSONDecodeError`). No I/O: whoever reads the bytes bounds them.
"""

from __future__ import annotations

import json
import math
import os
import re
from typing import Any, NoReturn

from bkstore.errors import CorruptionError

_BOM = "\ufeff"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(r"\\ud[89ab]..\\ud[c-f]..|(\\ud[89a-f]..)|\\.")
"""A pair of surrogates, a lone one (the group), any other escape; as Python's encoder writes."""


def parse_json(
    data: bytes | str, file: str | os.PathLike[str] | None = None, what: str = ""
) -> Any:
    """Return the value of a JSON text in UTF-8, with or without a byte order mark.

    Raises `CorruptionError` for anything else: bytes that are no UTF-8 or no JSON, nesting or
    numbers beyond what Python takes, NaN and infinities, a key twice in one object, a lone
    surrogate. It names `file`, the offset in bytes where it is known, and `what` is no JSON.

    >>> parse_json(b'{"ledgers": []}')
    {'ledgers': []}
    >>> parse_json("[" * 100_000, "image.json")
    Traceback (most recent call last):
    ...
    bkstore.errors.CorruptionError: image.json: no JSON: nested too deeply
    """
    name = f"{what} is no JSON" if what else "no JSON"
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        body = text.removeprefix(_BOM)
        found = _HOOKS.decode(body)
        if _SURROGATE.search(body):
            json.dumps(found, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptionError(file, error.start, f"{name}: it is not UTF-8") from None
    except UnicodeEncodeError:
        raise CorruptionError(file, None, f"{name}: half of a surrogate pair") from None
    except json.JSONDecodeError as error:
        before = text[: error.pos + len(text) - len(body)]
        offset = len(before.encode("utf-8", "surrogatepass"))
        raise CorruptionError(file, offset, f"{name}: {error.msg}") from None
    except RecursionError:
        raise CorruptionError(file, None, f"{name}: nested too deeply") from None
    except ValueError as error:  # a number beyond what Python takes, and what the hooks refuse
        raise CorruptionError(file, None, f"{name}: {error}") from None
    return found


def format_json(value: Any, indent: int | None = None) -> str:
    r"""Return a value as JSON in ASCII that any parser takes.

    A lone surrogate, such as the undecodable byte of a file name is, becomes its escape as text.

    >>> print(format_json(["caf\udce9", "\U0001f600"]))
    ["caf\\udce9", "\ud83d\ude00"]
    """
    text = json.dumps(value, indent=indent)
    if _SURROGATE.search(text):
        text = _ESCAPE.sub(lambda at: f"\\{at[1]}" if at[1] else at[0], text)
    return text


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"key {twice!r:.60} is twice in one object")
    return found


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"number {text:.60} is beyond what a float holds")
    return value


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


_HOOKS = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)
