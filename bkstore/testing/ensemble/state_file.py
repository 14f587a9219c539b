"""The state of an ensemble, as a file in its directory: who it is, and what runs now.

Each version of the file is a new one, locked by its writer before it gets the name, and for as
long as the writer lives. So who can read it, and cannot lock it, knows that the process it names
wrote it and is there: the number of a process that ended, and is another's now, is never taken
for it. Nor is the number that it has in another PID namespace: the file says in which it counts.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from bkstore import forks
from bkstore.errors import CorruptionError
from bkstore.files.lock_files import is_locked
from bkstore.files.opening import open_regular, read_whole
from bkstore.files.os_errors import writing
from bkstore.formats.syntax.json_text import format_json, parse_json
from bkstore.storage.options import Storage

STATE_NAME = "ensemble.json"
LOCK_NAME = "ensemble.lock"
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""What a bookie may be called: its directory has the name."""

CUT_OFF = re.compile(re.escape(f".{STATE_NAME}.") + "[0-9a-f]{16}")
"""Names of state files that are not whole yet; where their writer was killed, never."""

_FORMAT = 1
_LIMIT = 1 << 20
_MANAGERS = ("hierarchical", "longhierarchical", "flat")


@dataclass(frozen=True)
class BookieState:
    """A bookie: its id, its storage, its last port (0: none yet), its process if it runs."""

    id: str
    storage: Storage
    port: int = 0
    pid: int | None = None


@dataclass(frozen=True)
class EnsembleState:
    """An ensemble: `port` is ZooKeeper's; `pid` the process that runs it, None if none does.

    `formatted` says that the cluster is there; `command` that `bkstore ensemble up` runs it.
    `namespace` is the `process_namespace` in which the numbers of processes have a meaning.
    """

    port: int = 0
    manager: str = "hierarchical"
    formatted: bool = False
    command: bool = False
    namespace: str | None = None
    pid: int | None = None
    zookeeper_pid: int | None = None
    bookies: tuple[BookieState, ...] = ()

    @property
    def uri(self) -> str:
        """The service URI, as it is while ZooKeeper has this port."""
        return f"zk+{self.manager}://127.0.0.1:{self.port}/ledgers"


class StateFile:
    """The file of a directory whose lock this process has.

    Fork: the child lets go of it.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / STATE_NAME
        self._fd: int | None = None
        forks.register(self)

    def write(self, state: EnsembleState) -> None:
        """Let the file say this, durably, and be locked."""
        text = format_json({"format": _FORMAT, "uri": state.uri, **asdict(state)}, indent=1)
        scratch = self.path.with_name(f".{STATE_NAME}.{os.urandom(8).hex()}")
        with writing(self.path):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(scratch, flags, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                os.write(fd, f"{text}\n".encode())
                os.fsync(fd)
                os.replace(scratch, self.path)
            except BaseException:
                os.close(fd)
                scratch.unlink(missing_ok=True)
                raise
        self.close()
        self._fd = fd

    def close(self) -> None:
        """Let go of the file; it stays. Idempotent."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _forked(self) -> None:
        self.close()

    @staticmethod
    def read(directory: Path) -> tuple[EnsembleState, bool] | None:
        """Return what the file says, and whether its writer is there; None without a file.

        Raises `CorruptionError` for what is no state of an ensemble.
        """
        path = directory / STATE_NAME
        while True:
            try:
                fd = open_regular(path)
            except FileNotFoundError:
                return None
            try:
                lives = is_locked(fd)
                data = read_whole(path, _LIMIT)
                if _still(path, fd):
                    return _decoded(data, path), lives
            finally:
                os.close(fd)


def process_namespace() -> str:
    """Return what tells apart systems in which a number means different processes.

    That is the boot of a machine and the PID namespace (of a container); the name of the machine
    where the system has no such namespaces.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def drop_cut_off(directory: Path) -> None:
    """Remove what killed writers left, for one who has the lock of the directory."""
    for path in directory.iterdir():
        if CUT_OFF.fullmatch(path.name):
            path.unlink()


def _still(path: Path, fd: int) -> bool:
    """Whether the file that was looked at has the name still."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _decoded(data: bytes, path: Path) -> EnsembleState:
    fields = parse_json(data, path)
    if not isinstance(fields, dict) or fields.get("format") != _FORMAT:
        raise CorruptionError(path, None, f"no state of an ensemble, format {_FORMAT}")
    rows = fields.get("bookies")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise CorruptionError(path, None, "bookies is no list of objects")
    state = EnsembleState(
        port=_number(fields, "port", path) or 0,
        manager=_word(fields, "manager", _MANAGERS, path),
        formatted=fields.get("formatted") is True,
        command=fields.get("command") is True,
        namespace=_namespace(fields, path),
        pid=_number(fields, "pid", path),
        zookeeper_pid=_number(fields, "zookeeper_pid", path),
        bookies=tuple(_bookie(row, path) for row in rows),
    )
    if len({bookie.id for bookie in state.bookies}) < len(rows):
        raise CorruptionError(path, None, "a bookie is there twice")
    return state


def _bookie(row: dict[str, Any], path: Path) -> BookieState:
    name = row.get("id")
    if not isinstance(name, str) or not ID.fullmatch(name):
        raise CorruptionError(path, None, f"{name!r:.60} is no id of a bookie")
    storage: Any = _word(row, "storage", get_args(Storage), path)
    return BookieState(name, storage, _number(row, "port", path) or 0, _number(row, "pid", path))


def _namespace(fields: dict[str, Any], path: Path) -> str | None:
    value = fields.get("namespace")
    if value is not None and not isinstance(value, str):
        raise CorruptionError(path, None, f"namespace {value!r:.60} is no text")
    return value


def _number(row: dict[str, Any], name: str, path: Path) -> int | None:
    value = row.get(name)
    most = 65535 if name == "port" else 2**31 - 1
    if value is not None and (type(value) is not int or not 0 <= value <= most):
        raise CorruptionError(path, None, f"{name} {value!r:.60} is no number of one")
    return value


def _word(row: dict[str, Any], name: str, words: tuple[str, ...], path: Path) -> str:
    value = row.get(name)
    if value not in words:
        raise CorruptionError(path, None, f"{name} {value!r:.60} is none of {', '.join(words)}")
    return str(value)
