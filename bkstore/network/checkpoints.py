"""Checkpoints of a bookie that serves: made now and then, and what becomes of it when one fails.

A full disk must not end a bookie that can still be read, nor let it take what it cannot keep: it
is read-only until a checkpoint succeeds again. Source: `bookie/SyncThread`, which ends the bookie.
"""

from __future__ import annotations

from collections.abc import Callable

from bkstore.errors import BkstoreError
from bkstore.storage.bookie import Bookie


class Checkpoints:
    """Makes a bookie's checkpoints; `problem` says why it must be read-only, None if it need not.

    After a write that was refused (`WriteFailed`) everything is as before it, and the next
    checkpoint that succeeds ends the problem. After a sync that failed nothing more is written:
    then the problem stays until the bookie is opened anew. Threads: one calls `run`.
    """

    def __init__(self, bookie: Bookie) -> None:
        self.problem: str | None = None
        self.failures = 0
        """Checkpoints that failed."""
        self._bookie = bookie
        self.changed: Callable[[], object] = bool
        """Called when the problem begins, and when it ends."""
        self._places = self._positions()

    def run(self) -> None:
        """Checkpoint if something was written since the last time, or if the last one failed."""
        places = self._positions()
        if places == self._places:
            return
        problem = None
        try:
            self._bookie.checkpoint()
            self._places = places
        except (BkstoreError, OSError) as error:
            problem = f"a checkpoint failed: {error}"
            self.failures += 1
        self._tell(problem)

    def _tell(self, problem: str | None) -> None:
        before, self.problem = self.problem, problem
        if (before is None) != (problem is None):
            self.changed()

    def _positions(self) -> list[object]:
        return [journal.position for journal in self._bookie.journals]
