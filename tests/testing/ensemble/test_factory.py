"""The fixture `bkstore_ensemble` and its factory; `docs/testing.md` has it run for real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kazoo", reason="kazoo is not installed")
pytest.importorskip("pyspark", reason="pyspark is not installed")

from bkstore.errors import BookieUnavailable, InvalidArgument, MissingDependency
from bkstore.spark import java
from bkstore.testing import plugin
from bkstore.testing.ensemble import factory as factory_module
from bkstore.testing.ensemble.factory import EnsembleFactory

pytest_plugins = ["pytester"]


def test_without_java(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Java a test that asks for an ensemble is skipped, and says what to install; without
    pytest that is an error."""
    monkeypatch.setattr(java, "_installed_homes", list)
    monkeypatch.setattr(java, "_bundled_home", lambda: None)
    pytester.makepyfile("def test_it(bkstore_ensemble):\n    bkstore_ensemble(1)\n")
    options = ["-p", "no:bkstore", "-p", "no:cacheprovider", "-rs"]
    result = pytester.runpytest_inprocess(*options, plugins=[plugin])

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*ZooKeeper needs Java 17 or newer: set JAVA_HOME*"])
    with pytest.raises(MissingDependency):
        EnsembleFactory(tmp_path)(1)


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
