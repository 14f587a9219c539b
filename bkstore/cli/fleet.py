"""Fleets: commands on the directories of many bookies, read side by side in processes.

Rows appear in the order of the arguments, whichever directory is read first. A bookie that cannot
be read is named and left out, with all of its rows; the others are not affected, but the exit code
is 2.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from bkstore.arguments import integer, optional
from bkstore.cli.terminal.exit_codes import FAILED
from bkstore.cli.terminal.parser import Parser
from bkstore.cli.terminal.shared_options import add_opening_options, report_findings
from bkstore.cli.terminal.standard_streams import print_stderr
from bkstore.errors import BkstoreError, InvalidArgument, SystemRefused
from bkstore.files.disk_changes import OS_FILES
from bkstore.files.scratch import scratch_directory
from bkstore.files.spill_files import append_spill, open_spill
from bkstore.offline.worker_pool import TaskLost, TaskRunner, WorkerPool
from bkstore.tables import Table

_Outcome = TypeVar("_Outcome")

ShowProgress = Callable[[str, int, int, int], None]
"""Called with a label, the work done, all work, and a count."""

ReadBookie = Callable[[Path, ShowProgress | None], Generator[Table, None, _Outcome]]
"""Reads one directory: yields its tables, and returns what else the command needs to know. For
several directories it is sent to processes, so it and the outcome must be picklable."""

_MIN_PARALLEL_BYTES = 64 << 20
"""From so many bytes in the directories on, processes are used: each takes half a second to
start."""


_JOBS_HELP = "processes that read several DIRs (default: one per CPU; one for few bytes)"


def add_directories(parser: Parser, jobs_help: str = _JOBS_HELP) -> None:
    """Add DIR..., the options for opening them, and --jobs with this help."""
    parser.add_argument(
        "directories",
        metavar="DIR",
        nargs="+",
        type=Path,
        help="a ledger directory, a folder of several, or a bk_server.conf; one per bookie",
    )
    add_opening_options(parser)
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=int,
        help=jobs_help,
    )


@dataclass(frozen=True)
class _SpilledRows:
    """The tables of one bookie, pickled one after the other in the file `path`."""

    path: Path
    sizes: list[int]
    outcome: Any

    def tables(self) -> Iterator[Table]:
        """Yield the tables, and remove the file."""
        offset = 0
        if self.sizes:
            with open_spill(self.path) as spill:
                for size in self.sizes:
                    yield pickle.loads(spill.read(offset, size))  # noqa: S301  # written below
                    offset += size
            OS_FILES.unlink(self.path)


@dataclass(frozen=True)
class _Failure:
    """Why a bookie could not be read. `concerns_all`: an argument is wrong, so that none can be."""

    reason: str
    concerns_all: bool = False


class Fleet(Generic[_Outcome]):
    """The directories of a command. Iterate `tables`, then look at `outcomes` and `exit_code`.

    With one directory its rows appear as they are read, and its error is raised. With several,
    `jobs` processes read them (None: one for each CPU, or this one if there are few bytes), and a
    bookie's rows wait in a scratch file until its turn, so that a bookie whose reading fails has no
    rows. Memory: a batch of rows a process.
    """

    def __init__(
        self, directories: Sequence[Path], read: ReadBookie[_Outcome], jobs: int | None = None
    ) -> None:
        self._directories = directories
        self._read = read
        self._jobs: int | None = optional(integer(1, 1 << 12))("jobs", jobs)
        self.outcomes: list[tuple[Path, _Outcome]] = []
        """The directories that were read, with the outcome of each."""
        self.failed: list[Path] = []
        """The directories that could not be read, of several."""

    @property
    def is_single(self) -> bool:
        """Whether there is one directory only."""
        return len(self._directories) == 1

    @property
    def current_directory(self) -> Path:
        """The directory of the table that `tables` has just yielded."""
        return self._directories[len(self.outcomes) + len(self.failed)]

    def tables(self, show_progress: ShowProgress | None = None) -> Iterator[Table]:
        """Yield the tables of each bookie, in order; print the reason for one that fails.

        Raises what reading the only directory raises; of several, `InvalidArgument` and
        `SystemRefused`, which concern all, and `BkstoreError` if none could be read.
        """
        if self.is_single:
            (directory,) = self._directories
            outcome = yield from self._read(directory, show_progress)
            self.outcomes.append((directory, outcome))
            return
        with closing(self._results()) as results:
            for number, (directory, result) in enumerate(zip(self._directories, results)):
                if show_progress is not None:
                    total = len(self._directories)
                    show_progress(str(directory), number, total, len(self.outcomes))
                if isinstance(result, _Failure):
                    self._leave_out(directory, result)
                else:
                    yield from result.tables()
                    self.outcomes.append((directory, result.outcome))
        if not self.outcomes:
            raise BkstoreError(f"none of the {len(self._directories)} directories could be read")

    def exit_code(self, code: int) -> int:
        """Return `code`, or 2 if a bookie was left out."""
        return FAILED if self.failed else code

    def report_findings(self, findings_of: Callable[[_Outcome], Iterable[Any]]) -> int:
        """Print the findings of each outcome to stderr, of several bookies with the directory;
        return 1 if there are any."""
        code = 0
        for directory, outcome in self.outcomes:
            prefix = "" if self.is_single else f"{directory}: "
            code |= report_findings(findings_of(outcome), prefix)
        return code

    def _leave_out(self, directory: Path, failure: _Failure) -> None:
        """Report a directory that could not be read, and go on with the others."""
        if failure.concerns_all:
            raise InvalidArgument(failure.reason)
        is_named = str(directory) in failure.reason
        reason = failure.reason if is_named else f"{directory}: {failure.reason}"
        print_stderr(f"bkstore: left out: {reason}")
        self.failed.append(directory)

    # -- reading

    def _results(self) -> Generator[_SpilledRows | _Failure]:
        """Yield the result of each directory, in order."""
        jobs = min(self._choose_jobs(), len(self._directories))
        if jobs > 1:
            yield from self._read_in_processes(jobs)
            return
        with scratch_directory("fleet") as scratch:
            for number, directory in enumerate(self._directories):
                yield _spill_rows(self._read, directory, scratch / f"{number}.rows")

    def _choose_jobs(self) -> int:
        """Return how many processes read: as given, else one per core if there is much to read."""
        if self._jobs is not None:
            return self._jobs
        has_much = _have_bytes(self._directories, _MIN_PARALLEL_BYTES)
        return (os.cpu_count() or 1) if has_much else 1

    def _read_in_processes(self, jobs: int) -> Generator[_SpilledRows | _Failure]:
        """Yield the results of processes, in the order of the directories."""
        # Results come in any order: each is kept by its number until those before it have come.
        early_results: dict[int, _SpilledRows | _Failure] = {}
        next_number = 0
        pool = WorkerPool(jobs, partial(_open_reader, self._read), "fleet")
        with closing(pool.run(enumerate(self._directories))) as results:
            for (number, _), result in results:
                if isinstance(result, TaskLost):
                    result = _Failure(result.reason)
                early_results[number] = result
                while next_number in early_results:
                    yield early_results.pop(next_number)
                    next_number += 1


@contextmanager
def _open_reader(
    read: ReadBookie[Any],
) -> Iterator[TaskRunner[tuple[int, Path], _SpilledRows | _Failure]]:
    """Provide the function that a worker process calls for each numbered directory. The pool sets
    the process's folder of temporary files, and removes it."""
    scratch = Path(tempfile.gettempdir())

    def read_and_spill(task: tuple[int, Path], _report: object) -> _SpilledRows | _Failure:
        number, directory = task
        return _spill_rows(read, directory, scratch / f"bookie-{number}.rows")

    yield read_and_spill


