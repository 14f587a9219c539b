r"""Properties files as commons-configuration 2 reads them: `bk_server.conf` is one.

This is not the syntax of `java.util.Properties`. A line is trimmed at both ends, a comment or an
empty line inside a continued line is skipped, a property whose continuation reaches the end of
the file is lost, keys and values are unescaped by different rules, and a value is a list wherever
a comma is not escaped. Bytes are read as ISO-8859-1. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from bkstore.errors import CorruptionError
from bkstore.formats.syntax.java_values import trim

_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)")
_LINE_ENDS = "\n\r\x85\u2028\u2029"
_KEY = re.compile(rf"(?:[^\s\\=:]|\\[^{_LINE_ENDS}])*", re.ASCII)
_SEPARATOR = re.compile(r"\s*[=:]?\s*", re.ASCII)
_NO_VALUE = re.compile(f"[{_LINE_ENDS}]")
_HEX = re.compile(r"[+-]?[0-9a-fA-F]+")
_SURROGATES = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")

_KEY_ESCAPE = re.compile(r"\\(?:([0-3][0-7]{2}|[0-7]{1,2})|(u++\+?)(.{0,4})|(.?))", re.DOTALL)
_KEY_CONTROLS = {"b": "\b", "n": "\n", "t": "\t", "f": "\f", "r": "\r"}
_VALUE_ESCAPE = re.compile(r"\\(?:u(.{0,4})|(.?))", re.DOTALL)
_VALUE_LETTERS = _KEY_CONTROLS | {letter: letter for letter in ":#=!\\'\""}


class Property(NamedTuple):
    """One property, its value before it is split into a list, and the bytes of its lines."""

    key: str
    value: str
    begin: int
    end: int


def parse_properties(data: bytes) -> Iterator[Property]:
    r"""Yield the properties of a file in order, repeated ones each time. Raises `CorruptionError`,
    with the offset of the property, where ``\u`` is not followed by four hexadecimal digits.

    >>> for found in parse_properties(b"a = 1\nb: x, \\\n  # no\n  y\nc d\\\\,e"):
    ...     print(found.key, split_list(found.value))
    a ['1']
    b ['x', 'y']
    c ['d,e']
    """
    for line, begin, end in _logical_lines(data.decode("iso-8859-1")):
        key, value = _split_line(line)
        try:
            yield Property(_unescape_key(key), _unescape_value(value), begin, end)
        except ValueError as error:
            raise CorruptionError(None, begin, str(error)) from None


def split_list(text: str) -> list[str]:
    r"""Return the trimmed items of a value, which commas separate; at least one. A backslash
    escapes a comma or a backslash; before other characters it stays.

    >>> split_list("/a , /b\\,c,\\d,")
    ['/a', '/b,c', '\\d', '']
    """
    items, item, escaped = [], "", False
    for letter in text:
        if escaped:
            item += letter if letter in ",\\" else "\\" + letter
            escaped = False
        elif letter == ",":
            items.append(trim(item))
            item = ""
        elif letter == "\\":
            escaped = True
        else:
            item += letter
    items.append(trim(item + ("\\" if escaped else "")))
    return items


def _logical_lines(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield (text, begin, end) of each logical line: a line, or several of which each but the last
    ends with a backslash. Comments and empty lines are left out."""
    joined: list[str] = []
    first_offset = 0
    for match in _LINE.finditer(text):
        line = trim(match[1])
        if not line or line[0] in "#!":  # inside a continued line too
            continue
        if not joined:
            first_offset = match.start()
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1  # two backslashes are one
        joined.append(line[:-1] if is_continued else line)
        if not is_continued:
            yield "".join(joined), first_offset, match.end()
            joined = []


def _split_line(line: str) -> tuple[str, str]:
    """Return key and value of a line, still escaped. Both are empty if the value has a character
    that Java takes for a line end: the Java library's pattern for a property does not match such a
    line."""
    key = _KEY.match(line)
    assert key is not None
    separator = _SEPARATOR.match(line, key.end())
    assert separator is not None
    value = line[separator.end() :]
    return ("", "") if _NO_VALUE.search(value) else (trim(key[0]), trim(value))


def _unescape_key(text: str) -> str:
    r"""Return a key with its escapes replaced. A backslash may be followed by octal digits, ``u``
    and four hex digits, or a letter for a control character; before anything else it is dropped."""

    def unescape(match: re.Match[str]) -> str:
        octal_digits, unicode_mark, hex_digits, letter = match.groups()
        if octal_digits:
            return chr(int(octal_digits, 8))
        return _unescape_unicode(hex_digits) if unicode_mark else _KEY_CONTROLS.get(letter, letter)

    return _join_surrogates(_KEY_ESCAPE.sub(unescape, text))


def _unescape_value(text: str) -> str:
    r"""Return a value with its escapes replaced. A backslash may be followed by ``u`` and four hex
    digits, or by a letter for another character; before anything else it is kept."""

    def unescape(match: re.Match[str]) -> str:
        hex_digits, letter = match.groups()
        if hex_digits is None:
            return _VALUE_LETTERS.get(letter, "\\" + letter)
        # Fewer digits, at the end of the value, are dropped without an error, as in Java.
        return _unescape_unicode(hex_digits) if len(hex_digits) == 4 else ""

    return _join_surrogates(_VALUE_ESCAPE.sub(unescape, text))


def _unescape_unicode(digits: str) -> str:
    r"""Return the character of ``\u`` and four digits, of which the first may be a sign."""
    if len(digits) < 4 or not _HEX.fullmatch(digits):
        raise ValueError(f"\\u is followed by {digits!r}, not by four hexadecimal digits")
    return chr(int(digits, 16) & 0xFFFF)


def _join_surrogates(text: str) -> str:
    """Return a text with surrogate pairs as characters; a lone one becomes a question mark."""
    if text.isascii():
        return text
    return _SURROGATES.sub(_join_surrogate, text)


def _join_surrogate(match: re.Match[str]) -> str:
    if len(match[0]) == 1:
        return "?"
    return match[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")
