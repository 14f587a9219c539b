"""Ensemble: a real ZooKeeper and bookies on loopback, each a process of its own.

Page: `docs/ensemble.md`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Self

from bkstore import forks
from bkstore.arguments import choice, number, optional, truth, whole
from bkstore.cluster.store.zookeeper.store import ZooKeeperStore
from bkstore.errors import IllegalOperation, InvalidArgument, MetadataUnavailable
from bkstore.files.disk_changes import StrPath
from bkstore.files.lock_files import held_lock
from bkstore.files.scratch import scratch_directory
from bkstore.index.api import Closing
from bkstore.storage.options import Storage, check_storage
from bkstore.testing.ensemble.bookie_process import BookieProcess, is_free
from bkstore.testing.ensemble.process_group import ProcessGroup, last_lines
from bkstore.testing.ensemble.state_file import (
    CUT_OFF,
    ID,
    LOCK_NAME,
    STATE_NAME,
    BookieState,
    EnsembleState,
    StateFile,
    drop_cut_off,
    process_namespace,
)
from bkstore.testing.zookeeper_server import ZooKeeperServer

_SESSION = 4.0
_TIMEOUT = 60.0
PATIENCE = 30.0
_LOST = 2.0
"""Seconds for a bookie to end without a ZooKeeper to tell it to: then it is killed."""

_MOST = 100
_TICKS = 20  # a session lasts at most as many
_check_manager = optional(choice("hierarchical", "longhierarchical", "flat"))


class Ensemble(Closing):
    """A cluster of processes: `uri` is what clients of any language open.

    `path` is a directory that is empty, missing, or an ensemble's: that one goes on, with its
    data, its cookies and instance id, and on its ports where they are free. Without `path` it is
    a temporary one, which `close` removes. `bookies` is how many there are to be, 3 in a new
    directory, else those that it has; more are added. `storage` is that of new bookies, or a list
    to deal out. `port` is ZooKeeper's, 0 takes the last one or a free one; `manager` is the ledger
    manager, hierarchical in a new directory. After `session` seconds without a sign of life the
    registration of a bookie goes; one that was killed is registered again no sooner. `sync` lets
    ZooKeeper wait for the disk, `gc_wait` is how many seconds lie between two passes of garbage
    collection, `timeout` is how long a start may take. ``with`` starts it, and
    closes it. `command` is for `bkstore ensemble`, which may stop it then.

    All processes end with this one, however it ends; killed, if `close` was not called. Raises
    `MissingDependency` without kazoo, pyspark's jars or Java; `DirectoryInUse` if the directory's
    ensemble runs; `InvalidArgument` for a directory with something else in it, for fewer bookies
    than it has, and for a port that is taken; `CorruptionError` for a damaged state file.

    Threads: safe; calls about different bookies run side by side. Fork: closed in the child.
    """

    def __init__(
        self,
        path: StrPath | None = None,
        bookies: int | None = None,
        storage: Storage | Sequence[Storage] = "sorted",
        *,
        port: int = 0,
        manager: str | None = None,
        session: float = _SESSION,
        sync: bool = False,
        gc_wait: float | None = None,
        timeout: float = _TIMEOUT,
        command: bool = False,
    ) -> None:
        kinds: Sequence[Storage] = [storage] if isinstance(storage, str) else list(storage)
        self._kinds = [check_storage("storage", kind) for kind in kinds]
        self._timeout = number(0, 3600, above=True)("timeout", timeout)
        tick = round(number(0.1, 60)("session", session) * 1000 / _TICKS)
        wanted = None if bookies is None else whole(1, _MOST)("bookies", bookies)
        port = whole(0, 65535)("port", port)
        if not self._kinds:
            raise InvalidArgument("storage is an empty list")
        wait = optional(number(0))("gc_wait", gc_wait)
        self._options = [] if wait is None else ["--gc-wait", f"{wait:g}"]
        self._command = truth("command", command)
        self._lock = threading.RLock()
        self._bookies: dict[str, BookieProcess] = {}
        self._undo = ExitStack()
        self._closed = False
        with ExitStack() as undo:
            self.path, self._fd = _own_place(path, undo)
            self._file = StateFile(self.path)
            undo.callback(self._file.close)
            known = self._known(_check_manager("manager", manager))
            self._manager, self._formatted = known.manager, known.formatted
            self._group = ProcessGroup()
            undo.callback(self._group.close)
            self.zookeeper_log = self.path / "zookeeper.log"
            self._zookeeper = ZooKeeperServer(
                self.path / "zookeeper",
                tick=tick,
                sync=truth("sync", sync),
                port=_chosen_port(port, known.port),
                spawn=lambda words: self._group.start(words, self.zookeeper_log),
            )
            for state in _members(known, wanted, self._kinds):
                self._bookies[state.id] = BookieProcess(
                    state, self.path, self._group, self._options
                )
            self.note()
            self._undo = undo.pop_all()
        forks.register(self)

    def __repr__(self) -> str:
        """Return the service URI, the directory and the bookies that run."""
        running = sum(bookie.running for bookie in self._bookies.values())
        return f"<Ensemble {self.uri} in {self.path}, {running} of {len(self._bookies)} bookies>"

    @property
    def uri(self) -> str:
        """The service URI."""
        return self._zookeeper.uri(manager=self._manager)

    @property
    def bookies(self) -> MappingProxyType[str, BookieProcess]:
        """The bookies by id, in the order in which they were made; those that do not run too."""
        return MappingProxyType(self._bookies)

    @property
    def zookeeper_pid(self) -> int | None:
        """The number of ZooKeeper's process; None if it does not run."""
        return self._zookeeper.pid

    # -- all of it

    def start(self, bookie: str | BookieProcess | None = None) -> Self:
        """Start one bookie, or all that does not run, ZooKeeper first; return when registered.

        A bookie comes back with its data. Raises `BookieUnavailable` or `MetadataUnavailable` with
        the last lines of a process that ended or took too long, and leaves nothing running that
        it started; `IllegalOperation` if the one bookie runs.
        """
        self._check_open()
        with self._noting():
            if bookie is not None:
                self._start([self._one(bookie)])
                return self
            started = self._zookeeper.pid is None
            try:
                if started:
                    self.start_zookeeper()
                self._format()
                self._start([one for one in self._bookies.values() if not one.running])
            except BaseException:
                if started:
                    self._zookeeper.kill()
                raise
        return self

    def stop(self, bookie: str | BookieProcess | None = None) -> None:
        """Stop one bookie as SIGTERM does, or all of them, and ZooKeeper behind them.

        A bookie that does not end in 30 seconds is killed; in 2, if ZooKeeper does not run, which
        it would tell.
        """
        self._check_open()
        patience = _LOST if self._zookeeper.pid is None else PATIENCE
        with self._noting():
            if bookie is not None:
                self._one(bookie).stop(patience)
                return
            for one in self._bookies.values():  # side by side
                one.ask_to_stop()
            until = time.monotonic() + patience
            for one in self._bookies.values():
                one.stop(max(0.0, until - time.monotonic()))
            self._zookeeper.stop()

    def close(self) -> None:
        """Stop all, let go of the directory, and remove it if it is a temporary one. Idempotent."""
        with self._lock:
            if self._closed:
                return
            with self._undo:
                try:
                    self.stop()
                finally:
                    self._closed = True

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    # -- one

    def kill(self, bookie: str | BookieProcess) -> None:
        """End a bookie at once, by SIGKILL. It stays registered until its session ends."""
        self._check_open()
        with self._noting():
            self._one(bookie).kill()

    def add_bookie(
        self, bookie: str | None = None, storage: Storage | None = None
    ) -> BookieProcess:
        """Start a new bookie and return it; its id is ``bookie-N`` unless it is given."""
        self._check_open()
        with self._lock:
            name = _next_id(self._bookies) if bookie is None else bookie
            if not isinstance(name, str) or not ID.fullmatch(name) or name in self._bookies:
                raise InvalidArgument(f"{name!r:.60} is no id for a new bookie")
            kind = storage or self._kinds[len(self._bookies) % len(self._kinds)]
            state = BookieState(name, check_storage("storage", kind))
            made = self._bookies[name] = BookieProcess(state, self.path, self._group, self._options)
        self.start(made)
        return made

    def kill_zookeeper(self) -> None:
        """End ZooKeeper at once, by SIGKILL; `start_zookeeper` goes on with its data."""
        self._check_open()
        with self._noting():
            self._zookeeper.kill()

    def start_zookeeper(self) -> None:
        """Start ZooKeeper, on its port if it ran before.

        Raises `MetadataUnavailable` with its last lines if it does not serve, `IllegalOperation`
        if it runs.
        """
        self._check_open()
        with self._noting():
            if self._zookeeper.pid is not None:
                raise IllegalOperation(f"ZooKeeper of {self.path} is running")
            self._zookeeper.kill()  # one that ended by itself counts as running until then
            log = self.zookeeper_log
            start = log.stat().st_size if log.exists() else 0
            try:
                self._zookeeper.start(self._timeout)
            except MetadataUnavailable as error:
                raise MetadataUnavailable(f"{error}: {last_lines(log, start)} ({log})") from None

    # -- inside

    def _check_open(self) -> None:
        if self._closed:
            raise forks.closed(f"ensemble {self.path}")

    def _one(self, bookie: str | BookieProcess) -> BookieProcess:
        name = bookie.id if isinstance(bookie, BookieProcess) else bookie
        found = self._bookies.get(name)
        if found is None:
            raise InvalidArgument(f"no bookie {name!r:.60}: there are {', '.join(self._bookies)}")
        return found

    def _start(self, bookies: Iterable[BookieProcess]) -> None:
        """Start bookies side by side; none of them runs if one does not start."""
        until = time.monotonic() + self._timeout
        launched: list[BookieProcess] = []
        try:
            for one in bookies:
                one.launch(self.uri)
                launched.append(one)
            for one in launched:
                one.ready(until)
        except BaseException:
            for one in launched:
                one.kill()
            raise

    def _known(self, manager: str | None) -> EnsembleState:
        """Return what the directory says; from now on it is an ensemble's."""
        found = StateFile.read(self.path)
        if found is None:
            known = EnsembleState(manager=manager or "hierarchical")
            self._file.write(known)
            return known
        if manager not in (None, found[0].manager):
            raise InvalidArgument(f"{self.path}: has the ledger manager {found[0].manager}")
        return found[0]

    def _format(self) -> None:
        """Make the cluster's nodes in a new ZooKeeper."""
        if not self._formatted:
            with suppress(IllegalOperation):  # made by a start that was cut off before it noted it
                ZooKeeperStore.format(self.uri, timeout=self._timeout).close()
            self._formatted = True
            self.note()

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Bring the state file up to date behind what is done, whether it went well or not."""
        try:
            yield
        finally:
            self.note()

    def note(self) -> EnsembleState:
        """Write what runs now to the state file, if that is news; return it."""
        with self._lock:
            now = EnsembleState(
                port=self._zookeeper.port,
                manager=self._manager,
                formatted=self._formatted,
                command=self._command,
                namespace=process_namespace(),
                pid=os.getpid(),
                zookeeper_pid=self._zookeeper.pid,
                bookies=tuple(one.state() for one in self._bookies.values()),
            )
            if now != self._noted:
                self._file.write(now)
                self._noted = now
            return now

    _noted: EnsembleState | None = None

    def _forked(self) -> None:
        """Count as closed; the parent alone has the lock, and stops what runs."""
        if not self._closed:
            self._closed = True
            self._undo = ExitStack()
            if self._fd is not None:
                os.close(self._fd)


def _own_place(path: StrPath | None, undo: ExitStack) -> tuple[Path, int | None]:
    """Return the directory and its lock: a temporary one, or one that is empty or an ensemble's."""
    if path is None:
        return undo.enter_context(scratch_directory("ensemble")), None
    place = Path(os.path.abspath(path))
    _check_ours(place)
    place.mkdir(parents=True, exist_ok=True)
    taken = f"{place}: its ensemble is running (bkstore ensemble status --dir tells of it)"
    fd = held_lock(place / LOCK_NAME, taken)
    undo.callback(os.close, fd)
    _check_ours(place)
    drop_cut_off(place)
    return place, fd


