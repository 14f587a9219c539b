"""Escapes text from outside for display or storage: control and undecodable characters.

On a terminal a control character moves the cursor, a bidirectional override reverses a name, and a
lone surrogate (for an undecodable byte of a file name) cannot be written at all.
"""

from __future__ import annotations


def escape_unprintable(text: str) -> str:
    r"""Return a text as one line in which every character is visible.

    Characters that Python calls unprintable (controls, bidirectional overrides, line separators,
    surrogates, spaces other than the space) are escaped as `repr` does; a backslash is not.

    >>> print(escape_unprintable("b1\x1b[2J\n\u202etxt.exe"))
    b1\x1b[2J\n\u202etxt.exe
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def escape_surrogates(text: str) -> str:
    r"""Return a text that UTF-8 can encode: lone surrogates are escaped, all else is unchanged.

    >>> escape_surrogates("caf\udce9\n")
    'caf\\udce9\n'
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
