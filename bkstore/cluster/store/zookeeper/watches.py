"""Watches: call a function when bookies come and go, or when a ledger's metadata change.

A ZooKeeper watch fires once, and is lost with the connection. So after each event the current state
is read, which sets the watch again, and callers are notified only of differences. Source:
`discover/ZKRegistrationClient`, `meta/AbstractZkLedgerManager.ReadLedgerMetadataTask`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from bkstore.cluster.store.api import Value, Versioned
from bkstore.cluster.store.zookeeper.events import EventThread
from bkstore.cluster.store.zookeeper.kazoo_client import NoNodeError
from bkstore.cluster.store.zookeeper.nodes import Nodes, to_value
from bkstore.errors import MetadataUnavailable
from bkstore.formats.metadata.bookie_ids import READ_ONLY

BookiesWatcher = Callable[[frozenset[str], frozenset[str]], None]
"""Called with the writable bookies and the read-only ones."""

LedgerWatcher = Callable[[Versioned | None], None]
"""Called with a ledger's metadata, None if it was deleted."""

_RETRY_SECONDS = 1.0


class _Watch(ABC):
    """Reads the watched state on the thread of `events`, first and after each watch event."""

    def __init__(self, nodes: Nodes, events: EventThread) -> None:
        self.nodes = nodes
        self.events = events
        self.ended = False

    def begin(self) -> None:
        self.events.call(self._read_or_retry)

    def end(self) -> None:
        """Notify of no further changes; a running notification goes on."""
        self.ended = True

    def on_event(self, _: object) -> None:
        """Queue another read: kazoo calls this, on its own thread."""
        if not self.ended:
            self.events.call(self._read_or_retry)

    def _read_or_retry(self) -> None:
        """Read and notify; while ZooKeeper is unreachable, try again later."""
        if self.ended:
            return
        try:
            self.read_and_notify()
        except MetadataUnavailable:
            self.events.call(self._read_or_retry, delay_seconds=_RETRY_SECONDS)

    @abstractmethod
    def read_and_notify(self) -> None:
        """Read the state with a watch, and notify of changes."""


class BookieWatch(_Watch):
    """Notifies of changes of the registered bookies."""

    def __init__(self, nodes: Nodes, events: EventThread, callback: BookiesWatcher) -> None:
        super().__init__(nodes, events)
        self._notify = callback
        self._notified_bookies: tuple[frozenset[str], frozenset[str]] | None = None
        self.begin()

    def read_and_notify(self) -> None:
        """List the writable and the read-only bookies."""
        folder = f"{self.nodes.root}/available"
        # In this order: a bookie that becomes read only is registered as both for a moment.
        writable = self._list_with_watch(folder) - {READ_ONLY}
        bookies = (writable, self._list_with_watch(f"{folder}/{READ_ONLY}"))
        if bookies != self._notified_bookies and not self.ended:
            self._notified_bookies = bookies
            self._notify(*bookies)

    def _list_with_watch(self, folder: str) -> frozenset[str]:
        """Return the names of the nodes in a folder, none without one, with a watch for changes."""
        connection = self.nodes.connection
        while True:
            try:
                return frozenset(connection.request(folder, "get_children", watch=self.on_event))
            except NoNodeError:
                # Watch for the creation of the folder; if it exists by now, list it again.
                if connection.request(folder, "exists", watch=self.on_event) is None:
                    return frozenset()


class LedgerWatch(_Watch):
    """Notifies of newer versions of one ledger's metadata, until it is deleted."""

    def __init__(
        self,
        nodes: Nodes,
        events: EventThread,
        path: str,
        decode: Callable[[Value], Versioned],
        callback: LedgerWatcher,
    ) -> None:
        super().__init__(nodes, events)
        self._path = path
        self._decode = decode
        self._notify = callback
        self._notified_version = -1
        self.begin()

    def read_and_notify(self) -> None:
        """Read the node."""
        try:
            answer = self.nodes.connection.request(self._path, "get", watch=self.on_event)
            value = to_value(self._path, *answer)
        except NoNodeError:
            if not self.ended:
                self.end()
                self._notify(None)
            return
        if value.version > self._notified_version and not self.ended:
            self._notified_version = value.version
            self._notify(self._decode(value))
