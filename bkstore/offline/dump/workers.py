"""Writing pieces one after the other, or in processes beside each other.

A worker is a `WorkerProcess` that takes pieces from a socket until that is closed. It ends when
the caller does, however that ends.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from bkstore.errors import BkstoreError, DirectoryInUse, SystemRefused
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.scratch import scratch_directory
from bkstore.index.api import Finding
from bkstore.offline.dump.piece import PieceDone, write_piece
from bkstore.offline.dump.plan import Piece, fingerprint
from bkstore.offline.worker_process import WorkerProcess


@dataclass(frozen=True)
class Task:
    """A piece, and the fingerprint that it had when it was planned."""

    piece: Piece
    key: str


@dataclass(frozen=True)
class Unread:
    """The piece cannot be read, and its bookie not as a whole."""

    finding: Finding


@dataclass(frozen=True)
class Lost:
    """Nothing is wrong with the bookie, but the piece was not made: a process ended, say."""

    reason: str


@dataclass(frozen=True)
class Refused:
    """The machine lacks something: the dump ends with this error."""

    error: SystemRefused


Outcome = PieceDone | Unread | Lost | Refused
Report = Callable[[Task, int], None]
"""Called with a task and how many rows it has so far."""


def run_tasks(
    tasks: Sequence[Task],
    folder: Path,
    jobs: int,
    report: Report,
    wanted: Callable[[Task], bool],
    files: Files = OS_FILES,
) -> Generator[tuple[Task, Outcome]]:
    """Yield each task with what came of it, as they end; those not `wanted` then are left out.

    With `jobs` above 1, in so many processes, heavy ones first; with 1 here, through `files`.
    """
    if min(jobs, len(tasks)) > 1:
        ordered = sorted(tasks, key=lambda task: -task.piece.weight)
        yield from _Workers(min(jobs, len(tasks)), folder).run(ordered, report, wanted)
        return
    for task in tasks:
        if wanted(task):
            yield task, _attempt(task, folder, lambda rows: report(task, rows), files)  # noqa: B023


def _attempt(task: Task, folder: Path, report: Callable[[int], None], files: Files) -> Outcome:
    piece = task.piece
    try:
        done = write_piece(piece, folder, report, files)
    except SystemRefused as error:
        return Refused(error)
    except BkstoreError as error:
        return Unread(Finding.of(error))
    except MemoryError:
        return Lost("memory ran out")
    if not piece.live and fingerprint(piece) != task.key:
        return Unread(Finding.of(_moved(piece)))
    return done


def _moved(piece: Piece) -> DirectoryInUse:
    return DirectoryInUse(
        f"{piece}: files changed while they were read: stop the bookie, copy the directory, or "
        "read it live (live=True, --live)"
    )


# -- processes


class _Worker(WorkerProcess):
    """A process that writes pieces; `task` is what it is at."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        # What a worker that is ended leaves there goes with the caller's.
        environment = {**os.environ, "TMPDIR": str(scratch)}
        super().__init__(__name__, str(folder), environment=environment)
        self.task: Task | None = None

    def give(self, task: Task) -> None:
        """Send it a task."""
        self.task = task
        self.send(task)


class _Workers:
    """Some workers, each at one task."""

    def __init__(self, count: int, folder: Path) -> None:
        self._count = count
        self._folder = folder
        self._workers: list[_Worker] = []

    def run(
        self, tasks: Sequence[Task], report: Report, wanted: Callable[[Task], bool]
    ) -> Iterator[tuple[Task, Outcome]]:
        """Yield each task with what came of it; a worker that ended is replaced."""
        left = list(reversed(tasks))
        with scratch_directory("dump") as self._scratch, closing(self):
            while True:
                busy = [worker for worker in self._workers if worker.task is not None]
                while left and len(busy) < self._count:
                    task = left.pop()
                    if wanted(task):
                        worker = self._idle()
                        worker.give(task)
                        busy.append(worker)
                if not busy:
                    return
                ready = wait([worker.pipe for worker in busy])
                for worker in busy:
                    if worker.pipe in ready:
                        yield from self._heard(worker, report)

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.stop()

    def _idle(self) -> _Worker:
        for worker in self._workers:
            if worker.task is None:
                return worker
        self._workers.append(_Worker(self._folder, self._scratch))
        return self._workers[-1]

    def _heard(self, worker: _Worker, report: Report) -> Iterator[tuple[Task, Outcome]]:
        task = worker.task
        assert task is not None
        try:
            said: Any = worker.pipe.recv()
        except (EOFError, OSError):
            self._workers.remove(worker)
            reason = worker.describe_end()
            worker.stop()
            yield task, Lost(reason)
            return
        if isinstance(said, int):
            report(task, said)
        elif isinstance(said, str):
            raise RuntimeError(f"while {task.piece} of {task.piece.bookie} was read:\n{said}")
        else:
            worker.task = None
            yield task, said


def work(fd: int, folder: str) -> None:
    """Be a worker: take tasks from the socket `fd` until it is closed, then end.

    Sends row counts while it is at a task, then its outcome; a text where an error escaped.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller decides what an interrupt ends
    pipe = Connection(fd)
    tasks: SimpleQueue[Task] = SimpleQueue()

    def listen() -> None:
        try:
            while True:
                tasks.put(pipe.recv())
        except (EOFError, OSError):
            os._exit(1)  # nobody is there to take what is being made

    threading.Thread(target=listen, daemon=True).start()

    def send(said: Outcome | str | int) -> None:
        try:
            pipe.send(said)
        except OSError:
            os._exit(1)

    while True:
        task = tasks.get()
        said: Outcome | str
        try:
            said = _attempt(task, Path(folder), send, OS_FILES)
        except Exception:  # noqa: BLE001  # the caller raises it again
            said = traceback.format_exc()
        send(said)
