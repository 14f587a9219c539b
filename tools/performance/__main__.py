"""Make tables and pictures of the pages about speed anew: `python -m tools.performance`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bkstore.errors import BkstoreError
from bkstore.files.user_outputs import write_output
from tools.performance.curves import PICTURES, draw_curves
from tools.performance.figures import Figures
from tools.performance.page_tables import replace_tables

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("performance.md", "performance-figures.md")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write pages and pictures from the saved results, print what changed, return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.performance", description=__doc__)
    parser.add_argument("--figures", type=Path, default=DOCS / "figures", metavar="DIR")
    parser.add_argument("--docs", type=Path, default=DOCS, metavar="DIR")
    options = parser.parse_args(arguments)
    try:
        for path, content in _build_files(Figures(options.figures), options.docs).items():
            if not path.exists() or path.read_bytes() != content:
                write_output(path, content)
                print(f"{path.name} is new", file=sys.stderr)
    except BkstoreError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return 0


def _build_files(figures: Figures, docs: Path) -> dict[Path, bytes]:
    pages = {docs / name: (docs / name).read_text(encoding="utf-8") for name in PAGES}
    return {
        **{path: replace_tables(text, figures).encode() for path, text in pages.items()},
        **{docs / "images" / f"{name}.svg": draw_curves(name, figures) for name in PICTURES},
    }


if __name__ == "__main__":
    raise SystemExit(main())
