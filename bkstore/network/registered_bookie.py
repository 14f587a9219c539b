"""RegisteredBookie: a bookie that serves, and that the clients of a cluster find.

Source: `bookie/BookieStateManager`, `server/Main`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from bkstore.arguments import instance, optional, truth
from bkstore.cluster.garbage.collector import BackgroundCollector
from bkstore.cluster.garbage.options import GarbageOptions
from bkstore.cluster.store.zookeeper.store import ZooKeeperStore
from bkstore.errors import BkstoreError, InvalidArgument, MetadataUnavailable
from bkstore.files.disk_changes import StrPath
from bkstore.index.api import Closing
from bkstore.network.advertised import advertised, check_advertised
from bkstore.network.cookie_check import check_in
from bkstore.network.disk_watch import DiskOptions, DiskWatch, used_share
from bkstore.storage.bookie import Bookie
from bkstore.storage.directories.ownership import OwnedDirectories
from bkstore.storage.options import JournalOptions, Storage, StorageOptions
from bkstore.wire.server import BookieServer

_log = logging.getLogger(__name__)

READ_ONLY_BY_ORDER = "an operator wants it so"

_check_limits = optional(instance(DiskOptions))
_check_collector = optional(instance(BackgroundCollector))


class RegisteredBookie(Closing):
    """A server's registration: made when this is made, gone when it is closed.

    It is made again when the session expires, which the bookie survives. While its disks are full
    (`limits`, looked at every `interval` seconds) it is registered as read-only and refuses adds
    but those of recoveries; reads go on. Its `collector` collects garbage beside its work: ledgers
    that the cluster no longer has go by themselves. `advertise` is the host that clients are told,
    by default where the server listens. Raises as `ZooKeeperStore.register`: `IllegalOperation` if
    another session keeps the bookie registered for longer than the session timeout.

    `open` makes all of it: bookie, server, registration. Threads: safe.
    """

    def __init__(
        self,
        store: ZooKeeperStore,
        server: BookieServer,
        *,
        advertise: str | None = None,
        extended: bool = False,
        tls: bool = False,
        limits: DiskOptions | None = None,
        collector: BackgroundCollector | None = None,
        used: Callable[[Path], float] = used_share,
        problem: Callable[[], str | None] = lambda: None,
        changed: Callable[[str | None], object] = bool,
    ) -> None:
        """Register a server that has started.

        Without `collector` one with a bookie's own settings is made. It is started here, and
        closed by `close`.

        `used` returns the share of a directory's disk, `problem` what else makes the bookie
        read-only. `changed` is called with the reason whenever the bookie has become read-only,
        at the start too, and with None when it is writable again.
        """
        self.server = server
        self.bookie = server.bookie
        self.limits = _check_limits("limits", limits) or DiskOptions()
        self._watch = DiskWatch(self.bookie, self.limits, used)
        self.collector = _check_collector("collector", collector) or BackgroundCollector(
            self.bookie, store
        )
        self._problem = problem
        self._changed = changed
        self._wanted: str | None = None
        self._resources = ExitStack()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        reason = problem() or self._watch.reason(False)
        server.read_only = reason is not None
        host = check_advertised(advertise or server.address.host)
        info = advertised(host, server.address.port, tls=tls, extended=extended)
        self._registration = store.register(self.bookie.bookie_id, info, read_only=server.read_only)
        if reason is not None:
            _log.warning("bookie %s: %s", self.bookie.bookie_id, reason)
            changed(reason)
        self._thread = threading.Thread(target=self._run, name="bkstore-disks", daemon=True)
        self._thread.start()
        self.collector.note_space(self._watch.is_full)
        self.collector.start()

    @classmethod
    def open(
        cls,
        store: str | ZooKeeperStore,
        path: StrPath,
        storage: Storage | None = None,
        *,
        bookie_id: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        advertise: str | None = None,
        extended: bool = True,
        options: StorageOptions | None = None,
        journal: JournalOptions | None = None,
        garbage: GarbageOptions | None = None,
        server: dict[str, Any] | None = None,
        **registration: Any,
    ) -> Self:
        """Open a bookie's directory, serve it and register it; `close` undoes it all.

        `store` is a service URI, or a store that stays open. The id of a new bookie is
        ``advertise:port`` unless it is given; a directory that has a cookie has its id. In this
        order: cookies are compared (`cookie_check`), the journal is replayed, the port is opened,
        the bookie is registered. `garbage` are the settings of garbage collection; `server` has
        further arguments of `BookieServer`, `registration` those of the class. Raises as
        `check_in`, `Bookie.open` and the class; what was begun is undone.
        """
        check_advertised(advertise or host)  # before anything is made
        with ExitStack() as undo:
            if isinstance(store, str):
                store = undo.enter_context(ZooKeeperStore(store))
            new_id = f"{advertise or host}:{port}" if port else None
            bookie = undo.enter_context(
                cluster_bookie(
                    store,
                    path,
                    storage,
                    bookie_id=bookie_id,
                    new_id=new_id,
                    options=options,
                    journal=journal,
                )
            )
            arguments = server or {}
            serving = undo.enter_context(
                BookieServer(bookie, host, port, extended=extended, **arguments)
            )
            made = cls(
                store,
                serving,
                advertise=advertise,
                extended=extended,
                tls=arguments.get("tls") is not None,
                collector=BackgroundCollector(bookie, store, garbage),
                **registration,
            )
            made._resources = undo.pop_all()
            return made

    def __repr__(self) -> str:
        """Return the bookie's id, where it listens, and whether it is read-only."""
        state = "read-only" if self.read_only else "writable"
        return f"<RegisteredBookie {self.bookie.bookie_id} at {self.server.address} {state}>"

    @property
    def read_only(self) -> bool:
        """Whether it takes no new ledgers."""
        return self.server.read_only

    @property
    def problem(self) -> BkstoreError | None:
        """Why it is not registered now, None while it is as far as is known."""
        return self._registration.problem

    def check_disks(self) -> str | None:
        """Become read-only, or writable again, as the disks say; return why it is read-only.

        Clients hear of it before the first add that is refused, or after the last.
        """
        with self._lock:
            reason = self._wanted or self._problem() or self._watch.reason(self.read_only)
            self.collector.note_space(self._watch.is_full)
            if self._ended.is_set() or (reason is not None) == self.read_only:
                return reason
            _log.warning("bookie %s: %s", self.bookie.bookie_id, reason or "writable again")
            if reason is None:  # taken before it is promised
                self.server.read_only = False
            try:
                self._registration.set_read_only(reason is not None)
            except BkstoreError as error:  # it goes on trying
                _log.warning("bookie %s: registered later: %s", self.bookie.bookie_id, error)
            self.server.read_only = reason is not None
            self._changed(reason)
            return reason

    def set_read_only(self, wanted: bool) -> str | None:
        """Be read-only until this is called with False; return why it is read-only.

        As by `check_disks`: what else makes it read-only holds besides.
        """
        self._wanted = READ_ONLY_BY_ORDER if truth("wanted", wanted) else None
        return self.check_disks()

    def _run(self) -> None:
        while not self._ended.wait(self.limits.interval):
            try:
                self.check_disks()
            except BkstoreError as error:
                _log.warning("bookie %s: %s", self.bookie.bookie_id, error)

    def close(self) -> None:
        """Take the bookie from the registered ones, then stop what `open` started. Idempotent."""
        with self._lock:
            if self._ended.is_set():
                return
            self._ended.set()
        self._thread.join()
        with self._resources:
            try:
                self._registration.close()
            except MetadataUnavailable as error:  # it goes with the session
                _log.warning("bookie %s: %s", self.bookie.bookie_id, error)
            finally:
                self.collector.close()


def cluster_bookie(
    store: ZooKeeperStore,
    path: StrPath,
    storage: Storage | None = None,
    *,
    bookie_id: str | None = None,
    new_id: str | None = None,
    options: StorageOptions | None = None,
    journal: JournalOptions | None = None,
) -> Bookie:
    """Open the directory of a bookie of a cluster, once its cookies have been compared.

    `bookie_id` is what the bookie must be called; without it, one that has a cookie keeps its id
    and another is called `new_id`. Raises as `check_in` and `Bookie.open`.
    """
    place = OwnedDirectories.of_path(path)
    name = bookie_id or (new_id if place.cookie is None else place.cookie.bookie_id)
    if name is None:
        raise InvalidArgument("a new bookie needs an id, or a port that makes one")
    cluster = check_in(store, place, name)
    return Bookie.open(
        None,
        storage,
        ledger_dirs=place.ledger,
        journal_dirs=place.journal,
        index_dirs=None if place.index == place.ledger else place.index,
        bookie_id=name,
        instance_id=cluster,
        options=options,
        journal=journal,
    )
