"""Factories of storages, bookies and clusters in temporary directories: for the pytest fixtures.

Each call makes another one in a directory of its own; nothing is shared unless a test passes a
path or an object on. Usable without pytest, too.
"""

from __future__ import annotations

import shutil
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from bkstore.arguments import whole
from bkstore.cluster.in_process.cluster import Cluster
from bkstore.cluster.store.api import MetadataStore
from bkstore.cluster.store.key_value_store import MemoryStore
from bkstore.errors import BkstoreError, InvalidArgument
from bkstore.files.disk_changes import OS_FILES, Files, StrPath
from bkstore.storage.bookie import Bookie
from bkstore.storage.ledger_storage import LedgerStorage
from bkstore.storage.options import JournalOptions, Storage, StorageOptions
from bkstore.testing.crash import PowerLoss

_SMALL_JOURNAL = JournalOptions(preallocate=64 << 10)
"""What tests want: a bookie's settings, but for 16 MiB of zeros in each journal file."""

_T = TypeVar("_T", LedgerStorage, Bookie, Cluster)
_J = TypeVar("_J", Bookie, Cluster)


class _Made(NamedTuple, Generic[_T]):
    """One that was made: where it lies, and how it is opened there or elsewhere."""

    opened: _T
    path: Path
    open_at: Callable[[Path, Files], _T]
    files: Files


class _Factory(Generic[_T]):
    """What all factories do: number directories, remember what is open, close it.

    `kind` is the storage where a call names none; `files` the layer that all writing goes
    through, a `FaultPlan` say.
    """

    def __init__(self, top: Path, kind: Storage = "sorted", files: Files = OS_FILES) -> None:
        self.top = top
        self.kind = kind
        self.files = files
        self._made: list[_Made[_T]] = []
        self._numbers = 0

    @property
    def has_made(self) -> bool:
        """Whether anything was asked for yet."""
        return bool(self._numbers or self._made)

    def _place(self, what: str) -> Path:
        self._numbers += 1
        return self.top / f"{what}-{self._numbers}"

    def _keep(self, path: Path, open_at: Callable[[Path, Files], _T], files: Files | None) -> _T:
        layer = self.files if files is None else files
        opened = open_at(path, layer)
        self._made.append(_Made(opened, path, open_at, layer))
        return opened

    def _find(self, opened: _T) -> _Made[_T]:
        for made in self._made:
            if made.opened is opened:
                return made
        raise InvalidArgument("this factory did not make it")

    def path_of(self, opened: _T) -> Path:
        """Return the directory of one that this factory made, closed ones too."""
        return self._find(opened).path

    def close_all(self) -> list[BkstoreError]:
        """Close whatever is open, without a flush; return the errors that closing raised.

        One that a planned fault or a power loss has hit may fail to close as well; that is no
        news, and left out.
        """
        errors = []
        for made in reversed(self._made):
            try:
                self._drop(made.opened)
            except PowerLoss:
                continue
            except BkstoreError as error:
                if not getattr(made.files, "done", None):
                    errors.append(error)
        return errors

    @abstractmethod
    def _drop(self, opened: _T) -> None:
        """Close without a flush."""


class _JournaledFactory(_Factory[_J]):
    """A factory of what has journals, which make up for a flush."""

    def reopen(self, opened: _J, *, checkpoint: bool = True) -> _J:
        """Close one (without a checkpoint its journals are replayed) and open it again."""
        made = self._find(opened)
        opened.close(checkpoint=checkpoint)
        return self._keep(made.path, made.open_at, made.files)

    def _drop(self, opened: _J) -> None:
        opened.close(checkpoint=False)


class StorageFactory(_Factory[LedgerStorage]):
    """Makes `LedgerStorage`s; a call returns a new one.

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
        storage: Storage | None = None,
        *,
        path: StrPath | None = None,
        directories: int = 1,
        files: Files | None = None,
        **options: Any,
    ) -> LedgerStorage:
        """Return a storage in a new directory, or in `path`, new or with what is there.

        `options` are those of `StorageOptions`; with `directories` there are several ledger
        directories below the path.
        """
        kind = storage or self.kind
        settings = StorageOptions(**options)

        def open_at(place: Path, layer: Files) -> LedgerStorage:
            folders = _folders(place, "ledgers", directories)
            return LedgerStorage.open(folders, kind, options=settings, files=layer)

        return self._keep(self._place("storage") if path is None else Path(path), open_at, files)

    def reopen(self, storage: LedgerStorage, *, flush: bool = True) -> LedgerStorage:
        """Close one (without a flush it loses what was not flushed) and open it again."""
        made = self._find(storage)
        storage.close(flush=flush)
        return self._keep(made.path, made.open_at, made.files)

    def _drop(self, opened: LedgerStorage) -> None:
        opened.close(flush=False)


class BookieFactory(_JournaledFactory[Bookie]):
    """Makes `Bookie`s with small journals; a call returns a new one.

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
        storage: Storage | None = None,
        *,
        path: StrPath | None = None,
        directories: int = 1,
        journals: int = 1,
        journal: JournalOptions = _SMALL_JOURNAL,
        files: Files | None = None,
        **options: Any,
    ) -> Bookie:
        """Return a bookie in a new directory, or in `path`, new or with what is there.

        `options` are those of `StorageOptions`; there are as many ledger and journal
        directories below the path as asked for.
        """
        kind = storage or self.kind
        settings = StorageOptions(**options)

        def open_at(place: Path, layer: Files) -> Bookie:
            return Bookie.open(
                None,
                kind,
                ledger_dirs=_folders(place, "ledgers", directories),
                journal_dirs=_folders(place, "journal", journals),
                bookie_id="bookie",
                options=settings,
                journal=journal,
                files=layer,
            )

        return self._keep(self._place("bookie") if path is None else Path(path), open_at, files)

    def crash(self, bookie: Bookie) -> Bookie:
        """Return a bookie over a copy of the files as they are now, and close the old one.

        That is what a killed process leaves: everything that reached the operating system. For
        a power loss see `bkstore.testing.crash`.
        """
        made = self._find(bookie)
        copy = self._place("bookie")
        shutil.copytree(made.path, copy)
        bookie.close(checkpoint=False)
        return self._keep(copy, made.open_at, made.files)


class ClusterFactory(_JournaledFactory[Cluster]):
    """Makes `Cluster`s with small journals; a call returns a new one.

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
        storage: Storage | Sequence[Storage] | None = None,
        *,
        path: StrPath | None = None,
        store: MetadataStore | None = None,
        files: Files | None = None,
        **options: Any,
    ) -> Cluster:
        """Return a cluster in a new directory, or in `path`, new or with what is there.

        `options` are those of `Cluster.open`. Nobody really waits for a slow bookie, unless a
        `sleep` is given.
        """
        kinds = storage or self.kind
        metadata = MemoryStore() if store is None else store
        settings: dict[str, Any] = {"journal": _SMALL_JOURNAL, "sleep": _no_sleep} | options

        def open_at(place: Path, layer: Files) -> Cluster:
            return Cluster.open(place, bookies, kinds, store=metadata, files=layer, **settings)

        return self._keep(self._place("cluster") if path is None else Path(path), open_at, files)


def _no_sleep(seconds: float) -> None:
    """Wait for nothing."""


def _folders(place: Path, name: str, count: int) -> list[Path]:
    whole(1)(name, count)
    return [place / name] if count == 1 else [place / f"{name}{at}" for at in range(count)]
