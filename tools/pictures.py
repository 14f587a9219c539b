"""Make the pictures of README and lab page anew: `python -m tools.pictures`.

Those of experiments are drawn from results in docs/figures/, which `--measure` makes anew; those of
the report are screenshots of the demo's page by headless Chromium. Each has a second picture for
narrow screens beside it.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.files.user_outputs import write_output
from bkstore.lab import main as run_lab
from bkstore.lab.catalog import load_experiment
from bkstore.lab.documents.document import read_document
from bkstore.lab.presentation.picture import draw_picture

DOCS = Path(__file__).parents[1] / "docs"
EXPERIMENTS = ("layouts", "deletes", "losses")
REPORT = "report"
_SCREENS = {"report": (1280, 920, 1.5), "report-narrow": (420, 1062, 2)}
"""Width and height of the report's first screen in CSS pixels, and how many pixels a picture has
for each of these, by picture."""

_TIMEOUT = 300  # seconds, of the demo and of Chromium


def draw_experiment(experiment_name: str, figures: Path) -> dict[str, bytes]:
    """Return the pictures of an experiment's kept result, by file name: two panels side by side, as
    a page's column of text is no wider, and one below the other for narrow screens."""
    experiment = load_experiment(experiment_name)
    document = read_document(experiment, result_path(experiment_name, figures))
    return {
        f"{experiment_name}.svg": draw_picture(experiment, document, "svg", max_columns=2),
        f"{experiment_name}-narrow.svg": draw_picture(experiment, document, "svg", max_columns=1),
    }


def result_path(experiment_name: str, figures: Path) -> Path:
    """Return where the result of an experiment is kept."""
    return figures / f"lab-{experiment_name}.json"


def photograph_report() -> dict[str, bytes]:
    """Return screenshots of the demo's page, by file name. Raises `InvalidArgument` if there is no
    Chromium, or if the demo or Chromium fails."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise InvalidArgument("no chromium on PATH: the report's pictures are screenshots")
    pictures = {}
    with tempfile.TemporaryDirectory(prefix="bkstore-pictures-") as folder:
        page = Path(folder) / "demo.html"
        demo = ["-m", "bkstore", "demo", "--engine", "local", "--report", str(page)]
        _run([sys.executable, *demo], folder)
        for picture_name, (width, height, factor) in _SCREENS.items():
            shot = Path(folder) / f"{picture_name}.png"
            command = [
                chromium,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                f"--user-data-dir={folder}/profile",
                f"--force-device-scale-factor={factor}",
                # Chromium's windows are at least 500 pixels wide: a frame has the exact size.
                f"--window-size={max(width, 500)},{height}",
                f"--screenshot={shot}",
                _frame(page, width, height).as_uri(),
            ]
            _run(command, folder)
            pictures[shot.name] = _reduce_colors(
                shot, round(width * factor), round(height * factor)
            )
    return pictures


def _frame(page: Path, width: int, height: int) -> Path:
    """Write a page with another one in a frame of this size, and return its path."""
    frame = page.with_name(f"frame-{width}.html")
    style = f"border:0;display:block;width:{width}px;height:{height}px"
    frame.write_text(
        f'<!doctype html><body style="margin:0"><iframe src="{page.name}" style="{style}"></iframe>'
    )
    return frame


def _run(command: list[str], folder: str) -> None:
    process = subprocess.run(
        command, cwd=folder, check=False, capture_output=True, text=True, timeout=_TIMEOUT
    )
    if process.returncode:
        lines = (process.stderr or process.stdout).strip().splitlines() or ["no message"]
        raise InvalidArgument(
            f"{Path(command[0]).name} ended with {process.returncode}: {lines[-1]}"
        )


def _reduce_colors(shot: Path, width: int, height: int) -> bytes:
    """Return the upper left corner of a screenshot as a PNG of 256 colors."""
    from PIL import Image

    with Image.open(shot) as image:
        reduced = image.crop((0, 0, width, height)).convert("RGB").quantize(256)
        reduced.save(shot, optimize=True)
    return shot.read_bytes()


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pictures, print the names of those that changed, return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.pictures", description=__doc__)
    known = (*EXPERIMENTS, REPORT)
    parser.add_argument(
        "sources", nargs="*", metavar="NAME", help=f"of {', '.join(known)} (default: all)"
    )
    parser.add_argument(
        "--measure", action="store_true", help="run the experiments first, some minutes each"
    )
    parser.add_argument("--docs", type=Path, default=DOCS, metavar="DIR", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    sources, figures = options.sources or known, options.docs / "figures"
    if unknown := [source for source in sources if source not in known]:
        parser.error(f"{', '.join(unknown)}: not of {', '.join(known)}")
    try:
        for source in sources:
            if options.measure and source != REPORT:
                command = ["--json", str(result_path(source, figures))]
                if code := run_lab(load_experiment(source), command):
                    return code
            made = photograph_report() if source == REPORT else draw_experiment(source, figures)
            for file_name, content in made.items():
                path = options.docs / "images" / file_name
                if not path.exists() or path.read_bytes() != content:
                    write_output(path, content)
                    print(f"{file_name} is new", file=sys.stderr)
    except (BkstoreError, subprocess.TimeoutExpired) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
