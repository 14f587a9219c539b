"""`Ensemble`: real processes that are killed, stopped and started again, and what stays of them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("kazoo", reason="kazoo is not installed")

from bkstore.cluster import ZooKeeperStore
from bkstore.errors import (
    BookieUnavailable,
    DirectoryInUse,
    IllegalOperation,
    InvalidArgument,
    MetadataUnavailable,
    MissingDependency,
)
from bkstore.network import Client
from bkstore.testing.ensemble import Ensemble
from bkstore.testing.ensemble.state_file import STATE_NAME, StateFile
from bkstore.testing.ensemble.stop_and_remove import remove
from tests.testing.ensemble.processes import alive, all_end

pytestmark = pytest.mark.usefixtures("java")


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip without Java or the jars of pyspark."""
    try:
        Ensemble(tmp_path_factory.mktemp("java") / "e", 1).close()
    except MissingDependency as error:
        pytest.skip(str(error))


def _pids(ensemble: Ensemble) -> list[int | None]:
    return [ensemble.zookeeper_pid, *(bookie.pid for bookie in ensemble.bookies.values())]


def _registered(store: ZooKeeperStore, bookies: set[str]) -> bool:
    """Return whether these are registered soon: sessions that expired meanwhile are made anew."""
    until = time.monotonic() + 30
    while store.registered_bookies() != bookies and time.monotonic() < until:
        time.sleep(0.05)
    return store.registered_bookies() == bookies


def test_a_directory_that_lives_on(tmp_path: Path) -> None:
    """Bookies are killed, started and stopped, ZooKeeper is killed and started: what was
    acknowledged stays. So does the cluster, in the directory: started again it has the same
    instance id, cookies, bookies, ports and data."""
    place = tmp_path / "trial"
    with Ensemble(place, 2, ["interleaved", "db"], session=2.0) as ensemble:
        first, second = ensemble.bookies.values()
        with Client(ensemble.uri) as client:
            ledger = client.create_ledger(2, 2, 1, scope=5)
            ledger.append(b"zero")
            old = first.pid
            ensemble.kill(first)

            assert (None, -signal.SIGKILL, False) == (first.pid, first.exit_code, alive(old))
            assert f"127.0.0.1:{second.address[1]}" == ensemble.env["BKSTORE_BOOKIES"]
            ledger.append(b"one")
            ensemble.start("bookie-1")
            ledger.append(b"two")  # asks who could replace the killed one
            ensemble.kill_zookeeper()
            ledger.append(b"three")
            ensemble.start_zookeeper()
            ensemble.stop(second)

            assert (False, 0) == (second.running, second.exit_code)
            ledger.append(b"four")
            ledger.close()
        with ZooKeeperStore(ensemble.uri) as store:
            assert _registered(store, {"bookie-1"})
            instance, cookies = store.instance_id(), store.cookies()
        before = ensemble.save_state()

        assert ["interleaved", "db"] == [one.storage for one in before.bookies]
        assert (before, True) == StateFile.read(place)
        assert (place / "bookie-2", place / "bookie-2.log") == (second.directory, second.log)
        with pytest.raises(DirectoryInUse, match="trial: its ensemble is running"):
            Ensemble(place)
        with pytest.raises(IllegalOperation, match="bookie-1 is running"):
            ensemble.start(first)
        with pytest.raises(IllegalOperation, match="is running"):
            ensemble.start_zookeeper()
        pids = _pids(ensemble)

    assert all_end(pids)
    assert [0, 0] == [one.exit_code for one in (first, second)]  # before ZooKeeper
    found = StateFile.read(place)
    assert found is not None
    assert ([None] * 2, False) == ([one.pid for one in found[0].bookies], found[1])
    with pytest.raises(IllegalOperation, match="closed"):
        ensemble.start()
    with pytest.raises(InvalidArgument, match="there are 2 bookies, 1 would be too few"):
        Ensemble(place, 1)

    with Ensemble(place, session=2.0, gc_wait=0.1) as again, ZooKeeperStore(again.uri) as store:
        assert (instance, cookies) == (store.instance_id(), store.cookies())
        assert set(again.bookies) == store.registered_bookies()
        assert before.uri == again.uri
        ports = [one.address[1] for one in again.bookies.values()]

        assert [one.port for one in before.bookies] == ports
        with Client(store) as client:
            read = client.open_ledger(ledger.ledger).read(0, 4)

            client.delete_ledger(ledger.ledger)

        assert [b"zero", b"one", b"two", b"three", b"four"] == [entry.payload for entry in read]
        logs = [one.directory / "ledgers" / "current" for one in again.bookies.values()]
        end = time.monotonic() + 60
        while any(log.exists() for folder in logs for log in folder.glob("*.log")):
            assert time.monotonic() < end, "garbage stays"
            time.sleep(0.02)


