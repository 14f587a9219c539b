"""How tests are spread over workers: what shares a start goes together, the longest first."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest

from tests.distribution import SECONDS, SPARK, WITH_SPARK, group_of, scheduling
from tests.paths import ROOT


class _Worker:
    """A worker that notes what it is told to run."""

    shutting_down = False

    def __init__(self) -> None:
        self.gateway = SimpleNamespace(id=id(self))
        self.told: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.told += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def _told(tests: list[str], workers: int) -> list[list[str]]:
    """Return what workers are told to run before any has run anything."""
    values: dict[str, Any] = {"dist": "loadfile", "tx": ["popen"] * workers}
    option = SimpleNamespace(loadscopereorder=True)
    spread = scheduling(SimpleNamespace(getvalue=values.get, option=option), None)
    nodes = [_Worker() for _ in range(workers)]
    for node in nodes:
        spread.add_node(node)
        spread.add_node_collection(node, tests)
    spread.schedule()
    return [[tests[index] for index in node.told] for node in nodes]


def test_the_longest_first() -> None:
    """Files that are known to take long are begun first, however few tests they have."""
    pytest.importorskip("xdist")
    many = [f"tests/test_ids.py::test[{number}]" for number in range(9)]
    first, second = sorted(SECONDS, key=lambda name: -SECONDS[name])[1:3]
    told = _told([*many, f"{second}::test_a", f"{first}::test_b", f"{first}::test_c"], 2)

    assert [f"{first}::test_b", f"{first}::test_c"] == told[0][:2]
    assert f"{second}::test_a" == told[1][0]


def test_spark_is_started_by_one_worker() -> None:
    """Tests with Spark are one group, the others of their files are another."""
    pytest.importorskip("xdist")
    page = "tests/docs/test_docs.py::test_page_runs"
    spark = [
        f"{page}_with_spark[spark.md]",
        "tests/spark/test_a.py::test",
        "tests/spark/b.py::test",
    ]
    told = _told([f"{page}[spark.md]", *spark, "tests/test_ids.py::test"], 2)

    assert spark == told[0][:3]
    assert {SPARK} == {group_of(test) for test in spark}
    assert "tests/docs/test_docs.py" == group_of(f"{page}[spark.md]")


def test_other_distributions_are_left_alone() -> None:
    """`--dist load` and others are xdist's."""
    pytest.importorskip("xdist")

    assert scheduling(SimpleNamespace(getvalue={"dist": "load"}.get), None) is None


def test_names_are_there() -> None:
    """The groups are of files that are there."""
    files = [name.partition("::")[0] for name in (*WITH_SPARK, *SECONDS) if name != SPARK]

    assert [] == [name for name in files if not (ROOT / name).exists()]


def test_collected_tests_are_not_garbage() -> None:
    """What pytest has collected is out of the garbage collector's way, which is on."""
    assert gc.get_freeze_count() > 10_000
    assert gc.isenabled()
