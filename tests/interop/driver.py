"""The real BookKeeper in a JVM beside the tests: one call a line, one answer a line."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from pathlib import Path
from typing import IO, Any, Self

from tests.interop.class_path import java, tool

SECONDS = 120
"""After that a call counts as hung."""


class RealError(Exception):
    """What a call of the real system threw: its class, message, and a client's code."""

    def __init__(self, name: str, message: str, code: int | None) -> None:
        super().__init__(f"{name}: {message}" + ("" if code is None else f" ({code})"))
        self.name = name
        self.code = code


class RealBookKeeper:
    """A JVM with `Driver`: ``call("ledgers", name="b1")``. A context manager."""

    def __init__(self, classes: Path, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.log = folder / "jvm.log"
        self._errors = self.log.open("wb")
        self._process = subprocess.Popen(
            java(classes, "Driver"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=folder,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in: IO[str] = self._process.stdin
        self._out: IO[str] = self._process.stdout
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._out:
            self._lines.put(line)
        self._lines.put("")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the JVM, and whatever runs in it."""
        self._in.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._out.close()
        self._errors.close()

    def _threads(self) -> Path:
        """Write what all threads of the JVM do beside its log."""
        found = self.log.with_suffix(".threads")
        command = [str(tool("jstack")), "-l", str(self._process.pid)]
        with found.open("wb") as out:
            subprocess.run(command, stdout=out, stderr=out, timeout=30, check=False)
        return found

    def call(self, name: str, /, **arguments: Any) -> Any:
        """Return what a call answers; raise `RealError` for what it throws."""
        self._in.write(json.dumps({"call": name, **arguments}) + "\n")
        self._in.flush()
        try:
            line = self._lines.get(timeout=SECONDS)
        except queue.Empty:
            threads = self._threads()
            self._process.kill()
            text = f"{name}: no answer in {SECONDS} s; see {self.log}, and {threads}"
            raise TimeoutError(text) from None
        if not line:
            tail = self.log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{name}: the JVM has ended: {tail}")
        answer = json.loads(line)
        if "error" in answer:
            raise RealError(answer["error"], answer["message"], answer.get("code"))
        return answer["result"]
