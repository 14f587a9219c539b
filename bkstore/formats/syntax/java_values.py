"""Texts as numbers and truths, as Java and commons-configuration 2 take them. No I/O.

`0x10` and `0b11` are numbers of any size, cut down to the bits asked for; other numbers are what
`Long` and `Double` of Java parse. Raises `ValueError`, with a sentence, for anything else.
"""

from __future__ import annotations

import math
import re
import struct

_RADIX = {"0x": (16, re.compile(r"[+-]?[\da-fA-F]+")), "0b": (2, re.compile(r"[+-]?[01]+"))}
_WHOLE = re.compile(r"[+-]?\d+")
_DIGITS = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_DECIMAL = re.compile(rf"([+-]?{_DIGITS})[fFdD]?")
_NAMED = re.compile(r"[+-]?(?:NaN|Infinity)")
_HEXADECIMAL = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_BLANKS = "".join(map(chr, range(0x21)))
_NO_SPACE = "\x85\xa0\u2007\u202f"
"""White space of Unicode that is none for `Character.isWhitespace`."""
_TRUE = ("true", "t", "yes", "y", "on", "1")
_FALSE = ("false", "f", "no", "n", "off", "0")


def is_blank(text: str) -> bool:
    r"""Return whether a text is nothing but white space, as Java sees it.

    >>> is_blank(" \t\u3000"), is_blank("\xa0")
    (True, False)
    """
    return all(letter.isspace() and letter not in _NO_SPACE for letter in text)


def parse_integer(text: str, bits: int) -> int:
    """Return the whole number of `bits` bits with a sign.

    >>> parse_integer("+3181", 32), parse_integer("0xffffffff", 32)
    (3181, -1)
    """
    number = _in_radix(text)
    if number is not None:
        return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is no whole number")
    number = int(text) if len(text) < 100 else 1 << bits
    if not -1 << bits - 1 <= number < 1 << bits - 1:
        raise ValueError(f"{text!r} is no whole number of {bits} bits")
    return number


def parse_double(text: str) -> float:
    """Return the number that a text is.

    >>> parse_double(" .5d"), parse_double("0x10"), parse_double("0X1p-1")
    (0.5, 16.0, 0.5)
    """
    number = _in_radix(text)
    if number is not None:
        try:
            return float(number)
        except OverflowError:
            return math.copysign(math.inf, number)
    body = text.strip(_BLANKS)
    if _NAMED.fullmatch(body):
        return float(body)
    if decimal := _DECIMAL.fullmatch(body):
        return float(decimal[1])
    if hexadecimal := _HEXADECIMAL.fullmatch(body):
        try:
            return float.fromhex(hexadecimal[1])
        except OverflowError:
            return math.copysign(math.inf, -1 if body[0] == "-" else 1)
    raise ValueError(f"{text!r} is no number")


def parse_float(text: str) -> float:
    """Return the number of single precision that a text is, as the shortest that means it.

    >>> parse_float("0.949999999"), parse_float("1e-1")
    (0.95, 0.1)
    """
    number = parse_double(text)
    if math.isnan(number) or math.isinf(number):
        return number
    try:
        single = struct.pack("<f", number)
    except OverflowError:
        return math.copysign(math.inf, number)
    (exact,) = struct.unpack("<f", single)
    shortest = (float(f"{exact:.{digits}g}") for digits in range(1, 10))
    return next(short for short in shortest if _packs_to(short, single))


def parse_boolean(text: str) -> bool:
    """Return the truth that a word says, in letters of either case.

    >>> [parse_boolean(word) for word in ("TRUE", "off", "1", "n")]
    [True, False, True, False]
    """
    word = text.lower() if text.isascii() else text
    if word not in _TRUE + _FALSE:
        raise ValueError(f"{text!r} is neither true nor false")
    return word in _TRUE


def _in_radix(text: str) -> int | None:
    """Return the number behind ``0x`` or ``0b``, None where there is no such prefix."""
    if text[:2] not in _RADIX:
        return None
    radix, syntax = _RADIX[text[:2]]
    if not syntax.fullmatch(text, 2):
        raise ValueError(f"{text!r} is no number of base {radix}")
    return int(text[2:], radix)


def _packs_to(number: float, single: bytes) -> bool:
    try:
        return struct.pack("<f", number) == single
    except OverflowError:
        return False
