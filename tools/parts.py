"""`make test-all` in parts of at most half an hour each on two cores: `python -m tools.parts`.
`PARTS` lists them: a test belongs to the part with the longest matching prefix of its id, and
`pytest --part N`, an option of `tests/conftest.py`, runs the tests of one part. The last part runs
the core of the tests on other Python versions, by `tools.pythons`. A part that passes on a
committed tree is recorded in `RECORD` with the time, the commit and the skipped tests; one that
fails or is interrupted leaves the file unchanged. `--list` prints the parts and their records."""

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
MAX_PART_SECONDS = 30 * 60  # the maximal duration of a part on two cores, in seconds
_TEST_TIMEOUT = 1200  # seconds: a random test of the long profile may be slow on a busy machine


class SuitePart(NamedTuple):
    """One part: a title, and the prefixes of the ids of its tests."""

    title: str
    prefixes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """Environment variables of which one must be set to run all tests of the part."""
    options: tuple[str, ...] = ()
    """Options of pytest, which override those of the caller."""


def _tests_below(*paths: str) -> tuple[str, ...]:
    return tuple(f"tests/{path}" for path in paths)


_OWN_TESTS = "tests/interop/own_tests/test_own_tests.py"

PARTS = (
    SuitePart(
        "bytes, indexes, golden data, damaged files",
        _tests_below(
            "availability/",
            "bloom/",
            "corruption/",
            "files/",
            "formats/",
            "golden/",
            "index/",
            "ledger_metadata/",
            "pulsar/",
            "streams/",
            "tables/",
            "test_",
        ),
    ),
    SuitePart("storage, benchmarks and experiments", _tests_below("lab/", "storage/", "tools/")),
    SuitePart(
        "power losses, kills, races, repair and rescue",
        _tests_below("crash/", "races/", "repair/", "rescue/"),
    ),
    SuitePart(
        "what the machine lacks: each call of each command that reads a bookie fails",
        _tests_below("strain/every_call/test_reading_"),
    ),
    SuitePart(
        "what the machine lacks: each call of each command that compares or analyzes fails",
        _tests_below(
            "strain/every_call/test_analyses",
            "strain/every_call/test_comparisons",
            "strain/every_call/test_reports",
        ),
    ),
    SuitePart(
        "what the machine lacks: each call of each command that writes fails",
        _tests_below("strain/"),
    ),
    SuitePart(
        "what the machine lacks: each call of a rescue fails",
        _tests_below("strain/every_call/test_rescues"),
    ),
    SuitePart("clusters and the wire", _tests_below("cluster/", "network/", "wire/")),
    SuitePart(
        "command line, copied directories, pages, the project",
        _tests_below("cli/", "docs/", "everywhere/", "house/", "offline/", "report/", "testing/"),
    ),
    SuitePart(
        "Spark",
        _tests_below("spark/", "cli/trials/test_demo.py", "docs/test_docs.py::test_page_runs_with"),
    ),
    SuitePart(
        "a real BookKeeper",
        _tests_below("interop/"),
        ("BOOKKEEPER_CLASSPATH", "BOOKKEEPER_HOME"),
    ),
    *(
        SuitePart(
            f"BookKeeper's own tests, bookies with {storage} storage: {title}",
            (f"{_OWN_TESTS}::TestWholeList::test_{storage}{classes}",),
            ("BOOKKEEPER_PEER",),
            ("--dist", "worksteal"),  # tests of one file that wait most of their time
        )
        for storage in ("sorted", "interleaved", "db")
        for title, classes in (("of clients", "[client."), ("all others", ""))
    ),
    SuitePart("other Pythons"),
)

RunCommand = Callable[..., Any]


def part_of(test_id: str) -> int:
    """Return the number of the part that a test belongs to, from 1; raise LookupError for none."""
    # Of several prefixes the longest counts.
    matches = [
        (len(prefix), number)
        for number, part in enumerate(PARTS, 1)
        for prefix in part.prefixes
        if test_id.startswith(prefix)
    ]
    if not matches:
        raise LookupError(f"{test_id}: no part of tools/parts.py has this test")
    return max(matches)[1]


def parse_part(text: str) -> int:
    """Return the number in ``2/18`` or ``2``; ValueError if there is no such part."""
    number, _, total = text.partition("/")
    if total not in ("", str(len(PARTS))) or number not in map(str, range(1, len(PARTS) + 1)):
        raise ValueError(f"{text}: the parts are 1/{len(PARTS)} to {len(PARTS)}/{len(PARTS)}")
    return int(number)


def read_record(path: Path = RECORD) -> dict[str, Any]:
    """Return the recorded entries by part, such as ``2/18``; empty if there is no record."""
    record: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return record


def _part_name(number: int) -> str:
    return f"{number}/{len(PARTS)}"


def _describe(number: int, record: dict[str, Any]) -> Iterator[str]:
    entry = record.get(_part_name(number))
    yield f"{_part_name(number)}  {PARTS[number - 1].title}"
    if entry is None:
        yield "     never passed"
        return
    yield (
        f"     passed {entry['passed']} on {entry['commit'][:10]}, "
        f"{entry['seconds']} s, {entry['tests']} tests"
    )
    for reason, count in entry["skipped"].items():
        yield f"     skipped {count}: {reason}"


def _git(*arguments: str) -> str | None:
    """Return the output of a git command, or None if it fails or there is no git."""
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return None if process.returncode else process.stdout.strip()


