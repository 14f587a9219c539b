"""The pytest plugin in a stranger's project: fixtures, options, faults, leaks, what it loads."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bkstore.testing import assert_no_leaks, plugin
from bkstore.testing.factories import BookieFactory, ClusterFactory, StorageFactory
from bkstore.testing.leaks import CAN_LIST_OPEN_FILES, open_files
from tests.paths import ROOT

pytest_plugins = ["pytester"]

NEEDS_CHECK = pytest.mark.skipif(not CAN_LIST_OPEN_FILES, reason="open files cannot be told here")

HEAD = """
import pytest
from bkstore.errors import *
from bkstore.formats.entry import Entry, encode

KEY = b"k" * 20

def record(entry, ledger=7):
    return encode(Entry(ledger, entry, entry - 1, 5, b"hello"), "CRC32C", "pw")
"""


def run(pytester: pytest.Pytester, body: str, *arguments: str) -> pytest.RunResult:
    """Run a stranger's test module in this process; the plugin as installed is kept out."""
    pytester.makepyfile(HEAD + body)
    options = ["-p", "no:bkstore", "-p", "no:cacheprovider", "--strict-markers", "-Werror", "-v"]
    return pytester.runpytest_inprocess(*options, *arguments, plugins=[plugin])


class TestFixtures:
    """What a test author gets."""

    def test_storage(self, pytester: pytest.Pytester) -> None:
        """The factory makes storages of every kind, each alone, and opens them again."""
        result = run(
            pytester,
            """
def test_default(bkstore_storage):
    storage = bkstore_storage()
    assert storage.storage == "sorted"
    assert storage.add_entry(record(0), master_key=KEY) == 0
    storage.flush()
    storage.add_entry(record(1))
    storage = bkstore_storage.reopen(storage, flush=False)
    assert storage.entries(7).tolist() == [0]
    storage.add_entry(record(1))
    storage = bkstore_storage.reopen(storage)
    assert storage.read_entry(7, 1) == record(1)
    assert (bkstore_storage.path_of(storage) / "ledgers" / "current").is_dir()

@pytest.mark.parametrize("kind", ["sorted", "interleaved", "db"])
def test_kinds(bkstore_storage, kind):
    one, other = bkstore_storage(kind, directories=2), bkstore_storage(kind, write_cache=4096)
    one.add_entry(record(0), master_key=KEY)
    assert (one.storage, other.options.write_cache) == (kind, 4096)
    assert [one.ledgers(), other.ledgers()] == [[(0, 7)], []]
    with pytest.raises(InvalidArgument):
        bkstore_storage.reopen(object())

def test_same_directory(bkstore_storage, tmp_path):
    storage = bkstore_storage("db", path=tmp_path / "mine")
    storage.set_master_key(7, KEY)
    with pytest.raises(DirectoryInUse):
        bkstore_storage("db", path=tmp_path / "mine")
""",
        )
        result.assert_outcomes(passed=5)

    def test_bookie(self, pytester: pytest.Pytester) -> None:
        """A bookie survives a reopen, a reopen without checkpoint, and a kill."""
        result = run(
            pytester,
            """
@pytest.mark.bkstore_storage
def test_bookie(bkstore_bookie, bkstore_kind):
    bookie = bkstore_bookie(journals=2)
    assert bookie.storage.storage == bkstore_kind
    for entry, close in enumerate((
        bkstore_bookie.reopen,
        lambda bookie: bkstore_bookie.reopen(bookie, checkpoint=False),
        bkstore_bookie.crash,
    )):
        bookie.add_entry(record(entry), KEY)
        bookie = close(bookie)
        assert bookie.entries(7).tolist() == list(range(entry + 1))
        assert bookie.unclean == (entry > 0)
    journals = [*bkstore_bookie.path_of(bookie).glob("journal*/current/*.txn")]
    assert 2 <= len(journals) and all(file.stat().st_size <= 1 << 17 for file in journals)
""",
        )
        result.assert_outcomes(passed=3)
        result.stdout.fnmatch_lines(["*[[]sorted]*", "*[[]interleaved]*", "*[[]db]*"])

    def test_server(self, pytester: pytest.Pytester) -> None:
        """A server stands on loopback over a bookie of its own, and comes back on its port."""
        result = run(
            pytester,
            """
import socket

@pytest.mark.bkstore_storage
def test_server(bkstore_server, bkstore_kind):
    server, other = bkstore_server(), bkstore_server("db", server={"extended": True})
    assert [server.bookie.storage.storage, other.address.host] == [bkstore_kind, "127.0.0.1"]
    for entry, again in enumerate((bkstore_server.restart, bkstore_server.crash)):
        server.bookie.add_entry(record(entry), KEY)
        there, server = server, again(server)
        assert (there.address, server.bookie.unclean) == (server.address, entry == 1)
        assert server.bookie.entries(7).tolist() == list(range(entry + 1))
    assert socket.create_connection(server.address).close() is None
""",
        )
        result.assert_outcomes(passed=3)

    def test_cluster(self, pytester: pytest.Pytester) -> None:
        """Clusters of any mix of storages, each alone, opened again with their metadata."""
        result = run(
            pytester,
            """
@pytest.mark.bkstore_storage
def test_cluster(bkstore_cluster, bkstore_kind):
    cluster, other = bkstore_cluster(), bkstore_cluster(["a", "b"], ["db", "sorted"], timeout=1)
    ledger = cluster.create_ledger(3, 3, 2)
    assert ledger.append(b"kept") == 0
    cluster.slow("bookie-1", 3600)
    cluster.bookies["bookie-2"].availability(0)
    assert [cluster.bookie("bookie-1").storage.storage, len(cluster.bookies)] == [bkstore_kind, 3]
    assert [other.bookie(name).storage.storage for name in "ab"] == ["db", "sorted"]
    with pytest.raises(BookieUnavailable, match="1 s"):
        other.slow("a", 9)
        other.bookies["a"].availability(0)
    cluster = bkstore_cluster.reopen(cluster, checkpoint=False)
    assert cluster.bookie("bookie-1").unclean
    assert cluster.open_ledger(0).read_last().payload == b"kept"
    assert (bkstore_cluster.path_of(cluster) / "bookie-3" / "ledgers" / "current").is_dir()
    assert other.store.ledgers() == []

def test_faults(bkstore_cluster, bkstore_faults):
    cluster = bkstore_cluster()
    ledger = cluster.create_ledger(3, 3, 2)
    bkstore_faults.fail_sync()
    assert ledger.append(b"two of three") == 0
    assert [fault.what for fault in bkstore_faults.done] == ["fail_sync"]
""",
        )
        result.assert_outcomes(passed=4)

    def test_faults(self, pytester: pytest.Pytester) -> None:
        """A fault plan bites storages and bookies of its test, and no others."""
        result = run(
            pytester,
            """
def test_write(bkstore_storage, bkstore_faults):
    storage = bkstore_storage("interleaved")
    storage.add_entry(record(0), master_key=KEY)
    storage.flush()
    bkstore_faults.disk_full()
    storage.add_entry(record(1))
    with pytest.raises(WriteFailed):
        storage.flush()
    assert bkstore_faults.done[0].what == "disk_full"

def test_sync(bkstore_bookie, bkstore_faults):
    bookie = bkstore_bookie("db")
    bookie.add_entry(record(0), KEY)
    bkstore_faults.fail_sync()
    with pytest.raises(SyncFailed):
        bookie.add_entry(record(1), KEY)
    assert bkstore_bookie.reopen(bookie, checkpoint=False).read_entry(7, 0) == record(0)

def test_own_layer(bkstore_storage):
    from bkstore.testing.faults import FaultPlan
    plan = FaultPlan()
    storage = bkstore_storage("sorted", files=plan)
    storage.set_master_key(7, KEY)
    plan.fail_write()
    with pytest.raises(WriteFailed):
        storage.flush()

def test_none(bkstore_bookie):
    bkstore_bookie().add_entry(record(0), KEY)
""",
        )
        result.assert_outcomes(passed=4)


