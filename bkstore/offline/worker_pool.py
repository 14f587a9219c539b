"""WorkerPool: processes that do tasks side by side, each a fresh interpreter.

Not a fork: RocksDB and Arrow have threads that do not survive one, and a worker has no use for
the caller's main module. A worker takes tasks from a socket and ends when that is closed, so that
it ends with the caller, however the caller ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from bkstore.errors import SystemRefused
from bkstore.files.scratch import scratch_directory

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

TaskRunner = Callable[[_Task, Callable[[int], None]], _Result]
"""Does a task; it is called with the task and with what reports how many rows it has so far."""


@dataclass(frozen=True)
class TaskLost:
    """A task was not done, though nothing is wrong with what it reads: its process ended, say."""

    reason: str


class WorkerPool(Generic[_Task, _Result]):
    """At most `count` processes for tasks; each is started when there is a task for it.

    Each process calls `opening`, which goes there by pickle, and enters the context manager that
    it returns: that gives the runner for all its tasks. `purpose` names the scratch directory in
    which workers have their temporary files: what a killed worker leaves there goes with it.
    """

    def __init__(
        self,
        count: int,
        opening: Callable[[], AbstractContextManager[TaskRunner[_Task, _Result]]],
        purpose: str,
    ) -> None:
        self._count = count
        self._opening = opening
        self._purpose = purpose
        self._workers: list[_Worker] = []

    def run(
        self, tasks: Iterable[_Task], report: Callable[[_Task, int], None] | None = None
    ) -> Generator[tuple[_Task, _Result | TaskLost]]:
        """Yield each task with its result, as they end; a worker that ended is replaced.

        A task is taken from `tasks` when a worker is free for it. Raises the `SystemRefused` that a
        worker met, and `RuntimeError` with its traceback for other errors. Closing the generator
        ends all workers.
        """
        waiting = iter(tasks)
        with scratch_directory(self._purpose) as self._scratch, closing(self):
            while busy := self._give(waiting):
                ready = wait([worker.pipe for worker in busy])
                for worker in busy:
                    if worker.pipe in ready:
                        yield from self._receive(worker, report)

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.stop()

    def _give(self, waiting: Iterator[_Task]) -> list[_Worker]:
        """Give tasks to free workers; return the workers that are at one."""
        busy = [worker for worker in self._workers if worker.task is not None]
        while len(busy) < self._count and (task := next(waiting, None)) is not None:
            worker = self._free_worker()
            worker.task = task
            worker.send(task)
            busy.append(worker)
        return busy

    def _free_worker(self) -> _Worker:
        for worker in self._workers:
            if worker.task is None:
                return worker
        self._workers.append(_Worker(self._scratch))
        self._workers[-1].send(self._opening)
        return self._workers[-1]

    def _receive(
        self, worker: _Worker, report: Callable[[_Task, int], None] | None
    ) -> Iterator[tuple[_Task, _Result | TaskLost]]:
        """Take a message of a worker; yield its task, if it is over."""
        task: Any = worker.task
        try:
            kind, value = worker.pipe.recv()
        except (EOFError, OSError):
            self._workers.remove(worker)
            reason = worker.describe_end()
            worker.stop()
            yield task, TaskLost(reason)
            return
        if kind == "refused":
            raise value
        if kind == "failed":
            raise RuntimeError(f"a worker process failed at {task}:\n{value}")
        if kind == "result":
            worker.task = None
            yield task, value
        elif report is not None:
            report(task, value)


class _Worker:
    """A process that runs `work(fd)`; `pipe` is the other end of `fd`, `task` what it is at."""

    def __init__(self, scratch: Path) -> None:
        self.task: Any = None
        with _starting():
            self.pipe, theirs = Pipe()
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import work; "
            f"work({theirs.fileno()})"
        )
        try:
            with _starting():
                self.process = subprocess.Popen(  # noqa: S603  # our own interpreter
                    [sys.executable, "-c", code],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    # An interrupt at the terminal is for the caller alone, which ends its
                    # workers; one that is still importing would show where.
                    process_group=0,
                    env={**os.environ, "TMPDIR": str(scratch)},
                )
        except BaseException:
            self.pipe.close()
            raise
        finally:
            theirs.close()

    def send(self, message: object) -> None:
        """Send it how to open its runner, or a task."""
        with suppress(OSError):  # it is gone, as reading from it will show
            self.pipe.send(message)

    def describe_end(self) -> str:
        """Return in words how the process ended, once it has."""
        code = self.process.wait()
        if code < 0:
            return f"the process that read it was ended by {signal.Signals(-code).name}"
        return f"the process that read it ended with code {code}"

    def stop(self) -> None:
        """End it and wait for that."""
        self.process.kill()
        self.process.wait()
        self.pipe.close()


@contextmanager
def _starting() -> Iterator[None]:
    """Raise `SystemRefused` where the machine has no descriptors or memory for one more."""
    try:
        yield
    except OSError as error:
        raise SystemRefused("a worker process", error) from error


# -- in the worker


def work(fd: int) -> None:
    """Be a worker: take how to open the runner, then tasks, from the socket `fd`; never return."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller decides what an interrupt ends
    pipe = Connection(fd)
    received: SimpleQueue[Any] = SimpleQueue()

    def listen() -> None:
        try:
            while True:
                received.put(pipe.recv())
        except (EOFError, OSError):
            os._exit(1)  # nobody is there to take what is being made

    def send(message: tuple[str, Any]) -> None:
        try:
            pipe.send(message)
        except OSError:
            os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
    opening = received.get()
    with opening() as runner:
        while True:
            send(attempt(runner, received.get(), lambda rows: send(("rows", rows))))


def attempt(
    runner: TaskRunner[Any, Any], task: object, report: Callable[[int], None]
) -> tuple[str, Any]:
    """Do a task; return the message about it: its result, or the error that the caller raises."""
    try:
        return "result", runner(task, report)
    except SystemRefused as error:
        return "refused", error
    except Exception:  # noqa: BLE001  # the caller raises it again
        return "failed", traceback.format_exc()
