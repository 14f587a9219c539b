"""Make tables and pictures of the pages about speed anew: `python -m tools.performance`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bkstore.files.user_outputs import write_output
from tools.performance.curves import PICTURES, picture
from tools.performance.figures import Figures
from tools.performance.pages import with_tables

__all__ = ["main"]

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("performance.md", "performance-figures.md")


def main(words: Sequence[str] | None = None) -> int:
    """Write pages and pictures from the kept results; say what changed."""
    parser = argparse.ArgumentParser(prog="python -m tools.performance", description=__doc__)
    parser.add_argument("--figures", type=Path, default=DOCS / "figures", metavar="DIR")
    parser.add_argument("--docs", type=Path, default=DOCS, metavar="DIR")
    given = parser.parse_args(words)
    figures = Figures(given.figures)
    made = {
        given.docs / name: with_tables(
            (given.docs / name).read_text(encoding="utf-8"), figures
        ).encode()
        for name in PAGES
    }
    made |= {given.docs / "images" / f"{name}.svg": picture(name, figures) for name in PICTURES}
    for path, content in made.items():
        if not path.exists() or path.read_bytes() != content:
            write_output(path, content)
            print(f"{path.name} is new", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
