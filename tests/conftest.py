"""Shared by all rooms of tests: hypothesis profiles, seconds per room, golden data.

Rooms have the names of the package's. Families across rooms have folders of their own: `golden`
(answers of the real BookKeeper), `interop` (the real BookKeeper beside us), `corruption` (damaged
files), `crash` (power losses, killed processes), `strain` (calls that the system refuses),
`everywhere` (rules for all that reads, writes, forks or takes settings), `docs` and `house`. What
several rooms need lies in `models` (what must come out) and `worlds` (what goes in).
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from bkstore import BookieDir
from bkstore.errors import MissingDependency
from bkstore.index.api import EntryIndex
from tests.distribution import COLLECTED, scheduling
from tests.golden.data import GOLDEN, NO_GOLDEN, GoldenTree, golden_documents, golden_names
from tests.golden.unpacking import extract
from tests.rounds import rounds
from tools.parts import part_of

if TYPE_CHECKING:
    from bkstore.testing.zookeeper_server import ZooKeeperServer
    from tests.golden.reader import Reader

pytest.register_assert_rewrite(  # what these assert is shown as what tests assert
    "tests.availability.reference", "tests.corruption.rocks.databases", "tests.golden.reader"
)

settings.register_profile(
    "default",
    max_examples=50,
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "long",
    settings.get_profile("default"),
    max_examples=100,  # a round: `tests.rounds` has how many
    stateful_step_count=60,
    derandomize=False,
    print_blob=True,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


# -- signals


for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:  # of a shell's background job, or by nohup
        signal.signal(_number, signal.SIG_DFL)  # else what tests start ignores it too


# -- seconds per room


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many seconds the tests of each folder took, the longest first."""
    seconds: dict[str, float] = defaultdict(float)
    tests: dict[str, int] = defaultdict(int)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                room = _room(report.nodeid)
                seconds[room] += report.duration
                tests[room] += report.when == "call"
    if seconds:
        terminalreporter.section("seconds per room")
        for room in sorted(seconds, key=lambda name: -seconds[name]):
            terminalreporter.write_line(f"{seconds[room]:8.2f} s  {tests[room]:5} tests  {room}")


def _room(nodeid: str) -> str:
    """Return the folder of a test below ``tests/``, such as ``storage/journal``."""
    return "/".join(nodeid.partition("::")[0].split("/")[1:-1]) or "tests"


# -- collecting garbage


def pytest_collection() -> None:
    """Do not look for garbage among the tests while they are collected: there is none."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what was collected out of every later look, until the process ends."""
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)


# -- parts of `make test-all`, and rounds of random tests


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of a part."""
    parser.addoption("--part", type=int, metavar="N", help="run this part of tools/parts.py only")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the names of all that was collected, and leave out what belongs to other parts."""
    config.stash[COLLECTED] = [item.nodeid for item in items]
    part = config.getoption("--part")
    if part is not None:
        try:
            numbers = [part_of(item.nodeid) for item in items]
        except LookupError as error:
            raise pytest.UsageError(str(error)) from error
        config.hook.pytest_deselected(items=[i for i, n in zip(items, numbers) if n != part])
        items[:] = [item for item, number in zip(items, numbers) if number == part]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test of hypothesis as many rounds as its profile wants."""
    if not getattr(pyfuncitem.obj, "is_hypothesis_test", False):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    for _ in rounds():
        pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    return True


# -- workers


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run together what shares a start, and begin with what takes longest."""
    return scheduling(config, log)


# -- golden data


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that ask for `tree`, `cluster` or `journal` once for each that is found."""
    for kind in ("tree", "cluster", "journal"):
        if kind in metafunc.fixturenames:
            names: list[Any] = list(golden_names(kind))
            if not names:
                names = [pytest.param("", marks=pytest.mark.skip(NO_GOLDEN), id="none")]
            metafunc.parametrize(kind, names, indirect=True, scope="module")


@pytest.fixture(scope="session")
def golden() -> Path:
    """Return the golden folder; skip where it is absent."""
    if not GOLDEN.is_dir():
        pytest.skip(NO_GOLDEN)
    return GOLDEN


@pytest.fixture(scope="session")
def unpack(
    golden: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Path, Any]]:
    """Return a function from a golden name to (unpacked folder, parsed JSON). Unpacks once."""
    top = tmp_path_factory.mktemp("golden")

    @cache
    def unpacked(name: str) -> tuple[Path, Any]:
        target = top / name.replace("/", "-")
        extract(golden / f"{name}.tar.gz", target)
        return target, golden_documents()[name]

    return unpacked


@pytest.fixture(scope="session")
def reader() -> Reader:
    """Return the assertions shared by the families that read golden content."""
    from tests.golden.reader import Reader  # behind the line that has its asserts shown

    return Reader()


@pytest.fixture(scope="module")
def tree(request: pytest.FixtureRequest, unpack: Callable[[str], tuple[Path, Any]]) -> GoldenTree:
    """Return one golden tree, unpacked; parametrised over all there are."""
    return GoldenTree(*unpack(request.param))


@pytest.fixture(scope="module")
def tree_index(tree: GoldenTree) -> Iterator[EntryIndex]:
    """Yield the index of the golden tree, opened through `BookieDir`."""
    with BookieDir(tree.root) as bookie:
        assert tree.layout == bookie.layout

        yield bookie.index


@pytest.fixture(scope="module")
def cluster(
    request: pytest.FixtureRequest, unpack: Callable[[str], tuple[Path, Any]]
) -> tuple[Path, dict[str, Any]]:
    """Return (folder with a directory a bookie, document) of one golden cluster."""
    root, document = unpack(request.param)
    return root / document["storage"], document


@pytest.fixture(scope="module")
def journal(
    request: pytest.FixtureRequest, unpack: Callable[[str], tuple[Path, Any]]
) -> tuple[Path, dict[str, Any]]:
    """Return (the bookie's folder, document) of one golden journal tree."""
    root, document = unpack(request.param)
    return root / document["tree"], document


@pytest.fixture(scope="session")
def shell_output(golden: Path) -> dict[tuple[str, str], bytes]:
    """Return what the real shell printed, by tree name and command line."""
    (path,) = golden.rglob("shell_output.tar.gz")
    with tarfile.open(path) as tar:
        files = {Path(m.name).name: tar.extractfile(m) for m in tar.getmembers() if m.isfile()}
        texts = {name: file.read() for name, file in files.items() if file is not None}
    rows = [line.split("\t") for line in texts["index.tsv"].decode().splitlines()]
    return {(name.partition(".")[0], command): texts[name] for name, command, _ in rows}


# -- servers


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """Yield a running ZooKeeper; skip without kazoo, the jars of pyspark, or Java."""
    pytest.importorskip("kazoo", reason="kazoo is not installed")
    from bkstore.testing.zookeeper_server import ZooKeeperServer

    try:
        server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    except MissingDependency as error:
        pytest.skip(str(error))
    with server:
        yield server
