"""AdminServer: starting, stopping, forks, addresses; and a bookie that is busy meanwhile."""

from __future__ import annotations

import multiprocessing
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bkstore import Bookie, LedgerId
from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.errors import IllegalOperation, InvalidArgument, MetadataUnavailable
from bkstore.storage.ledgers.garbage_pass import GarbageReport
from bkstore.wire.admin import AdminServer
from bkstore.wire.admin.connection_limits import Limits
from bkstore.wire.admin.router import WaitReason
from tests.wire.admin.asking import TOKEN, address, ask, everything, fill, until, write

pytest.importorskip("aiohttp")


def test_it_listens_on_loopback(bookie: Bookie) -> None:
    """By default it is on 127.0.0.1, at a port of its own, only inside its block."""
    admin = AdminServer(bookie)
    with pytest.raises(IllegalOperation, match="is not listening"):
        _ = admin.url
    with admin:
        host, port = address(admin)
        assert ("127.0.0.1", True) == (host, port > 0)
        assert f"<AdminServer http://127.0.0.1:{port}>" == repr(admin)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, port), timeout=5)
    assert "<AdminServer (closed)>" == repr(admin)


def test_it_ends_once(bookie: Bookie) -> None:
    """Closing twice does no harm; a closed one does not start again; starting twice is once."""
    before = threading.active_count()
    with AdminServer(bookie) as admin:
        assert admin.url == admin.start().url
    admin.close()
    with pytest.raises(IllegalOperation, match="closed"):
        admin.start()
    AdminServer(bookie).close()

    assert before == threading.active_count()


def test_a_port_that_is_taken(bookie: Bookie) -> None:
    """A port that another has, or a host that is not here, is an error that names it."""
    with AdminServer(bookie) as admin:
        host, port = address(admin)
        with pytest.raises(IllegalOperation, match=f"{host}:{port}"):
            AdminServer(bookie, host, port).start()
    with pytest.raises(IllegalOperation, match="cannot listen"):
        AdminServer(bookie, "203.0.113.1").start()
    with pytest.raises(IllegalOperation, match="cannot listen"):
        AdminServer(bookie, "no such name").start()


@pytest.mark.parametrize(
    "settings",
    [
        *({"port": -1}, {"port": 65536}, {"port": "80"}, {"port": True}, {"host": None}),
        *({"compat": "typo"}, {"metrics": object()}, {"limits": 7}),
    ],
    ids=lambda settings: " ".join(settings) + f" {type(next(iter(settings.values()))).__name__}",
)
def test_settings_are_checked(bookie: Bookie, settings: dict[str, Any]) -> None:
    """A setting that is none is refused when it is given, and named."""
    with pytest.raises(InvalidArgument, match=next(iter(settings))):
        AdminServer(bookie, **settings)
    with pytest.raises(InvalidArgument, match="bookie"):
        AdminServer(object())  # type: ignore[arg-type]


def test_version_6_addresses(bookie: Bookie) -> None:
    """An IPv6 address stands in brackets."""
    try:
        admin = AdminServer(bookie, "::1").start()
    except IllegalOperation:
        pytest.skip("no IPv6 loopback here")
    with admin:
        assert admin.url.startswith("http://[::1]:")
        assert 200 == ask(admin, "/heartbeat").status


def test_closing_waits_for_a_pass(bookie: Bookie, monkeypatch: pytest.MonkeyPatch) -> None:
    """A garbage collection that was started ends before `close` returns: the bookie may go then."""
    begun, ended = threading.Event(), threading.Event()

    def slow(*_: object) -> GarbageReport:
        begun.set()
        time.sleep(0.3)
        ended.set()
        return GarbageReport()

    monkeypatch.setattr(bookie.storage, "run_garbage_pass", slow)
    with AdminServer(bookie, token=TOKEN) as admin:
        write(admin, "/api/v1/bookie/gc", "PUT")
        assert begun.wait(10)

    assert ended.is_set()


