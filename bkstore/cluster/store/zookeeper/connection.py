"""A connection to ZooKeeper: requests that are sent again until they have an answer.

A request that was under way when the connection broke may have been executed or not. It is sent
again, and `Request.repeated` says so: then whoever asked must tell its own first success from
somebody else's. Without an answer in time it raises `MetadataUnavailable`, which claims neither.
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
    FORBIDDEN,
    UNCERTAIN,
    KazooClient,
    KazooException,
    KazooState,
    KazooTimeoutError,
)
from bkstore.errors import MetadataUnavailable, UnauthorizedAccess

_log = logging.getLogger(__name__)

_PAUSE = 0.05  # seconds between two tries
_STEP = 0.25  # seconds after which a wait looks whether it may go on
_GRACE = 0.5  # seconds for the end of a session whose server may not answer
_AT_A_TIME = 256  # requests under way
# Without a limit kazoo's own delays double up to an hour.
_RECONNECTING = {"max_tries": -1, "delay": 0.05, "max_delay": 1.0}


class Connection:
    """A session with ZooKeeper that is made anew when it expires. Safe between threads.

    `timeout` is how long a request is tried, in seconds, `session_timeout` what the server is
    asked for. In a forked child it counts as closed.
    """

    def __init__(self, servers: Iterable[str], *, timeout: float, session_timeout: float) -> None:
        self.timeout = timeout
        self.session_timeout = session_timeout
        self.closed = False
        self._last = math.inf
        self._name = ";".join(servers)
        # Its warnings of broken connections would otherwise appear on stderr.
        self.client = KazooClient(
            hosts=self._name.replace(";", ","),
            timeout=session_timeout,
            connection_retry=dict(_RECONNECTING),
            command_retry=dict(_RECONNECTING),
            logger=_log,
        )
        try:
            self.client.start(timeout)
        except KazooTimeoutError:
            raise MetadataUnavailable(
                f"no ZooKeeper answers at {self._name} within {timeout:g} s"
            ) from None
        forks.register(self)

    def _forked(self) -> None:
        self.closed = True
        forks.leak(self.client)

    @property
    def session(self) -> int | None:
        """The id of the session, None while there is no connection."""
        found = self.client.client_id
        return None if found is None else int(found[0])

    def on_connected(self, call: Callable[[], None]) -> Callable[[], None]:
        """Have `call` made after each connect, on kazoo's thread: it must not ask anything.

        Returns what ends it.
        """

        def listen(state: Any) -> None:
            if state == KazooState.CONNECTED:
                call()

        self.client.add_listener(listen)
        return lambda: self.client.remove_listener(listen)

    def ask(self, path: str, call: str, *arguments: Any, **settings: Any) -> Any:
        """Return the answer to one request, which may be executed more than once."""
        return Request(self, path)(call, *arguments, **settings)

    def ask_many(self, paths: Iterable[str], call: str) -> Iterator[tuple[str, Any]]:
        """Yield (path, answer) in order, many requests under way; an answer may be an error.

        Errors are those that the server gives; raises as `ask` where it gives none.
        """
        left = iter(paths)
        while chunk := list(islice(left, _AT_A_TIME)):
            self.check_open()
            sent = [getattr(self.client, f"{call}_async")(path) for path in chunk]
            for path, pending in zip(chunk, sent):
                yield path, self._answer(path, call, pending)

    def finish_within(self, seconds: float) -> None:
        """From now on wait for answers no longer than so many seconds, in requests that are under
        way too; and let `close` not wait for a server that does not answer."""
        self._last = min(self._last, time.monotonic() + seconds)

    def wait(self, pending: Any, until: float) -> Any:
        """Return an answer; raises `KazooTimeoutError` if it does not come in time."""
        while True:
            left = min(until, self._last) - time.monotonic()
            try:
                return pending.get(timeout=min(max(left, 0.0), _STEP))
            except KazooTimeoutError:
                if self.is_late(until):
                    raise

    def is_late(self, until: float, pause: float = 0.0) -> bool:
        """Return whether the time to wait for an answer is over, or will be behind a pause."""
        return time.monotonic() + pause >= min(until, self._last)

    def _answer(self, path: str, call: str, pending: Any) -> Any:
        try:
            try:
                return self.wait(pending, time.monotonic() + self.timeout)
            except UNCERTAIN:
                return self.ask(path, call)
        except KazooTimeoutError:
            raise self.unavailable(path, call) from None
        except FORBIDDEN as error:
            raise forbidden(path) from error
        except KazooException as error:
            return error

    def check_open(self) -> None:
        """Raise `IllegalOperation` if it is closed."""
        if self.closed:
            raise forks.closed(f"the metadata store at {self._name}")

    def unavailable(self, path: str, call: str) -> MetadataUnavailable:
        """Return the error for a request without an answer."""
        doubt = "" if call.startswith(("get", "exists", "sync")) else "; it may be done or not"
        limit = f"within {self.timeout:g} s" if self._last == math.inf else "before the end"
        return MetadataUnavailable(
            f"{path}: ZooKeeper at {self._name} gave no answer {limit}{doubt}"
        )

    def close(self) -> None:
        """End the session: what was registered through it goes at once."""
        if self.closed:
            return
        self.closed = True
        if self._last == math.inf:
            self._stop()
            return
        stopping = threading.Thread(target=self._stop, name="bkstore-session-end", daemon=True)
        stopping.start()
        stopping.join(max(_GRACE, self._last - time.monotonic()))

    def _stop(self) -> None:
        self.client.stop()
        self.client.close()


class Request:
    """What is asked of one node, with a memory of whether an earlier try may have succeeded."""

    def __init__(self, connection: Connection, path: str) -> None:
        self.repeated = False
        self._connection = connection
        self._path = path
        self._until = time.monotonic() + connection.timeout

    def __call__(self, call: str, *arguments: Any, **settings: Any) -> Any:
        """Return the answer; kazoo's errors are those that the server gave.

        Raises `MetadataUnavailable` without an answer, `UnauthorizedAccess` where an access
        list forbids it, `IllegalOperation` if the store is closed.
        """
        while True:
            self._connection.check_open()
            send = getattr(self._connection.client, f"{call}_async")
            try:
                pending = send(self._path, *arguments, **settings)
                return self._connection.wait(pending, self._until)
            except UNCERTAIN as error:
                self.repeated = True
                _log.info("%s %s is asked again: %r", call, self._path, error)
            except KazooTimeoutError:
                raise self._connection.unavailable(self._path, call) from None
            except FORBIDDEN as error:
                raise forbidden(self._path) from error
            if self._connection.is_late(self._until, _PAUSE):
                raise self._connection.unavailable(self._path, call)
            time.sleep(_PAUSE)


def forbidden(path: str) -> UnauthorizedAccess:
    """Return the error for what an access list forbids."""
    return UnauthorizedAccess(f"{path}: ZooKeeper's access list forbids it")
