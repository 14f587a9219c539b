"""Running a page from top to bottom: examples and transcripts print what the page shows."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import Any

from bkstore.cli.main import main
from tests.docs.page_blocks import blocks, commands

__all__ = ["NEEDS_SPARK", "run_page"]

NEEDS_SPARK = "# needs spark"
_FILE = re.compile(r"# ([\w/]+\.py)\n")
"""The first line of a block that becomes a file too."""


def _same(shown: str, printed: str) -> bool:
    squeezed, got = (re.sub(r"[\s─]", "", text) for text in (shown, printed))
    pattern = ".*".join(map(re.escape, squeezed.split("...")))
    return re.fullmatch(pattern, got) is not None


def _printed_by(command: str, code: int) -> tuple[str, int]:
    """Return what a `bkstore` command or `echo $?` prints to both streams, and its exit code."""
    out = io.StringIO()
    if command == "echo $?":
        return f"{code}\n", code
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main(shlex.split(command)[1:])
    return out.getvalue(), code


def run_page(page: Path, *, spark: bool) -> None:
    """Run the blocks of a page in the current directory, those for Spark if `spark` says so."""
    names: dict[str, Any] = {"__name__": "page"}
    printed: str | None = None
    before, code = "", 0
    for block in blocks(page):
        where = f"{page.name}, line {block.line}"
        if block.text.startswith(NEEDS_SPARK) and not spark:
            printed = None
        elif block.kind == "python":
            if file_name := _FILE.match(block.text):
                Path(file_name[1]).write_text(block.text)
            out = io.StringIO()
            source = "\n" * (block.line - 1) + block.text
            with contextlib.redirect_stdout(out):
                exec(compile(source, str(page), "exec"), names)
            printed = out.getvalue()
        elif block.kind == "output" and printed is not None:
            assert _same(block.text, printed), f"{where}: printed\n{printed}"
        elif block.kind == "console":
            for command, shown in commands(block):
                if command.startswith("bkstore ") or command == "echo $?":
                    text, code = _printed_by(command, code)

                    assert _same(shown, text), f"{where}: {command} printed\n{text}\n\n{before}"
                    before = f"{command}, before it, printed\n{text}"
