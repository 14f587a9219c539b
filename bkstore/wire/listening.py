"""Listener: accepts connections, and pauses while the process is out of file descriptors.

asyncio's own server tries a thousand times more after an accept that failed for lack of
descriptors, and logs each failure with a traceback.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

from bkstore.files.os_errors import is_transient

_log = logging.getLogger(__name__)

_MAX_ACCEPTS_PER_EVENT = 64
_RETRY_SECONDS = 0.25
_MIN_CONNECTIONS = 1


def bind_all(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Return listening sockets, one for each address of a host. Raises `OSError`."""
    kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
    address_infos = dict.fromkeys(socket.getaddrinfo(host or None, port, type=kind, flags=flags))
    sockets: list[socket.socket] = []
    with ExitStack() as open_sockets:
        for family, _, protocol, _, address in address_infos:
            try:
                listening = open_sockets.enter_context(socket.socket(family, kind, protocol))
            except OSError as error:
                if error.errno != errno.EAFNOSUPPORT:  # raised for IPv6 addresses without IPv6
                    raise
                continue
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:  # IPv4 addresses have a socket of their own
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(address)
            listening.listen(backlog)
            sockets.append(listening)
        if not sockets:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        open_sockets.pop_all()  # no error: leave them open
    return sockets


def cap_connections(requested: int) -> int:
    """Return how many of the `requested` connections the process's limit of open files allows, at
    least one. The files open now, and a quarter of the limit for the storage, are kept free."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return requested
    with suppress(OSError):  # without /dev/fd, the whole limit counts
        limit -= len(os.listdir("/dev/fd")) + limit // 4
    return min(requested, max(limit, _MIN_CONNECTIONS))


class Listener:
    """Accepts clients from listening sockets into the running loop, from `start` to `stop`. While
    there is no descriptor or memory for another client, clients wait in the sockets' queues and
    accepting is retried four times a second; that is logged. Used in the loop's thread only."""

    def __init__(
        self, sockets: Sequence[socket.socket], make_protocol: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets
        self._make_protocol = make_protocol
        self._accept_tasks: set[asyncio.Task[None]] = set()
        self._retry_timers: dict[socket.socket, asyncio.TimerHandle] = {}
        self._out_of_resources = False

    def start(self) -> None:
        """Start to accept."""
        for listening in self._sockets:
            listening.setblocking(False)
            self._start_accepting(listening)

    async def stop(self) -> None:
        """Stop accepting; return when all accepted clients have their protocols."""
        for timer in self._retry_timers.values():
            timer.cancel()
        self._retry_timers.clear()
        for listening in self._sockets:
            self._loop.remove_reader(listening)
        while self._accept_tasks:
            await asyncio.wait(self._accept_tasks)

    def close(self) -> None:
        """Close the sockets, which resets the clients in their queues."""
        for listening in self._sockets:
            if listening.fileno() >= 0:
                self._loop.remove_reader(listening)
            listening.close()

    def _start_accepting(self, listening: socket.socket) -> None:
        self._retry_timers.pop(listening, None)
        self._loop.add_reader(listening, self._accept_clients, listening)

    def _accept_clients(self, listening: socket.socket) -> None:
        """Accept clients that wait in a socket's queue, but only so many at a time that the loop's
        other work does not have to wait long."""
        for _ in range(_MAX_ACCEPTS_PER_EVENT):
            try:
                connected, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if not is_transient(error):
                    raise
                self._pause_accepting(listening, error)
                return
            if self._out_of_resources:
                self._out_of_resources = False
                _log.warning("clients are accepted again")
            task = self._loop.create_task(self._connect(connected))
            self._accept_tasks.add(task)
            task.add_done_callback(self._accept_tasks.discard)

    def _pause_accepting(self, listening: socket.socket, error: OSError) -> None:
        """Stop accepting from a socket until the next retry; log the first such error."""
        if not self._out_of_resources:
            self._out_of_resources = True
            _log.warning("no client can be accepted: %s; they wait", error.strerror)
        self._loop.remove_reader(listening)
        retry_timer = self._loop.call_later(_RETRY_SECONDS, self._start_accepting, listening)
        self._retry_timers[listening] = retry_timer

    async def _connect(self, connected: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, connected)
        except OSError as error:  # the client has gone already
            _log.debug("a client disconnected while it was accepted: %s", error)
            connected.close()
