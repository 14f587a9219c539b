"""A process that runs commands in forked children, one call of each made to fail.

It is started with the library of `failing_calls.c` loaded. Its first line of input has the
prefixes of each group of files; each line after that is a `Fault` with the command, answered by a
line with how the command ended.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import traceback
from contextlib import suppress
from typing import Any

__all__: list[str] = []

_SECONDS = 120
_CRASHED = 70


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    library.failing_calls_arm.argtypes = (ctypes.c_int, ctypes.c_long, ctypes.c_int, ctypes.c_int)
    library.failing_calls_counted.restype = ctypes.c_long
    library.failing_calls_failed.restype = ctypes.c_char_p
    return library


def _run(case: dict[str, Any], library: ctypes.CDLL) -> dict[str, Any]:
    """Be the child: run the command with its output in files; return how it ended."""
    from bkstore.cli.main import main

    signal.alarm(_SECONDS)
    for number, name in ((1, "stdout"), (2, "stderr")):
        fd = os.open(case[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(fd, number)
        os.close(fd)
    recorded = os.open(case["calls"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    library.failing_calls_record(-1 if case["number"] else recorded)
    library.failing_calls_arm(case["group"], case["number"], case["errno"], case["lasting"])
    try:
        code = main(case["argv"])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001  # the parent prints it
        traceback.print_exc()
        code = _CRASHED
    library.failing_calls_disarm()
    sys.stdout.flush()
    sys.stderr.flush()
    return {
        "code": code,
        "failed": os.fsdecode(library.failing_calls_failed()),
        "modules": [] if case["number"] else sorted(sys.modules),
    }


def serve() -> None:
    """Answer cases until standard input ends."""
    library = _library()
    for group, paths in enumerate(json.loads(sys.stdin.readline())):
        for path in paths:
            library.failing_calls_prefix(group, os.fsencode(path))
    for line in sys.stdin:
        ours, theirs = os.pipe()
        child = os.fork()
        if not child:
            os.close(ours)
            os.write(theirs, json.dumps(_run(json.loads(line), library)).encode())
            os._exit(0)
        os.close(theirs)
        with open(ours, "rb") as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        answer = json.loads(said) if said else {}
        _load(answer.pop("modules", []))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _load(modules: list[str]) -> None:
    """Load what a child has loaded, so that the next ones find it there."""
    new = [name for name in modules if name not in sys.modules]
    for name in new:
        with suppress(ImportError):
            importlib.import_module(name)
    if new:
        gc.freeze()


if __name__ == "__main__":
    serve()
