"""Values of a configuration: lists, variables, numbers and truths, as the real one reads them."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from bkstore.errors import CorruptionError, InvalidArgument
from bkstore.formats.syntax.configuration import Configuration
from bkstore.formats.syntax.properties_text import parse_properties
from bkstore.formats.syntax.variables import VariableResolver


@pytest.mark.parametrize(
    ("values", "items"),
    [
        (["1"], ["1"]),
        (["1,2"], ["1", "2"]),
        (["1", "2 , 3"], ["1", "2", "3"]),  # a key that is there twice is a list
        (["1", "1"], ["1", "1"]),
        ([""], [""]),
        ([","], ["", ""]),
        ([r"a\,b"], ["a", "b"]),  # split twice: one backslash does not keep a comma
        ([r"a\\\,b"], ["a,b"]),
        ([r"a\\\\b"], [r"a\b"]),
    ],
)
def test_lists(values: list[str], items: list[str]) -> None:
    """All items of a key, however they were written; the first where one is asked for."""
    conf = Configuration({"key": values})

    assert items == conf.strings("key")
    assert items[0] == conf.string("key", None)


def test_missing_keys() -> None:
    """A key that is not there has the default, and no items."""
    conf = Configuration({"a": ["1"]})

    assert [] == conf.strings("b")
    assert (None, "c", 7, 0.5, True) == (
        conf.string("b", None),
        conf.string("b", "c"),
        conf.integer("b", 7),
        conf.double("b", 0.5),
        conf.boolean("b", True),
    )
    assert ("a" in conf, "b" in conf, list(conf)) == (True, False, ["a"])


DEFINED = {
    "base": ["/data"],
    "dirs": ["${base}/1,/b"],
    "deep": ["${base}${none:-!}${dirs}"],
    "dollar": ["$"],
    "literal": ["$${base}"],
    "loop": ["x${other}"],
    "other": ["${loop}"],
}


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("${base}", "/data"),
        ("${base}/x${base}", "/data/x/data"),
        ("${none}", "${none}"),
        ("${none:-else}", "else"),
        ("${none:-}", ""),
        ("${none:-${base}}", "/data"),  # "${base" and the brace behind it, replaced again
        ("${base:-else}", "/data"),
        ("${a${b:-c}", "${a${b:-c}"),  # nor is there one behind a variable
        ("${deep}", "/data!/data/1"),  # of a list the first item
        ("x$${base}", "x/data"),  # a key is replaced twice: the second time is not escaped
        ("x$$${base}", "x${base}"),
        ("${literal}", "/data"),
        ("${dollar}${base}", "/data"),  # so does a dollar that comes from a variable
        ("${base", "${base"),
        ("${}", "${}"),
        ("${env:HOST}", "h1"),
        ("${env:NONE}", "${env:NONE}"),
        ("${env:NONE:-h2}", "h2"),
    ],
)
def test_variables(written: str, text: str) -> None:
    """Variables are other keys or look-ups by prefix; what nothing defines stays as it is."""
    lookups = {"env": {"HOST": "h1"}.get}

    assert text == Configuration({**DEFINED, "key": [written]}, lookups).string("key", None)


def test_variables_that_are_lists() -> None:
    """A variable alone is the whole list of its key, but an item of a list is one text."""
    conf = Configuration({**DEFINED, "all": ["${dirs}"], "some": ["${dirs},${base}"]})

    assert ["/data/1", "/b"] == conf.strings("all")
    assert ["[${base}/1, /b]", "/data"] == conf.strings("some")


def _doubled(last: str) -> dict[str, list[str] | str]:
    return {f"v{n}": f"${{v{n + 1}}}" * 2 for n in range(40)} | {"v40": last}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"v0": "${v1}", "v1": "x${v0}"}, "refers to itself: v0 -> v1 -> v0"),
        ({"v0": "${v0}y"}, "refers to itself"),
        ({f"v{n}": f"${{v{n + 1}}}" for n in range(1000)}, "too many nested variables"),
        (_doubled(""), "too many nested variables"),
        (_doubled("x" * 100_000), "more than 1048576 letters"),
    ],
    ids=["circle", "itself", "deep", "many", "long"],
)
def test_variables_without_end(values: dict[str, Any], why: str) -> None:
    """Variables that contain themselves, or grow without end, are refused soon."""
    with pytest.raises(InvalidArgument, match=why):
        VariableResolver(values).replace("${v0}")
    with pytest.raises(InvalidArgument, match="key: "):
        Configuration({"key": ["${loop}"], **DEFINED}).string("key", None)


@pytest.mark.parametrize(
    ("text", "bits", "number"),
    [
        ("3181", 32, 3181),
        ("-2147483648", 32, -(2**31)),
        ("+7", 32, 7),
        ("007", 32, 7),
        ("0x10", 32, 16),
        ("0xffffffff", 32, -1),
        ("0x-1", 64, -1),
        ("0b101", 32, 5),
        ("9223372036854775807", 64, 2**63 - 1),
        ("2147483648", 32, None),
        ("9223372036854775808", 64, None),
        ("", 32, None),
        ("1.0", 32, None),
        ("1_000", 32, None),
        ("0X10", 32, None),
        ("0x", 32, None),
        ("0b2", 32, None),
        ("1 0", 32, None),
        ("9" * 5000, 64, None),
    ],
)
def test_whole_numbers(text: str, bits: int, number: int | None) -> None:
    """Whole numbers have a sign and digits and fit; those of base 16 and 2 are cut down."""
    conf = Configuration({"key": [text, "other"]})
    if number is not None:
        assert number == conf.integer("key", None, bits)
        return
    with pytest.raises(InvalidArgument, match=r"key: .* is not an? "):
        conf.integer("key", None, bits)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0.95", 0.95),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e-1", 0.1),
        ("-1E+2d", -100.0),
        ("2f", 2.0),
        ("1e400", math.inf),
        ("-Infinity", -math.inf),
        ("0x10", 16.0),
        ("0X1.8p1", 3.0),
        ("0X1.8p1D", 3.0),
        ("Infinityf", None),
        ("NaNd", None),
        ("", None),
        (".", None),
        ("1e", None),
        ("inf", None),
        ("nan", None),
        ("1_0", None),
        ("0x1p3", None),
        ("0,5x", 0.0),  # a list: its first item
    ],
)
def test_numbers(text: str, number: float | None) -> None:
    """Other numbers are those of Java."""
    conf = Configuration({"key": [text]})
    if number is None:
        for read in (conf.double, conf.single):
            with pytest.raises(InvalidArgument, match=r"key: .* is not an? "):
                read("key", None)
        return
    assert number == conf.double("key", None)
    assert number == conf.single("key", None)


def test_single_precision() -> None:
    """A `float` is the shortest number that means it."""
    conf = Configuration({"a": ["0.94999999999"], "b": ["1e39"], "c": ["NaN"], "d": ["16777217"]})

    assert (0.95, math.inf, 16777216.0) == (
        conf.single("a", None),
        conf.single("b", None),
        conf.single("d", None),
    )
    assert math.isnan(conf.single("c", None) or 0.0)


@pytest.mark.parametrize("word", ["true", "T", "yes", "Y", "ON", "1"])
def test_true(word: str) -> None:
    """Six words are true, in letters of either case."""
    assert Configuration({"key": [word]}).boolean("key", None) is True


@pytest.mark.parametrize("word", ["False", "f", "NO", "n", "off", "0"])
def test_false(word: str) -> None:
    """Six are false."""
    assert Configuration({"key": [word]}).boolean("key", None) is False


@pytest.mark.parametrize("word", ["", "2", "truee", "tr ue", "ja", "01"])
def test_neither(word: str) -> None:
    """And no others are either."""
    with pytest.raises(InvalidArgument, match=r"key: .* is neither true nor false"):
        Configuration({"key": [word]}).boolean("key", None)


_SPECIAL = st.text(alphabet="ab=:\\ \n\r\t#!,${}-u01x\x00\x85\xe9", max_size=60)


@given(st.binary(max_size=60) | _SPECIAL.map(lambda text: text.encode("iso-8859-1")))
def test_any_bytes(data: bytes) -> None:
    """Any bytes are read, or refused: there is no other error, and no reading without end."""
    loaded: dict[str, list[str]] = {}
    with suppress(CorruptionError):
        for found in parse_properties(data):
            assert 0 <= found.begin < found.end <= len(data)
            loaded.setdefault(found.key, []).append(found.value)
    conf = Configuration(loaded)
    readings: list[Callable[[str, Any], Any]] = [
        conf.string,
        conf.integer,
        conf.double,
        conf.single,
        conf.boolean,
    ]
    for key in conf:
        for read in readings:
            with suppress(InvalidArgument):
                read(key, None)
        with suppress(InvalidArgument):
            assert conf.strings(key)
