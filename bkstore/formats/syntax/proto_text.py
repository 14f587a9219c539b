r"""Protobuf's text format between bytes and messages, as Java's `TextFormat` reads and writes it.

The grammar is the protobuf library's; the escapes in its strings are read here. The library knows
no ``\?``, takes ``\N{name}`` and, with a warning, any other letter, and reads what ``\u005c`` and
its neighbors give once more. Source: `TextFormat.unescapeBytes`, `TextFormatEscaper.escapeBytes`.
"""

from __future__ import annotations

import re
from typing import Any

from google.protobuf import text_format

from bkstore.errors import CorruptionError

# Comments are matched so that a quote in one begins no string.
_TOKEN = re.compile(rb"""#[^\n]*|"(?:[^"\n\\]|\\.)*+"|'(?:[^'\n\\]|\\.)*+'""")
_ESCAPE = re.compile(
    rb"""\\(?:
    ([abfnrtv\\'"?])            # 1: a letter or mark
    |([0-3][0-7]{2}|[0-7]{1,2}(?![0-7]))  # 2: up to three octal digits, a byte
    |x([0-9a-fA-F]{1,2})        # 3: one or two hex digits, a byte
    |u([0-9a-fA-F]{4})          # 4: a character
    |U([0-9a-fA-F]{8})          # 5: a character
    |)""",
    re.VERBOSE,
)
_BYTE_OF_LETTER = dict(zip(b"abfnrtv\\'\"?", b"\a\b\f\n\r\t\v\\'\"?", strict=True))

# Java's text format has letters for four bytes that the library writes in octal.
_WRITTEN_ESCAPE = re.compile(r"\\(007|010|013|014|[0-7]{3}|.)")
_JAVA_LETTERS = {"007": "a", "010": "b", "013": "v", "014": "f"}


def parse_into(data: bytes, start: int, message: Any, subject: str) -> None:
    """Parse protobuf's text format from `start` on into `message`, as Java does. A field that
    occurs twice has its last value. Raises `CorruptionError`, its reason starting with `subject`,
    for bytes that are not UTF-8, invalid escapes, and text that does not parse. Required fields are
    not checked. O(bytes)."""
    body = data[start:]
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptionError(None, start + error.start, f"{subject} is not UTF-8") from error
    # Java reads some escapes in texts that Python's parser reads differently or refuses.
    text = _TOKEN.sub(lambda token: _escape_in_octal(token, start, subject), body).decode("utf-8")
    try:
        # `Parse` refuses a field that occurs twice, `Merge` does not.
        text_format.Merge(text, message)
    except (text_format.ParseError, ValueError) as error:
        line = getattr(error, "GetLine", lambda: None)() or 1  # a `ValueError` has no line
        offset = start + sum(len(before) + 1 for before in body.split(b"\n")[: line - 1])
        detail = str(error)
        if b"password" in body:  # the parser's error may quote it
            detail = f"line {line} (not quoted here: there is a password)"
        raise CorruptionError(None, offset, f"{subject} does not parse: {detail}") from None


def _escape_in_octal(token: re.Match[bytes], start: int, subject: str) -> bytes:
    """Return a string of the text with each escape replaced by one of three octal digits, which all
    parsers read alike. `token` is a match of a string or a comment; comments stay as they are.
    `start` is the offset of the text, for errors."""
    if token[0].startswith(b"#"):  # a comment
        return token[0]

    def octal(escape: re.Match[bytes]) -> bytes:
        """Return an escape sequence in octal, which protobuf's parser reads in any version."""
        escaped_bytes = _unescape(escape)
        if escaped_bytes is None:
            offset = start + token.start() + escape.start()
            raise CorruptionError(None, offset, f"{subject} has an unknown escape")
        return b"".join(b"\\%03o" % byte for byte in escaped_bytes)

    return _ESCAPE.sub(octal, token[0])


def _unescape(escape: re.Match[bytes]) -> bytes | None:
    """Return the bytes that an escape stands for, None if it is not one of Java's."""
    letter, octal_digits, hex_digits, short_code_point, long_code_point = escape.groups()
    if letter:
        return bytes([_BYTE_OF_LETTER[letter[0]]])
    if octal_digits or hex_digits:
        return bytes([int(octal_digits, 8) if octal_digits else int(hex_digits, 16)])
    code_point = short_code_point or long_code_point
    if code_point is None:
        return None
    try:
        return chr(int(code_point, 16)).encode("utf-8")
    except (ValueError, OverflowError):  # no character, or half of a surrogate pair
        return None


def to_bytes(message: Any) -> bytes:
    """Return the message as Java's `TextFormat` prints it: non-ASCII bytes in octal."""
    text = text_format.MessageToString(message, as_utf8=False)
    text = _WRITTEN_ESCAPE.sub(lambda match: "\\" + _JAVA_LETTERS.get(match[1], match[1]), text)
    return text.encode("ascii")
