"""A connection to ZooKeeper that retries requests until they have an answer.

A request in flight when the connection broke may have been executed. It is sent again, and
`RetriedRequest.repeated` is set: the caller must distinguish its own first success from another
client's. `MetadataUnavailable`, raised without an answer in time, leaves that open.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from bkstore import forks
from bkstore.cluster.store.zookeeper.kazoo_client import (
    FORBIDDEN_ERRORS,
    UNCERTAIN_ERRORS,
    KazooClient,
    KazooException,
    KazooState,
    KazooTimeoutError,
    tls_settings,
)
from bkstore.errors import MetadataUnavailable, UnauthorizedAccess

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.05  # pause between two attempts
_POLL_SECONDS = 0.25  # how often a wait checks its deadline
_CLOSE_SECONDS = 0.5  # for the end of a session whose server may not answer
_MAX_IN_FLIGHT = 256  # requests of `request_many`
# Without a limit kazoo's own delays double up to an hour.
_RETRY_SETTINGS = {"max_tries": -1, "delay": 0.05, "max_delay": 1.0}


class ZooKeeperConnection:
    """A session with ZooKeeper that is replaced when it expires. Thread-safe; closed in a forked
    child. `timeout` is how long a request is retried; the server grants `session_timeout`. TLS is
    used if the environment requests it (`kazoo_client.tls_settings`)."""

    def __init__(self, servers: Iterable[str], *, timeout: float, session_timeout: float) -> None:
        self.timeout = timeout
        self.session_timeout = session_timeout
        self.closed = False
        self._final_deadline = math.inf  # of all requests, set by `finish_within`
        self._servers = ";".join(servers)
        tls = tls_settings()
        # With a logger of ours: kazoo's warnings of broken connections would appear on stderr.
        self.client = KazooClient(
            hosts=self._servers.replace(";", ","),
            timeout=session_timeout,
            connection_retry=dict(_RETRY_SETTINGS),
            command_retry=dict(_RETRY_SETTINGS),
            logger=_log,
            **tls,
        )
        try:
            self.client.start(timeout)
        except KazooTimeoutError:
            protocol = " by TLS" if tls else ""
            message = f"no ZooKeeper at {self._servers} answered{protocol} within {timeout:g} s"
            raise MetadataUnavailable(message) from None
        forks.register(self)

    def _forked(self) -> None:
        self.closed = True
        forks.keep_forever(self.client)

    @property
    def session(self) -> int | None:
        """The id of the session, None while there is no connection."""
        client_id = self.client.client_id
        return None if client_id is None else int(client_id[0])

    def on_connected(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each connect, on kazoo's thread, so it must not send requests;
        returns a function that ends this."""

        def listen(state: Any) -> None:
            if state == KazooState.CONNECTED:
                callback()

        self.client.add_listener(listen)
        return lambda: self.client.remove_listener(listen)

    def request(self, path: str, method: str, *arguments: Any, **settings: Any) -> Any:
        """Send one request, which may be executed more than once, and return the answer."""
        return RetriedRequest(self, path)(method, *arguments, **settings)

    def request_many(self, paths: Iterable[str], method: str) -> Iterator[tuple[str, Any]]:
        """Send a request for each path, many concurrently, and yield (path, answer) in order. An
        answer may be an error of the server. Raises `MetadataUnavailable` for a request without an
        answer."""
        remaining = iter(paths)
        while chunk_paths := list(islice(remaining, _MAX_IN_FLIGHT)):
            self.check_open()
            send = getattr(self.client, f"{method}_async")
            for path, pending in zip(chunk_paths, list(map(send, chunk_paths))):
                yield path, self._wait_or_repeat(path, method, pending)

    def finish_within(self, seconds: float) -> None:
        """Limit the wait for answers to `seconds` from now, also of requests in flight, and the
        wait of `close` for a server that does not answer."""
        self._final_deadline = min(self._final_deadline, time.monotonic() + seconds)

    def wait(self, pending: Any, deadline: float) -> Any:
        """Wait for an answer; raises `KazooTimeoutError` if it does not come in time. Wakes up at
        short intervals, because `finish_within` may bring the end of the wait forward."""
        while True:
            remaining = min(deadline, self._final_deadline) - time.monotonic()
            try:
                return pending.get(timeout=min(max(remaining, 0.0), _POLL_SECONDS))
            except KazooTimeoutError:
                if self.is_late(deadline):
                    raise

    def is_late(self, deadline: float, pause: float = 0.0) -> bool:
        """Return whether the deadline has passed, or will have passed after a pause."""
        return time.monotonic() + pause >= min(deadline, self._final_deadline)

    def _wait_or_repeat(self, path: str, method: str, pending: Any) -> Any:
        """Return the answer of a request, or the error that the server answered with. A request is
        sent again if the connection broke, which leaves its outcome unknown."""
        try:
            try:
                return self.wait(pending, time.monotonic() + self.timeout)
            except UNCERTAIN_ERRORS:
                return self.request(path, method)
        except KazooTimeoutError:
            raise self.unavailable_error(path, method) from None
        except FORBIDDEN_ERRORS as error:
            raise forbidden_error(path) from error
        except KazooException as error:
            return error

    def check_open(self) -> None:
        """Raise `IllegalOperation` if the connection is closed."""
        if self.closed:
            raise forks.closed_error(f"the metadata store at {self._servers}")

    def unavailable_error(self, path: str, method: str) -> MetadataUnavailable:
        """Return the error for a request without an answer."""
        is_read = method.startswith(("get", "exists", "sync"))
        limit = f"within {self.timeout:g} s" if self._final_deadline == math.inf else "in time"
        problem = f"{path}: ZooKeeper at {self._servers} gave no answer {limit}"
        return MetadataUnavailable(problem if is_read else f"{problem}; it may have been executed")

    def close(self) -> None:
        """End the session, and with it its ephemeral nodes."""
        if self.closed:
            return
        self.closed = True
        if self._final_deadline == math.inf:
            self._stop_client()
            return
        # The server may not answer: wait no longer than to the deadline.
        stopping = threading.Thread(
            target=self._stop_client, name="bkstore-session-end", daemon=True
        )
        stopping.start()
        stopping.join(max(_CLOSE_SECONDS, self._final_deadline - time.monotonic()))

    def _stop_client(self) -> None:
        self.client.stop()
        self.client.close()


