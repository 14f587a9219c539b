"""JSON from outside: a value or a `CorruptionError`, whatever the bytes are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import bkstore
from bkstore.errors import CorruptionError
from bkstore.formats.syntax.json_text import parse_json, parse_json_rows

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


_ROWS = [
    b'{"rows": [{"a": 1}, {"a": 2}], "other": [3]}',
    b' {\n"other": "x" ,\t"rows" : [ 1 , [2] , null ] , "rows2": {} }\r\n',
    b'{"rows": []}',
    b'{"rows": [ ]}',
    b"{}",
    b"{ }",
    b'{"rows": {"a": []}}',
    b'{"rows": "[1]"}',
    b"[1, 2]",
    b'\xef\xbb\xbf{"rows": [1]}',
    '{"rows": ["ä"]}'.encode(),
    b'{"rows": ["\\ud83d\\ude00"]}',
]
_NO_ROWS = [
    *(b"", b"{", b'{"rows": [1', b'{"rows": [1,]}', b'{"rows": [1 2]}', b'{"rows": [1], }'),
    *(b'{"rows": [1]} x', b'{"rows": [1], "rows": [2]}', b"{1: [1]}", b'{"rows" [1]}', b"\xff"),
    *(b'{"rows": [NaN]}', b'{"rows": ["\\ud83d"]}', b'{"rows": [{"a": 1, "a": 2}]}', b'{"a": 1}{'),
    b'{"rows": [' + b"[" * 100_000,
]


@pytest.mark.parametrize("text", _ROWS)
def test_rows(text: bytes) -> None:
    """The elements of a list are converted, with their index; everything else is as parsed."""
    parsed = parse_json(text)
    expected = parsed
    if isinstance(parsed, dict) and isinstance(parsed.get("rows"), list):
        expected = {**parsed, "rows": [(index, row) for index, row in enumerate(parsed["rows"])]}

    assert expected == parse_json_rows(text, {"rows": lambda row, index: (index, row)})
    as_text = text.decode("utf-8")
    assert expected == parse_json_rows(as_text, {"rows": lambda row, index: (index, row)})


@pytest.mark.parametrize("text", _NO_ROWS)
def test_rows_of_other_texts(text: bytes) -> None:
    """What is no JSON is refused as without conversion, whatever a function says of its rows."""

    def refuse(row: Any, index: int) -> None:
        raise CorruptionError(None, None, f"row {index}: {row}")

    with pytest.raises(CorruptionError) as expected:
        parse_json(text, subject="file")
    with pytest.raises(CorruptionError) as refused:
        parse_json_rows(text, {"rows": refuse}, subject="file")
    assert str(expected.value) == str(refused.value)
    if text.isascii():
        with pytest.raises(CorruptionError) as refused:
            parse_json_rows(text.decode("ascii"), {"rows": refuse}, subject="file")
        assert str(expected.value) == str(refused.value)


def test_rows_that_a_function_refuses() -> None:
    """An error of a function is raised, the first one of several."""

    def refuse(row: Any, index: int) -> None:
        if row > 1:
            raise CorruptionError(None, None, f"row {index}: {row}")

    with pytest.raises(CorruptionError, match="row 1: 5"):
        parse_json_rows(b'{"rows": [0, 5, 6]}', {"rows": refuse})
