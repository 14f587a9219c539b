"""BookKeeper's own tests pass with bookies of ours, or `docs/interop.md` says why not."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.own_tests.peer import Result, Storage, listed, missing, on_ours
from tests.paths import ROOT

SELECTION = ("client.LedgerCloseTest", "client.TestPiggybackLAC", "client.ListLedgersTest")

needs_peer = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def explained() -> dict[str, str]:
    """Return the tests of the table that do not pass with our bookies, and why."""
    page = (ROOT / "docs" / "interop.md").read_text(encoding="utf-8")
    table = page.partition("<!-- own tests that do not pass -->")[2].partition("\n\n#")[0]
    rows = re.findall(r"^\| `([\w.]+)` \| (.+) \|$", table, re.M)
    return dict(rows)


def _name(result: Result) -> str:
    """Return the class and the test, such as ``client.TestFencing.testBasicFencing``."""
    parts = re.findall(r"\[([^\]]+)\]", result.test)
    method = re.match(r"\w+", parts[-1])
    return f"{parts[0]}.{method[0]}" if method and len(parts) > 1 else parts[0]


@pytest.fixture
def run_class(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, Storage], None]:
    """Return what runs a class and fails for each of its tests that does and is not explained."""
    bookie = tmp_path_factory.getbasetemp() / "bookie"  # compiled once by each worker

    def run(name: str, storage: Storage) -> None:
        results = on_ours(name, storage, tmp_path, bookie)
        failed = [each for each in results if each.status in ("FAILED", "ENDED")]
        inside = [each for each in results if each.status in ("ABORTED", "SKIPPED")]

        assert results, f"{name}: no test was run"
        assert [] == [each for each in failed if _name(each) not in explained()]
        if len(inside) == len(results):
            pytest.skip("all tests of the class look inside of a bookie")

    return run


def test_the_table() -> None:
    """Each row is a test of a class that is run, with a reason."""
    for name, reason in explained().items():
        assert name.rpartition(".")[0] in listed()
        assert len(reason) > 10
    assert set(SELECTION) <= set(listed())


@needs_peer
@pytest.mark.parametrize("name", SELECTION)
def test_some(run_class: Callable[[str, Storage], None], name: str) -> None:
    """A few classes, which take a minute."""
    run_class(name, "sorted")


@needs_peer
@pytest.mark.long
@pytest.mark.timeout(1300)
@pytest.mark.parametrize("name", listed())
class TestWholeList:
    """All classes that start bookies, whatever storage their tests configure."""

    def test_sorted(self, run_class: Callable[[str, Storage], None], name: str) -> None:
        """On sorted storage."""
        run_class(name, "sorted")

    def test_interleaved(self, run_class: Callable[[str, Storage], None], name: str) -> None:
        """On interleaved storage."""
        run_class(name, "interleaved")

    def test_db(self, run_class: Callable[[str, Storage], None], name: str) -> None:
        """On db storage."""
        run_class(name, "db")
