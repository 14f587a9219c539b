"""Factories of storages, bookies and clusters in temporary directories: for the pytest fixtures.

Each call makes a new one in a directory of its own; nothing is shared unless the caller passes
a path or an object. Usable without pytest, too.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from bkstore.arguments import integer
from bkstore.cluster.in_process.cluster import Cluster
from bkstore.cluster.store.api import MetadataStore
from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.files.disk_changes import OS_FILES, Files, StrPath
from bkstore.index.rocks.files.running_copies import copy_running_tree
from bkstore.storage.bookie import Bookie
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import JournalOptions, StorageKind, StorageOptions
from bkstore.testing.crash import PowerLoss

_SMALL_JOURNAL = JournalOptions(preallocate=64 << 10)
"""The default journal settings, but without 16 MiB of zeros in each file."""

_T = TypeVar("_T", LedgerStorage, Bookie, Cluster)
_J = TypeVar("_J", Bookie, Cluster)


class _Instance(NamedTuple, Generic[_T]):
    """An object that a factory made: its directory, and the function that opens it there."""

    item: _T
    path: Path
    open_at: Callable[[Path, Files], _T]
    files: Files


class _Factory(Generic[_T]):
    """Base of the factories: numbers directories, and closes what it opened.

    `kind` is the default storage; `files` the layer for all writes, such as a `FaultPlan`.
    """

    def __init__(self, top: Path, kind: StorageKind = "sorted", files: Files = OS_FILES) -> None:
        self.top = top
        self.kind = kind
        self.files = files
        self._instances: list[_Instance[_T]] = []
        self._directory_count = 0

    @property
    def has_opened(self) -> bool:
        return bool(self._directory_count or self._instances)

    def _new_path(self, prefix: str) -> Path:
        self._directory_count += 1
        return self.top / f"{prefix}-{self._directory_count}"

    def _open(self, path: Path, open_at: Callable[[Path, Files], _T], files: Files | None) -> _T:
        """Open an instance, and keep how it was opened, so that it can be reopened."""
        layer = self.files if files is None else files
        opened = open_at(path, layer)
        self._instances.append(_Instance(opened, path, open_at, layer))
        return opened

    def _find_instance(self, item: _T) -> _Instance[_T]:
        """Return the record of an instance; raises if this factory did not make it."""
        for instance in self._instances:
            if instance.item is item:
                return instance
        raise InvalidArgument("it was not made by this factory")

    def path_of(self, item: _T) -> Path:
        return self._find_instance(item).path

    def close_all(self) -> list[BkstoreError]:
        """Close everything without a flush; return the errors that closing raised. An object hit by
        a planned fault or a power loss may fail to close; that error is left out."""
        errors = []
        for instance in reversed(self._instances):
            try:
                self._close_unflushed(instance.item)
            except PowerLoss:
                continue
            except BkstoreError as error:
                if not getattr(instance.files, "done", None):  # the faults of a `FaultPlan`
                    errors.append(error)
        return errors

    @abstractmethod
    def _close_unflushed(self, item: _T) -> None:
        """Close without a flush."""


class _JournaledFactory(_Factory[_J]):
    def reopen(self, item: _J, *, checkpoint: bool = True) -> _J:
        """Close and open again (without a checkpoint the journals are replayed)."""
        instance = self._find_instance(item)
        item.close(checkpoint=checkpoint)
        return self._open(instance.path, instance.open_at, instance.files)

    def _close_unflushed(self, item: _J) -> None:
        item.close(checkpoint=False)


class StorageFactory(_Factory[LedgerStorage]):
    """Makes `LedgerStorage`s: a call returns a new one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as top:
    ...     make = StorageFactory(Path(top))
    ...     storage = make("db", write_cache=1 << 20)
    ...     storage.set_master_key(7, b"k" * 20)
    ...     storage = make.reopen(storage)
    ...     print(storage.storage, storage.ledgers(), make.close_all())
    db [LedgerId(scope=0, ledger=7)] []
    """

    def __call__(
        self,
        storage: StorageKind | None = None,
        *,
        path: StrPath | None = None,
        directories: int = 1,
        files: Files | None = None,
        **options: Any,
    ) -> LedgerStorage:
        """Return a storage in a new directory, or in `path`, which may have one already.

        `options` are those of `StorageOptions`; `directories` is the number of ledger directories.
        """
        kind = storage or self.kind
        settings = StorageOptions(**options)

        def open_at(top: Path, layer: Files) -> LedgerStorage:
            ledger_dirs = _subdirectories(top, "ledgers", directories)
            return LedgerStorage.open(ledger_dirs, kind, options=settings, files=layer)

        return self._open(self._new_path("storage") if path is None else Path(path), open_at, files)

    def reopen(self, storage: LedgerStorage, *, flush: bool = True) -> LedgerStorage:
        """Close and open again (without a flush, unflushed entries are lost)."""
        instance = self._find_instance(storage)
        storage.close(flush=flush)
        return self._open(instance.path, instance.open_at, instance.files)

    def _close_unflushed(self, item: LedgerStorage) -> None:
        item.close(flush=False)


class BookieFactory(_JournaledFactory[Bookie]):
    """Makes `Bookie`s with small journals: a call returns a new one.

    >>> import tempfile
    >>> from bkstore.formats.entry import Entry, encode
    >>> with tempfile.TemporaryDirectory() as top:
    ...     make = BookieFactory(Path(top))
    ...     bookie = make("interleaved")
    ...     entry = bookie.add_entry(encode(Entry(7, 0, -1, 2, b"hi"), "CRC32C"), b"key")
    ...     bookie = make.crash(bookie)
    ...     print(bookie.unclean, bookie.read_entry(7)[-2:], make.close_all())
    True b'hi' []
    """

    def __call__(
        self,
        storage: StorageKind | None = None,
        *,
        path: StrPath | None = None,
        directories: int = 1,
        journals: int = 1,
        journal: JournalOptions = _SMALL_JOURNAL,
        files: Files | None = None,
        **options: Any,
    ) -> Bookie:
        """Return a bookie in a new directory, or in `path`, which may have one already.

        `options` are those of `StorageOptions`; `directories` and `journals` are the numbers of
        ledger and journal directories below the path.
        """
        kind = storage or self.kind
        settings = StorageOptions(**options)

        def open_at(top: Path, layer: Files) -> Bookie:
            """Open the bookie below `top`, writing through `layer`."""
            return Bookie.open(
                None,
                kind,
                ledger_dirs=_subdirectories(top, "ledgers", directories),
                journal_dirs=_subdirectories(top, "journal", journals),
                bookie_id="bookie",
                options=settings,
                journal=journal,
                files=layer,
            )

        return self._open(self._new_path("bookie") if path is None else Path(path), open_at, files)

    def crash(self, bookie: Bookie) -> Bookie:
        """Return a bookie over a copy of the files as they are now, and close the old one.

        The copy is what a killed process leaves: everything that reached the operating system.
        For a power loss see `bkstore.testing.crash`.
        """
        instance = self._find_instance(bookie)
        copy = self._new_path("bookie")
        copy_running_tree(instance.path, copy)
        bookie.close(checkpoint=False)
        return self._open(copy, instance.open_at, instance.files)


class ClusterFactory(_JournaledFactory[Cluster]):
    """Makes `Cluster`s with small journals: a call returns a new one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as top:
    ...     make = ClusterFactory(Path(top))
    ...     cluster = make(4, ["sorted", "db"])
    ...     with cluster.create_ledger() as ledger:
    ...         entry = ledger.append(b"hi")
    ...     cluster = make.reopen(cluster)
    ...     print(cluster.open_ledger(0).read_last().payload, make.close_all())
    b'hi' []
    """

    def __call__(
        self,
        bookies: int | Sequence[str] = 3,
        storage: StorageKind | Sequence[StorageKind] | None = None,
        *,
        path: StrPath | None = None,
        store: MetadataStore | None = None,
        files: Files | None = None,
        **options: Any,
    ) -> Cluster:
        """Return a cluster in a new directory, or in `path`, which may have one already. `options`
        are those of `Cluster.open`. Slow bookies delay nothing unless `sleep` is given."""
        kinds = storage or self.kind
        metadata = MemoryStore() if store is None else store
        settings: dict[str, Any] = {"journal": _SMALL_JOURNAL, "sleep": lambda _: None} | options

        def open_at(top: Path, layer: Files) -> Cluster:
            return Cluster.open(top, bookies, kinds, store=metadata, files=layer, **settings)

        return self._open(self._new_path("cluster") if path is None else Path(path), open_at, files)


def _subdirectories(top: Path, name: str, count: int) -> list[Path]:
    integer(1)(name, count)
    return [top / name] if count == 1 else [top / f"{name}{i}" for i in range(count)]
