"""The syntax of DIGEST-MD5's messages."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from bkstore.errors import CorruptionError
from bkstore.wire.sasl.directives import parse_directives, quote

KNOWN = [b"realm", b"nonce", b"qop"]


@pytest.mark.parametrize(
    ("message", "values"),
    [
        (b"", {}),
        (b",,  ,", {}),
        (b"qop=auth", {b"qop": b"auth"}),
        (b' realm = "a" , nonce="b"\r\n', {b"realm": b"a", b"nonce": b"b"}),
        (b'REALM="a"', {b"realm": b"a"}),
        (b'realm=""', {b"realm": b""}),
        (rb'realm="a\"\\\b,=c"', {b"realm": rb'a"\b,=c'.replace(rb"\b", b"\\b")}),
        (b'stale=true,stale=true,cipher="a,b",qop=auth', {b"qop": b"auth"}),
    ],
)
def test_what_is_read(message: bytes, values: dict[bytes, bytes]) -> None:
    """Names in any case, spaces around, empty elements; unknown names do not matter."""
    assert values == parse_directives(message, KNOWN)


@pytest.mark.parametrize(
    "message",
    [
        b"realm",
        b"=a",
        b"realm=",
        b"realm=,qop=auth",
        b'realm="a',
        b'realm="a\\',
        b'realm="a"b',
        b'realm="a" nonce="b"',
        b"realm=a b",
        b"qop=auth,QOP=auth",
        b"\x00",
        b"realm=\xff",
    ],
)
def test_what_is_refused(message: bytes) -> None:
    """Anything else is damage, of which the error shows nothing but the place."""
    with pytest.raises(CorruptionError):
        parse_directives(message, KNOWN)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_what_is_quoted_is_read(realm: bytes, nonce: bytes) -> None:
    """Any bytes come back out of a quoted string."""
    message = b"realm=" + quote(realm) + b",nonce=" + quote(nonce)

    assert {b"realm": realm, b"nonce": nonce} == parse_directives(message, KNOWN)


@pytest.mark.parametrize("unit", [b" ", b",", b"a", b"a=b,", b'a="', b"\\", b'"', b"a=b ", b" ,"])
def test_no_message_takes_long(unit: bytes) -> None:
    """A message of the greatest size is read in steps that grow with its size alone: one a
    thousand times as long still ends."""
    with suppress(CorruptionError):
        parse_directives(unit * (4_000_000 // len(unit)), KNOWN)
