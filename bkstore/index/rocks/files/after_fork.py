"""RocksDB and fork: a child of a process that had a database open may read, but not write. RocksDB
starts its background threads once per process, with the first database it opens, even read-only,
and keeps them. A fork does not copy them: a child that writes one row and closes waits forever for
a flush, and so does one that only exits. Nothing restarts them (tried: rocksdict 0.3.29, RocksDB
9.8.4), so opening for writing is refused. Reading does not need the threads.

When a process exits, RocksDB waits for its threads; in the child their stacks may belong to other
threads by then, and it crashes. So a child exits right after Python's clean-up.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from bkstore.errors import IllegalOperation

_threads_started = False
_threads_lost = False


def note_opened() -> None:
    """Record that RocksDB's threads are about to run in this process; call before each opening."""
    global _threads_started
    _threads_started = True


def has_lost_threads() -> bool:
    """Return whether this process was forked from one with RocksDB threads, which it lacks."""
    return _threads_lost


def check_may_write(path: Path) -> None:
    """Raise `IllegalOperation` if this process lacks RocksDB's background threads, as the child of
    a process with an open database does after a fork. Closing a database would hang in it."""
    if _threads_lost:
        raise IllegalOperation(
            f"{path}: this process was forked from one that had opened a RocksDB database, so it "
            "lacks RocksDB's threads and cannot write a database: use spawn or forkserver, or "
            "fork before opening the first database"
        )


def _after_fork() -> None:
    """Note in a child that RocksDB's threads are gone, so that it ends without their cleanup."""
    global _threads_lost
    if _threads_started and not _threads_lost:
        _threads_lost = True
        _exit_before_rocksdb_cleanup()


def _exit_before_rocksdb_cleanup() -> None:
    """Make `exit` end the process before it runs the exit handlers of before the fork."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # glibc's, called with the exit status; not everywhere
        libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)


os.register_at_fork(after_in_child=_after_fork)
