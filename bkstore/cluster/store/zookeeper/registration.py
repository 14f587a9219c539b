"""Bookies that stay registered: ephemeral nodes, made again when a session is lost.

A bookie is below ``available`` or, read only, below ``available/readonly``; for a moment both,
never neither. Nobody's node but this session's is ever removed. Source:
`discover/ZKRegistrationManager`, `bookie/BookieStateManager`.
"""

from __future__ import annotations

import logging
import threading
import time

from bkstore.cluster.store.zookeeper.connection import Request
from bkstore.cluster.store.zookeeper.events import Events
from bkstore.cluster.store.zookeeper.kazoo_client import NodeExistsError, NoNodeError
from bkstore.cluster.store.zookeeper.nodes import Nodes
from bkstore.errors import BkstoreError, IllegalOperation
from bkstore.formats.metadata.service_info import READ_ONLY, ServiceInfo, encode_service_info

_log = logging.getLogger(__name__)

_AGAIN = 0.2  # seconds


class Registration:
    """One bookie's registration; the store makes it and keeps it alive until `close`.

    `problem` says why the bookie is not registered now, None while it is as far as is known.
    """

    def __init__(
        self, nodes: Nodes, events: Events, bookie: str, info: ServiceInfo, read_only: bool
    ) -> None:
        self.bookie = bookie
        self.info = info
        self.problem: BkstoreError | None = None
        self._nodes = nodes
        self._events = events
        self._read_only = read_only
        self._data = encode_service_info(info)
        self._lock = threading.Lock()
        self._closed = False
        session = nodes.connection.session
        self._make_first()
        self._end = nodes.connection.on_connected(lambda: events.call(self._renew))
        if session != nodes.connection.session:  # it may have taken with it what was made
            events.call(self._renew)

    @property
    def read_only(self) -> bool:
        """Whether it is registered as read only."""
        return self._read_only

    @property
    def closed(self) -> bool:
        """Whether it is kept alive no longer."""
        return self._closed

    def set_read_only(self, read_only: bool) -> None:
        """Register as read only or as writable: the new node is made, then the old one goes.

        Raises `problem`, if there is one then: it is tried again until it is so.
        """
        with self._lock:
            self._read_only = read_only
            self._settle_or_later()
            problem = self.problem
        if problem is not None:
            raise problem

    def close(self) -> None:
        """Take the bookie from the registered ones; its node goes, unless it is another's."""
        self.forget()
        with self._lock:
            for read_only in (False, True):
                self._remove(self._path(read_only))

    def forget(self) -> None:
        """Keep it alive no longer: it goes with the session."""
        self._end()
        with self._lock:
            self._closed = True

    # -- one try

    def _path(self, read_only: bool) -> str:
        folder = f"{self._nodes.root}/available"
        return f"{folder}/{READ_ONLY}/{self.bookie}" if read_only else f"{folder}/{self.bookie}"

    def _make_first(self) -> None:
        """Register, waiting for a node of an older session up to the session timeout."""
        until = time.monotonic() + self._nodes.connection.session_timeout + 1
        while not self._settle():
            if time.monotonic() > until:
                raise self._foreign()
            time.sleep(_AGAIN)

    def _foreign(self) -> IllegalOperation:
        return IllegalOperation(
            f"{self._path(self._read_only)}: bookie {self.bookie} is registered by another session"
        )

    def _settle(self) -> bool:
        """Make the node that is wanted, then remove the other; False if another holds it."""
        self._nodes.make_folder(f"{self._nodes.root}/available/{READ_ONLY}")
        if not self._made(self._path(self._read_only)):
            return False
        self._remove(self._path(not self._read_only))
        return True

    def _made(self, path: str) -> bool:
        connection = self._nodes.connection
        while True:
            try:
                connection.ask(path, "create", self._data, ephemeral=True)
            except NodeExistsError:
                stat = connection.ask(path, "exists")
                if stat is None:
                    continue
                return bool(stat.ephemeralOwner == connection.session)
            return True

    def _remove(self, path: str) -> None:
        connection = self._nodes.connection
        stat = connection.ask(path, "exists")
        if stat is not None and stat.ephemeralOwner == connection.session:
            try:
                Request(connection, path)("delete", stat.version)
            except NoNodeError:  # gone meanwhile, or by a try whose answer was lost
                return

    # -- again

    def _renew(self) -> None:
        with self._lock:
            if not self._closed:
                self._settle_or_later()

    def _settle_or_later(self) -> None:
        try:
            self.problem = None if self._settle() else self._foreign()
        except BkstoreError as error:
            self.problem = error
        if self.problem is not None:
            _log.warning("not registered: %s", self.problem)
            self._events.call(self._renew, after=_AGAIN)
