"""RocksDB and fork: a child of a process that had a database open may read, and not write.

RocksDB starts its background threads once a process, with the first database it opens, read-only
ones included, and keeps them when that is closed. A fork does not copy them: a child that writes
one row and closes waits for a flush that nobody does, for ever, and so does one that only ends.
Nothing starts them anew (tried: rocksdict 0.3.29, RocksDB 9.8.4), so writing is refused when it is
asked for, not when it hangs. Reading needs no such thread.

When a process ends, RocksDB waits for its threads; in the child their stacks may be another
thread's by then, and it crashes. So a child leaves that out: it ends behind Python's own clean-up.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from bkstore.errors import IllegalOperation

_opened = False
_lost = False


def note_opened() -> None:
    """Remember that RocksDB's threads run in this process, or will; before it opens anything."""
    global _opened
    _opened = True


def lost_threads() -> bool:
    """Return whether this process was forked from one whose RocksDB threads it has not."""
    return _lost


def check_may_write(path: Path) -> None:
    """Raise `IllegalOperation` where a database could be written, but never be closed."""
    if _lost:
        raise IllegalOperation(
            f"{path}: this process was forked from one that had opened a RocksDB database, so it "
            "lacks RocksDB's threads and cannot write one: start it by spawn or forkserver, or "
            "fork before the first database is opened"
        )


def _after_fork() -> None:
    global _lost
    if _opened and not _lost:
        _lost = True
        _end_without_rocksdb()


def _end_without_rocksdb() -> None:
    """Let `exit` end the process before it comes to what was there before the fork."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # glibc's, called with the exit status; not everywhere
        libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)


os.register_at_fork(after_in_child=_after_fork)
