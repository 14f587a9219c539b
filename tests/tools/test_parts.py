"""The parts of `make test-all`: each test is in one, and what is recorded is what has passed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.distribution import COLLECTED
from tests.paths import ROOT
from tools import parts
from tools.parts import MAX_PART_SECONDS, PARTS, main, parse_part, part_of, read_record

NAMES = [f"{number}/{len(PARTS)}" for number in range(1, len(PARTS) + 1)]
REASON = "no real BookKeeper"
REPORT = f"""<testsuites><testsuite><testcase name="a"/><testcase name="b"/>
<testcase name="c"><skipped type="pytest.skip" message="{REASON}"/></testcase>
<testcase name="d"><skipped type="pytest.xfail" message="a known defect"/></testcase>
</testsuite></testsuites>"""


# -- which tests are in a part


def test_each_test_is_in_one_part(pytestconfig: pytest.Config) -> None:
    """Of all that was collected each test belongs to one part; `part_of` raises for none."""
    collected = pytestconfig.stash[COLLECTED]
    found = Counter(part_of(test) for test in collected)

    assert len(collected) == sum(found.values()) > 0
    assert [] == [number for number in found if not PARTS[number - 1].prefixes]


@pytest.mark.parametrize(
    ("test", "title"),
    [
        ("test_sorted[client.BookieWriteLedgerTest]", "sorted storage: of clients"),
        ("test_sorted[bookie.BookieInitializationTest]", "sorted storage: all others"),
        ("test_db[client.api.BookKeeperApiTest]", "db storage: of clients"),
    ],
)
def test_own_tests_are_two_parts_for_each_storage(test: str, title: str) -> None:
    """Classes of clients and all others."""
    test_id = f"tests/interop/own_tests/test_own_tests.py::TestWholeList::{test}"

    assert PARTS[part_of(test_id) - 1].title.endswith(title)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_parts_together_are_the_whole_list() -> None:
    """What `--part` collects, for each part in turn, is each of all tests once."""
    numbers = [number for number, part in enumerate(PARTS, 1) if part.prefixes]
    by_part = [_collect("--part", str(number)) for number in numbers]

    assert sorted(_collect()) == sorted(test for tests in by_part for test in tests)
    assert [] == [number for number, tests in zip(numbers, by_part) if not tests]


def _collect(*options: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True)

    assert 0 == done.returncode, done.stdout[-2000:]
    return [line for line in done.stdout.splitlines() if line.startswith("tests/")]


def test_every_prefix_has_tests() -> None:
    """A prefix begins the name of a folder or file that is there; no two parts have the same."""
    prefixes = [prefix for part in PARTS for prefix in part.prefixes]

    assert [] == [
        p for p in prefixes if not list(ROOT.glob(f"{p.partition('::')[0].rstrip('/')}*"))
    ]
    assert len(prefixes) == len(set(prefixes))


def test_the_longest_prefix_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may be taken out of its folder's part; a test that no part has is an error."""
    pair = (
        parts.SuitePart("a", ("tests/a/",)),
        parts.SuitePart("b", ("tests/a/test_b.py", "tests/c/")),
    )
    monkeypatch.setattr(parts, "PARTS", pair)

    assert [1, 2, 2] == [part_of(f"tests/{name}::t") for name in ("a/t.py", "a/test_b.py", "c/d")]
    with pytest.raises(LookupError, match=r"tests/d/t\.py::t"):
        part_of("tests/d/t.py::t")


@pytest.mark.parametrize("text", ["0/6", "99", "1/99", "", "x/9", f"{len(PARTS) + 1}/{len(PARTS)}"])
def test_parts_that_are_none(text: str) -> None:
    """A number outside, and a total that is another list's, are refused with the list's ends."""
    with pytest.raises(ValueError, match=f"1/{len(PARTS)} to {len(PARTS)}/{len(PARTS)}"):
        parse_part(text)


def test_parts_that_are_there() -> None:
    """A part is named with the total or without."""
    assert [2, 2] == [parse_part(f"2/{len(PARTS)}"), parse_part("2")]


