"""A server of tests that says what a script tells it to, over real sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bkstore.wire.frames import FrameSplitter, frame

__all__ = ["Peer", "Script", "Server", "served"]


class Peer:
    """The server's end of one connection."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._splitter = FrameSplitter(8 << 20)
        self._frames: list[bytes] = []

    def request(self) -> bytes | None:
        """Return the next message of the client, None at the end of the connection."""
        while not self._frames:
            try:
                data = self.socket.recv(1 << 16)
            except OSError:
                return None
            if not data:
                return None
            self._splitter.feed(data)
            self._frames += self._splitter.frames()
        return self._frames.pop(0)

    def requests(self) -> Iterator[bytes]:
        """Yield the messages of the client up to the end of the connection."""
        while (message := self.request()) is not None:
            yield message

    def send(self, data: bytes) -> None:
        """Send bytes as they are; a client that has gone does not matter."""
        try:
            self.socket.sendall(data)
        except OSError:
            self._frames.clear()

    def answer(self, *parts: bytes) -> None:
        """Send one frame."""
        self.send(frame(*parts))

    def hang_up(self) -> None:
        """End the connection at once."""
        self.socket.shutdown(socket.SHUT_RDWR)


Script = Callable[[Peer], None]
"""What to do with a connection; it ends when this returns."""


class Server:
    """Listens on loopback; each connection is given to the script, in a thread of its own.

    `connections` counts them, `errors` are what scripts raised.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.connections = 0
        self.errors: list[BaseException] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listening.getsockname()
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connected)
            thread = threading.Thread(target=self._talk, args=(connected,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _talk(self, connected: socket.socket) -> None:
        try:
            with connected:
                self.script(Peer(connected))
        except BaseException as error:  # noqa: BLE001 (the test shows it)
            self.errors.append(error)

    def wait(self) -> None:
        """Wait until the script of each connection has ended."""
        for thread in self._threads[1:]:
            thread.join(10)

    def close(self) -> None:
        """End every connection and wait for the scripts."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connected in self._open:
            try:
                connected.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join(10)


@contextmanager
def served(script: Script) -> Iterator[Server]:
    """Yield a server that follows a script; what a script raised is raised at the end."""
    server = Server(script)
    try:
        yield server
    finally:
        server.close()
    if server.errors:
        raise server.errors[0]
