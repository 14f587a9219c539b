"""The pytest plugin: storages, bookies, servers, clusters, ensembles as fixtures; faults; leaks.

    def test_mine(bkstore_bookie, bkstore_faults):
        bookie = bkstore_bookie("db")
        ...

It is loaded by its entry point in every pytest run of an environment that has bkstore, so it
imports nothing but pytest and the standard library until a test asks for a fixture.

Every test has directories of its own. What a test leaves open is closed behind it; a file that is
open even then is an error of that test. A test runs once, with sorted storage where it names none;
``--bkstore-storage``, the ini option `bkstore_storage` or the marker of that name say otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from bkstore.storage.options import Storage
    from bkstore.testing.ensemble.factory import EnsembleFactory
    from bkstore.testing.factories import BookieFactory, ClusterFactory, StorageFactory
    from bkstore.testing.faults import FaultPlan
    from bkstore.testing.servers import ServerFactory

_Factory = TypeVar("_Factory", "StorageFactory", "BookieFactory", "ClusterFactory")

KINDS = ("sorted", "interleaved", "db")
CHECKED = ("linux", "darwin")
_HELP = "storages that tests with bkstore fixtures run with: sorted, interleaved, db, all"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--bkstore-storage`` and the ini option `bkstore_storage`."""
    group = parser.getgroup("bkstore")
    group.addoption("--bkstore-storage", metavar="KIND[,KIND]", help=_HELP)
    parser.addini("bkstore_storage", _HELP, default="sorted")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `bkstore_storage`, and look at the options."""
    config.addinivalue_line(
        "markers",
        "bkstore_storage(*kinds): run with these storages (sorted, interleaved, db); all if none",
    )
    _configured(config)


def pytest_report_header() -> str | None:
    """Say so where open files cannot be looked for."""
    if sys.platform in CHECKED:
        return None
    return f"bkstore: files that tests leave open are not checked on {sys.platform}"


def _kinds(names: list[str], origin: str) -> list[str]:
    found = list(KINDS) if names == ["all"] else names
    unknown = [name for name in found if name not in KINDS]
    if unknown or not found:
        raise pytest.UsageError(
            f"{origin}: {', '.join(unknown) or 'nothing'} is none of {', '.join(KINDS)}, all"
        )
    return found


def _configured(config: pytest.Config) -> list[str]:
    """Return the storages of option or ini."""
    option: str | None = config.getoption("--bkstore-storage")
    text = config.getini("bkstore_storage") if option is None else option
    return _kinds([name.strip() for name in text.split(",") if name.strip()], "bkstore_storage")


def _wanted(config: pytest.Config, item: Any) -> list[str]:
    """Return the storages that a test runs with: its marker's, else the configured ones."""
    marker = item.get_closest_marker("bkstore_storage")
    if marker is None:
        return _configured(config)
    return _kinds(list(marker.args) or ["all"], f"marker bkstore_storage of {item.nodeid}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each storage, where that is more than one."""
    if "bkstore_kind" in metafunc.fixturenames:
        kinds = _wanted(metafunc.config, metafunc.definition)
        if len(kinds) > 1:
            metafunc.parametrize("bkstore_kind", kinds, indirect=True)


@pytest.fixture
def bkstore_kind(request: pytest.FixtureRequest) -> str:
    """Return the storage that this run of the test is for: "sorted", "interleaved" or "db"."""
    kind: str = getattr(request, "param", None) or _wanted(request.config, request.node)[0]
    return kind


@pytest.fixture
def bkstore_faults(request: pytest.FixtureRequest) -> FaultPlan:
    """Return the `FaultPlan` that all storages, bookies and clusters of this test write through.

    One that is asked for by `getfixturevalue` is that of the fixtures of this test too, unless
    they have made something: what is open writes past it, so that is an error which names them.
    """
    from bkstore.testing.faults import FaultPlan

    plan = FaultPlan()
    for name, factory in request.node.stash.get(_WITHOUT_FAULTS, {}).items():
        if factory.has_made:
            pytest.fail(
                f"bkstore_faults is asked for after {name} has made something, which writes past "
                "it: let bkstore_faults be an argument of the test",
                pytrace=False,
            )
        factory.files = plan
    return plan


@pytest.fixture
def bkstore_storage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, bkstore_kind: Storage
) -> Iterator[StorageFactory]:
    """Yield a factory: ``bkstore_storage("db", write_cache=1 << 20)`` is a `LedgerStorage`.

    See `StorageFactory` for `reopen` and `path_of`.
    """
    from bkstore.testing.factories import StorageFactory

    yield from _used(request, StorageFactory(tmp_path_factory.mktemp("bkstore"), bkstore_kind))


