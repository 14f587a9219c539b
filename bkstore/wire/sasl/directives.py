"""Directives: the syntax of DIGEST-MD5's messages, ``name=value`` and commas (RFC 2831, 7.1).

A value is a token, or a quoted string in which a backslash escapes the next character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from bkstore.errors import CorruptionError

# Possessive quantifiers: no input makes it examine a byte more than a few times.
_DIRECTIVE = re.compile(
    rb"""
    [ \t\r\n]*+
    (?: ([!#$%&'*+.^_`|~0-9A-Za-z-]++) [ \t\r\n]*+ = [ \t\r\n]*+
        (?: "((?:[^"\\]|\\.)*+)" | ([!#$%&'*+./:^_`|~0-9A-Za-z-]++) )
        [ \t\r\n]*+ )?+
    (?: , | \Z )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_NEEDS_ESCAPE = re.compile(rb'["\\\x00-\x08\x0b\x0c\x0e-\x1f\x7f]')


def parse_directives(message: bytes, known_names: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return the unquoted values of known directives by name; other directives are ignored.

    Raises `CorruptionError` for invalid syntax and for a repeated known directive. Its message
    does not show any of the input, except the name of that directive.

    >>> parse_directives(b'realm="b\\\\"k", nonce=7,,stale=true', [b"realm", b"nonce"])
    {b'realm': b'b"k', b'nonce': b'7'}
    """
    names = frozenset(known_names)
    values: dict[bytes, bytes] = {}
    offset = 0
    while offset < len(message):
        match = _DIRECTIVE.match(message, offset)
        if match is None:
            raise CorruptionError(None, offset, "not a directive of DIGEST-MD5")
        name, text, token = match.groups()  # the value is a quoted text or a plain token
        if name is not None and (name := name.lower()) in names:
            if name in values:
                reason = f"the directive {name.decode()} appears twice"
                raise CorruptionError(None, offset, reason)
            values[name] = token if text is None else _ESCAPE.sub(rb"\1", text)
        offset = match.end()
    return values


def quote(value: bytes) -> bytes:
    r"""Return a value as a quoted string. Control characters are escaped too, as in Java.

    >>> quote(b'a"b').decode()
    '"a\\"b"'
    """
    return b'"' + _NEEDS_ESCAPE.sub(rb"\\\g<0>", value) + b'"'
