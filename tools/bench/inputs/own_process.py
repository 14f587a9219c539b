"""A module of the inputs in a process of its own, so that nothing else is in its memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[3]
"""The working directory of such a process."""


def run_input(module: str, *arguments: object) -> dict[str, Any]:
    """Run a module of `tools.bench.inputs`; return the JSON object that it prints, if any.

    Raises `CalledProcessError` if it exits with a code other than 0.
    """
    command = [sys.executable, "-m", f"tools.bench.inputs.{module}", *map(str, arguments)]
    process = subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(process.stdout or "{}")
    return result