def _check_ours(place: Path) -> None:
    """Raise `InvalidArgument` unless the directory is missing, empty, or an ensemble's."""
    if not place.exists() and not place.is_symlink():
        return
    if not place.is_dir():
        raise InvalidArgument(f"{place}: is no directory")
    if StateFile.read(place) is not None:
        return
    ours = (LOCK_NAME, STATE_NAME)  # another may be making it one now
    names = [one.name for one in place.iterdir()]
    if any(name not in ours and not CUT_OFF.fullmatch(name) for name in names):
        raise InvalidArgument(f"{place}: is not empty, and no ensemble's directory")


def _chosen_port(given: int, last: int) -> int:
    """Return ZooKeeper's port: the one given, else the last if it is free, else 0."""
    if given and not is_free(given):
        raise InvalidArgument(f"port {given} is taken")
    return given or (last if last and is_free(last) else 0)


def _members(
    known: EnsembleState, wanted: int | None, kinds: Sequence[Storage]
) -> list[BookieState]:
    """Return the bookies that there are, and new ones behind them."""
    members = list(known.bookies)
    if wanted is not None and wanted < len(members):
        raise InvalidArgument(
            f"there are {len(members)} bookies, {wanted} would be too few for their ledgers"
        )
    while len(members) < (wanted or len(known.bookies) or 3):
        name = _next_id([one.id for one in members])
        members.append(BookieState(name, kinds[len(members) % len(kinds)]))
    return members


def _next_id(names: Iterable[str]) -> str:
    taken = set(names)
    return next(name for n in range(1, _MOST + 2) if (name := f"bookie-{n}") not in taken)
