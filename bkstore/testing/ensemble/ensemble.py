"""Ensemble: a real ZooKeeper and bookies on loopback, as processes. Page: `docs/ensemble.md`."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from bkstore import forks
from bkstore.arguments import boolean, choice, integer, number, optional
from bkstore.cluster.store.zookeeper.store import ZooKeeperStore
from bkstore.errors import (
    BookieUnavailable,
    IllegalOperation,
    InvalidArgument,
    MetadataUnavailable,
)
from bkstore.files.disk_changes import StrPath
from bkstore.files.lock_files import acquire_lock
from bkstore.files.scratch import scratch_directory
from bkstore.index.api import Closeable
from bkstore.storage.options import StorageKind, check_storage
from bkstore.testing.ensemble.bookie_process import BookieProcess, is_free
from bkstore.testing.ensemble.faults import FaultName
from bkstore.testing.ensemble.process_group import ProcessGroup, last_lines
from bkstore.testing.ensemble.state_file import (
    BOOKIE_ID_PATTERN,
    LOCK_NAME,
    STATE_NAME,
    UNFINISHED_NAME_PATTERN,
    BookieState,
    EnsembleState,
    StateFile,
    process_namespace,
    remove_unfinished_states,
)
from bkstore.testing.ensemble.zookeeper import (
    EnsembleZooKeeper,
    RunningZooKeeper,
    make_environment,
)
from bkstore.testing.zookeeper_server import ZooKeeperServer

_SESSION_SECONDS = 4.0
_POLL_SECONDS = 0.02
_START_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 30.0
_SHORT_STOP_SECONDS = 2.0
"""Seconds until a stopping bookie is killed that cannot deregister as ZooKeeper is down."""

_MAX_BOOKIES = 100
_SESSION_TICKS = 20  # ZooKeeper's longest session
_check_manager = optional(choice("hierarchical", "longhierarchical", "flat"))


class Ensemble(Closeable):
    """A cluster of processes: `uri` is the service URI for clients in any language.

    `path` is a missing or empty directory, or one of an ensemble, which continues with its data,
    cookies and instance id, and on its ports if they are free. Without `path` the directory is
    temporary, and removed by `close`. `bookies` is their number; missing ones are added (default:
    those that the directory has, else 3). `storage` is that of new bookies; a list's in turn.
    `port` is ZooKeeper's; 0 chooses the last one or a free one. `manager` is the ledger manager,
    hierarchical by default. A bookie's registration expires after `session` seconds without a
    heartbeat; a killed bookie cannot register again before that. With `sync` ZooKeeper waits for
    the disk; `gc_wait` is the number of seconds between two garbage collections, `timeout` for a
    start. ``with`` starts and closes it. `command`: run by `bkstore ensemble up`, so that `down`
    may end this process.

    `zookeeper_home` is the ZooKeeper to run (default: `find_zookeeper_jars`'s). With `metadata`, a
    service URI, the ensemble uses a ZooKeeper that runs already, in which the URI's root must not
    exist yet; the cluster's nodes stay there.

    All processes end with this one, however it ends; killed, if `close` was not called. Raises
    `MissingDependency` without kazoo, a ZooKeeper's jars or Java; `DirectoryInUse` if the
    directory's ensemble is running; `InvalidArgument` for a directory with other contents, for
    fewer bookies than it has, for a port that is taken, and for another `metadata` than the
    directory's; `CorruptionError` for a damaged state file.

    Threads: safe; calls for different bookies run concurrently. Fork: closed in the child.
    """

    def __init__(
        self,
        path: StrPath | None = None,
        bookies: int | None = None,
        storage: StorageKind | Sequence[StorageKind] = "sorted",
        *,
        port: int = 0,
        manager: str | None = None,
        session: float = _SESSION_SECONDS,
        sync: bool = False,
        gc_wait: float | None = None,
        timeout: float = _START_SECONDS,
        zookeeper_home: StrPath | None = None,
        metadata: str | None = None,
        command: bool = False,
    ) -> None:
        """Lock the directory, and plan its bookies; `start` starts them."""
        if metadata is not None and (port or manager or zookeeper_home):
            raise InvalidArgument("metadata is of a ZooKeeper that runs: no port, manager or home")
        storages: Sequence[StorageKind] = [storage] if isinstance(storage, str) else list(storage)
        self._storages = [check_storage("storage", kind) for kind in storages]
        self._timeout = number(0, 3600, above=True)("timeout", timeout)
        # ZooKeeper allows sessions of up to 20 of its ticks, here in milliseconds.
        tick_ms = round(number(0.1, 60)("session", session) * 1000 / _SESSION_TICKS)
        bookie_count = optional(integer(1, _MAX_BOOKIES))("bookies", bookies)
        port = integer(0, 65535)("port", port)
        if not self._storages:
            raise InvalidArgument("storage is an empty list")
        gc_seconds = optional(number(0))("gc_wait", gc_wait)
        self._serve_options = [] if gc_seconds is None else ["--gc-wait", f"{gc_seconds:g}"]
        self._run_by_command = boolean("command", command)
        self._lock = threading.RLock()
        self._bookies: dict[str, BookieProcess] = {}
        self._undo = ExitStack()
        self._closed = False
        with ExitStack() as undo:  # undone at once if a step raises, else by `close`
            self.path, self._lock_fd = _acquire_directory(path, undo)
            self._state_file = StateFile(self.path)
            undo.callback(self._state_file.close)
            state = self._load_state(_check_manager("manager", manager), metadata)
            self._manager, self._formatted = state.manager, state.formatted
            self._metadata = state.metadata
            self._group = ProcessGroup()
            undo.callback(self._group.close)
            self.zookeeper_log = self.path / "zookeeper.log"
            self._zookeeper = self._make_zookeeper(
                tick=tick_ms,
                sync=boolean("sync", sync),
                port=_choose_port(port, state.port),
                jars=zookeeper_home,
            )
            for bookie_state in _plan(state, bookie_count, self._storages):
                self._make_bookie(bookie_state)
            self.save_state()
            self._undo = undo.pop_all()
        forks.register(self)

    def __repr__(self) -> str:
        running = sum(bookie.running for bookie in self._bookies.values())
        return f"<Ensemble {self.uri} in {self.path}, {running} of {len(self._bookies)} bookies>"

    @property
    def uri(self) -> str:
        """The service URI."""
        return self._zookeeper.uri(manager=self._manager)

    @property
    def env(self) -> dict[str, str]:
        """Environment variables for subprocesses, a new dict: ``{**os.environ, **ensemble.env}``.

        `BK_metadataServiceUri` is `uri`, `BK_zkServers` ZooKeeper's address, `BK_zkLedgersRootPath`
        the ledgers root, `BKSTORE_BOOKIES` the addresses of the running bookies, host:port with
        commas between. Raises `IllegalOperation` before the first start and after `close`.
        """
        self._check_open()
        if self._metadata is None and not self._zookeeper.port:
            raise IllegalOperation(f"ensemble {self.path} was not started: it has no address")
        running = [bookie.address for bookie in self._bookies.values() if bookie.running]
        return make_environment(self.uri, running)

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._closed

    @property
    def bookies(self) -> MappingProxyType[str, BookieProcess]:
        """The bookies by id, running or not, in the order in which they were made."""
        return MappingProxyType(self._bookies)

    @property
    def zookeeper_pid(self) -> int | None:
        """The id of ZooKeeper's process; None if it is not running, or not the ensemble's."""
        return self._zookeeper.pid

    @property
    def zookeeper_origin(self) -> str:
        """Whose jars ZooKeeper runs from, or where the one is that ran already."""
        return self._zookeeper.jars_origin

    @property
    def _is_zookeeper_down(self) -> bool:
        return self._metadata is None and self._zookeeper.pid is None

    def start(self, bookie: str | BookieProcess | None = None) -> Self:
        """Start one bookie, or ZooKeeper and all bookies; return when they have registered.

        A bookie keeps its data. Raises `BookieUnavailable` or `MetadataUnavailable` with the last
        lines of a process that ended or took too long, and stops what it has started;
        `IllegalOperation` if the one bookie is running.
        """
        __tracebackhide__ = True
        with self._saving_state():
            if bookie is not None:
                self._start_all([self._find_bookie(bookie)])
                return self
            was_down = self._is_zookeeper_down
            try:
                if was_down:
                    self.start_zookeeper()
                self._format_once()
                self._start_all([member for member in self._bookies.values() if not member.running])
            except BaseException:
                if was_down:  # only a ZooKeeper that this call started
                    self._zookeeper.kill()
                raise
        return self

    def stop(self, bookie: str | BookieProcess | None = None) -> None:
        """Stop one bookie by SIGTERM, or all of them and then ZooKeeper.

        A bookie is killed after 30 seconds, or 2 if it cannot deregister without ZooKeeper.
        """
        stop_timeout = _SHORT_STOP_SECONDS if self._is_zookeeper_down else STOP_TIMEOUT_SECONDS
        with self._saving_state():
            if bookie is not None:
                self._find_bookie(bookie).stop(stop_timeout)
                return
            for member in self._bookies.values():  # all first, so that they stop concurrently
                member.ask_to_stop()
            deadline = time.monotonic() + stop_timeout
            for member in self._bookies.values():
                member.stop(max(0.0, deadline - time.monotonic()))
            self._zookeeper.stop()

    def close(self) -> None:
        """Stop all, unlock the directory, and remove it if it is temporary. Idempotent."""
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

    def kill(self, bookie: str | BookieProcess) -> None:
        """Send SIGKILL to a bookie. It stays registered until its session expires."""
        with self._saving_state():
            self._find_bookie(bookie).kill()

    def fault(
        self, bookie: str | BookieProcess, fault: FaultName, seconds: float | None = None
    ) -> None:
        """Give a bookie one of `FAULTS`, until `heal`: it stays through a restart, except "frozen".

        `seconds` are those of "slow-disk". The fault is in force when this returns; a bookie that
        becomes read-only by it does so within a second. Raises `IllegalOperation` for "frozen" if
        the bookie is not running.
        """
        self._check_open()
        self._find_bookie(bookie).set_fault(fault, seconds)

    def heal(
        self, bookie: str | BookieProcess | None = None, fault: FaultName | None = None
    ) -> None:
        """End the faults of one bookie, or of all of them; or one fault of theirs.

        After a failed write of its journal a bookie stays read-only until it is started again, as
        a real one does: `stop` and `start` it, or `restore` all.
        """
        self._check_open()
        for member in self._bookies.values() if bookie is None else [self._find_bookie(bookie)]:
            member.heal(fault)

    def restore(self) -> Self:
        """End all faults, start what is not running, and return when all bookies are writable.

        A bookie whose disk had a fault since its start is started again. Ledgers stay. Raises what
        `start` raises, and `BookieUnavailable` if a bookie does not become writable in time.
        """
        __tracebackhide__ = True
        self.heal()
        for member in self._bookies.values():
            if member.running and member.needs_restart:
                self.stop(member)
        self.start()
        deadline = time.monotonic() + self._timeout
        with ZooKeeperStore(self.uri, timeout=self._timeout) as store:
            while not_writable := self._bookies.keys() - store.writable_bookies():
                if time.monotonic() > deadline:
                    ids = ", ".join(sorted(not_writable))
                    raise BookieUnavailable(f"not writable in time: {ids} (see {self.path})")
                time.sleep(_POLL_SECONDS)
        return self

    def add_bookie(
        self, bookie: str | None = None, storage: StorageKind | None = None
    ) -> BookieProcess:
        """Start a new bookie and return it; its id is ``bookie-N`` by default."""
        self._check_open()
        with self._lock:
            id_ = _next_bookie_id(self._bookies) if bookie is None else bookie
            is_valid = isinstance(id_, str) and BOOKIE_ID_PATTERN.fullmatch(id_)
            if not is_valid or id_ in self._bookies:
                raise InvalidArgument(f"{id_!r:.60} is not valid as a new bookie's id")
            kind = storage or self._storages[len(self._bookies) % len(self._storages)]
            new = self._make_bookie(BookieState(id_, check_storage("storage", kind)))
        self.start(new)
        return new

    def _make_zookeeper(self, **options: Any) -> EnsembleZooKeeper:
        """Return the ZooKeeper that runs already, else a server of these options, not started."""
        if self._metadata is not None:
            return RunningZooKeeper(self._metadata)
        return ZooKeeperServer(
            self.path / "zookeeper",
            spawn=lambda command: self._group.start(command, self.zookeeper_log),
            **options,
        )

    def _make_bookie(self, state: BookieState) -> BookieProcess:
        process = BookieProcess(state, self.path, self._group, self._serve_options)
        self._bookies[state.id] = process
        return process

    def kill_zookeeper(self) -> None:
        """Send SIGKILL to ZooKeeper; `start_zookeeper` continues with its data. Raises
        `IllegalOperation` if it is not the ensemble's."""
        with self._saving_state():
            self._zookeeper.kill()

    def start_zookeeper(self) -> None:
        """Start ZooKeeper, on its last port if it had one. Raises `MetadataUnavailable` with its
        last lines if it does not serve, `IllegalOperation` if it is running."""
        __tracebackhide__ = True
        with self._saving_state():
            if not self._is_zookeeper_down:
                raise IllegalOperation(f"ZooKeeper of {self.path} is running")
            self._zookeeper.kill()  # else `start` refuses while an ended process is not reaped
            log = self.zookeeper_log
            offset = log.stat().st_size if log.exists() else 0
            try:
                self._zookeeper.start(self._timeout)
            except MetadataUnavailable as error:
                raise MetadataUnavailable(f"{error}: {last_lines(log, offset)} ({log})") from None

    def _check_open(self) -> None:
        if self._closed:
            raise forks.closed_error(f"ensemble {self.path}")

    def _find_bookie(self, bookie: str | BookieProcess) -> BookieProcess:
        id_ = bookie.id if isinstance(bookie, BookieProcess) else bookie
        process = self._bookies.get(id_)
        if process is None:
            raise InvalidArgument(f"no bookie {id_!r:.60}: there are {', '.join(self._bookies)}")
        return process

    def _start_all(self, bookies: Iterable[BookieProcess]) -> None:
        """Start bookies concurrently; return when all have registered. Kill all if one fails."""
        __tracebackhide__ = True
        deadline = time.monotonic() + self._timeout
        launched: list[BookieProcess] = []
        try:
            for member in bookies:
                member.launch(self.uri)
                launched.append(member)
            for member in launched:
                member.wait_until_registered(deadline)
        except BaseException:
            for member in launched:
                member.kill()
            raise

    def _load_state(self, manager: str | None, metadata: str | None) -> EnsembleState:
        """Return the directory's state, which must have this ledger manager (None: any) and the
        cluster at `metadata` (None: any); if it has none, write a new one. Without `metadata` a new
        ensemble has a ZooKeeper of its own."""
        contents = StateFile.read(self.path)
        if contents is None:
            if metadata is not None:
                manager = RunningZooKeeper(metadata).manager
            state = EnsembleState(manager=manager or "hierarchical", metadata=metadata)
            self._state_file.write(state)
            return state
        state, _ = contents
        if manager not in (None, state.manager):
            raise InvalidArgument(f"{self.path}: has the ledger manager {state.manager}")
        if metadata not in (None, state.metadata):
            raise InvalidArgument(f"{self.path}: its cluster is at {state.uri}")
        return state

    def _format_once(self) -> None:
        """Create the cluster's nodes in ZooKeeper when the ensemble is started first."""
        if not self._formatted:
            try:
                ZooKeeperStore.format(self.uri, timeout=self._timeout).close()
            except IllegalOperation as error:
                # The root exists: in an own ZooKeeper, from a start killed before `save_state`.
                if self._metadata is not None:
                    message = f"{error}: an ensemble needs a root of its own, such as /trial"
                    raise IllegalOperation(message) from None
            self._formatted = True
            self.save_state()

    @contextmanager
    def _saving_state(self) -> Iterator[None]:
        """Save the state after the body. Raises if the ensemble is closed."""
        self._check_open()
        try:
            yield
        finally:
            self.save_state()

    def save_state(self) -> EnsembleState:
        """Write the present state to the state file if it has changed; return it."""
        with self._lock:
            state = EnsembleState(
                port=self._zookeeper.port,
                manager=self._manager,
                formatted=self._formatted,
                command=self._run_by_command,
                namespace=process_namespace(),
                pid=os.getpid(),
                zookeeper_pid=self._zookeeper.pid,
                bookies=tuple(bookie.state() for bookie in self._bookies.values()),
                metadata=self._metadata,
            )
            if state != self._last_written:
                self._state_file.write(state)
                self._last_written = state
            return state

    _last_written: EnsembleState | None = None

    def _forked(self) -> None:
        """Close without stopping anything: the processes and the lock are the parent's."""
        if not self._closed:
            self._closed = True
            self._undo = ExitStack()
            if self._lock_fd is not None:
                os.close(self._lock_fd)


def _acquire_directory(path: StrPath | None, undo: ExitStack) -> tuple[Path, int | None]:
    """Return the directory and its lock's descriptor, or a temporary directory without one."""
    if path is None:
        return undo.enter_context(scratch_directory("ensemble")), None
    directory = Path(os.path.abspath(path))
    _check_usable(directory)
    directory.mkdir(parents=True, exist_ok=True)
    message = f"{directory}: its ensemble is running (see bkstore ensemble status --dir {path})"
    fd = acquire_lock(directory / LOCK_NAME, message)
    undo.callback(os.close, fd)
    _check_usable(directory)  # again: another process may have used it before the lock was held
    remove_unfinished_states(directory)
    return directory, fd


def _check_usable(directory: Path) -> None:
    """Raise `InvalidArgument` unless a path is missing, empty or an ensemble's directory."""
    if not directory.exists() and not directory.is_symlink():
        return
    if not directory.is_dir():
        raise InvalidArgument(f"{directory}: is not a directory")
    if StateFile.read(directory) is not None:
        return
    allowed = (LOCK_NAME, STATE_NAME)  # left by a start that goes on, or was killed
    names = [path.name for path in directory.iterdir()]
    if any(name not in allowed and not UNFINISHED_NAME_PATTERN.fullmatch(name) for name in names):
        raise InvalidArgument(f"{directory}: is not empty and not an ensemble's directory")


def _choose_port(requested: int, last_port: int) -> int:
    """Return ZooKeeper's port: the requested one, else the last one if it is free, else 0."""
    if requested and not is_free(requested):
        raise InvalidArgument(f"port {requested} is taken")
    return requested or (last_port if last_port and is_free(last_port) else 0)


def _plan(state: EnsembleState, count: int | None, kinds: list[StorageKind]) -> list[BookieState]:
    """Return the bookies to start: those of the saved state, and new ones up to `count` (None: no
    more, or 3 if there are none). New ones take the storage `kinds` in turn."""
    bookies, known_count = list(state.bookies), len(state.bookies)
    if count is not None and count < known_count:
        too_few = f"{count} would be too few for their ledgers"
        raise InvalidArgument(f"there are {known_count} bookies, {too_few}")
    while len(bookies) < (count or known_count or 3):
        bookie_id = _next_bookie_id([bookie.id for bookie in bookies])
        bookies.append(BookieState(bookie_id, kinds[len(bookies) % len(kinds)]))  # dealt out
    return bookies


def _next_bookie_id(ids: Iterable[str]) -> str:
    used_ids = set(ids)
    return next(id_ for n in range(1, _MAX_BOOKIES + 2) if (id_ := f"bookie-{n}") not in used_ids)
