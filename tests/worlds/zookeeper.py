"""ZooKeeper as tests need it: sessions that end, connections that break between two requests."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from bkstore.cluster import ZooKeeperStore

CREATE, DELETE, SET, GET = 1, 2, 5, 4
"""Request types of ZooKeeper's protocol (`ZooDefs.OpCode`)."""
_NOT_COUNTED = (11, 100, 101, 105, -11)
"""Pings, authentication, watches set again, the end of a session."""


def raw_client(store: ZooKeeperStore) -> Any:
    """Return the kazoo client of a store."""
    return store._connection.client


def root_of(store: ZooKeeperStore) -> str:
    """Return the ledgers root of a store's cluster."""
    return store.uri.root


def expire(store: ZooKeeperStore) -> None:
    """End a store's session as the server would."""
    end_session(store._connection.client)


def end_session(client: Any, port: int | None = None) -> None:
    """End a kazoo client's session: whoever closes it under its id ends it for all.

    Through the server at `port`, the client's own by default.
    """
    from kazoo.client import KazooClient

    host, own = client.hosts[0]
    other = KazooClient(hosts=f"{host}:{port or own}", client_id=client.client_id)
    other.start(timeout=60)
    other.stop()
    other.close()


class Proxy:
    """A port between clients and a server, which breaks a connection when it is told to.

    `lose_answer(kind)`: the next request of a type is executed, and its answer does not arrive.
    `lose_request(kind)`: it does not reach the server. `break_at(number)`: so the request of that
    number from now on. `lost` counts those that were lost, `requests` all that came.
    """

    def __init__(self, port: int) -> None:
        self.lost = 0
        self.requests = 0
        self._server = port
        self._armed: _Break | None = None
        self._counting = threading.Lock()
        self._open = True
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_answer(self, kind: int) -> None:
        """Break the connection when the answer to the next such request comes."""
        self._armed = _Break(lambda number, its_kind: its_kind == kind, True)

    def lose_request(self, kind: int) -> None:
        """Break the connection instead of passing the next such request on."""
        self._armed = _Break(lambda number, its_kind: its_kind == kind, False)

    def break_at(
        self, number: int, *, answer: bool, then: Callable[[], object] = lambda: None
    ) -> None:
        """Lose the request of a number, 1 = the next, or its answer; call `then` before."""
        at = self.requests + number
        self._armed = _Break(lambda now, kind: now == at, answer, then)

    def close(self) -> None:
        """Take no more connections."""
        self._open = False
        with suppress(OSError):  # wakes whoever waits for a connection, on Linux
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while self._open:
            try:
                client, _ = self._listening.accept()
            except OSError:
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._server))
            except OSError:
                client.close()
                continue
            _Line(self, client, server)

    def taken(self, kind: int) -> _Break | None:
        """Return what is to happen to a request, None = nothing."""
        with self._counting:
            self.requests += kind not in _NOT_COUNTED
            if self._armed is None or not self._armed.hits(self.requests, kind):
                return None
            found, self._armed = self._armed, None
            self.lost += 1
            return found


class _Break(NamedTuple):
    """Which request is lost, or its answer, and what happens before the connection breaks."""

    hits: Callable[[int, int], bool]
    answer: bool
    then: Callable[[], object] = lambda: None


class _Line:
    """One connection through a proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy = proxy
        self.ends = (client, server)
        self.doomed: tuple[int, _Break] | None = None
        self.greeted = {client: False, server: False}
        for source, target, look in (
            (client, server, self._request),
            (server, client, self._answer),
        ):
            threading.Thread(target=self._pass, args=(source, target, look), daemon=True).start()

    def _pass(
        self, source: socket.socket, target: socket.socket, look: Callable[[bytes], bool]
    ) -> None:
        with suppress(OSError), source.makefile("rb") as stream:
            while len(size := stream.read(4)) == 4:
                frame = stream.read(struct.unpack(">i", size)[0])
                if self.greeted[source] and not look(frame):
                    break
                self.greeted[source] = True  # the first frame is the handshake
                target.sendall(size + frame)
        for end in self.ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _request(self, frame: bytes) -> bool:
        number, kind = struct.unpack_from(">ii", frame)
        lost = self.proxy.taken(kind)
        if lost is None:
            return True
        if lost.answer:
            self.doomed = (number, lost)
        else:
            lost.then()
        return lost.answer

    def _answer(self, frame: bytes) -> bool:
        if self.doomed is None or struct.unpack_from(">i", frame)[0] != self.doomed[0]:
            return True
        self.doomed[1].then()
        return False
