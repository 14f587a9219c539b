"""JSON from outside: a value or a `CorruptionError`, whatever the bytes are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import bkstore
from bkstore.errors import CorruptionError
from bkstore.formats.syntax.json_text import parse_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # Text is what UTF-8 has: no halves of surrogate pairs.
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab\U0001f600\\u"), inner),
)


@given(VALUES, st.booleans(), st.booleans())
def test_what_json_says_is_read(value: object, ascii_only: bool, marked: bool) -> None:
    """Any JSON value comes back, escaped or not, with a byte order mark or without."""
    text = json.dumps(value, ensure_ascii=ascii_only)
    data = (b"\xef\xbb\xbf" if marked else b"") + text.encode("utf-8")

    assert value == parse_json(data)
    assert value == parse_json(text)


@pytest.mark.parametrize(
    ("data", "offset", "reason"),
    [
        (b"", 0, "Expecting value"),
        (b"\xef\xbb\xbf", 3, "Expecting value"),
        (b'{"a": "\xc3\xa9" ! }', 11, "delimiter"),
        (b'{"a": 1} {}', 9, "Extra data"),
        (b'["\xff"]', 2, "not UTF-8"),
        (b'["\xed\xa0\x80"]', 2, "not UTF-8"),  # a surrogate is no character of UTF-8
        (b'["\\ud800"]', None, "surrogate"),
        (b'{"\\uDFFF": 1}', None, "surrogate"),
        (b'{"a": 1, "b": {"a": 1, "a": 2}}', None, "key 'a' appears twice"),
        (b"NaN", None, "NaN is not a JSON number"),
        (b"[-Infinity]", None, "-Infinity is not a JSON number"),
        (b"[1e999]", None, "number 1e999 exceeds the range of a float"),
        (b"9" * 10_000, None, "digits"),
        (b"[" * 100_000, None, "nested too deeply"),
        (b'{"a":' * 100_000, None, "nested too deeply"),
        (b"[" * 100_000 + b"]" * 100_000, None, "nested too deeply"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_no_json_is_corruption(data: bytes, offset: int | None, reason: str) -> None:
    """Each way of being no JSON is a `CorruptionError` that names file, offset and reason."""
    with pytest.raises(CorruptionError, match=reason) as caught:
        parse_json(data, Path("d") / "file.json", "the list")

    assert (str(Path("d") / "file.json"), offset) == (caught.value.file, caught.value.offset)
    assert caught.value.reason.startswith("the list is not JSON: ")
    assert "\n" not in str(caught.value)


def test_a_pair_of_surrogates_is_a_character() -> None:
    """Escaped characters beyond the first 65,536 are pairs, and an escaped backslash is none."""
    assert ["\U0001f600", "\\ud800"] == parse_json(rb'["\ud83d\ude00", "\\ud800"]')


def test_one_place_parses() -> None:
    """No other module calls Python's parser on what may come from outside."""
    root = Path(bkstore.__file__).parent
    # Analyses read back what they wrote themselves.
    own = {"formats/syntax/json_text.py", "offline/analyses/kernels/ledger_facts.py"}
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if re.search(r"json\.(loads?|JSONDecoder)\(", path.read_text(encoding="utf-8"))
    }

    assert own == found
