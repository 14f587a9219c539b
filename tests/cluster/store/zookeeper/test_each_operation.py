"""A fault in the middle of each operation, at each of its requests: done once, or said not to be.

The tables are `store_operations`, `underreplication_operations` and `client_operations`. A request
does not reach the server, or its answer is lost; the session ends with it, or the server is killed
and started again. What is done by others meanwhile is asked over a connection that holds.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Event, Lock

import pytest

from bkstore.cluster import ZooKeeperStore
from bkstore.testing.zookeeper_server import ZooKeeperServer
from tests.cluster.store.samples import new_uri
from tests.cluster.store.zookeeper.client_operations import CLIENT_OPERATIONS
from tests.cluster.store.zookeeper.store_operations import OPERATIONS, Here, Operation
from tests.cluster.store.zookeeper.underreplication_operations import MARK_OPERATIONS
from tests.worlds.zookeeper import Proxy, end_session, raw_client

ALL = {**OPERATIONS, **MARK_OPERATIONS, **CLIENT_OPERATIONS}
FAULTS = ["answer", "request and session", "request", "answer and session"]
KILLED = ["answer and server", "request and server"]
AT_ONCE = 6
"""Cases side by side: they wait for new connections most of the time."""

_numbers = Lock()


@pytest.fixture(scope="module")
def server(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZooKeeperServer]:
    """Yield a server of this module's own, which waits for the disk."""
    with ZooKeeperServer(tmp_path_factory.mktemp("killed"), sync=True) as own:
        yield own


def run(work: Operation, server: ZooKeeperServer, number: int = 0, lost: str = "") -> int:
    """Do an operation, losing its request of a number or the answer; return how many it had."""
    with _numbers:
        direct = new_uri(server)
    with closing(Proxy(server.port)) as proxy, ZooKeeperStore.format(direct) as other:
        uri = direct.replace(str(server.port), str(proxy.port))
        # A server that starts anew finds the session; one that takes the connection before it
        # serves costs the client two thirds of the session's time before it tries again.
        session_timeout, timeout = (30, 90) if "server" in lost else (4, 30)
        with ZooKeeperStore(uri, timeout=timeout, session_timeout=session_timeout) as store:
            steps = work(Here(store, other, uri, "session" in lost))
            next(steps)

            ended = Event()

            def end() -> None:
                if "session" in lost:
                    end_session(raw_client(store), server.port)
                elif "server" in lost:
                    server.kill()
                    server.start()
                ended.set()

            before = proxy.requests
            if number:
                proxy.break_at(number, answer="answer" in lost, then=end)
            next(steps, None)
            requests = proxy.requests - before
            next(steps, None)

            assert (number > 0) == proxy.lost
            assert not number or ended.wait(60)  # the next one finds a server that runs
    return requests


def _failure(name: str, server: ZooKeeperServer, number: int, lost: str) -> str | None:
    try:
        run(ALL[name], server, number, lost)
    except Exception as error:  # noqa: BLE001  all of them are shown
        return f"{name}, {lost} lost at request {number}: {error!r:.300}"
    return None


def _one_each(name: str, requests: int, faults: list[str]) -> Iterator[tuple[int, str]]:
    """Yield a case for each fault, at requests that differ from operation to operation."""
    for at, fault in enumerate(faults):
        yield 1 + (zlib.crc32(name.encode()) + at * 5) % requests, fault


def test_faults(zookeeper: ZooKeeperServer) -> None:
    """Whatever is lost, each operation is done once, and what it says of itself is so."""

    def failures(name: str) -> list[str | None]:
        requests, ends = run(ALL[name], zookeeper), list(ALL).index(name) % 2
        cases = [(requests, FAULTS[3 * ends]), *_one_each(name, requests, [FAULTS[2 - ends]])]
        return [_failure(name, zookeeper, *case) for case in cases]

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = [text for each in pool.map(failures, ALL) for text in each if text]

    assert [] == found


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_faults_at_each_request(zookeeper: ZooKeeperServer, name: str) -> None:
    """So it is with every fault, at every request that the operation has."""
    cases = [(at, each) for at in range(1, run(ALL[name], zookeeper) + 1) for each in FAULTS]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda case: _failure(name, zookeeper, *case), cases)

        assert [] == [text for text in found if text]


def test_killed_server(server: ZooKeeperServer) -> None:
    """So it is with a server that is killed in the middle, and comes back."""
    assert _failure("recover", server, 2, "answer and server") is None


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_killed_servers(server: ZooKeeperServer, name: str) -> None:
    """So it is with each operation, before and after the server did it."""
    for case in _one_each(name, run(ALL[name], server), KILLED):
        assert _failure(name, server, *case) is None
