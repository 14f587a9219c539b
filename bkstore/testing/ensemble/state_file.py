"""The state of an ensemble, as a file in its directory: its identity, and its processes.

Each version is a new file. Its writer locks it before the file gets its name, and until the
writer ends. So a reader who cannot lock the file knows that the process named in it wrote it and
is alive: a process id that another process has by now is never mistaken for it. Nor is one of
another PID namespace: the file says to which namespace its ids belong.
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
from bkstore.files.opening import open_regular, read_file
from bkstore.files.os_errors import convert_write_errors
from bkstore.formats.syntax.json_text import format_json, parse_json
from bkstore.storage.options import StorageKind

STATE_NAME = "ensemble.json"
LOCK_NAME = "ensemble.lock"
BOOKIE_ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""Allowed bookie ids, which are also names of directories."""

UNFINISHED_NAME_PATTERN = re.compile(re.escape(f".{STATE_NAME}.") + "[0-9a-f]{16}")
"""Names of unfinished state files, which a killed writer leaves behind."""

_FORMAT_VERSION = 1
_MAX_FILE_BYTES = 1 << 20
_MANAGERS = ("hierarchical", "longhierarchical", "flat")


@dataclass(frozen=True)
class BookieState:
    """A bookie: its id, storage, last port (0: none yet) and process id if it is running."""

    id: str
    storage: StorageKind
    port: int = 0
    pid: int | None = None


@dataclass(frozen=True)
class EnsembleState:
    """An ensemble: `port` is ZooKeeper's; `pid` the process that runs it, if any.

    `formatted`: whether the cluster's nodes exist; `command`: whether `bkstore ensemble up` runs
    it. `namespace` is the `process_namespace` to which the process ids belong. `metadata` is the
    service URI if the ensemble uses a ZooKeeper that it does not run.
    """

    port: int = 0
    manager: str = "hierarchical"
    formatted: bool = False
    command: bool = False
    namespace: str | None = None
    pid: int | None = None
    zookeeper_pid: int | None = None
    bookies: tuple[BookieState, ...] = ()
    metadata: str | None = None

    @property
    def uri(self) -> str:
        """The service URI while ZooKeeper has this port."""
        return self.metadata or f"zk+{self.manager}://127.0.0.1:{self.port}/ledgers"


class StateFile:
    """The state file of a directory that this process has locked. Fork: closed in the child."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / STATE_NAME
        self._fd: int | None = None
        forks.register(self)

    def write(self, state: EnsembleState) -> None:
        """Replace the file durably by a locked one with this state."""
        text = format_json({"format": _FORMAT_VERSION, "uri": state.uri, **asdict(state)}, indent=1)
        temporary = self.path.with_name(f".{STATE_NAME}.{os.urandom(8).hex()}")
        with convert_write_errors(self.path):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(temporary, flags, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)  # held while this process lives: it is the writer
                os.write(fd, f"{text}\n".encode())
                os.fsync(fd)
                os.replace(temporary, self.path)
            except BaseException:
                os.close(fd)
                temporary.unlink(missing_ok=True)
                raise
        self.close()
        self._fd = fd

    def close(self) -> None:
        """Unlock the file without removing it. Idempotent."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    _forked = close

    @staticmethod
    def read(directory: Path) -> tuple[EnsembleState, bool] | None:
        """Return the state and whether the file's writer is alive; None without a file. Raises
        `CorruptionError` if the file is not a state of an ensemble."""
        path = directory / STATE_NAME
        while True:
            try:
                fd = open_regular(path)
            except FileNotFoundError:
                return None
            try:
                is_alive = is_locked(fd)
                data = read_file(path, _MAX_FILE_BYTES)
                if _is_current(path, fd):  # else it was replaced since it was opened: try again
                    return _decode_state(data, path), is_alive
            finally:
                os.close(fd)


def process_namespace() -> str:
    """Return an id of the namespace in which this process's id is valid.

    It has the machine's boot id and the PID namespace (of a container), or else the machine's name.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def remove_unfinished_states(directory: Path) -> None:
    """Remove unfinished state files of killed writers; the caller has locked the directory."""
    for path in directory.iterdir():
        if UNFINISHED_NAME_PATTERN.fullmatch(path.name):
            path.unlink()


def _is_current(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _decode_state(data: bytes, path: Path) -> EnsembleState:
    """Return the state in the file's JSON text; raises `CorruptionError` if it is invalid."""
    fields = parse_json(data, path)
    if not isinstance(fields, dict) or fields.get("format") != _FORMAT_VERSION:
        raise CorruptionError(path, None, f"not an ensemble's state in format {_FORMAT_VERSION}")
    rows = fields.get("bookies")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise CorruptionError(path, None, "bookies is not a list of objects")
    state = EnsembleState(
        port=_decode_number(fields, "port", path) or 0,
        manager=_decode_choice(fields, "manager", _MANAGERS, path),
        formatted=fields.get("formatted") is True,
        command=fields.get("command") is True,
        namespace=_decode_text(fields, "namespace", path),
        metadata=_decode_text(fields, "metadata", path),
        pid=_decode_number(fields, "pid", path),
        zookeeper_pid=_decode_number(fields, "zookeeper_pid", path),
        bookies=tuple(_decode_bookie(row, path) for row in rows),
    )
    if len({bookie.id for bookie in state.bookies}) < len(rows):
        raise CorruptionError(path, None, "a bookie appears twice")
    return state


def _decode_bookie(row: dict[str, Any], path: Path) -> BookieState:
    bookie_id = row.get("id")
    if not isinstance(bookie_id, str) or not BOOKIE_ID_PATTERN.fullmatch(bookie_id):
        raise CorruptionError(path, None, f"{bookie_id!r:.60} is not a bookie id")
    storage: Any = _decode_choice(row, "storage", get_args(StorageKind), path)
    port, pid = _decode_number(row, "port", path), _decode_number(row, "pid", path)
    return BookieState(bookie_id, storage, port or 0, pid)


def _decode_text(fields: dict[str, Any], field: str, path: Path) -> str | None:
    value = fields.get(field)
    if value is not None and not isinstance(value, str):
        raise CorruptionError(path, None, f"{field} {value!r:.60} is not a string")
    return value


def _decode_number(row: dict[str, Any], field: str, path: Path) -> int | None:
    """Return a port or process id, or None; raises `CorruptionError` for anything else."""
    value, highest = row.get(field), 65535 if field == "port" else 2**31 - 1
    if value is not None and (type(value) is not int or not 0 <= value <= highest):
        raise CorruptionError(path, None, f"{field} {value!r:.60} is not a valid number")
    return value


def _decode_choice(row: dict[str, Any], field: str, choices: tuple[str, ...], path: Path) -> str:
    value = row.get(field)
    if value not in choices:
        allowed = ", ".join(choices)
        raise CorruptionError(path, None, f"{field} {value!r:.60} is not one of {allowed}")
    return str(value)
