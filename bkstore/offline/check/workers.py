"""Check logs one by one or in processes, with results in the order of the logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from bkstore.errors import BkstoreError
from bkstore.formats.entry import Coder
from bkstore.ids import Int64Array, LedgerId, LedgerKeys
from bkstore.index.api import EntryIndex, UnknownLedgers
from bkstore.offline.check.coverage import LogCoverage
from bkstore.offline.check.findings import CheckFinding
from bkstore.offline.check.ledger_states import ClientSecret
from bkstore.offline.check.log_check import IndexView, LogTask, check_log
from bkstore.offline.check.record_digests import RecordDigests
from bkstore.offline.worker_pool import TaskLost, TaskRunner, WorkerPool
from bkstore.storage.directories.layout import Layout
from bkstore.storage.read_only.bookie_dir import BookieDir

LogResult = tuple[list[CheckFinding], LogCoverage]


@dataclass(frozen=True)
class LogCheckContext:
    """What is needed to check any log of a bookie, in a form that can be pickled. `path`, `live`,
    `layout` and `root` are those of the directory, the others of `IndexView`."""

    path: Path
    live: bool
    layout: Layout
    root: Path | None
    rows_path: Path
    lowest_locations: Mapping[LedgerId, int] | None
    unknown_ledgers: tuple[UnknownLedgers, ...] = ()
    secret: ClientSecret | None = field(repr=False, default=None)
    only_ledgers: LedgerKeys | None = None
    live_ledgers: frozenset[LedgerId] = frozenset()
    replayed: Mapping[LedgerId, Int64Array] = field(default_factory=dict)

    def index_view(self, open_index: Callable[[], EntryIndex]) -> IndexView:
        """Return the view for a process whose function `open_index` opens the index."""
        digests = None if self.secret is None else RecordDigests(Coder(*self.secret))
        return IndexView(
            self.rows_path,
            open_index,
            self.lowest_locations,
            self.unknown_ledgers,
            digests,
            self.only_ledgers,
            self.live_ledgers,
            self.replayed,
        )

    def open_bookie(self) -> BookieDir:
        """Open the directory for reading, as other processes may do at the same time."""
        return BookieDir(self.path, live=self.live, layout=self.layout, root=self.root)


def check_logs(
    tasks: Sequence[LogTask],
    context: LogCheckContext,
    open_index: Callable[[], EntryIndex],
    jobs: int,
) -> Iterator[LogResult]:
    """Yield each log's findings and coverage, in the order of the tasks. With `jobs` above 1,
    processes check the logs and open the index; else this one does."""
    if min(jobs, len(tasks)) > 1:
        yield from _check_in_processes(tasks, context, min(jobs, len(tasks)))
        return
    view = context.index_view(open_index)
    for task in tasks:
        yield check_log(task, view)


def _check_in_processes(
    tasks: Sequence[LogTask], context: LogCheckContext, jobs: int
) -> Iterator[LogResult]:
    """Check the logs in processes; hold results back until it is their turn."""
    early_results: dict[int, LogResult] = {}
    next_index = 0
    pool = WorkerPool(jobs, partial(log_checker, context), "check")
    with closing(pool.run(enumerate(tasks))) as results:
        for (task_index, task), result in results:
            if isinstance(result, TaskLost):
                raise BkstoreError(f"{task.log.path}: not checked: {result.reason}")
            early_results[task_index] = result
            while next_index in early_results:
                yield early_results.pop(next_index)
                next_index += 1


@contextmanager
def log_checker(context: LogCheckContext) -> Iterator[TaskRunner[tuple[int, LogTask], LogResult]]:
    """Provide a worker's function for numbered tasks, which opens the index if it needs it. The
    function's second argument, for reports of progress, is not used."""
    with ExitStack() as stack:
        open_index = cache(lambda: stack.enter_context(context.open_bookie()).index)  # once
        view = context.index_view(open_index)

        def check(numbered_task: tuple[int, LogTask], _report: object) -> LogResult:
            _number, log_task = numbered_task
            return check_log(log_task, view)

        yield check
