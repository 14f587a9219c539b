"""The syntax of `bk_server.conf`, rule by rule, as commons-configuration 2.8 reads it."""

from __future__ import annotations

import pytest

from bkstore.errors import CorruptionError
from bkstore.formats.syntax.properties_text import parse_properties, split_list


def parsed(text: str | bytes) -> list[tuple[str, str]]:
    """Return keys and values in order."""
    data = text.encode("iso-8859-1") if isinstance(text, str) else text
    return [(found.key, found.value) for found in parse_properties(data)]


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("a=1", "a", "1"),
        ("a:1", "a", "1"),
        ("a 1", "a", "1"),
        ("a\t1", "a", "1"),
        ("a\f1", "a", "1"),
        ("  a \t=  1 \t", "a", "1"),
        ("a = = 1", "a", "= 1"),
        ("a=:1", "a", ":1"),
        ("a  : b c", "a", "b c"),
        ("a", "a", ""),
        ("a=", "a", ""),
        ("=1", "", "1"),
        (":1", "", "1"),
        ("a.b-c_d=1", "a.b-c_d", "1"),
        ("a=1 # no comment", "a", "1 # no comment"),
        ("a\x01=1", "a", "1"),  # trimmed: all characters up to the space
        ("a=\x011\x1f", "a", "1"),
        ("a=\xa01", "a", "\xa01"),  # and no others
        ("a\x0b1", "a", "1"),
    ],
)
def test_separators(line: str, key: str, value: str) -> None:
    """Key and value are parted by the first of = and :, or by white space alone."""
    assert [(key, value)] == parsed(line)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines(end: str) -> None:
    """Lines end with any of three ends; the last one needs none."""
    assert [("a", "1"), ("b", "2"), ("c", "3")] == parsed(end.join(["a=1", "", "b=2", "c=3"]))


@pytest.mark.parametrize("comment", ["# b=2", "! b=2", "   #b=2", "\t!b=2", "#", "  ", "# b=2\\"])
def test_comments(comment: str) -> None:
    """A line that begins with # or ! is none, nor does a backslash at its end continue it."""
    assert [("a", "1"), ("c", "3")] == parsed(f"a=1\n{comment}\nc=3")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=1\\\n2", [("a", "12")]),
        ("a=1\\\r\n\t  2\\\n 3", [("a", "123")]),
        ("a=1, \\\n  2", [("a", "1, 2")]),
        ("a=1\\  \n2", [("a", "12")]),  # the line is trimmed first
        ("a=1\\\\\nb=2", [("a", "1\\"), ("b", "2")]),  # an escaped backslash
        ("a=1\\\\\\\n2", [("a", "1\\2")]),
        ("a\\\\\nb=1", [("a\\", ""), ("b", "1")]),
        ("\\\na=1", [("a", "1")]),
        ("a\\\nb=1", [("ab", "1")]),
        ("a=1\\\n# b\n\n!c\n2\nd=3", [("a", "12"), ("d", "3")]),  # comments in it are none
        ("a=1\nb=2\\", [("a", "1")]),  # the end of the file takes it away
        ("a=1\nb=2\\\n\n# c\n", [("a", "1")]),
    ],
)
def test_continued_lines(text: str, found: list[tuple[str, str]]) -> None:
    """An odd number of backslashes at the end of a line joins the next to it."""
    assert found == parsed(text)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (r"\t\n\r\f\b", "\t\n\r\f\b"),
        (r"\=\:\#\!\'\"", "=:#!'\""),
        (r"\\", "\\"),
        (r"\,\ \d\$\x", r"\,\ \d\$\x"),  # others keep the backslash
        (r"\u0041\u00e9\u20ac", "Aé€"),
        (r"\ud83d\ude00", "\U0001f600"),
        (r"\ud83dx\ude00", "?x?"),
        (r"\u+041\u-001", "A\uffff"),
        (r"a\u12", "a"),  # cut off by the end
        (r"\uuuu1", None),
        (r"\u00g1", None),
    ],
)
def test_escapes_in_values(written: str, value: str | None) -> None:
    """Escapes of a value; one that is no number has the offset of its property."""
    if value is not None:
        assert [("a", value)] == parsed(f"a={written}x")[:1] or [("a", value)] == parsed(
            f"a={written}"
        )
        return
    with pytest.raises(CorruptionError) as refused:
        parsed(f"b=1\n  a={written}")
    assert 4 == refused.value.offset


@pytest.mark.parametrize(
    ("written", "key"),
    [
        (r"a\=b", "a=b"),
        (r"a\:b", "a:b"),
        (r"a\ b", "a b"),
        (r"\x\,", "x,"),  # others lose the backslash
        (r"\\", "\\"),
        (r"\t\b", "\t\b"),
        (r"\101\7\88\777\400", "A\x078" + "8\x3f7 0"),
        (r"\u0041\uuu0042\u+0043", "ABC"),
        (r"\u12", None),
        (r"\u00g1", None),
    ],
)
def test_escapes_in_keys(written: str, key: str | None) -> None:
    """Escapes of a key are others: octal ones too, and unknown ones lose their backslash."""
    if key is not None:
        assert [(key, "1")] == parsed(f"{written}=1")
        return
    with pytest.raises(CorruptionError):
        parsed(f"{written}=1")


def test_bytes() -> None:
    """Bytes are ISO-8859-1, so what an editor wrote in UTF-8 are two characters."""
    assert [("é", "Ã©")] == parsed(b"\xe9=\xc3\xa9")


def test_a_line_end_of_unicode_in_a_value() -> None:
    """A value with an end of line that is none for the reader of lines takes the key with it."""
    assert [("", ""), ("\x85a", "1")] == parsed("a=1\x852\n\x85a=1")


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("a,b", ["a", "b"]),
        (" a , b\t", ["a", "b"]),
        ("a,", ["a", ""]),
        (",", ["", ""]),
        ("", [""]),
        (r"a\,b,c", ["a,b", "c"]),
        (r"a\\,b", ["a\\", "b"]),
        (r"a\\\,b", [r"a\,b"]),
        (r"\d\ ,\\", [r"\d" + "\\", "\\"]),
        ("a\\", ["a\\"]),
    ],
)
def test_lists(text: str, items: list[str]) -> None:
    """Commas part items, which are trimmed; a backslash keeps commas and backslashes."""
    assert items == split_list(text)


def test_places() -> None:
    """A property says where its lines lie, with the comments inside of it."""
    text = b"# a\r\n\r\n b=1\\\r\n# c\r\n2\r\nd=3"
    (first, second) = parse_properties(text)

    assert b" b=1\\\r\n# c\r\n2\r\n" == text[first.begin : first.end]
    assert b"d=3" == text[second.begin : second.end]
