"""Watches: being told when bookies come and go, or when a ledger's metadata change.

A watch of ZooKeeper says once that something changed, and is gone with the connection. So each
look reads what is there and sets the watch anew, and callers hear of differences only. Source:
`discover/ZKRegistrationClient`, `meta/AbstractZkLedgerManager.ReadLedgerMetadataTask`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from bkstore.cluster.store.api import Value, Versioned
from bkstore.cluster.store.zookeeper.events import Events
from bkstore.cluster.store.zookeeper.kazoo_client import NoNodeError
from bkstore.cluster.store.zookeeper.nodes import Nodes, value_of
from bkstore.errors import MetadataUnavailable
from bkstore.formats.metadata.service_info import READ_ONLY

BookiesWatcher = Callable[[frozenset[str], frozenset[str]], None]
"""Called with the writable bookies and the read-only ones."""

LedgerWatcher = Callable[[Versioned | None], None]
"""Called with a ledger's metadata, None when it was deleted."""

_AGAIN = 1.0  # seconds


class _Watch(ABC):
    """Looks on the thread of `events`, now and after each thing that a watch tells."""

    def __init__(self, nodes: Nodes, events: Events) -> None:
        self.nodes = nodes
        self.events = events
        self.ended = False

    def begin(self) -> None:
        """Look for the first time."""
        self.events.call(self._look)

    def end(self) -> None:
        """Tell nothing of what comes from now on; a call that has begun goes on."""
        self.ended = True

    def woken(self, _: object) -> None:
        """Look again: kazoo calls this, on its own thread."""
        if not self.ended:
            self.events.call(self._look)

    def _look(self) -> None:
        if self.ended:
            return
        try:
            self.look()
        except MetadataUnavailable:
            self.events.call(self._look, after=_AGAIN)

    @abstractmethod
    def look(self) -> None:
        """Read with a watch, and tell what is new."""


class BookieWatch(_Watch):
    """Tells of the bookies that are registered."""

    def __init__(self, nodes: Nodes, events: Events, tell: BookiesWatcher) -> None:
        super().__init__(nodes, events)
        self._tell = tell
        self._told: tuple[frozenset[str], frozenset[str]] | None = None
        self.begin()

    def look(self) -> None:
        """List both folders."""
        folder = f"{self.nodes.root}/available"
        now = (self._names(folder) - {READ_ONLY}, self._names(f"{folder}/{READ_ONLY}"))
        if now != self._told and not self.ended:
            self._told = now
            self._tell(*now)

    def _names(self, folder: str) -> frozenset[str]:
        connection = self.nodes.connection
        while True:
            try:
                return frozenset(connection.ask(folder, "get_children", watch=self.woken))
            except NoNodeError:
                if connection.ask(folder, "exists", watch=self.woken) is None:
                    return frozenset()


class LedgerWatch(_Watch):
    """Tells of one ledger's metadata, newer versions only, until it is deleted."""

    def __init__(
        self,
        nodes: Nodes,
        events: Events,
        path: str,
        decoded: Callable[[Value], Versioned],
        tell: LedgerWatcher,
    ) -> None:
        super().__init__(nodes, events)
        self._path = path
        self._decoded = decoded
        self._tell = tell
        self._told = -1
        self.begin()

    def look(self) -> None:
        """Read the node."""
        try:
            value = value_of(
                self._path, *self.nodes.connection.ask(self._path, "get", watch=self.woken)
            )
        except NoNodeError:
            if not self.ended:
                self.end()
                self._tell(None)
            return
        if value.version > self._told and not self.ended:
            self._told = value.version
            self._tell(self._decoded(value))
