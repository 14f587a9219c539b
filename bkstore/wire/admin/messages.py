"""Requests and answers of the admin's endpoints, independent of the network."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

MIN_CHUNK_BYTES = 1 << 16
"""The bytes of a streamed answer that are collected before they are sent."""

_ESCAPE = re.compile(r"\\\\|\\u([0-9a-f]{4})")
"""An escape in JSON text: of a backslash, or by hex digits, which Jackson writes in capitals."""

JSON_TYPE = "application/json; charset=utf-8"
TEXT_TYPE = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A complete request: its method, path, query and body."""

    method: str
    path: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer: a status, and a body as bytes or as an iterator of chunks."""

    status: int
    body: bytes | Iterator[bytes]
    content_type: str = JSON_TYPE
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def ok_text(cls, text: str) -> Self:
        """Return an answer of success with exactly this text, as BookKeeper writes it."""
        return cls(200, text.encode(), TEXT_TYPE)

    @classmethod
    def error_text(cls, status: int, text: str, headers: Mapping[str, str] | None = None) -> Self:
        """Return an answer of one line of plain text."""
        return cls(status, f"{one_line(text)}\n".encode(), TEXT_TYPE, headers or {})


class HttpError(Exception):
    """Raised for a request that is refused; answered with its status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        super().__init__(reason)


def one_line(text: str) -> str:
    r"""Return a text on one line, without control characters, cut to 1000 characters.

    >>> one_line("a\n\x1b[31m b")
    'a ?[31m b'
    """
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))[:1000]


def format_json(value: Any, depth: int = 0) -> str:
    r"""Return JSON text as Jackson writes it: each member on a line, arrays on one line. `depth` is
    the number of objects around the value, for its indentation.

    >>> format_json({"a": [1, {}], "b": {"c": None}})
    '{\n  "a" : [ 1, { } ],\n  "b" : {\n    "c" : null\n  }\n}'
    """
    if isinstance(value, Mapping):
        indent = f"\n{'  ' * (depth + 1)}"
        rows = [
            f"{indent}{_format_scalar(str(name))} : {format_json(member, depth + 1)}"
            for name, member in value.items()
        ]
        return f"{{{','.join(rows)}\n{'  ' * depth}}}" if rows else "{ }"
    if isinstance(value, (list, tuple)):
        return f"[ {', '.join(format_json(item, depth) for item in value)} ]" if value else "[ ]"
    return _format_scalar(value)


def _format_scalar(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # Jackson writes the digits of an escape in upper case.
    return _ESCAPE.sub(lambda match: f"\\u{match[1].upper()}" if match[1] else match[0], text)


def json_response(value: Any, status: int = 200) -> HttpResponse:
    """Return an answer with a JSON value."""
    return HttpResponse(status, format_json(value).encode("utf-8", "replace"))


def stream_json_object(pairs: Iterable[tuple[str, Any]]) -> Iterator[bytes]:
    r"""Yield the text of a JSON object in chunks, one member a line, without keeping them.

    >>> b"".join(stream_json_object([("7", None), ("8", [1])]))
    b'{\n  "7" : null,\n  "8" : [ 1 ]\n}'
    """
    separator = b"{"
    for name, value in pairs:
        row = f"{_format_scalar(name)} : {format_json(value, 1)}"
        yield b"%s\n  %s" % (separator, row.encode("utf-8", "replace"))
        separator = b","
    yield b"{ }" if separator == b"{" else b"\n}"


def coalesce_chunks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in chunks of at least `MIN_CHUNK_BYTES` bytes, except the last."""
    buffered: list[bytes] = []
    size = 0
    for piece in chunks:
        buffered.append(piece)
        size += len(piece)
        if size >= MIN_CHUNK_BYTES:
            yield b"".join(buffered)
            buffered, size = [], 0
    if buffered:
        yield b"".join(buffered)