# -- the committed record


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)


def test_shape_of_the_record() -> None:
    """Each part that has passed says when, on which commit, for how long, and what it skipped."""
    record = read_record()

    assert [] == [name for name in record if name not in NAMES]
    for name, entry in record.items():
        assert ["passed", "commit", "seconds", "tests", "skipped"] == list(entry), name
        assert re.fullmatch("[0-9a-f]{7,40}", entry["commit"]), name
        assert datetime.fromisoformat(entry["passed"]).tzinfo is not None, name
        assert 0 <= entry["seconds"] <= MAX_PART_SECONDS, f"{name} is to be cut"
        assert all(isinstance(count, int) and reason for reason, count in entry["skipped"].items())
    if shutil.which("git") and _git("rev-parse", "--is-shallow-repository").stdout == "false\n":
        unknown = [
            e["commit"] for e in record.values() if _git("cat-file", "-e", e["commit"]).returncode
        ]

        assert [] == unknown


# -- running parts


class _Runs:
    """Plays `subprocess.run`: notes commands, writes a report, and ends as it is told."""

    def __init__(self, returncode: int = 0, report: str = REPORT) -> None:
        self.commands: list[list[str]] = []
        self.environments: list[dict[str, str]] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self._returncode, self._report = returncode, report

    def __call__(self, command: list[str], **options: Any) -> SimpleNamespace:
        self.commands.append(command)
        self.environments.append(options.get("env") or {})
        for word in command:
            if word.startswith("--junitxml="):
                Path(word.partition("=")[2]).write_text(self._report)
        self.meanwhile()
        return SimpleNamespace(returncode=self._returncode)


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the record of a checkout of its own, clean and with one commit."""
    if shutil.which("git") is None:
        pytest.skip("no git")
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    monkeypatch.setattr(parts, "RECORD", tmp_path / "tests" / "parts.json")
    for variable in ("BOOKKEEPER_CLASSPATH", "BOOKKEEPER_PEER"):
        monkeypatch.setenv(variable, "/somewhere")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "parts.json").write_text(json.dumps({NAMES[0]: _entry()}))
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    return tmp_path / "tests" / "parts.json"


def _entry() -> dict[str, Any]:
    when = "2026-01-01T00:00:00Z"
    return {"passed": when, "commit": "abcdef0", "seconds": 1, "tests": 2, "skipped": {}}


def test_options_of_a_part_prevail(record: Path) -> None:
    """BookKeeper's own tests, in one file, are spread over all workers."""
    numbers = [n for n, part in enumerate(PARTS, 1) if "with sorted storage" in part.title]
    assert len(numbers) == 2
    for number in numbers:
        runs = _Runs()

        main(["--part", str(number), "--", "-n", "3", "--dist", "loadfile"], runs)

        assert ["--dist", "loadfile", "--dist", "worksteal"] == runs.commands[0][-4:]


