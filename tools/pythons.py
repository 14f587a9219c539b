"""The core of the tests on the other Pythons of this machine: `python -m tools.pythons`. It looks
for ``python3.N`` of 3.11 and newer on the PATH, in `USUAL_DIRECTORY`, and among the versions beside
pyenv's shims. The oldest and the newest of them, counting the running Python, must pass; for each
other than the running one it creates a ``.venv-X.Y.Z`` with the packages of constraints.txt and
runs the core there. It prints what is left out, with the reason. A Python for which the packages
cannot be installed is a failure, unless ``--without`` leaves it out."""

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
USUAL_DIRECTORY = "/usr/bin"
_PIN_FILES = ("pyproject.toml", "constraints.txt")
_EXTRAS = ".[arrow,local,spark,report,serve,zookeeper,dev]"
_STAMP_NAME = ".installed"

# What a Python can break: bytes and numbers, files and locks, processes, threads, the packages.
_TEST_FILES = """
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
CORE_TESTS = (
    *(f"tests/{family}.py" for family in _TEST_FILES.split()),
    "tests/spark/test_session.py::test_totals",
)

Version = tuple[int, int, int]
RunCommand = Callable[..., Any]

_NAME_PATTERN = re.compile(r"python3\.([0-9]+)")
_PROBE_SCRIPT = """import importlib.util, json, sys
print(json.dumps({
    "version": sys.version_info[:3],
    "level": sys.version_info.releaselevel,
    "kind": sys.implementation.name,
    "venv": all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")),
}))"""


class UnfitPython(Exception):
    """Raised for a Python that cannot run the core; the message is the reason."""


class Python(NamedTuple):
    """An interpreter and its version."""

    version: Version
    path: Path

    def __str__(self) -> str:
        return f"{_dotted_version(self.version)} ({self.path})"


def _dotted_version(version: Version) -> str:
    return ".".join(map(str, version))


def _candidates(path: str) -> Iterator[Path]:
    """Yield the files named as a Python of 3.11 or newer, in the order of the PATH."""
    for directory in map(Path, dict.fromkeys(filter(None, path.split(os.pathsep)))):
        if not directory.is_dir():
            continue
        yield from _executables_in(directory)
        if directory.name == "shims":  # a shim answers only for versions that pyenv has selected
            for version in sorted(directory.parent.glob("versions/*/bin")):
                yield from _executables_in(version)


def _executables_in(directory: Path) -> Iterator[Path]:
    for file in sorted(directory.iterdir()):
        match = _NAME_PATTERN.fullmatch(file.name)
        if match and (3, int(match[1])) >= _OLDEST and os.access(file, os.X_OK) and file.is_file():
            yield file


def _probe(path: Path) -> Python:
    """Return the Python at a path; raise `UnfitPython` if it fails or cannot create a venv."""
    try:
        command = [str(path), "-I", "-c", _PROBE_SCRIPT]
        process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        answer = json.loads(process.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise UnfitPython("does not answer") from error
    version = tuple(answer["version"])
    if version < _OLDEST:
        raise UnfitPython(f"is {_dotted_version(version)}")
    if answer["kind"] != "cpython" or answer["level"] != "final":
        raise UnfitPython(f"is {answer['kind']} {_dotted_version(version)} {answer['level']}")
    if not answer["venv"]:
        raise UnfitPython(f"is {_dotted_version(version)} without venv and ensurepip")
    return Python(version, path)


def find_pythons(path: str) -> tuple[dict[Version, Python], list[str]]:
    """Return the Pythons on `path` by version, and a line for each candidate left out. Of several
    with one version the first counts. Each candidate is run once."""
    pythons: dict[Version, Python] = {}
    left_out = []
    for candidate in _candidates(path):
        try:
            python = _probe(candidate)
        except UnfitPython as reason:
            left_out.append(f"{candidate}: {reason}")
        else:
            pythons.setdefault(python.version, python)
    return pythons, left_out


def choose_pythons(
    pythons: dict[Version, Python], own: Version, without: Iterable[str] = ()
) -> tuple[list[Python], list[str]]:
    """Return the Pythons to run on, and a line with the reason for each of the others. These are
    the oldest and the newest, counting `own`, which is not run again. `without` leaves out versions
    by prefix: 3.14 means all of 3.14."""
    # Compare with a dot at the end, so that 3.1 does not leave out 3.14.
    excluded_prefixes = tuple(f"{version}." for version in without)
    dotted = {version: f"{_dotted_version(version)}." for version in pythons}
    included = {version for version in pythons if not dotted[version].startswith(excluded_prefixes)}
    extremes = {min(included | {own}), max(included | {own})}
    left_out = []
    for version, python in sorted(pythons.items()):
        if version == own:
            left_out.append(f"{python}: the version of the main run")
        elif version not in included:
            left_out.append(f"{python}: left out by --without")
        elif version not in extremes:
            left_out.append(f"{python}: between the oldest and the newest")
    return [pythons[version] for version in sorted(extremes - {own})], left_out


def prepare_venv(python: Python, root: Path, run: RunCommand = subprocess.run) -> Path:
    """Return the interpreter of the Python's venv; create and fill it if the pins have changed.
    Raises `UnfitPython` if the venv cannot be created or the packages cannot be installed."""
    venv = root / f".venv-{_dotted_version(python.version)}"
    interpreter, stamp = venv / "bin" / "python", venv / _STAMP_NAME
    pins = hashlib.sha256(b"".join((root / name).read_bytes() for name in _PIN_FILES)).hexdigest()
    if stamp.is_file() and stamp.read_text() == pins and interpreter.exists():
        return interpreter
    if run([str(python.path), "-m", "venv", "--clear", str(venv)], check=False).returncode:
        raise UnfitPython(f"no venv can be made at {venv}")
    pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if run([*pip, "-c", "constraints.txt", "-e", _EXTRAS], cwd=root, check=False).returncode:
        raise UnfitPython(
            f"the packages of constraints.txt cannot be installed; pip says why above; "
            f"--without {_dotted_version(python.version)} leaves it out"
        )
    stamp.write_text(pins)
    return interpreter


def _run_core(interpreter: Path, root: Path, tests: Sequence[str], run: RunCommand) -> bool:
    """Run the tests with hypothesis' short profile; return whether they pass."""
    environment = {key: value for key, value in os.environ.items() if key != "HYPOTHESIS_PROFILE"}
    options = ["-q", "-m", "not long", "-n", "auto", "--dist", "loadfile"]
    command = [str(interpreter), "-m", "pytest", *options, *tests]
    return bool(run(command, cwd=root, env=environment, check=False).returncode == 0)


