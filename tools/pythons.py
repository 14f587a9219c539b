"""The core of the tests on the other Pythons of this machine: `python -m tools.pythons`.

It looks for ``python3.N`` of 3.11 and newer on the PATH and in the usual place, and among the
versions beside pyenv's shims. Of them all, the one that runs this included, the oldest and the
newest are to pass; for each that is not this one a ``.venv-X.Y.Z`` is made, with the packages of
constraints.txt, and the core run there. What is left out is named, with the reason. A Python that
the packages cannot be installed for is a failure, unless it is left out by ``--without``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
_OLDEST = (3, 11)
USUAL = "/usr/bin"
_PINS = ("pyproject.toml", "constraints.txt")
_EXTRAS = ".[arrow,local,spark,report,serve,zookeeper,dev]"
_STAMP = ".installed"

# What a Python can break: bytes and numbers, files and locks, processes, threads, the packages.
_FAMILIES = """
availability/test_availability
availability/test_limits
availability/test_refusals
availability/test_worked_examples
bloom/test_filter
bloom/test_filter_set
cli/test_main
cluster/store/test_dumps_and_files
corruption/test_idx
corruption/test_metadata
everywhere/test_forks
everywhere/test_options
files/test_opening
files/test_user_outputs
formats/test_cookie
formats/test_entry
formats/test_entrylog
formats/test_journal
formats/test_proto_text
golden/bytes/test_availability_and_schedule
golden/test_unpacking
index/test_conformance
index/test_copies_between_backends
index/test_memtable
ledger_metadata/test_serialized
offline/dump/test_dump
storage/journal/test_torn_records
storage/journal/test_writer_bytes
storage/ledgers/test_conformance
storage/read_only/test_in_use
storage/read_only/test_leaves_no_trace
streams/test_threads
tables/test_tables
test_ids
test_schedule
testing/test_crash_files
testing/test_plugin
"""
CORE = (
    *(f"tests/{family}.py" for family in _FAMILIES.split()),
    "tests/spark/test_session.py::test_totals",
)

Version = tuple[int, int, int]
Run = Callable[..., Any]

_NAME = re.compile(r"python3\.([0-9]+)")
_ASK = """import importlib.util, json, sys
print(json.dumps({
    "version": sys.version_info[:3],
    "level": sys.version_info.releaselevel,
    "kind": sys.implementation.name,
    "venv": all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")),
}))"""


class Unfit(Exception):
    """A Python that the core cannot run on; the text is the reason."""


class Python(NamedTuple):
    """An interpreter and its version."""

    version: Version
    path: Path

    def __str__(self) -> str:
        return f"{_dotted(self.version)} ({self.path})"


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))


def _candidates(path: str) -> Iterator[Path]:
    """Yield what is named as a Python of 3.11 or newer, in the order of the PATH."""
    for folder in map(Path, dict.fromkeys(filter(None, path.split(os.pathsep)))):
        if not folder.is_dir():
            continue
        yield from _named(folder)
        if folder.name == "shims":  # a shim answers only for versions that pyenv has selected
            for version in sorted(folder.parent.glob("versions/*/bin")):
                yield from _named(version)


def _named(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.iterdir()):
        hit = _NAME.fullmatch(file.name)
        if hit and (3, int(hit[1])) >= _OLDEST and os.access(file, os.X_OK) and file.is_file():
            yield file


def _ask(path: Path) -> Python:
    """Return the Python at a path; `Unfit` if it does not answer or cannot make a venv."""
    try:
        command = [str(path), "-I", "-c", _ASK]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise Unfit("does not answer") from error
    version = tuple(found["version"])
    if version < _OLDEST:
        raise Unfit(f"is {_dotted(version)}")
    if found["kind"] != "cpython" or found["level"] != "final":
        raise Unfit(f"is {found['kind']} {_dotted(version)} {found['level']}")
    if not found["venv"]:
        raise Unfit(f"is {_dotted(version)} without venv and ensurepip")
    return Python(version, path)


def find(path: str) -> tuple[dict[Version, Python], list[str]]:
    """Return the Pythons in the folders of `path` by version, and what is left out, a line each.

    Of several with one version the first counts. Runs each candidate once.
    """
    found: dict[Version, Python] = {}
    out = []
    for candidate in _candidates(path):
        try:
            python = _ask(candidate)
        except Unfit as reason:
            out.append(f"{candidate}: {reason}")
        else:
            found.setdefault(python.version, python)
    return found, out


def choose(
    found: dict[Version, Python], own: Version, without: Iterable[str] = ()
) -> tuple[list[Python], list[str]]:
    """Return the Pythons to run on, and the others with the reason, a line each.

    The oldest and the newest of all, `own` included, which is run anyhow. `without` leaves out
    versions by how they begin: 3.14 is all of 3.14.
    """
    barred = tuple(f"{version}." for version in without)
    fit = {version for version in found if not f"{_dotted(version)}.".startswith(barred)}
    ends = {min(fit | {own}), max(fit | {own})}
    out = []
    for version, python in sorted(found.items()):
        if version == own:
            out.append(f"{python}: the version of the main run")
        elif version not in fit:
            out.append(f"{python}: left out by --without")
        elif version not in ends:
            out.append(f"{python}: between the oldest and the newest")
    return [found[version] for version in sorted(ends - {own})], out


def prepare(python: Python, root: Path, run: Run = subprocess.run) -> Path:
    """Return the interpreter of the Python's venv, made and filled if the pins are new to it.

    Raises `Unfit` if the venv cannot be made, or the packages cannot be installed in it.
    """
    folder = root / f".venv-{_dotted(python.version)}"
    inside, stamp = folder / "bin" / "python", folder / _STAMP
    pins = hashlib.sha256(b"".join((root / name).read_bytes() for name in _PINS)).hexdigest()
    if stamp.is_file() and stamp.read_text() == pins and inside.exists():
        return inside
    if run([str(python.path), "-m", "venv", "--clear", str(folder)], check=False).returncode:
        raise Unfit(f"no venv can be made at {folder}")
    pip = [str(inside), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if run([*pip, "-c", "constraints.txt", "-e", _EXTRAS], cwd=root, check=False).returncode:
        raise Unfit(
            f"the packages of constraints.txt cannot be installed; pip says why above; "
            f"--without {_dotted(python.version)} leaves it out"
        )
    stamp.write_text(pins)
    return inside


def _core(inside: Path, root: Path, tests: Sequence[str], run: Run) -> bool:
    """Return whether the tests pass; with the short profile, whatever this process was given."""
    environment = {key: value for key, value in os.environ.items() if key != "HYPOTHESIS_PROFILE"}
    options = ["-q", "-m", "not long", "-n", "auto", "--dist", "loadfile"]
    command = [str(inside), "-m", "pytest", *options, *tests]
    return bool(run(command, cwd=root, env=environment, check=False).returncode == 0)


def main(arguments: Sequence[str] | None = None, run: Run = subprocess.run) -> int:
    """Run the core on the oldest and the newest Python; 0 if it passed on each, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tools.pythons", description=__doc__)
    parser.add_argument("--without", action="append", default=[], metavar="X.Y[.Z]")
    parser.add_argument("--list", action="store_true", help="say what would be run on; run nothing")
    options = parser.parse_args(arguments)
    own: Version = sys.version_info[:3]
    found, unfit = find(os.pathsep.join((os.environ.get("PATH", ""), USUAL)))
    chosen, others = choose(found, own, options.without)
    print(f"main run: Python {platform.python_version()}")
    for line in unfit + others:
        print(f"left out: {line}")
    if not chosen:
        print("no other Python to run on: nothing was run")
    results = {}
    for python in chosen:
        print(f"core on: Python {python}", flush=True)
        if not options.list:
            results[python] = _result(python, run)
    for python, result in results.items():
        print(f"Python {python}: {result or 'passed'}")
    return int(any(results.values()))


def _result(python: Python, run: Run) -> str:
    """Return what went wrong on a Python; nothing if the core passed."""
    try:
        inside = prepare(python, ROOT, run)
    except Unfit as reason:
        return f"NOT RUN: {reason}"
    return "" if _core(inside, ROOT, CORE, run) else "FAILED"


if __name__ == "__main__":
    sys.exit(main())