class RetriedRequest:
    """A request to one node; `repeated` is whether an earlier attempt may have succeeded."""

    def __init__(self, connection: ZooKeeperConnection, path: str) -> None:
        self.repeated = False
        self._connection = connection
        self._path = path
        self._deadline = time.monotonic() + connection.timeout

    def __call__(self, method: str, *arguments: Any, **settings: Any) -> Any:
        """Send the request until there is an answer, and return it; raises the server's errors,
        `MetadataUnavailable` without an answer in time, `UnauthorizedAccess` if an access control
        list forbids it, `IllegalOperation` if the store is closed."""
        while True:
            self._connection.check_open()
            send = getattr(self._connection.client, f"{method}_async")
            try:
                pending = send(self._path, *arguments, **settings)
                return self._connection.wait(pending, self._deadline)
            except UNCERTAIN_ERRORS as error:
                self.repeated = True
                _log.info("%s %s is retried: %r", method, self._path, error)
            except KazooTimeoutError:
                raise self._connection.unavailable_error(self._path, method) from None
            except FORBIDDEN_ERRORS as error:
                raise forbidden_error(self._path) from error
            if self._connection.is_late(self._deadline, _RETRY_SECONDS):
                raise self._connection.unavailable_error(self._path, method)
            time.sleep(_RETRY_SECONDS)


def forbidden_error(path: str) -> UnauthorizedAccess:
    """Return the error for a request that an access control list forbids."""
    return UnauthorizedAccess(f"{path}: forbidden by ZooKeeper's access control list")