def _spill_rows(read: ReadBookie[Any], directory: Path, path: Path) -> _SpilledRows | _Failure:
    """Read one directory into the file `path`. Raises `SystemRefused`: what the machine lacks
    concerns the whole command, not this bookie."""
    sizes: list[int] = []
    try:
        with closing(read(directory, None)) as tables:
            while True:
                try:
                    table = next(tables)
                except StopIteration as end:  # its value is what `read` returns
                    return _SpilledRows(path, sizes, end.value)
                data = pickle.dumps(table, pickle.HIGHEST_PROTOCOL)
                append_spill(path, data, OS_FILES)
                sizes.append(len(data))
    except SystemRefused:
        raise
    except InvalidArgument as error:
        return _Failure(str(error), concerns_all=True)
    except BkstoreError as error:
        return _Failure(str(error))
    except MemoryError:
        return _Failure("memory ran out")


def _have_bytes(directories: Iterable[Path], limit: int) -> bool:
    """Return whether the files in the directories have `limit` bytes together; stops there. The
    files that a bk_server.conf names are not counted."""
    total = 0
    for directory in directories:
        for folder, _, file_names in os.walk(directory):
            for file_name in file_names:
                try:
                    total += os.lstat(os.path.join(folder, file_name)).st_size
                except OSError:  # reading it reports that
                    continue
                if total >= limit:
                    return True
    return False