def test_environment(tmp_path: Path) -> None:
    """Before the first start and after the end there is none; in between ZooKeeper and the bookies
    are where it says, and a change of the dict changes nothing."""
    ensemble = Ensemble(tmp_path / "trial", 2)
    with pytest.raises(IllegalOperation, match="was not started"):
        _ = ensemble.env
    with ensemble:
        variables = ensemble.env
        servers, root = variables["BK_zkServers"], variables["BK_zkLedgersRootPath"]
        bookies = variables["BKSTORE_BOOKIES"].split(",")
        with ZooKeeperStore(variables["BK_metadataServiceUri"]) as store:
            raw = store._connection.client
            registered = set(raw.get_children(f"{root}/available")) - {"readonly"}

        assert f"zk+hierarchical://{servers}/ledgers" == variables["BK_metadataServiceUri"]
        assert {"bookie-1", "bookie-2"} == registered
        for address in (servers, *bookies):
            host, port = address.split(":")
            socket.create_connection((host, int(port)), 10).close()
        assert 2 == len(set(bookies))
        variables.clear()
        assert 4 == len(ensemble.env)
    with pytest.raises(IllegalOperation, match="closed"):
        _ = ensemble.env


OWNER = """
import sys, time
from bkstore.testing.ensemble import Ensemble

ensemble = Ensemble(sys.argv[1], 1).start()
print(ensemble.zookeeper_pid, *(one.pid for one in ensemble.bookies.values()), flush=True)
time.sleep(600)
"""


@pytest.mark.long  # `up` is killed by default
def test_nothing_outlives_a_killed_owner(tmp_path: Path) -> None:
    """ZooKeeper and bookies end when the process that started them is killed; nobody else's take
    of the directory hinders the next start, and the cluster is the one it was."""
    place = tmp_path / "trial"
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(place)], stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        pids = [int(word) for word in owner.stdout.readline().split()]
        running = [alive(pid) for pid in pids]
        owner.kill()
    ended = all_end(pids)
    for pid in filter(alive, pids):
        os.kill(pid, signal.SIGKILL)

    assert ([True, True], True) == (running, ended)
    found = StateFile.read(place)
    assert found is not None
    assert (pids[1], False) == (found[0].bookies[0].pid, found[1])
    ensemble = Ensemble(place)
    try:
        assert ["bookie-1"] == list(ensemble.bookies)
        assert found[0].uri == ensemble.uri
    finally:
        ensemble.close()


@pytest.fixture(scope="module")
def ensemble(java: None) -> Iterator[Ensemble]:
    """Yield one in a temporary directory, with a bookie; a test leaves it running."""
    with Ensemble(bookies=1) as made:
        yield made
    assert not made.path.exists()


def test_a_child_that_was_forked_leaves_it_alone(ensemble: Ensemble) -> None:
    """In a forked child the ensemble is closed, and the child's end kills nothing."""
    before = StateFile.read(ensemble.path)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            ensemble.close()
            ensemble.start()
        except IllegalOperation as error:
            code = 0 if "before a fork" in str(error) else 2
        finally:
            os._exit(code)

    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ensemble.bookies["bookie-1"].running
    assert (ensemble.save_state(), True) == before == StateFile.read(ensemble.path)
    assert ensemble.add_bookie("other").running
    assert {"bookie-1", "other"} == {one.id for one in ensemble.bookies.values() if one.pid}
    assert (ensemble.path / "other" / "ledgers").is_dir()


