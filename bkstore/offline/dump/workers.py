"""Writing the pieces of a dump, one after the other or in processes side by side."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bkstore.errors import BkstoreError, DirectoryInUse, SystemRefused
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.index.api import Finding
from bkstore.offline.dump.piece import PieceDone, write_piece
from bkstore.offline.dump.plan import Piece, fingerprint
from bkstore.offline.worker_pool import TaskLost, TaskRunner, WorkerPool


@dataclass(frozen=True)
class Task:
    """A piece, and the fingerprint that it had when it was planned."""

    piece: Piece
    key: str

    def __str__(self) -> str:
        return f"{self.piece} of {self.piece.bookie}"


@dataclass(frozen=True)
class Unread:
    """The piece cannot be read, and its bookie not as a whole."""

    finding: Finding


Outcome = PieceDone | Unread | TaskLost
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
    """Yield each task with its outcome, as they end; those not `wanted` then are left out.

    With `jobs` above 1, in so many processes, heavy ones first; with 1 here, through `files`.
    Raises `SystemRefused` where the machine lacks something.
    """
    if min(jobs, len(tasks)) > 1:
        ordered = sorted(tasks, key=lambda task: -task.piece.weight)
        pool = WorkerPool(min(jobs, len(tasks)), partial(_piece_writer, folder), "dump")
        yield from pool.run(filter(wanted, ordered), report)
        return
    for task in filter(wanted, tasks):
        yield task, _write(task, partial(report, task), folder, files)


@contextmanager
def _piece_writer(folder: Path) -> Iterator[TaskRunner[Task, Outcome]]:
    yield partial(_write, folder=folder, files=OS_FILES)


def _write(task: Task, report: Callable[[int], None], folder: Path, files: Files) -> Outcome:
    piece = task.piece
    try:
        done = write_piece(piece, folder, report, files)
    except SystemRefused:
        raise
    except BkstoreError as error:
        return Unread(Finding.of(error))
    except MemoryError:
        return TaskLost("memory ran out")
    if not piece.live and fingerprint(piece) != task.key:
        return Unread(Finding.of(_moved(piece)))
    return done


def _moved(piece: Piece) -> DirectoryInUse:
    return DirectoryInUse(
        f"{piece}: files changed while they were read: stop the bookie, copy the directory, or "
        "read it live (live=True, --live)"
    )
