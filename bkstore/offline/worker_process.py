"""WorkerProcess: a fresh interpreter that takes tasks from a socket.

Not a fork: RocksDB and Arrow have threads that none survives, and a caller's main module is none
of a worker's business. It ends when the caller does, as its socket is closed then.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Pipe

from bkstore.errors import SystemRefused


class WorkerProcess:
    """A process that runs `work(fd, *arguments)` of a module, and `pipe`, the other end of `fd`.

    `environment` is the process's, None the caller's own.
    """

    def __init__(
        self, module: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> None:
        with _starting():
            self.pipe, theirs = Pipe()
        given = "".join(f", {argument!r}" for argument in arguments)
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; from {module} import work; "
            f"work({theirs.fileno()}{given})"
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
                    env=environment,
                )
        except BaseException:
            self.pipe.close()
            raise
        finally:
            theirs.close()

    def send(self, task: object) -> None:
        """Send it a task."""
        with suppress(OSError):  # it is gone, which reading from it will tell
            self.pipe.send(task)

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
