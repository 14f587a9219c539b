"""Parsing numbers and booleans as Java and commons-configuration 2 do. No I/O. `0x10` and `0b11`
are numbers of any size, truncated to the requested bits; other numbers are what Java's `Long` and
`Double` parse. Raises `ValueError`, with a sentence, for anything else."""

from __future__ import annotations

import math
import re
import struct

_RADIX = {"0x": (16, re.compile(r"[+-]?[\da-fA-F]+")), "0b": (2, re.compile(r"[+-]?[01]+"))}
_WHOLE = re.compile(r"[+-]?\d+")
_DIGITS = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_DECIMAL = re.compile(rf"([+-]?{_DIGITS})[fFdD]?")
_NAN_OR_INFINITY = re.compile(r"[+-]?(?:NaN|Infinity)")
_HEXADECIMAL = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_TRIMMED = "".join(map(chr, range(0x21)))
"""The characters that Java's `String.trim` removes: all up to the space."""
_NOT_JAVA_SPACE = "\x85\xa0\u2007\u202f"
"""Unicode white space that is not white space for `Character.isWhitespace`."""
_TRUE = ("true", "t", "yes", "y", "on", "1")
_FALSE = ("false", "f", "no", "n", "off", "0")


def trim(text: str) -> str:
    """Return a text without control characters and spaces at its ends, as Java's `trim`."""
    return text.strip(_TRIMMED)


def is_blank(text: str) -> bool:
    r"""Return whether a text has only white space as Java defines it.

    >>> is_blank(" \t\u3000"), is_blank("\xa0")
    (True, False)
    """
    return all(letter.isspace() and letter not in _NOT_JAVA_SPACE for letter in text)


def parse_integer(text: str, bits: int) -> int:
    """Return the signed integer of `bits` bits in a text. A number with the prefix ``0x`` or ``0b``
    may have any length: its lowest bits count, as in Java. Raises `ValueError` for other texts.

    >>> parse_integer("+3181", 32), parse_integer("0xffffffff", 32)
    (3181, -1)
    """
    number = _parse_prefixed(text)
    if number is not None:  # its lowest bits, of which the highest is the sign
        return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is not an integer")
    # A text of 100 digits or more is too large anyway, and `int` is slow on long ones.
    number = int(text) if len(text) < 100 else 1 << bits
    if not -1 << bits - 1 <= number < 1 << bits - 1:
        raise ValueError(f"{text!r} is not an integer of {bits} bits")
    return number


def parse_double(text: str) -> float:
    """Return the double-precision number in a text: in Java's syntax, or an integer after the
    prefix ``0x`` or ``0b``. Numbers that are too large are infinite. Raises `ValueError` for other
    texts.

    >>> parse_double(" .5d"), parse_double("0x10"), parse_double("0X1p-1")
    (0.5, 16.0, 0.5)
    """
    number = _parse_prefixed(text)
    if number is not None:
        try:
            return float(number)
        except OverflowError:
            return math.copysign(math.inf, number)
    stripped = trim(text)
    if _NAN_OR_INFINITY.fullmatch(stripped):
        return float(stripped)
    if decimal := _DECIMAL.fullmatch(stripped):
        return float(decimal[1])
    if hexadecimal := _HEXADECIMAL.fullmatch(stripped):
        try:
            return float.fromhex(hexadecimal[1])
        except OverflowError:
            return math.copysign(math.inf, -1 if stripped[0] == "-" else 1)
    raise ValueError(f"{text!r} is not a number")


def parse_single(text: str) -> float:
    """Return the single-precision number in a text: a Python float that has the shortest decimal
    form with which that number is the nearest one.

    >>> parse_single("0.949999999"), parse_single("1e-1")
    (0.95, 0.1)
    """
    number = parse_double(text)
    if math.isnan(number) or math.isinf(number):
        return number
    try:
        packed = struct.pack("<f", number)
    except OverflowError:
        return math.copysign(math.inf, number)
    (exact,) = struct.unpack("<f", packed)
    # Nine digits identify every number of single precision; try fewer first.
    candidates = (float(f"{exact:.{digits}g}") for digits in range(1, 10))
    return next(candidate for candidate in candidates if _packs_to(candidate, packed))


def parse_boolean(text: str) -> bool:
    """Return the boolean for a word such as true, off, y or 0, in upper or lower case.

    >>> [parse_boolean(word) for word in ("TRUE", "off", "1", "n")]
    [True, False, True, False]
    """
    word = text.lower() if text.isascii() else text  # `lower` maps some other letters to these too
    if word not in _TRUE + _FALSE:
        raise ValueError(f"{text!r} is neither true nor false")
    return word in _TRUE


def _parse_prefixed(text: str) -> int | None:
    """Return the integer after the prefix ``0x`` or ``0b``; None for a text without such a prefix.
    Raises `ValueError` for a prefix that no number follows."""
    if text[:2] not in _RADIX:
        return None
    radix, syntax = _RADIX[text[:2]]
    if not syntax.fullmatch(text, 2):
        raise ValueError(f"{text!r} is not a number of base {radix}")
    return int(text[2:], radix)


def _packs_to(number: float, packed: bytes) -> bool:
    """Return whether the number has these bytes as a 32-bit float."""
    try:
        return struct.pack("<f", number) == packed
    except OverflowError:
        return False
