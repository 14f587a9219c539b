"""ZooKeeper as tests need it: sessions that end, connections that break between two requests."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from bkstore.cluster import ZooKeeperStore

CREATE, DELETE, SET, GET = 1, 2, 5, 4
"""Request types of ZooKeeper's protocol (`ZooDefs.OpCode`)."""


def raw_client(store: ZooKeeperStore) -> Any:
    """Return the kazoo client of a store."""
    return store._connection.client


def root_of(store: ZooKeeperStore) -> str:
    """Return the ledgers root of a store's cluster."""
    return store.uri.root


def expire(store: ZooKeeperStore) -> None:
    """End a store's session as the server would: whoever closes it under its id ends it for all."""
    from kazoo.client import KazooClient

    mine = store._connection.client
    other = KazooClient(hosts=mine.hosts[0][0] + f":{mine.hosts[0][1]}", client_id=mine.client_id)
    other.start()
    other.stop()
    other.close()


class Proxy:
    """A port between clients and a server, which breaks a connection when it is told to.

    `lose_answer(kind)`: the next request of a type is executed, and its answer does not arrive.
    `lose_request(kind)`: it does not reach the server. `lost` counts both.
    """

    def __init__(self, port: int) -> None:
        self.lost = 0
        self._server = port
        self._armed: tuple[int, bool] | None = None
        self._open = True
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_answer(self, kind: int) -> None:
        """Break the connection when the answer to the next such request comes."""
        self._armed = (kind, True)

    def lose_request(self, kind: int) -> None:
        """Break the connection instead of passing the next such request on."""
        self._armed = (kind, False)

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
                server = socket.create_connection(("127.0.0.1", self._server))
            except OSError:
                continue
            _Line(self, client, server)

    def taken(self, kind: int) -> bool | None:
        """Return whether the answer (True) or the request (False) is to be lost; None: neither."""
        if self._armed is None or self._armed[0] != kind:
            return None
        answer, self._armed = self._armed[1], None
        self.lost += 1
        return answer


class _Line:
    """One connection through a proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy = proxy
        self.ends = (client, server)
        self.doomed: int | None = None
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
        if lost:
            self.doomed = number
        return lost is not False

    def _answer(self, frame: bytes) -> bool:
        return struct.unpack_from(">i", frame)[0] != self.doomed
