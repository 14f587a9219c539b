"""Cluster: real bookies in one process, for tests: no JVM, no ZooKeeper, faults on demand.

Each is a `bkstore.Bookie` in its own directory, which can be inspected and audited afterwards like
any bookie's. Page: `docs/testing.md`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Self

from bkstore.arguments import (
    boolean,
    function,
    instance,
    integer,
    number,
    path as as_path,
    sequence_of,
    text,
)
from bkstore.cluster.client.client import Client
from bkstore.cluster.client.options import ClientOptions
from bkstore.cluster.in_process.bookie import ALL_CLIENTS, LocalBookie
from bkstore.cluster.in_process.bookie_client import LocalClient, LocalClients
from bkstore.cluster.in_process.damage_at_rest import EntriesLike, RecordPart
from bkstore.cluster.placement.policies import DefaultPlacement, PlacementPolicy
from bkstore.cluster.store.api import MetadataStore, check_store
from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.errors import InvalidArgument
from bkstore.files.disk_changes import OS_FILES, Files, StrPath, check_files
from bkstore.ids import Int64Array
from bkstore.index.api import Closeable, LedgerLike
from bkstore.storage.bookie import Bookie
from bkstore.storage.ledgers.garbage_pass import GarbageReport
from bkstore.storage.options import JournalOptions, StorageKind, StorageOptions, check_storage

_check_name = instance(str)
_SMALL_JOURNAL = JournalOptions(preallocate=64 << 10)


class Cluster(Client, Closeable):
    """Bookies, their metadata store, and a client of them. `open` creates one.

    It is a `Client` itself; `client(name)` returns others, which can be cut off separately. Faults
    take a bookie's id. Threads: all calls may be concurrent, except faults to the same bookie.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as top, Cluster.open(top, bookies=4) as cluster:
    ...     ledger = cluster.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
    ...     _ = ledger.append(b"one")
    ...     cluster.crash(ledger.metadata.segments[0].ensemble[0])
    ...     _ = ledger.append(b"two")
    ...     [len(ledger.metadata.segments), *(entry.payload for entry in ledger.read(0, 1))]
    [2, b'one', b'two']
    """

    def __init__(
        self,
        path: StrPath,
        storage: StorageKind | Sequence[StorageKind],
        *,
        store: MetadataStore,
        placement: PlacementPolicy | None,
        client_options: ClientOptions | None,
        open_bookie: Callable[[str, Path, StorageKind], Bookie],
        timeout: float,
        sleep: Callable[[float], None],
    ) -> None:
        """Called by `open`, which then adds the bookies."""
        self.path = as_path("path", path)
        self.store = check_store("store", store)
        kinds = [storage] if isinstance(storage, str) else storage
        self._storages: list[StorageKind] = list(sequence_of(check_storage)("storage", kinds))
        self._open_bookie = open_bookie
        self._timeout = number(0, above=True)("timeout", timeout)
        self._sleep = function("sleep", sleep)
        self._servers: dict[str, LocalBookie] = {}
        if not self._storages:
            raise InvalidArgument("storage is an empty list")
        self._own_clients = self._clients_as(caller="")  # this process
        # Seeded, so that a test has the same ensembles each time.
        placement = placement or DefaultPlacement(seed=0)
        super().__init__(store, self._own_clients, placement, client_options)

    @classmethod
    def open(
        cls,
        path: StrPath,
        bookies: int | Sequence[str] = 3,
        storage: StorageKind | Sequence[StorageKind] = "sorted",
        *,
        store: MetadataStore | None = None,
        placement: PlacementPolicy | None = None,
        client_options: ClientOptions | None = None,
        options: StorageOptions | None = None,
        journal: JournalOptions = _SMALL_JOURNAL,
        files: Files = OS_FILES,
        timeout: float = 5.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Self:
        """Open bookies in new or existing directories below `path`, and register them.

        `bookies` is their number (``bookie-1``, ...) or their ids; `storage` is one for all, or a
        list whose values are used in turn. Metadata are in `store`, by default a new `MemoryStore`.
        `placement` chooses ensembles; the default is random with a fixed seed. All bookies share
        `options`, `journal` and `files`, the layer that they write through; journals reserve 64 KiB
        each. A client waits `timeout` seconds for a slow bookie, by `sleep`. Cost: some 5 ms a
        bookie, 50 with db storage.
        """
        check_files("files", files)

        def open_bookie(name: str, bookie_dir: Path, kind: StorageKind) -> Bookie:
            """Open one bookie in its directory, which may have data."""
            return Bookie.open(
                None,
                kind,
                ledger_dirs=[bookie_dir / "ledgers"],
                journal_dirs=[bookie_dir / "journal"],
                bookie_id=name,
                options=options,
                journal=journal,
                files=files,
            )

        cluster = cls(
            path,
            storage,
            store=MemoryStore() if store is None else store,
            placement=placement,
            client_options=client_options,
            open_bookie=open_bookie,
            timeout=timeout,
            sleep=sleep,
        )
        if isinstance(bookies, Sequence) and not isinstance(bookies, str):
            bookie_ids: Sequence[str | None] = [_check_name("bookies", name) for name in bookies]
        else:
            bookie_ids = [None] * integer()("bookies", bookies)
        # If a bookie cannot be opened, close those that are open.
        with ExitStack() as undo:
            undo.callback(cluster.close)
            for name in bookie_ids:
                cluster.add_bookie(name)
            undo.pop_all()
        return cluster

    def close(self, checkpoint: bool = True) -> None:
        """Close all bookies; they stay registered. Idempotent. Without `checkpoint` their journals
        are replayed at the next start."""
        with ExitStack() as closing:  # closes each bookie, even if closing another raises
            for server in self._servers.values():
                closing.callback(server.stop, checkpoint)

    def __repr__(self) -> str:
        running = ", ".join(name for name, server in self._servers.items() if server.is_running)
        return f"<Cluster {self.path}: {running or 'no bookie runs'}>"

    # -- bookies and clients

    @property
    def bookies(self) -> Mapping[str, LocalClient]:
        """This client's bookie clients by bookie id; a live view."""
        return self._own_clients

    def client(self, name: str, options: ClientOptions | None = None) -> Client:
        """Return another client of the same bookies; `partition` can cut it off by its name."""
        context, name = self.context, text("name", name)
        clients = self._clients_as(name)
        return Client(self.store, clients, context.placement, options or context.options)

    def bookie(self, bookie_id: str) -> Bookie:
        """Return the running `Bookie` of an id; raises `BookieUnavailable` if it is down."""
        return self._get_server(bookie_id).bookie

    def path_of(self, bookie_id: str) -> Path:
        """Return the directory of a bookie."""
        return self._get_server(bookie_id).path

    def _get_server(self, bookie_id: str) -> LocalBookie:
        server = self._servers.get(text("bookie", bookie_id))
        if server is None:
            raise InvalidArgument(f"no bookie {bookie_id!r}; there are {', '.join(self._servers)}")
        return server

    def add_bookie(self, name: str | None = None, storage: StorageKind | None = None) -> str:
        """Open one more bookie, register it, and return its id."""
        number = len(self._servers)
        if name is None:
            unused_ids = (f"bookie-{n}" for n in count(number + 1))
            name = next(bookie_id for bookie_id in unused_ids if bookie_id not in self._servers)
        text("name", name)
        if name in self._servers or name.startswith(".") or Path(name).name != name:
            raise InvalidArgument(f"bookie id {name!r} is taken or is not a valid directory name")
        kind = storage or self._storages[number % len(self._storages)]
        self._servers[name] = self._new_bookie(
            name, self.path / name, lambda bookie_dir: self._open_bookie(name, bookie_dir, kind)
        )
        self.start(name)
        return name

    # Overridden by clusters whose bookies are reached in another way.

    def _new_bookie(
        self, bookie_id: str, path: Path, open_at: Callable[[Path], Bookie]
    ) -> LocalBookie:
        return LocalBookie(bookie_id, path, open_at, timeout=self._timeout, sleep=self._sleep)

    def _clients_as(self, caller: str) -> Mapping[str, LocalClient]:
        return LocalClients(self._servers, caller)

    # -- running or not

    def start(self, bookie: str) -> None:
        """Open a bookie that is down, replay its journal, and register it."""
        self._get_server(bookie).start()
        self.store.register_bookie(bookie)

    def stop(self, bookie: str, *, keep_registered: bool = False) -> None:
        """Close a bookie with a checkpoint, and unregister it, as if its session had ended."""
        self._get_server(bookie).stop()
        self._after_stop(bookie, keep_registered)

    def crash(self, bookie: str, *, keep_registered: bool = False) -> None:
        """End a bookie as ``kill -9`` does; `start` replays its journal."""
        self._get_server(bookie).crash()
        self._after_stop(bookie, keep_registered)

    def _after_stop(self, bookie: str, keep_registered: bool) -> None:
        if not keep_registered:
            self.store.unregister_bookie(bookie)

    # -- unreachable, slow, old

    def partition(self, bookie: str, client: str = ALL_CLIENTS) -> None:
        """Cut a bookie off, from all clients or the one named; it stays registered."""
        self._get_server(bookie).unreachable_from.add(client)

    def heal(self, bookie: str, client: str | None = None) -> None:
        """End all partitions of a bookie, or that of one client."""
        partitioned_clients = self._get_server(bookie).unreachable_from
        if client is None:
            partitioned_clients.clear()
        else:
            partitioned_clients.discard(client)

    def slow(self, bookie: str, seconds: float) -> None:
        """Delay each answer of a bookie by some seconds; 0 ends that. From the timeout on the
        client ignores the answer, but the operation is done."""
        self._get_server(bookie).delay_seconds = number()("seconds", seconds)

    def set_batch_reads(self, bookie: str, supported: bool) -> None:
        """Set whether a bookie supports batch reads, which servers before 4.18 do not."""
        self._get_server(bookie).batch_reads = boolean("supported", supported)

    # -- damage

    def lose(self, bookie: str, ledger: LedgerLike, entries: EntriesLike) -> Int64Array:
        """Delete entries from a bookie's index, durably; return those it had, int64[n]. Their
        records stay in the entry logs. A bookie that runs is closed for that and opened again."""
        return self._get_server(bookie).lose(ledger, entries)

    def lose_ledger(self, bookie: str, ledger: LedgerLike) -> bool:
        """Delete a ledger at a bookie, durably; return whether the bookie had it."""
        return self._get_server(bookie).lose_ledger(ledger)

    def corrupt(
        self, bookie: str, ledger: LedgerLike, entry: int, part: RecordPart = "payload"
    ) -> tuple[Path, int]:
        """Change one byte of a stored record; return (entry log, offset). "payload": the bookie
        serves it, and the client's digest check fails (not with DUMMY); "header": the bookie raises
        `CorruptionError`. Raises `NoSuchEntry` for a missing entry."""
        return self._get_server(bookie).corrupt(ledger, entry, part)

    # -- upkeep

    def flush(self) -> None:
        """Checkpoint every bookie that runs."""
        for server in self._servers.values():
            if server.is_running:
                server.bookie.checkpoint()

    def collect_garbage(self) -> dict[str, GarbageReport]:
        """Delete the ledgers that the store lacks at every running bookie; return its reports."""
        return {
            name: server.bookie.collect_garbage(self.store.ledgers)
            for name, server in self._servers.items()
            if server.is_running
        }