def test_a_part_that_passes_is_recorded(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One run of pytest with the long profile and the options; its time, commit and skips."""
    runs = _Runs()

    assert 0 == main(["--part", NAMES[1], "--", "-n", "3"], runs)

    head = subprocess.run(
        ["git", "-C", str(record.parent), "rev-parse", "HEAD"], capture_output=True, text=True
    )
    written = json.loads(record.read_text())
    ((_, *command),) = runs.commands
    assert ["-m", "pytest", "--part", "2"] == command[:4]
    assert ["-n", "3"] == command[-2:]
    assert "long" == runs.environments[0]["HYPOTHESIS_PROFILE"]
    assert NAMES[:2] == list(written)
    assert _entry() == written[NAMES[0]]
    assert head.stdout.strip() == written[NAMES[1]]["commit"]
    assert (3, {REASON: 1}) == (written[NAMES[1]]["tests"], written[NAMES[1]]["skipped"])
    assert f"skipped 1: {REASON}" in capsys.readouterr().out


def _interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("runs", [_Runs(1), _Runs(2), _Runs(5)], ids=["failed", "ended", "none"])
def test_a_part_that_fails_leaves_the_record(record: Path, runs: _Runs) -> None:
    """Failed tests, an interrupted run and one without tests change no byte, and exit 1."""
    before = record.read_bytes()

    assert 1 == main(["--part", NAMES[0]], runs)
    assert before == record.read_bytes()


def test_a_part_that_is_ended_by_hand_leaves_the_record(record: Path) -> None:
    """An interrupt while the tests run is handed on, and no byte is changed."""
    before, runs = record.read_bytes(), _Runs()
    runs.meanwhile = _interrupt
    with pytest.raises(KeyboardInterrupt):
        main(["--part", NAMES[0]], runs)

    assert before == record.read_bytes()


def test_the_first_failure_ends_a_run_of_all(record: Path) -> None:
    """Without a part all run in order, until one fails."""
    runs = _Runs()

    assert 0 == main([], runs)
    assert NAMES == list(json.loads(record.read_text()))
    assert [str(n) for n, part in enumerate(PARTS, 1) if part.prefixes] == [
        command[command.index("--part") + 1] for command in runs.commands if "--part" in command
    ]
    assert 1 == main([], failing := _Runs(1))
    assert 1 == len(failing.commands)


@pytest.mark.parametrize("meanwhile", [False, True], ids=["before", "meanwhile"])
def test_a_tree_with_changes_is_not_recorded(
    record: Path, meanwhile: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """What passed is no commit if files differ from it, at the start or at the end."""
    before, runs = record.read_bytes(), _Runs()

    def change() -> None:
        record.with_name("new.py").write_text("pass\n")

    if meanwhile:
        runs.meanwhile = change
    else:
        change()

    assert 0 == main(["--part", NAMES[0]], runs)
    assert before == record.read_bytes()
    assert "not recorded: the tree " in capsys.readouterr().out


def test_nothing_run_is_not_recorded(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A part whose tests were all skipped has not passed."""
    before = record.read_bytes()
    tests = [line for line in REPORT.splitlines() if REASON in line]
    main(["--part", NAMES[0]], _Runs(0, f"<testsuites>{''.join(tests)}</testsuites>"))

    assert before == record.read_bytes()
    assert "not recorded: no test ran" in capsys.readouterr().out


@pytest.mark.parametrize("number", [n for n, part in enumerate(PARTS, 1) if part.needs])
def test_no_bookkeeper_is_not_recorded(
    record: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
) -> None:
    """A part with a real BookKeeper runs without one, says what it lacks, and is not recorded."""
    for variable in PARTS[number - 1].needs:
        monkeypatch.delenv(variable, raising=False)
    before = record.read_bytes()

    assert 0 == main(["--part", NAMES[number - 1]], runs := _Runs())
    assert 1 == len(runs.commands)
    assert before == record.read_bytes()
    assert f"not recorded: it needs {PARTS[number - 1].needs[0]}" in capsys.readouterr().out


def test_other_pythons_are_the_last_part(record: Path) -> None:
    """The part without tests runs `tools.pythons`; versions that are left out are recorded."""
    runs = _Runs()

    assert 0 == main(["--part", NAMES[-1], "--without", "3.14"], runs)
    assert [[sys.executable, "-m", "tools.pythons", "--without", "3.14"]] == runs.commands
    skipped = json.loads(record.read_text())[NAMES[-1]]["skipped"]
    assert {"left out by --without: Python 3.14": 1} == skipped


def test_list(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The list has each part, with its last pass or that there was none, and runs nothing."""
    runs = _Runs()

    assert 0 == main(["--list"], runs)
    lines = capsys.readouterr().out.splitlines()
    assert NAMES == [line.split()[0] for line in lines if re.match(r"\d", line)]
    assert "     passed 2026-01-01T00:00:00Z on abcdef0, 1 s, 2 tests" == lines[1]
    assert len(PARTS) - 1 == lines.count("     never passed")
    assert [] == runs.commands
