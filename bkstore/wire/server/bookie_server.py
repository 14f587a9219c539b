"""BookieServer: serves a `Bookie` on a port, to clients of protocols v2 and v3.

A scope is the upper 64 bits of a ledger id, 0 in BookKeeper; `extended` v3 has scopes and batch
reads.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Self

from bkstore import forks
from bkstore.arguments import boolean, host_name, instance, integer, number, optional
from bkstore.errors import IllegalOperation
from bkstore.index.api import Closeable
from bkstore.storage.bookie import Bookie
from bkstore.wire.listening import Listener, bind_all
from bkstore.wire.sasl import SaslUsers
from bkstore.wire.server.connection import ServedConnection
from bkstore.wire.server.observer import Observer
from bkstore.wire.server.options import ServerOptions
from bkstore.wire.server.partitions import PartitionableConnection
from bkstore.wire.server.shared_state import SharedState

_log = logging.getLogger(__name__)

_check_port = integer(0, 65535)
_BACKLOG = 1024


class Address(NamedTuple):
    """Where a server listens; its text is a bookie id, ``host:port`` (brackets around colons)."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class BookieServer(Closeable):
    """Serves a bookie to clients of v2 and v3, in a thread of its own.

    `start` (or ``with``) binds the port and returns when clients may connect; `port` 0 takes a
    free one. `close` takes no more requests, answers those received, and ends the thread; it does
    not close the bookie. An add is answered with EOK only after its journal is synced.

    With `extended`, v3 has scopes (`ledgerScopeId`) and batch reads, which BookKeeper's clients and
    bookies do not know. `tls` is the context for START_TLS, which is refused without it. `sasl` has
    the users that may connect: until a client has authenticated as one of them its requests get
    EUA. `observer` gets a call for each request. While `is_partitioned` returns True, nothing is
    received or sent (`PartitionableConnection`): a fault for tests of clients. Threads: safe. Fork:
    closed in the child.

    >>> import socket, tempfile
    >>> from bkstore.wire.frames import frame
    >>> from bkstore.wire.v2 import ReadRequest, decode_response
    >>> with tempfile.TemporaryDirectory() as top, Bookie.open(top) as bookie:
    ...     with BookieServer(bookie) as server, socket.create_connection(server.address) as sock:
    ...         sock.sendall(frame(*ReadRequest(7, 0).parts()))
    ...         print(decode_response(sock.recv(28)[4:]).status.name)
    ENOLEDGER
    """

    def __init__(
        self,
        bookie: Bookie,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        extended: bool = False,
        tls: ssl.SSLContext | None = None,
        sasl: SaslUsers | None = None,
        observer: Observer | None = None,
        options: ServerOptions | None = None,
        is_partitioned: Callable[[], bool] | None = None,
    ) -> None:
        instance(Bookie)("bookie", bookie)
        self.bookie = bookie
        self.options = optional(instance(ServerOptions))("options", options) or ServerOptions()
        self._host, self._port = host_name("host", host), _check_port("port", port)
        self._extended = boolean("extended", extended)
        self._tls = optional(instance(ssl.SSLContext))("tls", tls)
        self._users = optional(instance(SaslUsers))("sasl", sasl)
        self._observer = observer
        self._is_partitioned = is_partitioned
        self._address: Address | None = None
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._server_state: SharedState | None = None
        self._stop_requested: asyncio.Event | None = None
        self._ended = threading.Event()
        self._listening_sockets: list[socket.socket] = []
        self._stop_timeout = self.options.stop_timeout
        self._read_only = False
        self._closed = False
        forks.register(self)

    def start(self) -> Self:
        """Start to listen; return the server. Raises `OSError` if the address cannot be bound."""
        if self._closed or self._thread is not None:
            raise forks.closed_error("this server") if self._closed else IllegalOperation("started")
        ready = threading.Event()
        arguments = (ready.set,)
        self._thread = threading.Thread(
            None, self._run_event_loop, "bkstore-server", arguments, daemon=True
        )
        self._thread.start()
        ready.wait()
        if self._address is None:
            self._thread.join()
            self._closed = True
            assert self._failure is not None
            raise self._failure
        return self

    @property
    def address(self) -> Address:
        """The (host, port) where it listens; as text it is a bookie id."""
        if self._address is None:
            raise IllegalOperation("this server has not been started")
        return self._address

    @property
    def read_only(self) -> bool:
        """Whether adds and explicit LACs are refused, as at a bookie whose disks are full."""
        return self._read_only

    @read_only.setter
    def read_only(self, value: bool) -> None:
        self._read_only = boolean("read_only", value)
        if self._server_state is not None:
            self._server_state.rules.read_only = value

    @property
    def max_connections(self) -> int:
        """The most clients served at once: as in `options`, or fewer if the limit of open files
        requires it, which is logged at the start."""
        return (self._server_state or self.options).max_connections

    @property
    def connection_count(self) -> int:
        """How many clients are connected."""
        return 0 if self._server_state is None else len(self._server_state.connections)

    @property
    def held_bytes(self) -> int:
        """Bytes of requests and answers now held for all clients."""
        return 0 if self._server_state is None else self._server_state.held_bytes

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the server has ended, for at most `seconds`; return whether it has."""
        # not by `Thread.join`: before CPython 3.13, a join that a signal interrupts marks the
        # thread as ended, and `close` would not stop it
        return self._thread is None or self._ended.wait(seconds)

    def close(self, seconds: float | None = None) -> None:
        """Answer the requests received, close all connections, and end the thread. Idempotent.

        Requests not answered within `seconds` (default: `stop_timeout`) get no answer. Raises the
        exception that the server's thread failed with, if it did.
        """
        if seconds is not None:
            self._stop_timeout = number(0)("seconds", seconds)
        thread, self._closed = self._thread, True
        if thread is None:
            return
        if self._server_state is not None and self._stop_requested is not None:
            with suppress(RuntimeError):  # raised if the loop is closed: the server has ended
                self._server_state.loop.call_soon_threadsafe(self._stop_requested.set)
        self._ended.wait()  # first: an interrupted join could mark the thread as ended (`wait`)
        thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def __enter__(self) -> Self:
        return self if self._thread is not None else self.start()

    def __repr__(self) -> str:
        address = self._address or Address(self._host, self._port)
        return f"<BookieServer {address}{' (closed)' if self._closed else ''}>"

    def _run_event_loop(self, ready: Callable[[], None]) -> None:
        """Serve until closed, in the server's thread; keep the exception of a failure for `start`
        or `close` to raise. Calls `ready` at least once, so that `start` does not wait forever."""
        try:
            asyncio.run(self._serve(ready))
        except BaseException as error:  # noqa: BLE001 - `start` or `close` raises it
            self._failure = error
            if self._address is not None:  # it has started: `start` will not raise the error
                _log.exception("the server ended")
        finally:
            self._ended.set()
            ready()

    async def _serve(self, ready: Callable[[], None]) -> None:
        """Bind, call `ready`, serve until `close` is called, then stop all connections."""
        settings = (self.options, self._observer, self._extended, self._tls, self._users)
        server_state = SharedState(self.bookie, *settings)
        server_state.rules.read_only = self._read_only
        # `start` returns after `ready`: with an address if the server listens, else with an error.
        try:
            self._listening_sockets = bind_all(self._host, self._port, _BACKLOG)
        except OSError as error:
            await server_state.stop(0)
            address = str(Address(self._host, self._port))
            raise OSError(error.errno, _os_message(error), address) from error
        self._server_state, self._stop_requested = server_state, asyncio.Event()
        self._address = Address(*self._listening_sockets[0].getsockname()[:2])
        make_connection: Callable[[], ServedConnection] = partial(ServedConnection, server_state)
        if self._is_partitioned is not None:
            make_connection = partial(PartitionableConnection, server_state, self._is_partitioned)
        listener = Listener(self._listening_sockets, make_connection)
        listener.start()
        ready()
        stop_timeout = 0.0  # of a server whose loop failed
        try:
            await self._stop_requested.wait()
            await listener.stop()
            stop_timeout = self._stop_timeout
        finally:  # also if the loop failed and cancelled this task
            listener.close()
            await server_state.stop(stop_timeout)

    def _forked(self) -> None:
        """Drop the sockets in a forked child: otherwise clients would wait for answers after the
        parent has closed the server, and its port would stay in use."""
        self._closed = True
        self._thread = None
        forks.drop_descriptors(self._open_descriptors())

    def _open_descriptors(self) -> Iterator[int]:
        connections = [] if self._server_state is None else list(self._server_state.connections)
        yield from (sock.fileno() for sock in self._listening_sockets if sock.fileno() >= 0)
        yield from (fd for client in connections if (fd := client.fileno()) >= 0)


def _os_message(error: OSError) -> str:
    """Return the operating system's message, without the sentence that asyncio wraps around it."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)