def _recordable_commit() -> tuple[str | None, str]:
    """Return the commit of a clean tree, or None and the reason why nothing can be recorded."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return None, "this is no git checkout"
    changes = _git("status", "--porcelain", "--", ".", f":!{RECORD.relative_to(ROOT)}")
    return (None, "the tree has uncommitted changes") if changes else (commit, "")


class PartOutcome(NamedTuple):
    """The result of a part: whether it passed, the number of tests, the skips by reason."""

    passed: bool
    tests: int
    skipped: dict[str, int]


def _read_report(path: Path) -> tuple[int, dict[str, int]]:
    """Return the number of tests that ran, and of skips by reason, from a JUnit report."""
    skipped: Counter[str] = Counter()
    tests = 0
    for case in ElementTree.parse(path).iter("testcase"):
        skips = [skip for skip in case.iter("skipped") if skip.get("type") == "pytest.skip"]
        skipped.update(skip.get("message", "") for skip in skips)
        tests += not skips
    return tests, dict(sorted(skipped.items()))


def _run_tests(number: int, options: Sequence[str], run_command: RunCommand) -> PartOutcome:
    """Run the tests of a part; without a report of pytest it has failed."""
    with tempfile.TemporaryDirectory(prefix="bkstore-part-") as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "--part", str(number), f"--junitxml={report}"]
        command.append(f"--timeout={_TEST_TIMEOUT}")
        command += [*options, *PARTS[number - 1].options]
        environment = {**os.environ, "HYPOTHESIS_PROFILE": "long"}
        process = run_command(command, cwd=ROOT, env=environment, check=False)
        if process.returncode or not report.is_file():
            return PartOutcome(passed=False, tests=0, skipped={})
        tests, skipped = _read_report(report)
        return PartOutcome(passed=True, tests=tests, skipped=skipped)


def _run_python_versions(excluded_versions: Sequence[str], run_command: RunCommand) -> PartOutcome:
    command = [sys.executable, "-m", "tools.pythons"]
    command += [argument for version in excluded_versions for argument in ("--without", version)]
    process = run_command(command, cwd=ROOT, check=False)
    skipped = {f"left out by --without: Python {version}": 1 for version in excluded_versions}
    return PartOutcome(process.returncode == 0, 0, skipped)


def _run_part(
    number: int, options: Sequence[str], excluded_versions: Sequence[str], run_command: RunCommand
) -> bool:
    """Run a part, print how it went, record it if it passed on a commit; return if it passed."""
    part = PARTS[number - 1]
    commit, unrecorded_reason = _recordable_commit()
    title = f"== part {_part_name(number)}"
    print(f"{title}: {part.title}", flush=True)
    started = time.monotonic()
    if part.prefixes:
        outcome = _run_tests(number, options, run_command)
    else:
        outcome = _run_python_versions(excluded_versions, run_command)
    seconds = round(time.monotonic() - started)
    if not outcome.passed:
        print(f"{title} FAILED after {seconds} s")
        return False

    for skip_reason, count in outcome.skipped.items():
        print(f"== skipped {count}: {skip_reason}")
    # Find out why this run must not be recorded; the last reason that applies is printed.
    if commit is not None and _recordable_commit()[0] != commit:
        commit, unrecorded_reason = None, "the tree was changed meanwhile"
    if part.needs and not any(os.environ.get(name) for name in part.needs):
        commit, unrecorded_reason = None, f"it needs {' or '.join(part.needs)}"
    if part.prefixes and not outcome.tests:
        commit, unrecorded_reason = None, "no test ran"
    if commit is None:
        print(f"{title} passed in {seconds} s; not recorded: {unrecorded_reason}")
        return True
    passed_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    entry = {"passed": passed_at, "commit": commit, "seconds": seconds}
    _write_record(number, {**entry, "tests": outcome.tests, "skipped": outcome.skipped})
    print(f"{title} passed in {seconds} s on {commit[:10]}: {RECORD.name} has it")
    return True


def _write_record(number: int, entry: dict[str, Any]) -> None:
    """Replace a part's entry in the record; entries of parts that no longer exist are dropped."""
    entries = {**read_record(RECORD), _part_name(number): entry}
    names = map(_part_name, range(1, len(PARTS) + 1))
    record = {name: entries[name] for name in names if name in entries}
    temporary_file = RECORD.with_suffix(".partial")
    temporary_file.write_text(json.dumps(record, indent=2) + "\n")
    temporary_file.replace(RECORD)


def main(arguments: Sequence[str] | None = None, run: RunCommand = subprocess.run) -> int:
    """Run a part, or all in order until one fails, or list them; return 0 unless one failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.parts", description=__doc__)
    parser.add_argument("--part", metavar="N/M", help="this part only")
    parser.add_argument("--list", action="store_true", help="print the parts; run nothing")
    parser.add_argument("--without", action="append", default=[], metavar="X.Y[.Z]")
    parser.add_argument("options", nargs="*", metavar="OPTION", help="options of pytest, behind --")
    options = parser.parse_args(arguments)
    try:
        numbers = [parse_part(options.part)] if options.part else range(1, len(PARTS) + 1)
    except ValueError as error:
        parser.error(str(error))
    if options.list:
        record = read_record(RECORD)
        print("\n".join(line for number in numbers for line in _describe(number, record)))
        return 0
    passed = (_run_part(number, options.options, options.without, run) for number in numbers)
    return int(not all(passed))


if __name__ == "__main__":
    sys.exit(main())
