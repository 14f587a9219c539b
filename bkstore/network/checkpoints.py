"""Checkpoints of a bookie that serves, which is read-only after a failed one.

So with a full disk it goes on serving reads. Source: `bookie/SyncThread`, which stops the bookie.
"""

from __future__ import annotations

from collections.abc import Callable

from bkstore.errors import BkstoreError
from bkstore.storage.bookie import Bookie


class CheckpointRunner:
    """Makes a bookie's checkpoints; `problem` is why it must be read-only, None if it need not.

    A refused write (`WriteFailed`) changes nothing; the next successful checkpoint ends the
    problem. After a failed sync nothing is written until the bookie is reopened. Run by one thread.
    """

    def __init__(self, bookie: Bookie) -> None:
        self.problem: str | None = None
        self.failures = 0
        """Failed checkpoints."""
        self._bookie = bookie
        self.on_problem_changed: Callable[[], object] = bool  # does nothing
        """Called when a problem begins, and when it ends."""
        self._last_positions = self._journal_positions()

    def run_if_needed(self) -> None:
        """Make a checkpoint if entries were written since the last one, or if that failed."""
        positions = self._journal_positions()
        if positions == self._last_positions:
            return
        problem = None
        try:
            self._bookie.checkpoint()
            self._last_positions = positions
        except (BkstoreError, OSError) as error:
            problem = f"a checkpoint failed: {error}"
            self.failures += 1
        self._set_problem(problem)

    def _set_problem(self, problem: str | None) -> None:
        old_problem, self.problem = self.problem, problem
        if (old_problem is None) != (problem is None):
            self.on_problem_changed()

    def _journal_positions(self) -> list[object]:
        return [journal.position for journal in self._bookie.journals]
