"""Pages run with what they say to install: all other optional packages are hidden from them.

`PageRunner` starts a process that has loaded the core alone. It forks for each page, so that a page
finds no module that another has loaded. `python -m tests.docs.installed_pages` is that process: it
reads a request a line, and answers with a line.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import traceback
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from tests.paths import ROOT

_INSTALL_PATTERN = re.compile(r"^Install: (.*)$", re.MULTILINE)
_PIP_PATTERN = re.compile(r"`(?:pip install )?((?<=install )[^`]*|'\.\[[^`]*)`")
_TARGET_PATTERN = re.compile(r"\.(?:\[([\w,]+)\])?")
_DISTRIBUTION_PATTERN = re.compile(r"[\w-]+")
_MODULE_NAMES = {"griffelib": "griffe"}
"""Distribution -> the module to import, where that is not its name with underscores."""

NOTHING = "nothing"
_CORE_PARAGRAPHS = 3

_EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))[
    "project"
]["optional-dependencies"]


def _module(requirement: str) -> str:
    """Return the module of a requirement such as `prometheus-client>=0.21`."""
    match = _DISTRIBUTION_PATTERN.match(requirement)
    assert match is not None
    return _MODULE_NAMES.get(match[0], match[0].replace("-", "_"))


MODULES_BY_EXTRA = {extra: set(map(_module, needed)) for extra, needed in _EXTRAS.items()}
OPTIONAL_MODULES = set().union(*MODULES_BY_EXTRA.values())


class InstallLine(NamedTuple):
    """What a page says to install: the line, extras, other packages; `text` is None without one."""

    text: str | None
    extras: set[str]
    packages: set[str]

    @property
    def modules(self) -> set[str]:
        """Return the optional modules that it brings."""
        brought = (MODULES_BY_EXTRA.get(extra, set()) for extra in self.extras)
        return set(map(_module, self.packages)).union(*brought)


def read_install_line(page: Path) -> InstallLine:
    """Return the install line from the first paragraphs of a page."""
    text = page.read_text(encoding="utf-8").removeprefix("<!-- needs zookeeper -->\n")
    top = "\n\n".join(text.split("\n\n")[:_CORE_PARAGRAPHS])
    line = _INSTALL_PATTERN.search(top)
    if line is None:
        return InstallLine(None, set(), set())
    extras: set[str] = set()
    packages: set[str] = set()
    for words in map(shlex.split, _PIP_PATTERN.findall(line[1])):
        for word in words:
            target = _TARGET_PATTERN.fullmatch(word)
            if target is None:
                packages.add(word)
            elif target[1]:
                extras.update(target[1].split(","))
    return InstallLine(line[1], extras, packages)


class PageRunner:
    """A process of the core alone that runs pages, each in a fork."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.docs.installed_pages"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, page: Path, folder: Path, modules: set[str]) -> str:
        """Run a page in a folder with some of the optional modules; return "" or a traceback."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        hidden = sorted(OPTIONAL_MODULES - modules)
        request = {"page": str(page), "folder": str(folder), "hidden": hidden}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: str = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(60)


class _HidingFinder:
    """A finder of modules that finds what another finds, but none of the hidden ones."""

    def __init__(self, finder: Any, hidden: Collection[str]) -> None:
        self._finder, self._hidden = finder, hidden

    def __getattr__(self, name: str) -> Any:
        """Return what else the finder has, such as what it knows of distributions."""
        return getattr(self._finder, name)

    def find_spec(self, name: str, *location: Any) -> Any:
        """Return the spec of a module, None for a hidden one."""
        is_hidden = name.partition(".")[0] in self._hidden
        return None if is_hidden else self._finder.find_spec(name, *location)


def _run_in_fork(request: dict[str, Any]) -> str:
    """Run one page in a child; return its traceback, or how it ended, or ""."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(2, 1)  # what programs of a page print is no answer
        sys.meta_path[:] = [_HidingFinder(each, request["hidden"]) for each in sys.meta_path]
        os.chdir(request["folder"])
        problem = ""
        try:
            from tests.docs.page_runs import run_page

            run_page(Path(request["page"]), spark=False)
        except BaseException:  # noqa: BLE001 - the parent reports it, with its traceback
            problem = traceback.format_exc()
        with open(writing, "w", encoding="utf-8") as answer:
            answer.write(problem)
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as answer:
        problem = answer.read()
    _, status = os.waitpid(child, 0)
    return problem or (f"the page's process ended with status {status}" if status else "")


def main() -> None:
    """Answer requests until there are no more."""
    import numpy  # noqa: F401 - nearly every page needs it

    import bkstore.cli.main  # noqa: F401

    for line in sys.stdin:
        sys.stdout.write(json.dumps(_run_in_fork(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
