"""Write the pieces of a dump, one after the other or in parallel processes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bkstore.errors import BkstoreError, DirectoryInUse, SystemRefused
from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.index.api import Finding
from bkstore.offline.dump.dump_piece import PieceResult, ReportRows, write_piece
from bkstore.offline.dump.incremental import source_digest
from bkstore.offline.dump.plan import DumpPiece, fingerprint
from bkstore.offline.worker_pool import TaskLost, TaskRunner, WorkerPool


@dataclass(frozen=True)
class PieceTask:
    """A piece, and its fingerprint when it was planned."""

    piece: DumpPiece
    fingerprint: str

    def __str__(self) -> str:
        return f"{self.piece} of {self.piece.bookie_id}"


@dataclass(frozen=True)
class UnreadablePiece:
    """The piece cannot be read, so its bookie is not dumped."""

    finding: Finding


PieceOutcome = PieceResult | UnreadablePiece | TaskLost
ReportTaskRows = Callable[[PieceTask, int], None]
"""Called with a task and the number of its rows so far."""


def run_tasks(
    tasks: Sequence[PieceTask],
    folder: Path,
    jobs: int,
    report: ReportTaskRows,
    is_wanted: Callable[[PieceTask], bool],
    files: Files = OS_FILES,
) -> Generator[tuple[PieceTask, PieceOutcome]]:
    """Yield each task with its outcome, as they end; skip tasks that are no longer wanted.

    `jobs` > 1 runs that many processes, heaviest tasks first; 1 runs in this process, through
    `files`. Raises `SystemRefused` if the machine lacks descriptors or memory.
    """
    if min(jobs, len(tasks)) > 1:
        heaviest_first = sorted(tasks, key=lambda task: -task.piece.weight)
        pool = WorkerPool(min(jobs, len(tasks)), partial(_piece_writer, folder), "dump")
        yield from pool.run(filter(is_wanted, heaviest_first), report)
        return
    for task in filter(is_wanted, tasks):
        yield task, _run_task(task, partial(report, task), folder, files)


@contextmanager
def _piece_writer(folder: Path) -> Iterator[TaskRunner[PieceTask, PieceOutcome]]:
    yield partial(_run_task, folder=folder, files=OS_FILES)


def _run_task(task: PieceTask, report: ReportRows, folder: Path, files: Files) -> PieceOutcome:
    """Write one piece; return its result, or why there is none: unreadable, or memory ran out."""
    piece = task.piece
    try:
        result = write_piece(piece, folder, report, files)
        if not piece.live:
            result.source_digest = source_digest(piece, result.log_ids)
    except SystemRefused:
        raise
    except BkstoreError as error:
        return UnreadablePiece(Finding.of(error))
    except MemoryError:
        return TaskLost("memory ran out")
    if not piece.live and fingerprint(piece) != task.fingerprint:
        advice = "stop the bookie, copy the directory, or read it live (live=True, --live)"
        changed = DirectoryInUse(f"{piece}: files changed while they were read: {advice}")
        return UnreadablePiece(Finding.of(changed))
    return result
