"""Shared by all families: hypothesis profiles, golden data, backends, seconds per family.

Golden data are answers of the real BookKeeper. They stay outside the repository: the folder is
named by BKSTORE_GOLDEN, else ``../shared/golden`` beside the checkout is taken; without it the
tests that need it are skipped, with that reason.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from bkstore import BookieDir
from bkstore.errors import NoSuchLedger
from bkstore.index.api import EntryIndex
from bkstore.index.hierarchical import HierarchicalIndex
from bkstore.index.memtable import MemtableIndex
from bkstore.index.partitioned import PartitionedIndex
from tests.golden.unpacking import extract

settings.register_profile(
    "default",
    max_examples=100,
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "long",
    settings.get_profile("default"),
    max_examples=2000,
    stateful_step_count=60,
    derandomize=False,
    print_blob=True,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

GOLDEN = Path(
    os.environ.get("BKSTORE_GOLDEN") or Path(__file__).parents[1] / ".." / "shared" / "golden"
).resolve()
NO_GOLDEN = f"no golden data at {GOLDEN} (set BKSTORE_GOLDEN)"


# -- seconds per family


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many seconds each family, that is each test file, took."""
    seconds: dict[str, float] = defaultdict(float)
    tests: dict[str, int] = defaultdict(int)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                family = report.nodeid.partition("::")[0]
                seconds[family] += report.duration
                tests[family] += report.when == "call"
    if seconds:
        terminalreporter.section("seconds per family")
        for family in sorted(seconds, key=lambda name: -seconds[name]):
            terminalreporter.write_line(
                f"{seconds[family]:8.2f} s  {tests[family]:5} tests  {family}"
            )


# -- golden data


def load_json(path: Path) -> Any:
    """Return the parsed content of a .json or .json.gz file."""
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


@cache
def golden_documents() -> dict[str, Any]:
    """Return every golden JSON that has a tree beside it, by its name below the folder."""
    found = {}
    for tar in sorted(GOLDEN.rglob("*.tar.gz")):
        stem = tar.name.removesuffix(".tar.gz")
        for path in (tar.with_name(stem + ".json"), tar.with_name(stem + ".json.gz")):
            if path.is_file():
                found[str(tar.relative_to(GOLDEN)).removesuffix(".tar.gz")] = load_json(path)
    return found


@cache
def golden_names(kind: str) -> tuple[str, ...]:
    """Return the names of the "tree" documents (with snapshots), "cluster" or "journal" ones."""
    keys = {"tree": "snapshots", "cluster": "restarted_bookies", "journal": "journal_files"}
    key = keys[kind]
    documents = golden_documents().items()
    return tuple(n for n, document in documents if isinstance(document, dict) and key in document)


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


class GoldenTree:
    """A storage tree of the real BookKeeper, and the answers it gave at the end."""

    def __init__(self, root: Path, document: dict[str, Any]) -> None:
        self.document = document
        self.root = root / document["tree"]
        self.storage: str = document["storage"]
        self.options: dict[str, Any] = document["options"]
        self.snapshots: dict[str, Any] = document["snapshots"]

    @property
    def last(self) -> dict[str, Any]:
        """The last snapshot: what the bookie said before it was shut down for good."""
        return self.snapshots[list(self.snapshots)[-1]]

    @property
    def layout(self) -> str:
        """How the index is laid out."""
        return "rocksdb" if self.storage == "db" else "idx"

    @cached_property
    def known(self) -> list[dict[str, Any]]:
        """The answers about ledgers that are there, in ledger order."""
        listed = [answer for answer in self.last["ledgers"] if answer["exists"]]
        return sorted(listed, key=lambda answer: int(answer["ledger"]))

    @cached_property
    def unknown(self) -> list[int]:
        """Ledgers that were asked about and are not there."""
        return [answer["ledger"] for answer in self.last["ledgers"] if not answer["exists"]]


def expand_runs(runs: list[list[int]]) -> list[int]:
    """Return the ids of inclusive runs."""
    return [entry for first, last in runs for entry in range(first, last + 1)]


def refused(answer: object) -> bool:
    """Return whether a golden answer is the name of an exception."""
    return isinstance(answer, str) and answer.startswith("!")