def test_a_start_that_fails_half_way(ensemble: Ensemble) -> None:
    """A bookie or a ZooKeeper that cannot start is told with its last lines; of what this start
    began nothing runs on, and it works when the cause is gone."""
    spoilt = ensemble.bookies["bookie-1"]
    pids = _pids(ensemble)
    with ThreadPoolExecutor() as threads:  # each waits for its own
        list(threads.map(ensemble.stop, ensemble.bookies))
    ensemble.stop()

    assert all_end(pids)
    assert [0, 0] == [one.exit_code for one in ensemble.bookies.values()]
    cookie = spoilt.directory / "ledgers" / "current" / "VERSION"
    cookie.rename(cookie.with_name("hidden"))
    with pytest.raises(
        BookieUnavailable, match=r"bookie-1 ended \(2\): .*no cookie here"
    ) as caught:
        ensemble.start()

    assert str(spoilt.log) in str(caught.value)
    assert [None] * len(pids) == _pids(ensemble)
    cookie.with_name("hidden").rename(cookie)
    jars, ensemble._zookeeper._class_path = ensemble._zookeeper._class_path, "nowhere"
    with pytest.raises(MetadataUnavailable, match=r"does not serve: .*main class"):
        ensemble.start()
    ensemble._zookeeper._class_path = jars
    ensemble.start()

    assert all(alive(pid) for pid in _pids(ensemble))


def test_a_bookie_that_hangs(ensemble: Ensemble) -> None:
    """A bookie that does not end in time is killed; one that did not register in time is told."""
    bookie = ensemble.bookies["bookie-1"]
    assert bookie.pid is not None
    os.kill(bookie.pid, signal.SIGSTOP)
    bookie.stop(0.1)

    assert (None, -signal.SIGKILL) == (bookie.pid, bookie.exit_code)
    bookie.launch(ensemble.uri)
    with pytest.raises(BookieUnavailable, match="bookie-1 did not register in time: "):
        bookie.wait_until_registered(0.0)
    ensemble.kill(bookie)


def test_a_start_that_was_cut_off(tmp_path: Path) -> None:
    """A process that is killed while it writes the state file leaves a part of one: that keeps
    nobody from starting there, and goes with what is removed."""
    place = tmp_path / "trial"
    place.mkdir()
    cut = place / f".{STATE_NAME}.0123456789abcdef"
    cut.write_text('{"for')
    Ensemble(place, 1).close()

    assert not cut.exists()
    cut.write_text('{"for')
    (place / f".{STATE_NAME}.mine").write_text("mine")
    assert [f".{STATE_NAME}.mine"] == remove(place)


def test_what_is_refused(tmp_path: Path) -> None:
    """A directory with something else in it, a file, a port that is taken, no bookies, an id that
    is none: refused before anything is made or changed."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("mine")
    with pytest.raises(InvalidArgument, match="mine: is not empty and not an ensemble's directory"):
        Ensemble(mine)
    with pytest.raises(InvalidArgument, match="is not a directory"):
        Ensemble(mine / "thesis.txt")
    assert ["thesis.txt"] == [path.name for path in mine.iterdir()]

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(InvalidArgument, match=f"port {port} is taken"):
            Ensemble(port=port)
    for bad in ({"bookies": 0}, {"storage": []}, {"storage": "tape"}, {"manager": "ms"}):
        with pytest.raises(InvalidArgument):
            Ensemble(tmp_path / "new", **bad)  # type: ignore[arg-type]
    ensemble = Ensemble(tmp_path / "trial", manager="longhierarchical")
    try:
        for name in ("bookie-1", "../up", "a/b", ""):
            with pytest.raises(InvalidArgument, match="is not valid as a new bookie's id"):
                ensemble.add_bookie(name)
        with pytest.raises(InvalidArgument, match="no bookie 'bookie-9'"):
            ensemble.kill("bookie-9")
    finally:
        ensemble.close()
    with pytest.raises(InvalidArgument, match="has the ledger manager longhierarchical"):
        Ensemble(tmp_path / "trial", manager="flat")
