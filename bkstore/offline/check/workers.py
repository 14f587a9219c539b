"""Logs checked one after the other or in processes; the results come in the order of the logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from bkstore.errors import BkstoreError
from bkstore.formats.entry import Coder
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import EntryIndex
from bkstore.offline.check.coverage import LogCoverage
from bkstore.offline.check.findings import CheckFinding
from bkstore.offline.check.log_check import IndexView, LogTask, check_log
from bkstore.offline.check.record_digests import RecordDigests
from bkstore.offline.check.states import Secret
from bkstore.offline.worker_pool import TaskLost, TaskRunner, WorkerPool
from bkstore.storage.directories.layout import Layout
from bkstore.storage.read_only.bookie_dir import BookieDir

LogResult = tuple[list[CheckFinding], LogCoverage]


@dataclass(frozen=True)
class LogChecks:
    """What all logs of a bookie are held against, in a form that goes to another process.

    `path`, `live`, `layout` and `root` say how the directory was opened; the others are those of
    `IndexView`.
    """

    path: Path
    live: bool
    layout: Layout
    root: Path | None
    rows: Path
    known: Mapping[LedgerId, int] | None
    secret: Secret | None = field(repr=False, default=None)
    only: LedgerId | None = None
    live_ledgers: frozenset[LedgerId] = frozenset()
    replayed: Mapping[LedgerId, Int64Array] = field(default_factory=dict)

    def view(self, index: Callable[[], EntryIndex]) -> IndexView:
        """Return the view of a process that asks `index`."""
        digests = None if self.secret is None else RecordDigests(Coder(*self.secret))
        return IndexView(
            self.rows, index, self.known, digests, self.only, self.live_ledgers, self.replayed
        )

    def open(self) -> BookieDir:
        """Open the directory once more; others may have it open for reading too."""
        return BookieDir(self.path, live=self.live, layout=self.layout, root=self.root)


def check_logs(
    tasks: Sequence[LogTask], checks: LogChecks, index: Callable[[], EntryIndex], jobs: int
) -> Iterator[LogResult]:
    """Yield what each log's check found, in the order of the tasks.

    With `jobs` above 1 in so many processes; with 1 here, with `index`.
    """
    if min(jobs, len(tasks)) > 1:
        yield from _check_side_by_side(tasks, checks, min(jobs, len(tasks)))
        return
    view = checks.view(index)
    for task in tasks:
        yield check_log(task, view)


def _check_side_by_side(
    tasks: Sequence[LogTask], checks: LogChecks, jobs: int
) -> Iterator[LogResult]:
    """Yield the results in order; those that come before their turn wait."""
    waiting: dict[int, LogResult] = {}
    turn = 0
    pool = WorkerPool(jobs, partial(log_checker, checks), "check")
    with closing(pool.run(enumerate(tasks))) as results:
        for (number, task), result in results:
            if isinstance(result, TaskLost):
                raise BkstoreError(f"{task.log.path}: not checked: {result.reason}")
            waiting[number] = result
            while turn in waiting:
                yield waiting.pop(turn)
                turn += 1


@contextmanager
def log_checker(checks: LogChecks) -> Iterator[TaskRunner[tuple[int, LogTask], LogResult]]:
    """Give what checks a numbered log in a process of its own, which opens the index if needed."""
    with ExitStack() as stack:
        index = cache(lambda: stack.enter_context(checks.open()).index)
        view = checks.view(index)
        yield lambda numbered, _report: check_log(numbered[1], view)