class TestKinds:
    """Which storages a test runs with."""

    BODY = """
def test_it(bkstore_storage, bkstore_kind):
    assert bkstore_storage().storage == bkstore_kind

@pytest.mark.bkstore_storage("db")
def test_marked(bkstore_storage):
    assert bkstore_storage().storage == "db"
"""

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ([], ["test_it "]),
            (["--bkstore-storage=db"], ["test_it "]),
            (["--bkstore-storage=all"], [f"test_it[[]{kind}] " for kind in plugin.STORAGES]),
            (["--bkstore-storage", "db, sorted"], ["test_it[[]db] ", "test_it[[]sorted] "]),
            (["-o", "bkstore_storage=db,sorted"], ["test_it[[]db] ", "test_it[[]sorted] "]),
        ],
    )
    def test_choice(
        self, pytester: pytest.Pytester, arguments: list[str], expected: list[str]
    ) -> None:
        """Option over ini over sorted storage; a marker over all of them."""
        result = run(pytester, self.BODY, *arguments)

        result.assert_outcomes(passed=len(expected) + 1)
        result.stdout.fnmatch_lines([f"*::{name}*" for name in (*expected, "test_marked ")])

    def test_unknown_kinds(self, pytester: pytest.Pytester) -> None:
        """A storage that there is not ends the run, named with those that there are."""
        result = run(pytester, self.BODY, "--bkstore-storage=rocksdb,db")

        assert pytest.ExitCode.USAGE_ERROR == result.ret
        result.stderr.fnmatch_lines(["*rocksdb is not one of sorted, interleaved, db, all*"])