@pytest.fixture
def bkstore_bookie(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, bkstore_kind: Storage
) -> Iterator[BookieFactory]:
    """Yield a factory: ``bkstore_bookie("db", journals=2)`` is a `Bookie`.

    See `BookieFactory` for `reopen`, `crash` and `path_of`.
    """
    from bkstore.testing.factories import BookieFactory

    yield from _used(request, BookieFactory(tmp_path_factory.mktemp("bkstore"), bkstore_kind))


@pytest.fixture
def bkstore_server(bkstore_bookie: BookieFactory) -> Iterator[ServerFactory]:
    """Yield a factory: ``bkstore_server("db")`` is a `BookieServer` on a port of loopback.

    See `ServerFactory` for `restart` and `crash`; ``server.bookie`` is the bookie behind.
    """
    from bkstore.testing.servers import ServerFactory

    factory = ServerFactory(bkstore_bookie)
    yield factory
    errors = factory.close_all()
    if errors:
        raise errors[0]


@pytest.fixture
def bkstore_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, bkstore_kind: Storage
) -> Iterator[ClusterFactory]:
    """Yield a factory: ``bkstore_cluster(5, ["sorted", "db"])`` is a `Cluster` of five bookies.

    See `ClusterFactory` for `reopen` and `path_of`.
    """
    from bkstore.testing.factories import ClusterFactory

    yield from _used(request, ClusterFactory(tmp_path_factory.mktemp("bkstore"), bkstore_kind))


@pytest.fixture
def bkstore_ensemble(
    tmp_path_factory: pytest.TempPathFactory, bkstore_kind: Storage
) -> Iterator[EnsembleFactory]:
    """Yield a factory: ``bkstore_ensemble(3, "db")`` is an `Ensemble` of processes that runs.

    Its `uri` is for clients in any language; see `Ensemble` for `bookies`, `kill`, `start`. The
    test is skipped where kazoo, pyspark or Java are missing, and says what to install.
    """
    from bkstore.testing.ensemble.factory import EnsembleFactory

    factory = EnsembleFactory(tmp_path_factory.mktemp("bkstore"), bkstore_kind, pytest.skip)
    yield factory
    _finish(factory)


_WITHOUT_FAULTS = pytest.StashKey[dict[str, Any]]()
"""Of a test: its factories that write through the system's calls, by the names of fixtures."""


def _used(request: pytest.FixtureRequest, factory: _Factory) -> Iterator[_Factory]:
    """Yield a factory that writes through the fault plan, if the test has one; then close it.

    Else it is noted that it does not: a test that asks for the plan later finds the note.
    """
    if "bkstore_faults" in request.fixturenames:
        factory.files = request.getfixturevalue("bkstore_faults")
    else:
        assert request.fixturename is not None
        request.node.stash.setdefault(_WITHOUT_FAULTS, {})[request.fixturename] = factory
    yield factory
    _finish(factory)


def _finish(factory: StorageFactory | BookieFactory | ClusterFactory | EnsembleFactory) -> None:
    """Close what is open, then look for what is open still."""
    from bkstore.testing.leaks import CAN_CHECK, open_files

    errors = factory.close_all()
    left = open_files(factory.top) if CAN_CHECK else []
    if left:
        names = "\n  ".join(left)
        pytest.fail(f"{len(left)} files are still open after the test:\n  {names}", pytrace=False)
    if errors:
        raise errors[0]