def test_closing_lets_an_answer_end(bookie: Bookie, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that runs when the admin is closed gets its answer."""
    asked, go = threading.Event(), threading.Event()
    ledgers = bookie.ledgers

    def slow(scope: int | None = None) -> object:
        asked.set()
        go.wait(10)
        return ledgers(scope)

    monkeypatch.setattr(bookie, "ledgers", slow)
    statuses = []
    admin = AdminServer(bookie).start()
    client = threading.Thread(
        target=lambda: statuses.append(ask(admin, "/api/v1/ledger/list").status)
    )
    client.start()
    assert asked.wait(10)
    closer = threading.Thread(target=admin.close)
    closer.start()
    time.sleep(0.1)
    go.set()
    closer.join()
    client.join()

    assert [200] == statuses


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_lets_go_of_the_port(tmp_path: Path) -> None:
    """A forked child has a closed admin, and does not keep the port when the parent ends it."""
    context = multiprocessing.get_context("fork")
    with Bookie.open(tmp_path, "sorted") as bookie:
        admin = AdminServer(bookie).start()
        here, there = context.Pipe()
        child = context.Process(target=_in_child, args=(admin, there))
        child.start()
        told = here.recv()
        port = address(admin)
        try:
            assert 200 == ask(admin, "/heartbeat").status
            admin.close()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(port, timeout=5)
        finally:
            admin.close()
            here.send("done")
            child.join()

    assert ("<AdminServer (closed)>", 0) == (told, child.exitcode)


def _in_child(admin: AdminServer, there: Any) -> None:
    there.send(repr(admin))
    there.recv()
    admin.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_lets_go_of_connections(tmp_path: Path) -> None:
    """A client that is connected when the parent forks sees the end that the parent makes, while
    the child lives."""
    context = multiprocessing.get_context("fork")
    with Bookie.open(tmp_path, "sorted") as bookie:
        admin = AdminServer(bookie).start()
        here, there = context.Pipe()
        with socket.create_connection(address(admin), timeout=10) as client:
            until(lambda: admin._front is not None and 1 == len(admin._front._connections.served))
            child = context.Process(target=_in_child, args=(admin, there))
            child.start()
            here.recv()
            try:
                client.sendall(b"GET /heartbeat HTTP/1.1\r\nHost: localhost\r\n\r\n")

                assert everything(client).endswith(b"\r\n\r\nOK\n")
            finally:
                admin.close()
                here.send("done")
                child.join()

    assert 0 == child.exitcode


class _Stalled(MemoryStore):
    """A store that does not answer until it is told to, and then that it cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Semaphore(0)
        self.go = threading.Event()

    def ledgers(self, scope: int | None = None) -> list[LedgerId]:
        self.asked.release()
        assert self.go.wait(30)
        raise MetadataUnavailable("no answer")


def test_liveness_waits_for_nobody(bookie: Bookie) -> None:
    """While requests wait for the metadata store, as many as may, further ones are 503 at once;
    the heartbeat, metrics and what this bookie has by itself are answered. Metadata that are not
    to be had are 503."""
    store, limits, statuses = _Stalled(), Limits(connections=12, waiting=6), []
    with AdminServer(bookie, metadata=store, limits=limits) as admin:

        def listing() -> None:
            statuses.append(ask(admin, "/api/v1/ledger/list").status)

        clients = [threading.Thread(target=listing) for _ in range(limits.waiting)]
        for client in clients:
            client.start()
        try:
            for _ in range(4):
                assert store.asked.acquire(timeout=30)
            waiting = WaitReason.METADATA
            until(lambda: admin._front is not None and 6 == admin._front._waiting_counts[waiting])
            alive = [ask(admin, path).status for path in ("/heartbeat", "/metrics")]
            state = ask(admin, "/api/v1/bookie/state").json
            refused = ask(admin, "/api/v1/ledger/metadata?ledger_id=1")
            early = list(statuses)
        finally:
            store.go.set()
            for client in clients:
                client.join()

    assert ([200, 200], True, []) == (alive, state["running"], early)
    assert (503, "too many requests are waiting for the metadata store") == (
        refused.status,
        refused.line,
    )
    assert [503] * limits.waiting == statuses


def test_readers_beside_a_writer(tmp_path: Path, storage: Any) -> None:
    """Requests see whole answers while entries are added, flushed and collected."""
    with (
        Bookie.open(tmp_path, storage) as bookie,
        AdminServer(bookie, token=TOKEN) as admin,
    ):
        fill(bookie, 1, range(5))
        stop = threading.Event()
        wrong: list[object] = []

        def read() -> None:
            while not stop.is_set():
                shown = ask(admin, "/api/v1/ledger/read", ledger_id=1)
                if shown.status != 200 or [*shown.json][:5] != list("01234"):
                    wrong.append(shown)
                listed = ask(admin, "/api/v1/ledger/list", print_metadata="true")
                if listed.status != 200 or "1" not in listed.json:
                    wrong.append(listed)

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for start in range(5, 65, 5):
            fill(bookie, 1, range(start, start + 5))
            write(admin, "/api/v1/bookie/gc", "PUT")
        stop.set()
        for thread in threads:
            thread.join()
        until(lambda: ask(admin, "/api/v1/bookie/gc").json["is_in_force_gc"] == "false")

        assert [] == wrong
        assert list(map(str, range(65))) == list(
            ask(admin, "/api/v1/ledger/read", ledger_id=1).json
        )


def test_limits_can_be_set(bookie: Bookie) -> None:
    """Other limits are those that hold."""
    with AdminServer(bookie, token=TOKEN, limits=Limits(body=10)) as admin:
        assert 200 == write(admin, "/api/v1/bookie/gc", "PUT", {}).status
        assert 413 == write(admin, "/api/v1/bookie/gc", "PUT", {"forceMajor": True}).status
