"""HTML as text that is escaped unless it was made here.

What is not `Html` is escaped by `tag`, so a bookie id or a detail can never become markup, and
shows every character that it has (`bkstore.tables.safe_text.shown`).
"""

from __future__ import annotations

from html import escape

from bkstore.tables.safe_text import shown

__all__ = ["Html", "joined", "note", "tag"]

_VOID = frozenset({"meta"})
_EMPTY = frozenset({"rect"})  # of SVG, where a start tag alone would take in what follows


class Html(str):
    """Text that is markup already; only `tag` and constants of this package make it."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str | int | bool | None) -> Html:
    """Return an element; plain text among `children` is escaped.

    Attributes that are None or False are left out, True ones stand alone; `class_` is `class`,
    and `_` becomes `-`.

    >>> tag("td", "a<b", tag("b", "c"), class_="n", data_v=7)
    '<td class="n" data-v="7">a&lt;b<b>c</b></td>'
    """
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        words.append(key if value is True else f'{key}="{_escaped(str(value))}"')
    if name in _EMPTY:
        return Html(f"<{' '.join(words)}/>")
    opening = f"<{' '.join(words)}>"
    return Html(opening if name in _VOID else f"{opening}{joined(*children)}</{name}>")


def _escaped(text: str) -> str:
    return escape(shown(text))


def joined(*children: str) -> Html:
    """Return the children one behind the other, plain text escaped.

    >>> joined("1 < 2", tag("i", "x"))
    '1 &lt; 2<i>x</i>'
    """
    return Html("".join(c if isinstance(c, Html) else _escaped(c) for c in children))


def note(*children: str, class_: str = "note") -> Html:
    """Return a small paragraph."""
    return tag("p", *children, class_=class_)
