"""The folder in which a load, or a rewrite, grows: ``DST.partial``, until one rename makes it DST.

Each run works in a folder of its own below; what an ended run left there is removed by the next.
So whatever ends a load (an error, a killed executor, a kill of the driver), nothing is under
its name that is not whole.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from bkstore.files.disk_changes import OS_FILES, Files
from bkstore.files.os_errors import writing
from bkstore.offline.partial_output import (
    discard_growing,
    locked,
    partial_path,
    publish,
)


class GrowingLoad:
    """A load's folder: a context manager that holds its lock; `DirectoryInUse` if it is taken.

    `data` is what becomes `out`, `work` is for pieces and scratch files. Leaving it removes
    both. `what` is what grows: one of another name is none of ours. `WriteFailed` where the system
    refuses.
    """

    def __init__(self, out: Path, files: Files = OS_FILES, what: str = "load") -> None:
        self._what = what
        self.out = Path(os.path.abspath(out))
        self.top = partial_path(out)
        run = self.top / f"run-{os.getpid()}-{os.urandom(4).hex()}"
        self.data, self.work = run / "data", run / "work"
        self._run = run
        self._files = files
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with writing(self.top):
            self._stack = locked(self.top, self._what, self._files)
            try:
                for path in self.top.glob("run-*"):
                    with suppress(OSError):  # executors of a killed run may still write
                        OS_FILES.remove_tree(path)
                self._files.makedirs(self.data)
                self._files.makedirs(self.work)
            except BaseException:
                self._remove()
                raise
        return self

    def finish(self) -> None:
        """Let `data` be the target, durably; after an error it is not."""
        publish(self.data, self.out, self._files)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        with self._stack:
            discard_growing(self.top, ["run-*"])
