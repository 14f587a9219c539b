"""`make test-all` in parts, each of at most half an hour on two cores: `python -m tools.parts`.

`PARTS` is the one list of them: a test belongs to the part with the longest prefix of its id, and
`pytest --part N`, an option of `tests/conftest.py`, runs the tests of one. The last part is the
core of the tests on other Pythons, by `tools.pythons`. A part that ends well on a committed tree
is written into `RECORD` with the time, the commit, and what it skipped; one that fails, or is
ended by hand, leaves the file as it was. `--list` prints the parts and when each last passed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "tests" / "parts.json"
LIMIT = 30 * 60
"""Seconds that a part may take on two cores."""
_TEST_TIMEOUT = 1200  # seconds: a random test of the long profile is not ended by a slow machine


class Part(NamedTuple):
    """One part: what it is about, and how the ids of its tests begin."""

    about: str
    prefixes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """Environment variables of which one is set where the part can be run whole."""
    options: tuple[str, ...] = ()
    """Options of pytest, which prevail over those of the caller."""


def _below(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/{name}" for name in names)


_OWN_TESTS = "tests/interop/own_tests/test_own_tests.py"

PARTS = (
    Part(
        "bytes, indexes, golden data, damaged files",
        _below(
            "availability/",
            "bloom/",
            "corruption/",
            "files/",
            "formats/",
            "golden/",
            "index/",
            "ledger_metadata/",
            "streams/",
            "tables/",
            "test_",
        ),
    ),
    Part("storage, benchmarks and experiments", _below("storage/", "tools/")),
    Part("power losses, kills, races", _below("crash/", "races/")),
    Part(
        "what the machine lacks: each call of each command that reads a bookie fails",
        _below("strain/every_call/test_reading_"),
    ),
    Part("what the machine lacks: each call of the other commands fails", _below("strain/")),
    Part("clusters and the wire", _below("cluster/", "network/", "wire/")),
    Part(
        "command line, copied directories, pages, the project",
        _below("cli/", "docs/", "everywhere/", "house/", "offline/", "report/", "testing/"),
    ),
    Part(
        "Spark",
        _below("spark/", "cli/test_demo.py", "docs/test_docs.py::test_page_runs_with"),
    ),
    Part(
        "a real BookKeeper",
        _below("interop/"),
        ("BOOKKEEPER_CLASSPATH", "BOOKKEEPER_HOME"),
    ),
    *(
        Part(
            f"BookKeeper's own tests, bookies with {storage} storage",
            (f"{_OWN_TESTS}::TestWholeList::test_{storage}",),
            ("BOOKKEEPER_PEER",),
            ("--dist", "worksteal"),  # tests of one file that wait most of their time
        )
        for storage in ("sorted", "interleaved", "db")
    ),
    Part("other Pythons"),
)

Run = Callable[..., Any]


def part_of(nodeid: str) -> int:
    """Return the number of the part that a test belongs to, from 1; raise LookupError for none."""
    matches = [
        (len(prefix), number)
        for number, part in enumerate(PARTS, 1)
        for prefix in part.prefixes
        if nodeid.startswith(prefix)
    ]
    if not matches:
        raise LookupError(f"{nodeid}: no part of tools/parts.py has this test")
    return max(matches)[1]


def parse_part(text: str) -> int:
    """Return the number in ``2/13`` or ``2``; ValueError if there is no such part."""
    number, _, total = text.partition("/")
    if total not in ("", str(len(PARTS))) or number not in map(str, range(1, len(PARTS) + 1)):
        raise ValueError(f"{text}: the parts are 1/{len(PARTS)} to {len(PARTS)}/{len(PARTS)}")
    return int(number)


def read_record(path: Path = RECORD) -> dict[str, Any]:
    """Return what the record has by part, such as ``2/13``; nothing where there is none."""
    record: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return record


def _name(number: int) -> str:
    return f"{number}/{len(PARTS)}"


def _describe(number: int, record: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of `--list` about one part."""
    entry = record.get(_name(number))
    yield f"{_name(number)}  {PARTS[number - 1].about}"
    if entry is None:
        yield "     never passed"
        return
    yield (
        f"     passed {entry['passed']} on {entry['commit'][:10]}, "
        f"{entry['seconds']} s, {entry['tests']} tests"
    )
    for reason, count in entry["skipped"].items():
        yield f"     skipped {count}: {reason}"


# -- the tree that is tested