@NEEDS_CHECK
class TestLeaks:
    """Files that are open at the end."""

    def test_faults_asked_for_inside_a_test(self, pytester: pytest.Pytester) -> None:
        """A plan that `getfixturevalue` gives acts, or is refused by the name of what it missed."""
        result = run(
            pytester,
            """
NAMES = ["bkstore_storage", "bkstore_bookie", "bkstore_cluster"]

def fill(made):
    made.add_entry(record(0), master_key=KEY)
    made.flush() if hasattr(made, "flush") else made.checkpoint()

@pytest.mark.parametrize("name", NAMES[:2])
def test_before_anything_is_made(request, name):
    make = request.getfixturevalue(name)
    faults = request.getfixturevalue("bkstore_faults")
    made = make()
    faults.disk_full()
    with pytest.raises(WriteFailed):
        fill(made)
    assert [fault.what for fault in faults.done][:1] == ["disk_full"]

def test_before_the_factory(request):
    faults = request.getfixturevalue("bkstore_faults")
    storage = request.getfixturevalue("bkstore_storage")()
    faults.disk_full()
    with pytest.raises(WriteFailed):
        fill(storage)

def test_of_another_fixture(bkstore_storage, mine):
    storage = bkstore_storage()
    mine.disk_full()
    with pytest.raises(WriteFailed):
        fill(storage)

@pytest.fixture
def mine(request):
    return request.getfixturevalue("bkstore_faults")

@pytest.mark.parametrize("name", NAMES)
def test_too_late(request, name):
    request.getfixturevalue(name)()
    request.getfixturevalue("bkstore_faults")
""",
        )
        result.assert_outcomes(passed=4, failed=3)
        for name in ("storage", "bookie", "cluster"):
            result.stdout.fnmatch_lines(
                [f"*bkstore_faults is requested after bkstore_{name} created something*"]
            )

    def test_leaks_are_errors(self, pytester: pytest.Pytester) -> None:
        """What a test opened below the fixture's directory and kept is named, and an error."""
        result = run(
            pytester,
            """
KEPT = []

def test_leak(bkstore_storage):
    storage = bkstore_storage()
    storage.add_entry(record(0), master_key=KEY)
    storage.flush()
    KEPT.append(open(bkstore_storage.path_of(storage) / "ledgers" / "current" / "0.log"))

def test_left_open(bkstore_storage, bkstore_bookie):
    bkstore_storage("db").add_entry(record(0), master_key=KEY)
    bkstore_bookie("db").add_entry(record(0), KEY)
    assert bkstore_bookie("sorted", directories=3).read_entries.__self__

def test_elsewhere(bkstore_storage, tmp_path):
    KEPT.append(open(tmp_path / "mine", "w"))
    bkstore_storage()

def test_close():
    while KEPT:
        KEPT.pop().close()
""",
        )
        result.assert_outcomes(passed=4, errors=1)
        result.stdout.fnmatch_lines(
            ["*test_leak*", "1 files are still open after the test:", "*ledgers/current/0.log"]
        )

    def test_broken_storage_closes(self, pytester: pytest.Pytester) -> None:
        """A storage that fails to close fails its test, unless a planned fault broke it."""
        result = run(
            pytester,
            """
def test_fault(bkstore_storage, bkstore_faults):
    storage = bkstore_storage("interleaved")
    storage.add_entry(record(0), master_key=KEY)
    bkstore_faults.disk_full()

def test_power_loss(bkstore_bookie):
    from bkstore.testing.crash import CrashFiles, PowerLoss
    files = CrashFiles()
    bookie = bkstore_bookie("db", files=files)
    files.stop_after(1)
    with pytest.raises(PowerLoss):
        bookie.add_entry(record(0), KEY)

def test_no_fault(bkstore_storage):
    storage = bkstore_storage("interleaved")
    def refuse(flush):
        raise IllegalOperation("does not close")
    close = storage.close
    storage.close = refuse
    close()
""",
        )
        result.assert_outcomes(passed=3, errors=1)
        result.stdout.fnmatch_lines(["*IllegalOperation: does not close"])

    def test_cluster_leaves_nothing_open(self, tmp_path: Path) -> None:
        """Closed, killed or never closed: a cluster's bookies have no file open at the end."""
        clusters = ClusterFactory(tmp_path)
        cluster = clusters(3, ["sorted", "interleaved", "db"])
        with cluster.create_ledger() as ledger:
            ledger.append(b"x")
        cluster.crash("bookie-3")
        cluster.lose("bookie-1", 0, 0)

        assert open_files(tmp_path)

        clusters.reopen(cluster)

        assert [] == clusters.close_all()
        assert_no_leaks(tmp_path)

    def test_open_files(self, tmp_path: Path) -> None:
        """Open files below a directory are listed, removed ones too; closed ones are not."""
        (tmp_path / "in").mkdir()
        with (tmp_path / "in" / "a").open("w"), (tmp_path / "in" / "b").open("w"):
            (tmp_path / "in" / "b").unlink()
            with (tmp_path / "outside").open("w"):
                found = open_files(tmp_path / "in")
                with pytest.raises(
                    AssertionError, match=r"2 files are still open below(.|\n)*in/a"
                ):
                    assert_no_leaks(tmp_path / "in")

        assert ["a", "b"] == [Path(path).name.partition(" ")[0] for path in found]
        assert [] == open_files(tmp_path)
        assert_no_leaks(tmp_path)

    @pytest.mark.parametrize("kind", plugin.STORAGES)
    def test_storages_leave_nothing_open(self, tmp_path: Path, kind: str) -> None:
        """A closed storage or bookie has no file open, however it was closed."""
        storages, bookies = StorageFactory(tmp_path, kind), BookieFactory(tmp_path, kind)  # type: ignore[arg-type]
        storage, bookie = storages(directories=2), bookies()
        storage.set_master_key(7, b"k")

        assert open_files(tmp_path)

        storages.reopen(storage).close()
        bookies.crash(bookie)
        bookies()

        assert [] == storages.close_all() + bookies.close_all()
        assert_no_leaks(tmp_path)


