"""The pages, and the fenced blocks on them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.paths import ROOT

README = ROOT / "README.md"
TOP = [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
PAGES = [README, *TOP, *sorted(ROOT.glob("docs/**/*.md"))]

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: the word behind the fence, its text, the line it starts in."""

    kind: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = FENCE.finditer(text)
    return [Block(m[1], m[2], text.count("\n", 0, m.start()) + 2) for m in found]


def commands(block: Block) -> list[tuple[str, str]]:
    """Return (command, what it printed) for each `$ ` of a console block."""
    joined = block.text.replace("\\\n", " ")
    return [
        (command, shown)
        for command, _, shown in (p.partition("\n") for p in ("\n" + joined).split("\n$ ")[1:])
    ]
