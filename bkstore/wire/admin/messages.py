"""Requests and answers of the admin without the network: what endpoints take and give."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

CHUNK = 1 << 16
"""Bytes of a streamed answer that are put together before they are sent."""

_ESCAPE = re.compile(r"\\\\|\\u([0-9a-f]{4})")
"""In JSON text: a backslash, or another character, which upstream's library writes in capitals."""

JSON = "application/json; charset=utf-8"
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Request:
    """A request that was read whole: its method, path, query and body."""

    method: str
    path: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: a status, and a body that is there, or comes in pieces."""

    status: int
    body: bytes | Iterator[bytes]
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def plain(cls, text: str) -> Answer:
        """Return a text that says that all is well: these bytes, as upstream writes them."""
        return cls(200, text.encode(), TEXT)

    @classmethod
    def text(cls, status: int, text: str, **headers: str) -> Answer:
        """Return one line of plain text; names of `headers` have _ for -."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return cls(status, f"{one_line(text)}\n".encode(), TEXT, named)


class Refused(Exception):
    """A request that cannot be done as it is; becomes the answer with its status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        super().__init__(reason)


def one_line(text: str) -> str:
    r"""Return a text on one line, without what steers a terminal, and of bounded length.

    >>> one_line("a\n\x1b[31m b")
    'a ?[31m b'
    """
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))[:1000]


def pretty(value: Any, depth: int = 0) -> str:
    r"""Return a JSON value as upstream's library writes it: a member a line, arrays in one.

    >>> pretty({"a": [1, {}], "b": {"c": None}})
    '{\n  "a" : [ 1, { } ],\n  "b" : {\n    "c" : null\n  }\n}'
    """
    if isinstance(value, Mapping):
        lead = f"\n{'  ' * (depth + 1)}"
        rows = [
            f"{lead}{_scalar(str(name))} : {pretty(of, depth + 1)}" for name, of in value.items()
        ]
        return f"{{{','.join(rows)}\n{'  ' * depth}}}" if rows else "{ }"
    if isinstance(value, (list, tuple)):
        return f"[ {', '.join(pretty(each, depth) for each in value)} ]" if value else "[ ]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return _ESCAPE.sub(
        lambda found: found[0] if found[1] is None else f"\\u{found[1].upper()}", text
    )


def json_answer(value: Any, status: int = 200) -> Answer:
    """Return a JSON value as an answer."""
    return Answer(status, pretty(value).encode("utf-8", "replace"))


def members(pairs: Iterable[tuple[str, Any]]) -> Iterator[bytes]:
    r"""Yield a JSON object piece by piece, a member a line; nothing of it is kept.

    >>> b"".join(members([("7", None), ("8", [1])]))
    b'{\n  "7" : null,\n  "8" : [ 1 ]\n}'
    """
    lead = b"{"
    for name, value in pairs:
        row = f"{_scalar(name)} : {pretty(value, 1)}"
        yield b"%s\n  %s" % (lead, row.encode("utf-8", "replace"))
        lead = b","
    yield b"{ }" if lead == b"{" else b"\n}"


def chunked(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in chunks of at least `CHUNK`, but for the last."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= CHUNK:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)
