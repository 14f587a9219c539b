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

from tools.site import check, search_index, sources

_SITE_MARKER_FILE = "404.html"
_COLOR_PATTERN = re.compile(r"\x1b\[[0-9;]*m")
_ERROR_PATTERN = re.compile(r"\b(error|warning)\b", re.IGNORECASE)

ROOT = Path(__file__).resolve().parents[2]


def build(root: Path, target: Path) -> list[str]:
    """Build the site of the repository at `root` into `target`; return the faults. `target` is
    replaced only by a site without faults, and only if it is a site, empty or missing."""
    if target.exists() and any(target.iterdir()) and not (target / _SITE_MARKER_FILE).is_file():
        return [f"{target}: not replaced, it is a folder with other things than a site"]
    with tempfile.TemporaryDirectory(prefix="bkstore-site-") as folder:
        try:
            config = sources.write_sources(root, "bkstore", Path(folder))
        except LookupError as error:
            return [str(error.args[0])]
        command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", str(config)]
        process = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
        output = _COLOR_PATTERN.sub("", process.stdout + process.stderr).strip()
        if process.returncode:
            message = output.partition("\nTraceback")[0]
            return [message or f"zensical ended with {process.returncode}"]
        site = Path(folder) / "site"
        try:
            search_index.rank_guides_first(site)
        except LookupError as error:
            return [str(error.args[0])]
        faults = [*check.find_problems(site)]
        if _ERROR_PATTERN.search(output):  # strict mode does not count all messages
            faults.append(output)
        if not faults:
            if target.exists():
                shutil.rmtree(target)
            shutil.move(site, target)
        return faults


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the site; return 0, or 1 after printing the faults to standard error."""
    parser = argparse.ArgumentParser(prog="python -m tools.site", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="folder for the site")
    out = parser.parse_args(arguments).out
    started = time.monotonic()
    faults = build(ROOT, out)
    if faults:
        print("\n".join(faults), file=sys.stderr)
        return 1
    count = len(list(out.glob("**/*.html")))
    print(f"{count} pages in {out}, {time.monotonic() - started:.1f} s")
    print(f"Open {out / 'index.html'} in a browser: links and search work without a server.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
