"""The whole real client on bookies of ours that registered themselves, which are killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bkstore.network import DiskOptions, RegisteredBookie
from tests.interop.bookies import Cluster
from tests.interop.clients import FENCED
from tests.interop.clusters.conftest import MakeClient, MakeCluster, MakeProcesses
from tests.interop.clusters.processes import BookieProcesses
from tests.interop.clusters.whole_client import NOT_ENOUGH_BOOKIES, WholeClient
from tests.interop.driver import RealError

STORAGES = ("sorted", "interleaved", "db")
NO_LEDGER_IN_METADATA = -25
LEDGER_CLOSED = -11


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def five(processes: MakeProcesses) -> BookieProcesses:
    """Return five bookies of ours, each a process; all storages are among them."""
    found = processes()
    for number in range(5):
        found.ours(f"b{number}", STORAGES[number % 3])
    found.registered()
    return found


@pytest.fixture(scope="module")
def whole(five: BookieProcesses, real_client: MakeClient) -> WholeClient:
    """Return a real client of the five."""
    return real_client(five.cluster)


@pytest.fixture(autouse=True)
def all_again(five: BookieProcesses) -> Iterator[None]:
    """Have all bookies run when the next test begins."""
    yield
    five.all_again()


def test_bookies_listed(whole: WholeClient) -> None:
    """All are writable for an administrator, and have cookies."""
    names = [f"b{number}" for number in range(5)]

    assert {"writable": names, "read_only": [], "ever": names} == whole.bookies()


def test_ledgers_listed(whole: WholeClient) -> None:
    """An administrator lists what was made and not deleted; deleting twice is fine."""
    before = whole.ledgers()
    made = [whole.create(3, 2, 2) for _ in range(12)]
    for ledger in made[::2]:
        whole.delete(ledger)
    whole.delete(made[0])

    assert sorted([*before, *made[1::2]]) == whole.ledgers()
    with pytest.raises(RealError) as caught:
        whole.open(made[0], recovery=True)
    assert NO_LEDGER_IN_METADATA == caught.value.code


@pytest.mark.parametrize("write", [2, 3])
@pytest.mark.parametrize("storage", STORAGES)
def test_killed_while_written(
    five: BookieProcesses, whole: WholeClient, storage: str, write: int
) -> None:
    """`kill -9` under a writer's adds: it takes another bookie and acknowledges all; what was
    acknowledged is read back, also by itself from the bookie that starts again.

    Each storage is killed: the journal has what the bookie had acknowledged.
    """
    payloads = [b"%d" % number * 20 for number in range(400)]
    ledger = whole.create(3, write, 2)
    whole.add(ledger, payloads[:100])
    (ensemble,) = whole.ensembles(ledger).values()
    names = [f"b{number}" for number in range(5)]
    victim = min(ensemble, key=lambda name: STORAGES[names.index(name) % 3] != storage)
    killer = threading.Timer(0.02, five.kill, [victim])
    killer.start()

    assert list(range(100, 400)) == whole.add(ledger, payloads[100:])
    killer.join()
    for entry in range(400, 403):  # each bookie of the ensemble is asked, killed late or not
        assert [entry] == whole.add(ledger, [b"after"])
    whole.close_ledger(ledger)
    segments = whole.ensembles(ledger)
    assert victim in segments[0]
    assert victim not in segments[max(segments)]
    five.start_again(victim)
    assert 402 == whole.open(ledger, recovery=False)["last"]
    assert [*payloads, *[b"after"] * 3] == whole.read(ledger, 0, 402)
    assert 0 < whole.listed(ledger, victim)


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_dead_writer(
    five: BookieProcesses, whole: WholeClient, real_client: MakeClient, protocol: str
) -> None:
    """A writer and one of its bookies are gone: another client recovers what was acknowledged.

    The writer turns out to live, and can add nothing more.
    """
    payloads = [b"%d" % number for number in range(90)]
    writer = real_client(five.cluster, protocol)
    ledger = writer.create(3, 2, 2)
    writer.add(ledger, payloads)
    victim = writer.ensembles(ledger)[0][1]
    five.kill(victim)
    said = whole.open(ledger, recovery=True)

    assert (89, True) == (said["last"], said["closed"])
    assert payloads == whole.read(ledger, 0, 89)
    with pytest.raises(RealError) as caught:
        writer.add(ledger, [b"late"])
    assert caught.value.code in (FENCED, LEDGER_CLOSED)  # by a bookie, or by the metadata


def test_too_few_bookies(five: BookieProcesses, whole: WholeClient) -> None:
    """With too few bookies the writer ends with an error; what it acknowledged is recovered."""
    ledger = whole.create(5, 5, 4)
    whole.add(ledger, [b"x"] * 30)
    for name in ("b0", "b3"):
        five.lose(name)
    outcomes = whole.outcomes(ledger, [b"y"] * 10)

    assert NOT_ENOUGH_BOOKIES in outcomes
    assert {code for code in outcomes if code < 0} <= {NOT_ENOUGH_BOOKIES, LEDGER_CLOSED}
    acknowledged = [*range(30), *(entry for entry in outcomes if entry >= 0)]
    for name in ("b0", "b3"):
        five.start_again(name)
    assert acknowledged[-1] <= whole.open(ledger, recovery=True)["last"]
    assert [b"x"] * 30 == whole.read(ledger, 0, 29)


def test_waiting_for_an_entry(
    five: BookieProcesses, whole: WholeClient, real_client: MakeClient
) -> None:
    """A reader that follows is told of the next entry when its LAC is known, and not before."""
    ledger = whole.create(3, 3, 2)
    whole.add(ledger, [b"zero"])
    reader = real_client(five.cluster, explicit_lac_ms=0)
    reader.open(ledger, recovery=False)
    began = time.monotonic()
    reader.await_entry(ledger, 2, 300)
    nothing = reader.awaited()

    assert (None, True) == (nothing["entry"], time.monotonic() - began >= 0.25)
    reader.await_entry(ledger, 1, 20_000)
    whole.add(ledger, [b"one"])
    whole.add(ledger, [b"two"])
    found = reader.awaited()
    assert (0, 1, b"one".hex()) == (found["rc"], found["entry"], found["payload"])


def test_explicit_lac(five: BookieProcesses, real_client: MakeClient) -> None:
    """The LAC that a writer sends by itself outlives the kill of every bookie that has it."""
    writer = real_client(five.cluster)
    ledger = writer.create(3, 3, 3)
    writer.add(ledger, [b"x"] * 7)
    reader = real_client(five.cluster)
    _until(lambda: reader.open(ledger, recovery=False)["last"] == 6)
    ensemble = writer.ensembles(ledger)[0]
    for name in ensemble:
        five.kill(name)
    for name in ensemble:
        five.start_again(name)

    assert 6 == reader.open(ledger, recovery=False)["last"]
    assert 6 == reader.confirmed(ledger)["explicit"]


def test_read_only_bookie(
    new_cluster: MakeCluster, real_client: MakeClient, tmp_path: Path
) -> None:
    """A bookie whose disks fill is replaced under a writer and gets no ledgers; it is read from,
    and takes what a recovery writes; with room again it is writable."""
    cluster: Cluster = new_cluster()
    used = dict.fromkeys("abcd", 0.5)
    limits = DiskOptions(full=0.9, writable_again=0.9, interval=3600)
    bookies = {
        name: RegisteredBookie.open(
            cluster.uri,
            tmp_path / name,
            bookie_id=name,
            disk_options=limits,
            get_used_share=lambda path, name=name: used[name],
        )
        for name in used
    }
    whole = real_client(cluster)
    ledger, left = whole.create(3, 3, 2), whole.create(3, 3, 2)
    whole.add(ledger, [b"x"] * 10)
    whole.add(left, [b"y"] * 10)
    full = next(iter({*whole.ensembles(ledger)[0]} & {*whole.ensembles(left)[0]}))
    used[full] = 0.99
    bookies[full].check_disks()

    assert list(range(10, 20)) == whole.add(ledger, [b"z"] * 10)

    def replaced() -> bool:  # a refusal that comes after A answers is acted on at the next add
        whole.add(ledger, [b"z"])
        segments = whole.ensembles(ledger)
        return full not in segments[max(segments)]

    _until(replaced)
    names = sorted(used)
    others = [name for name in names if name != full]
    _until(lambda: whole.bookies() == {"writable": others, "read_only": [full], "ever": names})
    for _ in range(4):
        made = whole.create(3, 3, 3)
        assert full not in whole.ensembles(made)[0]
    other = real_client(cluster)
    assert 9 == other.open(left, recovery=True)["last"]
    assert [b"y"] * 10 == other.read(left, 0, 9)
    assert full in other.ensembles(left)[0]
    assert bookies[full].bookie.is_fenced(left)
    used[full] = 0.5
    bookies[full].check_disks()
    _until(lambda: full in whole.bookies()["writable"])
    for bookie in bookies.values():
        bookie.close()
