"""Cookies written: the bytes of the real class, and back to the same cookie."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.cookie import Cookie, decode, encode

NAMED = Cookie(5, "bookie-1:3181", ("/journal",), ("/data/1", "/data/2"))


def _printable(forbidden: str = "") -> st.SearchStrategy[str]:
    text = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1)
    return text.filter(lambda name: not set(name) & set(forbidden))


DIRS = st.lists(_printable(), min_size=1, max_size=4).map(tuple)
JOURNALS = st.lists(_printable(","), min_size=1, max_size=4).map(tuple)
COOKIES = st.one_of(
    st.builds(Cookie, st.just(3), _printable(), JOURNALS, DIRS),
    st.builds(
        Cookie,
        st.sampled_from([4, 5]),
        _printable(),
        JOURNALS,
        DIRS,
        st.none() | DIRS,
        st.none() | st.text(st.characters(exclude_categories=("Cs",))),
    ),
)


def test_version_5() -> None:
    """Version 5 is protobuf text format: fields by number, a TAB in a list as backslash t."""
    expected = (
        "5\n"
        'bookieHost: "bookie-1:3181"\n'
        'journalDir: "/journal,/journal2"\n'
        'ledgerDirs: "2\\t/data/1\\t/data/2"\n'
        'instanceId: "0f0e0d0c"\n'
        'indexDirs: "1\\t/index"\n'
    )
    cookie = replace(
        NAMED,
        journal_dirs=("/journal", "/journal2"),
        index_dirs=("/index",),
        instance_id="0f0e0d0c",
    )

    assert expected.encode() == encode(cookie)


def test_version_4_without_optional_fields() -> None:
    """What the cookie does not have is not written."""
    expected = (
        '4\nbookieHost: "bookie-1:3181"\njournalDir: "/journal"\n'
        'ledgerDirs: "2\\t/data/1\\t/data/2"\n'
    )

    assert expected.encode() == encode(replace(NAMED, version=4))


def test_version_3() -> None:
    """Version 3 is four lines, with real TABs in the list."""
    expected = b"3\nbookie-1:3181\n/journal\n2\t/data/1\t/data/2\n"

    assert expected == encode(replace(NAMED, version=3))


def test_text_format_escapes() -> None:
    """Quotes, backslashes and all that is not ASCII are escaped as Java's text format does."""
    cookie = replace(NAMED, ledger_dirs=("/d\u00e4\"'\\",))

    assert rb'ledgerDirs: "1\t/d\303\244\"\'\\"' in encode(cookie)


@given(COOKIES)
def test_round_trip(cookie: Cookie) -> None:
    """What is written reads back as the same cookie."""
    assert cookie == decode(encode(cookie))


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": 6},
        {"version": 3, "instance_id": "x"},
        {"version": 3, "index_dirs": ("/i",)},
        {"bookie_id": ""},
        {"version": 3, "bookie_id": "a\nb"},
        {"ledger_dirs": ()},
        {"index_dirs": ()},
        {"ledger_dirs": ("/a\t/b",)},
        {"ledger_dirs": ("/a\udc80",)},
        {"journal_dirs": ("/a,/b",)},
    ],
    ids=str,
)
def test_what_a_cookie_cannot_hold(change: dict[str, object]) -> None:
    """Names that would read back as others are refused, not written."""
    with pytest.raises(InvalidArgument):
        encode(replace(NAMED, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize("listed", ["1\t/a\t/b", "3\t/a\t/b", "0\t/a", "2", "\t/a"])
def test_a_list_whose_number_is_another(listed: str) -> None:
    """A list of directories has as many paths as it says, no more and no fewer."""
    with pytest.raises(CorruptionError, match="directory list is invalid"):
        decode(f"3\nb1:3181\n/j\n{listed}\n".encode())


@pytest.mark.parametrize("more", ["", "/x\n"])
def test_version_3_has_four_lines(more: str) -> None:
    """A line too many is as wrong as one that is missing."""
    whole = "3\nb1:3181\n/j\n1\t/a\n"
    lines = whole + more if more else whole.removesuffix("1\t/a\n")

    with pytest.raises(CorruptionError, match="more lines"):
        decode(lines.encode())