class TestWhatIsLoaded:
    """The plugin is in every pytest run of the environment: it must cost nothing."""

    def test_by_name(self, pytester: pytest.Pytester) -> None:
        """The plugin works in a process of its own, loaded by name."""
        pytester.makepyfile(HEAD + TestKinds.BODY)
        options = ["-p", "no:bkstore", "-p", "bkstore.testing.plugin", "-Werror"]
        result = pytester.runpytest_subprocess(*options, "--bkstore-storage=interleaved")

        result.assert_outcomes(passed=2)

    def test_top_level_imports(self) -> None:
        """At top level the plugin imports pytest and the standard library only."""
        tree = ast.parse(Path(plugin.__file__).read_text(encoding="utf-8"))
        names = {
            (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
            for node in tree.body
            if isinstance(node, (ast.Import, ast.ImportFrom))
        }

        assert "pytest" in names
        assert set() == {name.partition(".")[0] for name in names} - {
            "pytest",
            *sys.stdlib_module_names,
        }

    def test_modules_that_it_loads(self) -> None:
        """Beyond pytest and `import bkstore` nothing is loaded but the plugin itself."""
        code = (
            "import sys, pytest, bkstore; before = set(sys.modules)\n"
            "import bkstore.testing.plugin\n"
            "print(*sorted(set(sys.modules) - before))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        loaded = set(done.stdout.split())

        assert {"bkstore.testing", "bkstore.testing.plugin"} == {
            name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names
        }


def test_the_page_for_test_authors(pytester: pytest.Pytester) -> None:
    """The page's examples, one module from top to bottom, pass in a stranger's project."""
    page = ROOT / "docs" / "testing.md"
    blocks = re.findall(
        r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    pytester.makepyfile("\n\n".join(blocks))
    options = ["-p", "no:bkstore", "-p", "bkstore.testing.plugin", "-p", "no:cacheprovider"]
    some = ["-Werror", "--strict-markers", "-k", "not TestMyStorage or fence"]
    result = pytester.runpytest_subprocess(*options, *some)
    outcomes = result.parseoutcomes()

    assert 9 <= len(blocks)
    assert {"passed", "deselected"} == set(outcomes) - {"skipped"}  # what needs Java, without
    assert outcomes.get("skipped", 0) <= 1
    assert 30 < outcomes["passed"]
    assert 100 < outcomes["passed"] + outcomes["deselected"]
