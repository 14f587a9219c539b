"""Docstrings as Markdown: what Markdown would read otherwise than whoever wrote them."""

from __future__ import annotations

import re
from collections.abc import Callable

Find = Callable[[str], str | None]
"""The address of what a text between backticks names; None where it names nothing public."""

_ITEM = re.compile(r" *([*-]|\d+\.) ")
_CODE = re.compile(r"(?<![\w`\[])(`+)([^`\n]+)\1(?!`|\])")


def link_code(text: str, find: Find) -> str:
    """Make links of those texts between backticks that `find` knows."""

    def linked(match: re.Match[str]) -> str:
        address = find(match[2])
        return f"[{match[0]}]({address})" if address else match[0]

    return _CODE.sub(linked, text)


def _prose(lines: list[str], find: Find) -> list[str]:
    """Escape angle brackets outside code, and make links."""
    pieces = re.split(r"(`+[^`]+`+)", "\n".join(lines))
    pieces[::2] = [piece.replace("<", "&lt;") for piece in pieces[::2]]
    return link_code("".join(pieces), find).split("\n")


def _blocks(text: str) -> list[list[str]]:
    blocks = re.split(r"\n[ ]*\n", text.strip("\n"))
    return [block.split("\n") for block in blocks]


def _with_lists_apart(lines: list[str]) -> list[str]:
    """Put an empty line before a list that follows a paragraph's line directly."""
    apart: list[str] = []
    for line in lines:
        if apart and _ITEM.match(line) and not _ITEM.match(apart[-1]) and apart[-1][:1] != " ":
            apart.append("")
        apart.append(line)
    return apart


def markdown(text: str, find: Find) -> str:
    """Return a docstring as Markdown.

    Examples (``>>>``) become code blocks, as do indented lines, as they stand; a paragraph of
    examples ends at an empty line, as for `doctest`.

    >>> print(markdown("Return <n>.\\n\\n>>> 1 + 1\\n2", lambda name: None))
    Return &lt;n>.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    done: list[str] = []
    for lines in _blocks(text):
        start = next((n for n, line in enumerate(lines) if line.startswith(">>> ")), len(lines))
        before, example = lines[:start], lines[start:]
        if before and all(line.startswith("    ") for line in before):
            done.append("\n".join(before))
        elif before:
            done.append("\n".join(_prose(_with_lists_apart(before), find)))
        if example:
            done.append("\n".join(["```pycon", *example, "```"]))
    return "\n\n".join(done)
