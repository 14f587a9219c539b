"""Listener: takes clients from listening sockets, and waits while the process has no descriptors.

asyncio's own server tries a thousand times more where one accept failed for lack of descriptors,
and logs each of them with a traceback.
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

from bkstore.files.os_errors import is_for_now

_log = logging.getLogger(__name__)

_ACCEPTED_AT_ONCE = 64
_RETRY_SECONDS = 0.25
_LEAST_CONNECTIONS = 1


def bind_all(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Return listening sockets, one for each address of a host; raises `OSError`."""
    kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
    found = dict.fromkeys(socket.getaddrinfo(host or None, port, type=kind, flags=flags))
    sockets: list[socket.socket] = []
    with ExitStack() as opened:
        for family, _, protocol, _, address in found:
            try:
                listening = opened.enter_context(socket.socket(family, kind, protocol))
            except OSError as error:
                if error.errno != errno.EAFNOSUPPORT:  # a system without IPv6 may name such ones
                    raise
                continue
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(address)
            listening.listen(backlog)
            sockets.append(listening)
        if not sockets:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        opened.pop_all()
    return sockets


def connections_possible(wanted: int) -> int:
    """Return how many of the connections wanted the limit of open files leaves room for.

    A quarter of the limit is left to the storage, and what is open already; at least one is
    returned.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return wanted
    with suppress(OSError):
        limit -= len(os.listdir("/dev/fd")) + limit // 4
    return min(wanted, max(limit, _LEAST_CONNECTIONS))


class Listener:
    """Accepts clients of some listening sockets into the running loop, from `start` to `stop`.

    Where the machine has no descriptor or no memory for another client, accepts rest and are
    tried again four times a second; clients wait in the sockets' queues meanwhile. That is logged
    when it begins and when it ends. It belongs to the loop's thread.
    """

    def __init__(
        self, sockets: Sequence[socket.socket], make: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets
        self._make = make
        self._accepting: set[asyncio.Task[None]] = set()
        self._resting: dict[socket.socket, asyncio.TimerHandle] = {}
        self._short = False

    def start(self) -> None:
        """Begin to accept."""
        for listening in self._sockets:
            listening.setblocking(False)
            self._listen(listening)

    async def stop(self) -> None:
        """Accept no more; return when all that were accepted have their protocols."""
        for timer in self._resting.values():
            timer.cancel()
        self._resting.clear()
        for listening in self._sockets:
            self._loop.remove_reader(listening)
        while self._accepting:
            await asyncio.wait(self._accepting)

    def close(self) -> None:
        """Close the sockets; clients in their queues are reset."""
        for listening in self._sockets:
            if listening.fileno() >= 0:
                self._loop.remove_reader(listening)
            listening.close()

    def _listen(self, listening: socket.socket) -> None:
        self._resting.pop(listening, None)
        self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connected, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if not is_for_now(error):
                    raise
                self._rest(listening, error)
                return
            if self._short:
                self._short = False
                _log.warning("clients are accepted again")
            task = self._loop.create_task(self._connect(connected))
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)

    def _rest(self, listening: socket.socket, error: OSError) -> None:
        if not self._short:
            self._short = True
            _log.warning("no client can be accepted: %s; they wait", error.strerror)
        self._loop.remove_reader(listening)
        self._resting[listening] = self._loop.call_later(_RETRY_SECONDS, self._listen, listening)

    async def _connect(self, connected: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, connected)
        except OSError as error:  # it has gone already
            _log.debug("a client was accepted and lost: %s", error)
            connected.close()
