"""Docstrings as Markdown: escapes, links, lists and examples."""

from __future__ import annotations

import re
from collections.abc import Callable

FindAddress = Callable[[str], str | None]
"""Returns the address of the name between backticks, or None if it is not a public name."""

_ITEM = re.compile(r" *([*-]|\d+\.) ")
_CODE = re.compile(r"(?<![\w`\[])(`+)([^`\n]+)\1(?!`|\])")


def link_code(text: str, find: FindAddress) -> str:
    """Turn each text between backticks for which `find` has an address into a link."""

    def add_link(match: re.Match[str]) -> str:
        address = find(match[2])
        return f"[{match[0]}]({address})" if address else match[0]

    return _CODE.sub(add_link, text)


def _escape_and_link(lines: list[str], find: FindAddress) -> list[str]:
    pieces = re.split(r"(`+[^`]+`+)", "\n".join(lines))
    pieces[::2] = [piece.replace("<", "&lt;") for piece in pieces[::2]]
    return link_code("".join(pieces), find).split("\n")


def _split_blocks(text: str) -> list[list[str]]:
    blocks = re.split(r"\n[ ]*\n", text.strip("\n"))
    return [block.split("\n") for block in blocks]


def _separate_lists(lines: list[str]) -> list[str]:
    """Insert an empty line before each list that directly follows a paragraph."""
    separated: list[str] = []
    for line in lines:
        previous = separated[-1] if separated else " "
        is_within_list = _ITEM.match(previous) or previous.startswith(" ")
        if _ITEM.match(line) and not is_within_list:
            separated.append("")
        separated.append(line)
    return separated


def to_markdown(text: str, find: FindAddress) -> str:
    """Return a docstring as Markdown, with a link for each name for which `find` has an address.
    Examples (``>>>``) become code blocks, up to the next empty line. Indented paragraphs are kept
    as they are: Markdown shows them as code.

    >>> print(to_markdown("Return <n>.\\n\\n>>> 1 + 1\\n2", lambda name: None))
    Return &lt;n>.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    blocks: list[str] = []
    for lines in _split_blocks(text):
        start = next((n for n, line in enumerate(lines) if line.startswith(">>> ")), len(lines))
        paragraph, example = lines[:start], lines[start:]
        if paragraph and all(line.startswith("    ") for line in paragraph):
            blocks.append("\n".join(paragraph))
        elif paragraph:
            blocks.append("\n".join(_escape_and_link(_separate_lists(paragraph), find)))
        if example:
            blocks.append("\n".join(["```pycon", *example, "```"]))
    return "\n\n".join(blocks)
