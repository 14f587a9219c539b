"""The pytest plugin: fixtures for storages, bookies, servers, clusters, ensembles and faults.

    def test_mine(bkstore_bookie, bkstore_faults):
        bookie = bkstore_bookie("db")
        ...

Its entry point loads it in every pytest run of an environment that has bkstore, so it imports
nothing but pytest and the standard library until a test uses a fixture.

Every test has directories of its own. Whatever a test leaves open is closed after it; a file that
is open even then is an error of that test. A test runs once, with sorted storage by default;
``--bkstore-storage``, the ini option `bkstore_storage` or the marker of that name choose others.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pytest

if TYPE_CHECKING:
    from bkstore.storage.options import StorageKind
    from bkstore.testing.ensemble.factory import EnsembleFactory, SharedEnsembleFactory
    from bkstore.testing.factories import BookieFactory, ClusterFactory, StorageFactory
    from bkstore.testing.faults import FaultPlan
    from bkstore.testing.servers import ServerFactory

_Factory = TypeVar("_Factory", "StorageFactory", "BookieFactory", "ClusterFactory")
_Request = pytest.FixtureRequest

STORAGES = ("sorted", "interleaved", "db")
LEAK_CHECK_PLATFORMS = ("linux", "darwin")
_HELP = "storages that tests with bkstore fixtures run with: sorted, interleaved, db, all"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--bkstore-storage`` and the ini option `bkstore_storage`."""
    group = parser.getgroup("bkstore")
    group.addoption("--bkstore-storage", metavar="KIND[,KIND]", help=_HELP)
    parser.addini("bkstore_storage", _HELP, default="sorted")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `bkstore_storage`, and validate the options."""
    kinds = "run with these storages (sorted, interleaved, db); all if none"
    config.addinivalue_line("markers", f"bkstore_storage(*kinds): {kinds}")
    _configured_kinds(config)


def pytest_report_header() -> str | None:
    """Return a line if this system cannot list open files, else None."""
    if sys.platform in LEAK_CHECK_PLATFORMS:
        return None
    return f"bkstore: files that tests leave open are not checked on {sys.platform}"


def _check_kinds(names: list[str], origin: str) -> list[str]:
    """Return the storages of these names ("all": every one), which `origin` has in messages."""
    kinds = list(STORAGES) if names == ["all"] else names
    unknown = [kind for kind in kinds if kind not in STORAGES]
    if unknown or not kinds:
        found, allowed = ", ".join(unknown) or "nothing", ", ".join(STORAGES)
        raise pytest.UsageError(f"{origin}: {found} is not one of {allowed}, all")
    return kinds


def _configured_kinds(config: pytest.Config) -> list[str]:
    """Return the kinds of storage that tests run with, by command line or else by ini file."""
    option: str | None = config.getoption("--bkstore-storage")
    text = config.getini("bkstore_storage") if option is None else option
    names = filter(None, map(str.strip, text.split(",")))
    return _check_kinds(list(names), "bkstore_storage")


def _kinds_of_test(config: pytest.Config, item: Any) -> list[str]:
    """Return the storages of a test: its marker's, else the configured ones."""
    marker = item.get_closest_marker("bkstore_storage")
    if marker is None:
        return _configured_kinds(config)
    return _check_kinds(list(marker.args) or ["all"], f"marker bkstore_storage of {item.nodeid}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each of its storages if there are several."""
    if "bkstore_kind" in metafunc.fixturenames:
        kinds = _kinds_of_test(metafunc.config, metafunc.definition)
        if len(kinds) > 1:
            metafunc.parametrize("bkstore_kind", kinds, indirect=True)


@pytest.fixture
def bkstore_kind(request: _Request) -> str:
    """Return the storage of this run of the test: "sorted", "interleaved" or "db"."""
    kind: str = getattr(request, "param", None) or _kinds_of_test(request.config, request.node)[0]
    return kind


@pytest.fixture
def bkstore_faults(request: _Request) -> FaultPlan:
    """Return the `FaultPlan` that all storages, bookies and clusters of this test write through.

    `getfixturevalue` may ask for it later than the other fixtures. If one of them has made
    something by then, that would bypass the plan, so the test fails.
    """
    from bkstore.testing.faults import FaultPlan

    plan = FaultPlan()
    for name, factory in request.node.stash.get(_FACTORIES_WITHOUT_PLAN, {}).items():
        if factory.has_opened:
            pytest.fail(
                f"bkstore_faults is requested after {name} created something, which it cannot "
                "intercept: make bkstore_faults an argument of the test",
                pytrace=False,
            )
        factory.files = plan
    return plan


@pytest.fixture
def bkstore_storage(request: _Request, bkstore_kind: StorageKind) -> Iterator[StorageFactory]:
    """Yield a factory: ``bkstore_storage("db", write_cache=1 << 20)`` is a `LedgerStorage`. See
    `StorageFactory` for `reopen` and `path_of`."""
    from bkstore.testing.factories import StorageFactory

    yield from _manage_factory(request, StorageFactory(_new_directory(request), bkstore_kind))


@pytest.fixture
def bkstore_bookie(request: _Request, bkstore_kind: StorageKind) -> Iterator[BookieFactory]:
    """Yield a factory: ``bkstore_bookie("db", journals=2)`` is a `Bookie`. See `BookieFactory` for
    `reopen`, `crash` and `path_of`."""
    from bkstore.testing.factories import BookieFactory

    yield from _manage_factory(request, BookieFactory(_new_directory(request), bkstore_kind))


@pytest.fixture
def bkstore_server(bkstore_bookie: BookieFactory) -> Iterator[ServerFactory]:
    """Yield a factory: ``bkstore_server("db")`` is a `BookieServer` on a loopback port. See
    `ServerFactory` for `restart` and `crash`; ``server.bookie`` is its bookie."""
    from bkstore.testing.servers import ServerFactory

    factory = ServerFactory(bkstore_bookie)
    yield factory
    errors = factory.close_all()
    if errors:
        raise errors[0]


@pytest.fixture
def bkstore_cluster(request: _Request, bkstore_kind: StorageKind) -> Iterator[ClusterFactory]:
    """Yield a factory: ``bkstore_cluster(5, ["sorted", "db"])`` is a `Cluster` of five bookies. See
    `ClusterFactory` for `reopen` and `path_of`."""
    from bkstore.testing.factories import ClusterFactory

    yield from _manage_factory(request, ClusterFactory(_new_directory(request), bkstore_kind))


@pytest.fixture
def bkstore_ensemble(request: _Request, bkstore_kind: StorageKind) -> Iterator[EnsembleFactory]:
    """Yield a factory: ``bkstore_ensemble(3, "db")`` is a running `Ensemble` of processes.

    Its `uri` is for clients in any language; see `Ensemble` for `bookies`, `kill`, `start`. Without
    kazoo, a ZooKeeper or Java the test is skipped, and the reason says what to install.
    """
    __tracebackhide__ = True
    factory = _make_ensemble_factory(request, bkstore_kind)
    yield factory
    _close_all(factory)


@pytest.fixture(scope="module")
def bkstore_module_ensemble(request: _Request) -> Iterator[SharedEnsembleFactory]:
    """Yield a factory: ``bkstore_module_ensemble(3, "db")`` is a running `Ensemble`, the same one
    for equal arguments in all tests of a module. See `bkstore_session_ensemble`."""
    __tracebackhide__ = True
    yield from _share_ensembles(request)


@pytest.fixture(scope="session")
def bkstore_session_ensemble(request: _Request) -> Iterator[SharedEnsembleFactory]:
    """Yield a factory: ``bkstore_session_ensemble(3, "db")`` is a running `Ensemble`, the same one
    for equal arguments in all tests of this process.

    Each call ends all faults and starts what is not running; ledgers stay. The default storage is
    the first configured one. Skips as `bkstore_ensemble` does.
    """
    __tracebackhide__ = True
    yield from _share_ensembles(request)


def _share_ensembles(request: _Request) -> Iterator[SharedEnsembleFactory]:
    """Yield a factory of shared ensembles, and close them at the end of the fixture's scope. Their
    storage, unless a call names one, is the first configured kind: a test may run once for each of
    several kinds, but a fixture of a wider scope is created once."""
    __tracebackhide__ = True
    default_kind: Any = _configured_kinds(request.config)[0]
    factory = _make_ensemble_factory(request, default_kind)
    from bkstore.testing.ensemble.factory import SharedEnsembleFactory

    yield SharedEnsembleFactory(factory)
    _close_all(factory, request.scope)


def _make_ensemble_factory(request: _Request, kind: StorageKind) -> EnsembleFactory:
    """Return a factory of ensembles; skip the test, with all that is missing, without kazoo."""
    __tracebackhide__ = True
    from bkstore.testing.zookeeper_server import find_missing_dependencies

    def skip(reason: str) -> NoReturn:
        __tracebackhide__ = True
        pytest.skip(f"{request.fixturename}: " + "; ".join(find_missing_dependencies() or [reason]))

    try:
        from bkstore.testing.ensemble.factory import EnsembleFactory
    except ImportError as error:  # of kazoo
        skip(str(error))
    return EnsembleFactory(_new_directory(request), kind, skip)


_FACTORIES_WITHOUT_PLAN = pytest.StashKey[dict[str, Any]]()
"""A test's factories that write without its fault plan, by fixture name."""


def _new_directory(request: _Request) -> Path:
    path: Path = request.getfixturevalue("tmp_path_factory").mktemp("bkstore")
    return path


def _manage_factory(request: _Request, factory: _Factory) -> Iterator[_Factory]:
    """Yield a factory that writes through the test's fault plan, if it has one; then close it.
    Without a plan, register the factory for a `bkstore_faults` that is requested later."""
    if "bkstore_faults" in request.fixturenames:
        factory.files = request.getfixturevalue("bkstore_faults")
    else:
        assert request.fixturename is not None
        request.node.stash.setdefault(_FACTORIES_WITHOUT_PLAN, {})[request.fixturename] = factory
    yield factory
    _close_all(factory)


def _close_all(
    factory: StorageFactory | BookieFactory | ClusterFactory | EnsembleFactory,
    scope: str = "test",
) -> None:
    """Close all instances; fail the test if files are still open after it."""
    __tracebackhide__ = True
    from bkstore.testing.leaks import CAN_LIST_OPEN_FILES, open_files

    errors = factory.close_all()
    leaked = open_files(factory.top) if CAN_LIST_OPEN_FILES else []
    if leaked:
        lines = "\n  ".join(leaked)
        message = f"{len(leaked)} files are still open after the {scope}:\n  {lines}"
        pytest.fail(message, pytrace=False)
    if errors:
        raise errors[0]
