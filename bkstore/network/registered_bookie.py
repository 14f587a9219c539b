"""RegisteredBookie: a registered server. Source: `bookie/BookieStateManager`, `server/Main`.

Extended v3 is v3 with scopes (the upper 64 bits of ledger ids, 0 in BookKeeper) and batch reads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from bkstore.arguments import boolean, instance, optional
from bkstore.cluster.garbage.collector import BackgroundCollector
from bkstore.cluster.garbage.options import GarbageOptions
from bkstore.cluster.store.zookeeper.store import ZooKeeperStore
from bkstore.errors import BkstoreError, InvalidArgument, MetadataUnavailable
from bkstore.files.disk_changes import OS_FILES, Files, StrPath
from bkstore.former_names import with_former_members
from bkstore.index.api import Closeable
from bkstore.network.advertised_endpoint import build_service_info, check_advertised_host
from bkstore.network.cookie_check import validate_cookies
from bkstore.network.disk_watch import DiskOptions, DiskWatch, used_share
from bkstore.storage.bookie import Bookie
from bkstore.storage.directories.directory_cookies import OwnedDirectories
from bkstore.storage.options import JournalOptions, StorageKind, StorageOptions
from bkstore.wire.server import BookieServer

_log = logging.getLogger(__name__)

OPERATOR_REASON = "an operator requested it"

_check_disk_options = optional(instance(DiskOptions))
_check_collector = optional(instance(BackgroundCollector))


@with_former_members(changed="on_read_only_change")
class RegisteredBookie(Closeable):
    """A server's registration, from the constructor's call until `close`.

    If the session expires, the bookie registers again. While its disks are full (`disk_options`,
    checked every `interval` seconds) it is registered as read-only and refuses adds except those of
    recoveries; reads go on. Its `collector` removes ledgers that the cluster has deleted.
    `advertise` is the host for clients, by default where the server listens. Raises what
    `ZooKeeperStore.register` raises: `IllegalOperation` if another session keeps the bookie
    registered for longer than the session timeout. Threads: safe.
    """

    def __init__(
        self,
        store: ZooKeeperStore,
        server: BookieServer,
        *,
        advertise: str | None = None,
        extended: bool = False,
        tls: bool = False,
        disk_options: DiskOptions | None = None,
        collector: BackgroundCollector | None = None,
        get_used_share: Callable[[Path], float] = used_share,
        find_problem: Callable[[], str | None] = lambda: None,
        on_read_only_change: Callable[[str | None], object] = bool,  # does nothing
    ) -> None:
        """Register a started server; start `collector` and the thread that checks the disks.

        The default `collector` has the bookie's own settings. `get_used_share` returns the used
        share of a directory's disk, `find_problem` another reason to be read-only, or None.
        `on_read_only_change` gets the reason when the bookie becomes read-only, also at the start,
        and None when it is writable.
        """
        self.server = server
        self.bookie = server.bookie
        self.disk_options = _check_disk_options("disk_options", disk_options) or DiskOptions()
        self._watch = DiskWatch(self.bookie, self.disk_options, get_used_share)
        checked = _check_collector("collector", collector)
        self.collector = checked or BackgroundCollector(self.bookie, store)
        self._find_problem = find_problem
        self._on_read_only_change = on_read_only_change
        self._operator_reason: str | None = None
        self._resources = ExitStack()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        # The bookie may have to be read-only at once: clients must not see it as writable first.
        reason = find_problem() or self._watch.find_read_only_reason(read_only=False)
        server.read_only = reason is not None
        host = check_advertised_host(advertise or server.address.host)
        info = build_service_info(host, server.address.port, tls=tls, extended=extended)
        self._registration = store.register(self.bookie.bookie_id, info, read_only=server.read_only)
        if reason is not None:
            _log.warning("bookie %s: %s", self.bookie.bookie_id, reason)
            on_read_only_change(reason)
        self._thread = threading.Thread(target=self._watch_disks, name="bkstore-disks", daemon=True)
        self._thread.start()
        self.collector.set_disks_full(self._watch.is_full)
        self.collector.start()

    @classmethod
    def open(
        cls,
        store: str | ZooKeeperStore,
        path: StrPath,
        storage: StorageKind | None = None,
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
        """Open a bookie's directory, serve it and register it; `close` undoes all of it.

        `store` is a service URI, or a store that stays open. A directory with a cookie keeps its
        id; a new bookie is called `bookie_id`, by default ``advertise:port``. In this order:
        compares cookies, replays the journal, opens the port, registers. With `extended` it serves,
        and announces, ledgers of all scopes. `garbage` has the settings of the collector, `server`
        further arguments of `BookieServer`, `registration` of the class. Raises what
        `validate_cookies`, `Bookie.open` and the class raise, after undoing the rest.
        """
        check_advertised_host(advertise or host)  # before any side effect
        with ExitStack() as undo:
            if isinstance(store, str):
                store = undo.enter_context(ZooKeeperStore(store))
            # With any free port a new bookie needs a `bookie_id`: its address will change.
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
            server_arguments = server or {}
            bookie_server = BookieServer(bookie, host, port, extended=extended, **server_arguments)
            undo.enter_context(bookie_server)
            registered = cls(
                store,
                bookie_server,
                advertise=advertise,
                extended=extended,
                tls=server_arguments.get("tls") is not None,
                collector=BackgroundCollector(bookie, store, garbage),
                **registration,
            )
            registered._resources = undo.pop_all()
            return registered

    def __repr__(self) -> str:
        state = "read-only" if self.read_only else "writable"
        return f"<RegisteredBookie {self.bookie.bookie_id} at {self.server.address} {state}>"

    @property
    def read_only(self) -> bool:
        """Whether it takes no new ledgers."""
        return self.server.read_only

    @property
    def problem(self) -> BkstoreError | None:
        """Why it is not registered now, None while it is, as far as is known."""
        return self._registration.problem

    def check_disks(self) -> str | None:
        """Become read-only, or writable again, by the disks' state; return why it is read-only. The
        registration turns read-only before the server refuses adds, and writable after it."""
        with self._lock:
            reason = self._operator_reason or self._find_problem()
            reason = reason or self._watch.find_read_only_reason(self.read_only)
            self.collector.set_disks_full(self._watch.is_full)
            if self._stop.is_set() or (reason is not None) == self.read_only:
                return reason
            bookie_id = self.bookie.bookie_id
            _log.warning("bookie %s: %s", bookie_id, reason or "writable again")
            if reason is None:  # accept adds before the registration says so
                self.server.read_only = False
            try:
                self._registration.set_read_only(reason is not None)
            except BkstoreError as error:  # the registration retries
                _log.warning("bookie %s: not registered yet, retrying: %s", bookie_id, error)
            self.server.read_only = reason is not None
            self._on_read_only_change(reason)
            return reason

    def set_read_only(self, read_only: bool) -> str | None:
        """Be read-only until this is called with False, or longer for other reasons
        (`check_disks`); return why it is read-only."""
        self._operator_reason = OPERATOR_REASON if boolean("read_only", read_only) else None
        return self.check_disks()

    def _watch_disks(self) -> None:
        while not self._stop.wait(self.disk_options.interval):
            try:
                self.check_disks()
            except BkstoreError as error:
                _log.warning("bookie %s: %s", self.bookie.bookie_id, error)

    def close(self) -> None:
        """Unregister the bookie, then close what `open` opened. Idempotent."""
        with self._lock:
            if self._stop.is_set():
                return
            self._stop.set()
        self._thread.join()
        with self._resources:
            try:
                self._registration.close()
            except MetadataUnavailable as error:  # the registration expires with the session
                _log.warning("bookie %s: %s", self.bookie.bookie_id, error)
            finally:
                self.collector.close()


def cluster_bookie(
    store: ZooKeeperStore,
    path: StrPath,
    storage: StorageKind | None = None,
    *,
    bookie_id: str | None = None,
    new_id: str | None = None,
    options: StorageOptions | None = None,
    journal: JournalOptions | None = None,
    files: Files = OS_FILES,
) -> Bookie:
    """Open the directory of a cluster's bookie, after comparing its cookies. `bookie_id` is the id
    it must have; without it, a directory with a cookie keeps its id, and a new bookie gets
    `new_id`. Raises what `validate_cookies` and `Bookie.open` raise."""
    dirs = OwnedDirectories.of_path(path)
    id_in_cluster = bookie_id or (new_id if dirs.cookie is None else dirs.cookie.bookie_id)
    if id_in_cluster is None:
        raise InvalidArgument("a new bookie needs an id, or a port to derive it from")
    instance_id = validate_cookies(store, dirs, id_in_cluster)
    return Bookie.open(
        None,
        storage,
        ledger_dirs=dirs.ledger,
        journal_dirs=dirs.journal,
        index_dirs=None if dirs.index == dirs.ledger else dirs.index,
        bookie_id=id_in_cluster,
        instance_id=instance_id,
        options=options,
        journal=journal,
        files=files,
    )
