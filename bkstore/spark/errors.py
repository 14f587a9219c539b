"""Spark's errors as ours, in one line.

What a Python worker raised comes back as text with two tracebacks; what the JVM raised has a
page of frames. Both keep what happened, and are the cause of what is raised instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from bkstore import errors
from bkstore.errors import BkstoreError, CorruptionError, WriteFailed

RAISED = "no row of an index: "
"""How the text begins that a query raises on a row that no index has."""

_OURS = re.compile(r"^(?:\S*\s)?bkstore\.errors\.(\w+): (.*)$", re.MULTILINE)
_RAISED = re.compile(re.escape(RAISED) + r".*")
_PYTHON = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception)(?:: .*)?)$", re.MULTILINE)
_CAUSE = re.compile(r"^(?:Caused by)?: (?:[\w.$]+: )?(.*)$", re.MULTILINE)


@contextmanager
def spark_errors(doing: str) -> Iterator[None]:
    """Raise `BkstoreError` (or what a task raised) instead of any error of Spark's."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _ours(str(error), doing) from error


def _ours(text: str, doing: str) -> BkstoreError:
    ours, raised = _OURS.search(text), _RAISED.search(text)
    if ours is not None:
        return _rebuilt(ours[1], ours[2])
    if raised is not None:
        return CorruptionError(None, None, raised[0].split(" SQLSTATE")[0])
    causes = _PYTHON.findall(text) if "Traceback (most recent" in text else _CAUSE.findall(text)
    line = causes[-1] if causes else next(iter(text.splitlines()), "no reason given")
    return BkstoreError(f"{doing} failed: {line.strip()}")


def _rebuilt(name: str, text: str) -> BkstoreError:
    kind = getattr(errors, name, BkstoreError)
    if issubclass(kind, CorruptionError):
        return CorruptionError(None, None, text)
    if issubclass(kind, WriteFailed):  # made of a file and the system's error
        return BkstoreError(text)
    made: BkstoreError = kind(text)
    return made
