"""`python -m tools.site`: build the documentation site, strictly."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tools.site import check, sources

_OF_A_SITE = "404.html"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_WRONG = re.compile(r"\b(error|warning)\b", re.IGNORECASE)

ROOT = Path(__file__).resolve().parents[2]


def build(root: Path, out: Path) -> list[str]:
    """Build the site of the repository at `root` into `out`, replacing it; return what is wrong.

    `out` is replaced only by a site that nothing is wrong with, and only where it is one itself,
    or an empty folder, or not there.
    """
    if out.exists() and any(out.iterdir()) and not (out / _OF_A_SITE).is_file():
        return [f"{out}: not replaced, it is a folder with other things than a site"]
    with tempfile.TemporaryDirectory(prefix="bkstore-site-") as folder:
        try:
            config = sources.write(root, "bkstore", Path(folder))
        except LookupError as error:
            return [str(error.args[0])]
        command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", str(config)]
        done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
        said = _COLOUR.sub("", done.stdout + done.stderr).strip()
        if done.returncode:
            return [said.partition("\nTraceback")[0] or f"zensical ended with {done.returncode}"]
        site = Path(folder) / "site"
        wrong = [*check.problems(site)]
        if _WRONG.search(said):  # its strict mode does not count all that it says
            wrong.append(said)
        if not wrong:
            if out.exists():
                shutil.rmtree(out)
            shutil.move(site, out)
        return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0, or 1 with what is wrong on standard error."""
    parser = argparse.ArgumentParser(prog="python -m tools.site", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="folder for the site")
    out = parser.parse_args(arguments).out
    start = time.monotonic()
    wrong = build(ROOT, out)
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    count = len(list(out.glob("**/*.html")))
    print(f"{count} pages in {out}, {time.monotonic() - start:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
