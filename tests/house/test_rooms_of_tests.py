"""Tests lie where the package has what they test, or in a family that goes across its rooms."""

from __future__ import annotations

import re

import pytest

from tests.paths import ROOT

TESTS = ROOT / "tests"
MODULES = sorted(TESTS.rglob("*.py"))
FOLDERS = sorted({path.parent for path in MODULES} - {TESTS})
FAMILIES = [
    "corruption",
    "crash",
    "docs",
    "everywhere",
    "golden",
    "house",
    "interop",
    "models",
    "races",
    "strain",
    "tools",
    "worlds",
]


def test_folders_mirror_the_package() -> None:
    """A folder of tests is called as a room of the package, or belongs to a family."""
    inside = [folder.relative_to(TESTS) for folder in FOLDERS]
    rooms = [folder for folder in inside if folder.parts[0] not in FAMILIES]

    assert set(FAMILIES) <= {folder.parts[0] for folder in inside}
    assert [] == [room for room in rooms if not (ROOT / "bkstore" / room / "__init__.py").is_file()]


def test_folders_are_small() -> None:
    """No folder has more than 14 modules, and no module more than 500 lines."""
    modules = {folder: len(list(folder.glob("*.py"))) for folder in (TESTS, *FOLDERS)}
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path in MODULES}

    assert {} == {folder: count for folder, count in modules.items() if count > 14}
    assert {} == {path: count for path, count in lines.items() if count > 500}


def test_no_test_module_is_a_helper() -> None:
    """What tests have in common lies in modules without tests: nobody else imports a test."""
    found = [
        (str(path.relative_to(TESTS)), line)
        for path in MODULES
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.match(r"from tests\.(\w+\.)*test_", line) and f".{path.stem} import" not in line
    ]

    assert [] == found


_PATCHED_FOR_ALL = re.compile(
    r"setattr\(\s*(?:\w+\.(?:time|os|shutil), |\"bkstore[\w.]*\.(?:time|os|shutil)\.)"
)


def test_patches_do_not_reach_other_threads() -> None:
    """A function of Python's is replaced for one module of ours (`patch_module`): a sleep that
    raises would else end the threads of libraries, and fail the test that runs by then."""
    found = [
        str(path.relative_to(TESTS))
        for path in MODULES
        if _PATCHED_FOR_ALL.search(path.read_text(encoding="utf-8"))
    ]

    assert [] == found


@pytest.mark.parametrize(
    ("target", "member"),
    [("(lock_files.time, ", '"sleep", f)'), ('("bkstore.files.opening.os', '.stat", f)')],
)
def test_patches_for_all_are_seen(target: str, member: str) -> None:
    """The pattern finds both ways to write such a patch."""
    assert _PATCHED_FOR_ALL.search(f"setattr{target}{member}")
