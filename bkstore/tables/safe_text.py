"""Text from outside, made fit to be shown or kept: control characters, broken characters.

Ids, paths and the reasons in errors come from whoever wrote the bytes. On a terminal a control
character moves the cursor, an override of direction turns a name around, and half of a
surrogate pair (an undecodable byte of a file name is one) cannot be written at all.
"""

from __future__ import annotations


def shown(text: str) -> str:
    r"""Return a text as a person may see it: one line, no character that is not seen.

    What Python calls not printable (controls, formats such as bidirectional overrides, line
    separators, surrogates, spaces other than the space) is escaped as `repr` does; a backslash
    stays as it is.

    >>> print(shown("b1\x1b[2J\n\u202etxt.exe"))
    b1\x1b[2J\n\u202etxt.exe
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def encodable(text: str) -> str:
    r"""Return a text that UTF-8 takes: lone surrogates are escaped, all else is as it is.

    >>> encodable("caf\udce9\n")
    'caf\\udce9\n'
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
