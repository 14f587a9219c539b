"""WorkerPool: processes that run tasks in parallel, each a fresh interpreter.

Workers are not forked: RocksDB and Arrow have threads that do not survive a fork. A worker reads
tasks from a socket and exits when it is closed, so it ends with the caller, however that ends.
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
"""Runs a task; called with the task and a function that reports the number of rows so far."""


@dataclass(frozen=True)
class TaskLost:
    """A task was not done although its input may be sound; its process ended, for example."""

    reason: str


class WorkerPool(Generic[_Task, _Result]):
    """At most `max_workers` processes for tasks; each is started when there is a task for it.

    Each process calls `open_runner`, which is sent by pickle, and enters the context manager that
    it returns, which gives the runner of all its tasks. `purpose` names the scratch directory of
    the workers' temporary files; it is removed at the end with anything that a killed worker left.
    """

    def __init__(
        self,
        max_workers: int,
        open_runner: Callable[[], AbstractContextManager[TaskRunner[_Task, _Result]]],
        purpose: str,
    ) -> None:
        self._max_workers = max_workers
        self._open_runner = open_runner
        self._purpose = purpose
        self._workers: list[_Worker] = []

    def run(
        self, tasks: Iterable[_Task], report: Callable[[_Task, int], None] | None = None
    ) -> Generator[tuple[_Task, _Result | TaskLost]]:
        """Yield each task with its result, as they end; a worker that ended is replaced.

        A task is taken from `tasks` when a worker is free. Raises a worker's `SystemRefused`, and
        `RuntimeError` with the traceback for other errors. Closing the generator ends all workers.
        """
        task_iterator = iter(tasks)
        with scratch_directory(self._purpose) as self._scratch, closing(self):
            while busy := self._give_tasks(task_iterator):
                ready = wait([worker.pipe for worker in busy])
                for worker in busy:
                    if worker.pipe in ready:
                        yield from self._receive(worker, report)

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.stop()

    def _give_tasks(self, tasks: Iterator[_Task]) -> list[_Worker]:
        """Send tasks to free workers; return the workers that have one."""
        busy = [worker for worker in self._workers if worker.task is not None]
        while len(busy) < self._max_workers and (task := next(tasks, None)) is not None:
            worker = self._find_or_start_worker()
            worker.task = task
            worker.send(task)
            busy.append(worker)
        return busy

    def _find_or_start_worker(self) -> _Worker:
        """Return a worker without a task, a new one if all have one."""
        for worker in self._workers:
            if worker.task is None:
                return worker
        worker = _Worker(self._scratch)
        self._workers.append(worker)
        worker.send(self._open_runner)  # before any task, as `run_worker` expects it
        return worker

    def _receive(
        self, worker: _Worker, report: Callable[[_Task, int], None] | None
    ) -> Iterator[tuple[_Task, _Result | TaskLost]]:
        """Receive a message from a worker; yield its task if it is done or lost."""
        task: Any = worker.task
        try:
            # What `run_task` returned, or ("rows", the number of rows so far).
            message_kind, value = worker.pipe.recv()
        except (EOFError, OSError):  # the process has ended
            self._workers.remove(worker)
            reason = worker.describe_end()
            worker.stop()
            yield task, TaskLost(reason)
            return
        if message_kind == "refused":
            raise value
        if message_kind == "failed":
            raise RuntimeError(f"a worker process failed at {task}:\n{value}")
        if message_kind == "result":
            worker.task = None
            yield task, value
        elif report is not None:
            report(task, value)


class _Worker:
    """A process that runs `run_worker(fd)`, with its current task; `pipe` is `fd`'s other end."""

    def __init__(self, scratch: Path) -> None:
        self.task: Any = None
        with _raise_system_refused():
            self.pipe, worker_end = Pipe()
        program = (
            f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import run_worker; "
            f"run_worker({worker_end.fileno()})"
        )
        try:
            with _raise_system_refused():
                self.process = subprocess.Popen(  # noqa: S603  # our own interpreter
                    [sys.executable, "-c", program],
                    pass_fds=[worker_end.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    # An interrupt at the terminal goes to the caller alone, which ends its
                    # workers; a worker that is still importing would print a traceback.
                    process_group=0,
                    env={**os.environ, "TMPDIR": str(scratch)},
                )
        except BaseException:
            self.pipe.close()
            raise
        finally:
            worker_end.close()

    def send(self, message: object) -> None:
        with suppress(OSError):  # it has ended; the next read from it shows that
            self.pipe.send(message)

    def describe_end(self) -> str:
        """Wait until the process ends, and return in words how it ended."""
        exit_code = self.process.wait()
        if exit_code < 0:
            return f"the process that read it was ended by {signal.Signals(-exit_code).name}"
        return f"the process that read it ended with code {exit_code}"

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.pipe.close()


@contextmanager
def _raise_system_refused() -> Iterator[None]:
    """Raise `SystemRefused` if the machine has no descriptors or memory for one more."""
    try:
        yield
    except OSError as error:
        raise SystemRefused("a worker process", error) from error


# -- in the worker


def run_worker(fd: int) -> None:
    """Open the runner received on the socket `fd`, then run tasks from it; never return."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller decides what an interrupt ends
    pipe = Connection(fd)
    received: SimpleQueue[Any] = SimpleQueue()

    def listen() -> None:
        """Put what the caller sends into `received`; end the process when the caller is gone."""
        try:
            while True:
                received.put(pipe.recv())
        except (EOFError, OSError):
            os._exit(1)  # nobody is left to receive the result

    def send(message: tuple[str, Any]) -> None:
        try:
            pipe.send(message)
        except OSError:
            os._exit(1)

    # A thread listens, so that a worker ends at once when its caller does, also during a task.
    threading.Thread(target=listen, daemon=True).start()
    open_runner = received.get()
    with open_runner() as runner:
        while True:
            send(run_task(runner, received.get(), lambda rows: send(("rows", rows))))


def run_task(
    runner: TaskRunner[Any, Any], task: object, report: Callable[[int], None]
) -> tuple[str, Any]:
    """Run a task; return ("result", it), ("refused", error) or ("failed", traceback)."""
    try:
        return "result", runner(task, report)
    except SystemRefused as error:
        return "refused", error
    except Exception:  # noqa: BLE001  # the caller raises it again
        return "failed", traceback.format_exc()
