"""Logs checked beside each other, in processes; what they find comes in the order of the logs.

A worker is a `WorkerProcess`; it opens the index by itself where it has to look entries up.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

from bkstore.errors import BkstoreError, SystemRefused
from bkstore.formats.entry import Coder
from bkstore.ids import Int64Array, LedgerId
from bkstore.index.api import EntryIndex
from bkstore.offline.check.coverage import LogCoverage
from bkstore.offline.check.findings import CheckFinding
from bkstore.offline.check.log_check import IndexView, LogTask, check_log
from bkstore.offline.check.record_digests import RecordDigests
from bkstore.offline.check.states import Secret
from bkstore.offline.worker_process import WorkerProcess
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
        yield from _side_by_side(tasks, checks, min(jobs, len(tasks)))
        return
    view = checks.view(index)
    for task in tasks:
        yield check_log(task, view)


# -- processes


class _Worker(WorkerProcess):
    """A process that checks logs; `at` is the number of the task that it is at."""

    def __init__(self, checks: LogChecks) -> None:
        super().__init__(__name__)
        self.at: int | None = None
        self.send(checks)

    def give(self, at: int, task: LogTask) -> None:
        """Send it a task."""
        self.at = at
        self.send(task)


def _side_by_side(tasks: Sequence[LogTask], checks: LogChecks, jobs: int) -> Iterator[LogResult]:
    """Yield the results in order; those that come before their turn wait."""
    waiting: dict[int, LogResult] = {}
    given = turn = 0
    with ExitStack() as stack:
        workers = [_started(checks, stack) for _ in range(jobs)]
        while turn < len(tasks):
            for worker in workers:
                if worker.at is None and given < len(tasks):
                    worker.give(given, tasks[given])
                    given += 1
            busy = {worker.pipe: worker for worker in workers if worker.at is not None}
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                at, worker.at = worker.at or 0, None
                waiting[at] = _result_of(worker, tasks[at])
            while turn in waiting:
                yield waiting.pop(turn)
                turn += 1


def _started(checks: LogChecks, stack: ExitStack) -> _Worker:
    worker = _Worker(checks)
    stack.callback(worker.stop)
    return worker


def _result_of(worker: _Worker, task: LogTask) -> LogResult:
    """Return a worker's result; raise the error that it met, or that it ended."""
    try:
        said = worker.pipe.recv()
    except (EOFError, OSError):
        detail = f"not checked: {worker.describe_end()}"
        raise BkstoreError(f"{task.log.path}: {detail}") from None
    if isinstance(said, SystemRefused):
        raise said
    if isinstance(said, str):
        raise RuntimeError(f"while a log was checked:\n{said}")
    result: LogResult = said
    return result


def work(fd: int) -> None:
    """Be a worker: take what to check against, then logs, from the socket `fd` until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller decides what an interrupt ends
    pipe = Connection(fd)
    with suppress(EOFError, OSError), ExitStack() as stack:
        checks: LogChecks = pipe.recv()
        opened: list[BookieDir] = []

        def index() -> EntryIndex:
            if not opened:
                opened.append(stack.enter_context(checks.open()))
            return opened[0].index

        view = checks.view(index)
        while True:
            task = pipe.recv()
            try:
                said: LogResult | SystemRefused | str = check_log(task, view)
            except SystemRefused as error:
                said = error
            except Exception:  # noqa: BLE001  # the caller raises it again
                import traceback

                said = traceback.format_exc()
            pipe.send(said)
