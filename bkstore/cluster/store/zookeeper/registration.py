"""Keep bookies registered: ephemeral nodes, created again when a session is lost.

A bookie's node is below ``available`` or, if it is read only, below ``available/readonly``; for a
moment there are both, never none. Only nodes of this session are removed. Source:
`discover/ZKRegistrationManager`, `bookie/BookieStateManager`.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress

from bkstore.cluster.store.zookeeper.events import EventThread
from bkstore.cluster.store.zookeeper.kazoo_client import NodeExistsError, NoNodeError
from bkstore.cluster.store.zookeeper.nodes import Nodes
from bkstore.errors import BkstoreError, IllegalOperation
from bkstore.formats.metadata.bookie_ids import READ_ONLY
from bkstore.formats.metadata.service_info import ServiceInfo, encode_service_info

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.2


class Registration:
    """One bookie's registration, `read_only` or not, which is kept alive until it is `closed`.
    `problem` is why the bookie is not registered now, None if it is, as far as is known."""

    def __init__(
        self, nodes: Nodes, events: EventThread, bookie: str, info: ServiceInfo, read_only: bool
    ) -> None:
        self.bookie = bookie
        self.info = info
        self.problem: BkstoreError | None = None
        self.read_only = read_only
        self.closed = False
        self._nodes = nodes
        self._events = events
        self._data = encode_service_info(info)
        self._lock = threading.Lock()
        session = nodes.connection.session
        self._register_first()
        self._end_renewal = nodes.connection.on_connected(lambda: events.call(self._register_again))
        if session != nodes.connection.session:  # the old one may have ended with its node
            events.call(self._register_again)

    def set_read_only(self, read_only: bool) -> None:
        """Register as read only or as writable: create the new node, then remove the old one.
        Raises `problem` if that fails; it is retried in the background until it succeeds."""
        with self._lock:
            self.read_only = read_only
            self._register_or_retry()
            problem = self.problem
        if problem is not None:
            raise problem

    def close(self) -> None:
        """Unregister the bookie: remove its node, unless another session owns it."""
        self.forget()
        with self._lock:
            for read_only in (False, True):
                self._remove_own_node(self._registration_path(read_only))

    def forget(self) -> None:
        """Stop keeping it alive: it ends with the session."""
        self._end_renewal()
        with self._lock:
            self.closed = True

    # -- one attempt

    def _registration_path(self, read_only: bool) -> str:
        folder = f"{self._nodes.root}/available"
        return f"{folder}/{READ_ONLY}/{self.bookie}" if read_only else f"{folder}/{self.bookie}"

    def _register_first(self) -> None:
        """Register; waits up to the session timeout for an older session's node to end."""
        deadline = time.monotonic() + self._nodes.connection.session_timeout + 1
        while not self._try_register():
            if time.monotonic() > deadline:
                raise self._owned_by_other_error()
            time.sleep(_RETRY_SECONDS)

    def _owned_by_other_error(self) -> IllegalOperation:
        path = self._registration_path(self.read_only)
        return IllegalOperation(f"{path}: bookie {self.bookie} is registered by another session")

    def _try_register(self) -> bool:
        """Create the bookie's node, then remove the one in the other folder (writable or read
        only). Return False if another session has the node."""
        self._nodes.make_folder(f"{self._nodes.root}/available/{READ_ONLY}")
        if not self._create_node(self._registration_path(self.read_only)):
            return False
        self._remove_own_node(self._registration_path(not self.read_only))
        return True

    def _create_node(self, path: str) -> bool:
        """Create the node; return whether it is this session's."""
        connection = self._nodes.connection
        while True:
            try:
                connection.request(path, "create", self._data, ephemeral=True)
            except NodeExistsError:
                stat = connection.request(path, "exists")
                if stat is None:
                    continue
                return bool(stat.ephemeralOwner == connection.session)
            return True

    def _remove_own_node(self, path: str) -> None:
        connection = self._nodes.connection
        stat = connection.request(path, "exists")
        if stat is not None and stat.ephemeralOwner == connection.session:
            with suppress(NoNodeError):  # removed meanwhile, or by an attempt without an answer
                connection.request(path, "delete", stat.version)

    # -- renewal

    def _register_again(self) -> None:
        with self._lock:
            if not self.closed:
                self._register_or_retry()

    def _register_or_retry(self) -> None:
        """Try once; on failure set `problem` and schedule another attempt."""
        try:
            self.problem = None if self._try_register() else self._owned_by_other_error()
        except BkstoreError as error:
            self.problem = error
        if self.problem is not None:
            _log.warning("not registered, retrying: %s", self.problem)
            self._events.call(self._register_again, delay_seconds=_RETRY_SECONDS)
