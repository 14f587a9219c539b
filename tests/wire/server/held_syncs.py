"""Files whose syncs can be held up: for tests of what is answered when."""

from __future__ import annotations

import threading

from bkstore.files.disk_changes import Files

__all__ = ["HeldSyncs"]


class HeldSyncs(Files):
    """Files whose syncs wait until `gate` is set."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()

    def fsync(self, fd: int) -> None:
        """Sync when that is let."""
        self.waiting.set()
        self.gate.wait(30)
        super().fsync(fd)