def _git(*words: str) -> str | None:
    """Return what git prints about this tree; None where it is no checkout, or has no git."""
    command = ["git", "-C", str(ROOT), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return None if done.returncode else done.stdout.strip()


def _commit() -> tuple[str | None, str]:
    """Return the commit that the tree is at, or None and the reason why it is at none."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return None, "this is no git checkout"
    changes = _git("status", "--porcelain", "--", ".", f":!{RECORD.relative_to(ROOT)}")
    return (None, "the tree has uncommitted changes") if changes else (commit, "")


# -- running


class Outcome(NamedTuple):
    """How the run of a part ended: whether it passed, how many tests ran, what was skipped."""

    passed: bool
    tests: int
    skipped: dict[str, int]


def _read_report(path: Path) -> tuple[int, dict[str, int]]:
    """Return the tests that ran and, by reason, how many were skipped, from a JUnit report."""
    skipped: Counter[str] = Counter()
    tests = 0
    for case in ElementTree.parse(path).iter("testcase"):
        hits = [hit for hit in case.iter("skipped") if hit.get("type") == "pytest.skip"]
        skipped.update(hit.get("message", "") for hit in hits)
        tests += not hits
    return tests, dict(sorted(skipped.items()))


def _run_tests(number: int, options: Sequence[str], run: Run) -> Outcome:
    """Run the tests of a part with the long profile of hypothesis."""
    with tempfile.TemporaryDirectory(prefix="bkstore-part-") as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "--part", str(number), f"--junitxml={report}"]
        command.append(f"--timeout={_TEST_TIMEOUT}")
        command += [*options, *PARTS[number - 1].options]
        environment = {**os.environ, "HYPOTHESIS_PROFILE": "long"}
        done = run(command, cwd=ROOT, env=environment, check=False)
        if done.returncode or not report.is_file():
            return Outcome(False, 0, {})
        return Outcome(True, *_read_report(report))


def _run_pythons(without: Sequence[str], run: Run) -> Outcome:
    """Run the core of the tests on other Pythons."""
    command = [sys.executable, "-m", "tools.pythons"]
    command += [word for version in without for word in ("--without", version)]
    done = run(command, cwd=ROOT, check=False)
    left_out = {f"left out by --without: Python {version}": 1 for version in without}
    return Outcome(done.returncode == 0, 0, left_out)


def _run_part(number: int, options: Sequence[str], without: Sequence[str], run: Run) -> bool:
    """Run a part, record it if it passed, and return whether it did."""
    part, (commit, reason) = PARTS[number - 1], _commit()
    print(f"== part {_name(number)}: {part.about}", flush=True)
    begun = time.monotonic()
    if part.prefixes:
        outcome = _run_tests(number, options, run)
    else:
        outcome = _run_pythons(without, run)
    seconds = round(time.monotonic() - begun)
    if not outcome.passed:
        print(f"== part {_name(number)} FAILED after {seconds} s")
        return False

    for skip, count in outcome.skipped.items():
        print(f"== skipped {count}: {skip}")
    if commit is not None and _commit()[0] != commit:
        commit, reason = None, "the tree was changed meanwhile"
    if part.needs and not any(os.environ.get(name) for name in part.needs):
        commit, reason = None, f"it needs {' or '.join(part.needs)}"
    if part.prefixes and not outcome.tests:
        commit, reason = None, "no test ran"
    if commit is None:
        print(f"== part {_name(number)} passed in {seconds} s; not recorded: {reason}")
        return True
    passed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    _write(number, {"passed": passed, "commit": commit, "seconds": seconds, **_counts(outcome)})
    print(f"== part {_name(number)} passed in {seconds} s on {commit[:10]}: {RECORD.name} has it")
    return True


def _counts(outcome: Outcome) -> dict[str, Any]:
    return {"tests": outcome.tests, "skipped": outcome.skipped}


def _write(number: int, entry: dict[str, Any]) -> None:
    """Put one part into the record, the others as they are."""
    record = {**read_record(RECORD), _name(number): entry}
    record = {name: record[name] for name in map(_name, range(1, len(PARTS) + 1)) if name in record}
    partial = RECORD.with_suffix(".partial")
    partial.write_text(json.dumps(record, indent=2) + "\n")
    partial.replace(RECORD)


def main(arguments: Sequence[str] | None = None, run: Run = subprocess.run) -> int:
    """Run a part, or all in order until one fails, or list them; 0 if what was run passed."""
    parser = argparse.ArgumentParser(prog="python -m tools.parts", description=__doc__)
    parser.add_argument("--part", metavar="N/M", help="this part only")
    parser.add_argument("--list", action="store_true", help="print the parts; run nothing")
    parser.add_argument("--without", action="append", default=[], metavar="X.Y[.Z]")
    parser.add_argument("options", nargs="*", metavar="OPTION", help="options of pytest, behind --")
    chosen = parser.parse_args(arguments)
    try:
        numbers = [parse_part(chosen.part)] if chosen.part else range(1, len(PARTS) + 1)
    except ValueError as error:
        parser.error(str(error))
    if chosen.list:
        record = read_record(RECORD)
        print("\n".join(line for number in numbers for line in _describe(number, record)))
        return 0
    return int(not all(_run_part(n, chosen.options, chosen.without, run) for n in numbers))


if __name__ == "__main__":
    sys.exit(main())
