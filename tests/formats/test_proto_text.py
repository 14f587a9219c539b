r"""Text format: the escapes of `TextFormat.unescapeBytes`, held against its source by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from bkstore.errors import CorruptionError
from bkstore.formats.syntax import proto_text
from bkstore.formats.syntax.proto_messages import declare

Message = declare("bkstore", "Texts: optional string text 1, optional bytes data 2")["Texts"]


def _read(text: bytes) -> Any:
    message = Message()
    proto_text.parse_into(text, 0, message, "message")
    return message


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (rb"\a\b\f\n\r\t\v", b"\x07\x08\x0c\x0a\x0d\x09\x0b"),
        (rb"\\\'\"\?", b"\\'\"?"),
        (rb"\0\7\12\377", b"\x00\x07\x0a\xff"),
        (rb"\18", b"\x018"),
        (rb"\0011", b"\x011"),
        (rb"\xf\x0F\xfF", b"\x0f\x0f\xff"),
        (rb"\x411", b"A1"),
        (rb"\x4g", b"\x04g"),
        (rb"\u00e4\u20ac", b"\xc3\xa4\xe2\x82\xac"),
        (rb"\U0001f600", b"\xf0\x9f\x98\x80"),
        (rb"\u005cn", rb"\n"),
        (rb"\u00221", b'"1'),
        (rb"\\u00e4", rb"\u00e4"),
        (rb"\\\u00e4", b"\\\xc3\xa4"),
        (rb"\\x4", rb"\x4"),
        (b"\\\\\xc3\xa4\\\\\xe2\x82\xac", b"\\\xc3\xa4\\\xe2\x82\xac"),
        (b"# \xc3\xa4", b"# \xc3\xa4"),
    ],
)
def test_escapes(written: bytes, expected: bytes) -> None:
    """Each escape stands for the bytes that Java reads there, in both kinds of quotes."""
    assert expected == _read(b'data: "' + written + b'"').data
    assert expected == _read(b"data: '" + written + b"'").data


@pytest.mark.parametrize(
    "written",
    [
        rb"\q",
        rb"\8",
        rb"\ ",
        rb"\N{DIGIT ONE}",
        rb"\x",
        rb"\xg",
        rb"\400",
        rb"\777",
        rb"\u12",
        rb"\ud800",
        rb"\udc00",
        rb"\U0001f60",
        rb"\U00110000",
        rb"\UFFFFFFFF",
        rb"\U0000d800",
        b"\\\xc3\xa4",
        b"\\\xe2\x82\xac",
    ],
)
def test_unknown_escapes(written: bytes) -> None:
    """What is no escape, no byte or no character is damage, and its place is told."""
    with pytest.raises(CorruptionError, match="message has an unknown escape") as caught:
        _read(b'text: "a" # "\\q\ndata: "b' + written + b'"')
    assert 24 == caught.value.offset


def test_comments_and_neighbours() -> None:
    """Quotes and backslashes in comments mean nothing; strings beside each other are one."""
    found = _read(b"# it's \\q\ntext: \"a#\" 'b\"\\u00e4' # \"\n\"\\?\"\ndata: '\\'#\\\"' # '\n")

    assert 'a#b"\u00e4?' == found.text
    assert b"'#\"" == found.data


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        (b'text: "a', 0),
        (b'text: "a"\ndata: "b\\', 10),
        (b'text: "a\n"', 0),
        (b"\n\ntext: 7", 2),
        (b'\n\\q: "a"', 1),
        (b'text: "\\303"', 0),
        (b"text: '\xc3'", 7),
    ],
)
def test_what_does_not_parse(text: bytes, offset: int) -> None:
    """Text that is no message is a `CorruptionError` at the byte or the line's first."""
    with pytest.raises(CorruptionError, match="message") as caught:
        _read(text)
    assert offset == caught.value.offset


def test_passwords_are_not_quoted() -> None:
    """Where a password stands, what the parser would quote of the text is left out."""
    with pytest.raises(CorruptionError) as caught:
        _read(b'text: "a"\npassword: "s3cret')

    assert "message does not parse: line 2" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_the_last_counts() -> None:
    """Of a field given twice the last one counts, as in Java."""
    assert "b" == _read(b'text: "a" text: "b"').text


def test_written() -> None:
    """Java writes seven controls as letters, all else that is not printable ASCII in octal."""
    message = Message(text="\u00e4'", data=b'\x00\a\b\t\n\v\f\r\x1f"\\?~\x7f\xff')
    expected = rb"""text: "\303\244\'"
data: "\000\a\b\t\n\v\f\r\037\"\\?~\177\377"
"""

    assert expected == proto_text.to_bytes(message)


@given(st.text(st.characters(exclude_categories=("Cs",))), st.binary())
def test_round_trip(text: str, data: bytes) -> None:
    """Any text and any bytes come back."""
    message = Message(text=text, data=data)

    assert message == _read(proto_text.to_bytes(message))