def main(arguments: Sequence[str] | None = None, run: RunCommand = subprocess.run) -> int:
    """Run the core on the oldest and the newest Python; return 0 if it passed on each, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tools.pythons", description=__doc__)
    parser.add_argument("--without", action="append", default=[], metavar="X.Y[.Z]")
    parser.add_argument("--list", action="store_true", help="say what would be run on; run nothing")
    options = parser.parse_args(arguments)
    own: Version = sys.version_info[:3]
    pythons, unfit = find_pythons(os.pathsep.join((os.environ.get("PATH", ""), USUAL_DIRECTORY)))
    chosen, others = choose_pythons(pythons, own, options.without)
    print(f"main run: Python {platform.python_version()}")
    for line in unfit + others:
        print(f"left out: {line}")
    if not chosen:
        print("no other Python to run on: nothing was run")
    results = {}
    for python in chosen:
        print(f"core on: Python {python}", flush=True)
        if not options.list:
            results[python] = _run_on(python, run)
    for python, result in results.items():
        print(f"Python {python}: {result or 'passed'}")
    return int(any(results.values()))


def _run_on(python: Python, run: RunCommand) -> str:
    """Run the core on a Python; return what went wrong, or "" if it passed."""
    try:
        interpreter = prepare_venv(python, ROOT, run)
    except UnfitPython as reason:
        return f"NOT RUN: {reason}"
    return "" if _run_core(interpreter, ROOT, CORE_TESTS, run) else "FAILED"


if __name__ == "__main__":
    sys.exit(main())