class Reader:
    """The assertions that an index must pass to have the content of a golden snapshot."""

    expand_runs = staticmethod(expand_runs)
    refused = staticmethod(refused)

    def ledgers(self, index: EntryIndex, tree: GoldenTree) -> None:
        """The active ledgers, all of scope 0, and no other."""
        assert sorted(tree.last["active_ledgers"]) == [name.ledger for name in index.ledgers()]
        assert index.ledgers() == index.ledgers(0)
        for ledger in tree.unknown:
            assert [] == index.entries(ledger).tolist()
            assert index.last_entry(ledger) is None
            with pytest.raises(NoSuchLedger):
                index.state(ledger)

    def entries(self, index: EntryIndex, tree: GoldenTree) -> None:
        """The entries of each ledger, and the last one."""
        for answer in tree.known:
            expected = expand_runs(answer["entries"])

            assert answer["num_entries"] == len(expected)
            assert expected == index.entries(answer["ledger"]).tolist()
            assert (expected[-1] if expected else None) == index.last_entry(answer["ledger"])

    def locations(self, index: EntryIndex, tree: GoldenTree) -> None:
        """The location of each entry of which the golden data has one."""
        for answer in tree.known:
            ledger = answer["ledger"]
            expected = {row[0]: row[1] for row in answer["locations"]}
            entries, locations = index.items(ledger)
            found = dict(zip(entries.tolist(), locations.tolist()))

            assert expected == {entry: found[entry] for entry in expected}
            assert list(expected.values()) == index.get_many(ledger, list(expected)).tolist()
            for entry in list(expected)[:5]:
                assert expected[entry] == index.get(ledger, entry)
            if "missing_probe" in answer:
                assert index.get(ledger, answer["missing_probe"][0]) is None

    def states(self, index: EntryIndex, tree: GoldenTree, limbo: bool = True) -> None:
        """Master key, fenced flag, explicit LAC, limbo: those that the bookie told."""
        for answer in tree.known:
            state = index.state(answer["ledger"])
            lac = None if state.explicit_lac is None else state.explicit_lac.hex()
            found = {
                "master_key_hex": state.master_key.hex(),
                "fenced": state.fenced,
                "explicit_lac_hex": lac,
                "limbo": state.limbo,
            }
            told = {key for key in found if key in answer and not refused(answer[key])}
            told -= set() if limbo else {"limbo"}

            assert {key: answer[key] for key in told} == {key: found[key] for key in told}

    def availability(self, index: EntryIndex, tree: GoldenTree) -> None:
        """The availability bytes, equal to those the real class serialized."""
        for answer in tree.known:
            available = index.availability(answer["ledger"])
            data = available.to_bytes("bookkeeper")

            assert answer["availability_total"] == len(available)
            assert answer["availability_len"] == len(data)
            assert answer["availability_sha256"] == hashlib.sha256(data).hexdigest()
            if "availability_hex" in answer:
                assert answer["availability_hex"] == data.hex()

    def scan(self, index: EntryIndex, tree: GoldenTree) -> None:
        """A scan yields the entries of the known ledgers, and nothing else."""
        expected = {
            (answer["ledger"], entry)
            for answer in tree.known
            for entry in expand_runs(answer["entries"])
        }
        found = [
            (ledger.ledger, entry)
            for batch in index.scan(1000)
            for ledger, entries, _ in batch.by_ledger()
            for entry in entries.tolist()
        ]

        assert len(expected) == len(found)
        assert expected == set(found)

    def everything(self, index: EntryIndex, tree: GoldenTree, limbo: bool = True) -> None:
        """All of the above."""
        self.ledgers(index, tree)
        self.entries(index, tree)
        self.locations(index, tree)
        self.states(index, tree, limbo)
        self.availability(index, tree)
        self.scan(index, tree)


@pytest.fixture(scope="session")
def reader() -> Reader:
    """Return the assertions shared by the families that read golden content."""
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


# -- backends


@dataclass(frozen=True)
class Backend:
    """How one kind of index is made and reopened, as `EntryIndexSuite` wants it."""

    name: str
    make: Callable[[Path], EntryIndex]
    reopen: Callable[[Path], EntryIndex | None]


def _rocks(path: Path, writable: bool = False) -> EntryIndex:
    from bkstore.index.rocks import RocksIndex

    return RocksIndex(path, writable=writable)


def _rocks_parts(path: Path, writable: bool = False) -> EntryIndex:
    return PartitionedIndex([_rocks(path / f"d{n}", writable) for n in range(3)])


BACKENDS = [
    Backend("memtable", lambda path: MemtableIndex(), lambda path: None),
    Backend("idx", lambda path: HierarchicalIndex(path, writable=True), HierarchicalIndex),
    Backend(
        "idx2",
        lambda path: HierarchicalIndex([path / "a", path / "b"], writable=True),
        lambda path: HierarchicalIndex([path / "a", path / "b"]),
    ),
    Backend("rocks", lambda path: _rocks(path, True), _rocks),
    Backend("rocks3", lambda path: _rocks_parts(path, True), _rocks_parts),
]


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Return each backend in turn."""
    found: Backend = request.param
    return found


@pytest.fixture(scope="session")
def backends() -> list[Backend]:
    """Return all backends."""
    return BACKENDS
