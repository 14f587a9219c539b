"""Spark's errors converted to `BkstoreError`, in one line.

The error has the line that says what happened, out of two tracebacks, and Spark's as its cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from bkstore import errors
from bkstore.errors import BkstoreError, CorruptionError, WriteFailed

INVALID_ROW_PREFIX = "not a row of an index: "
"""Start of the message that a query raises for a row that cannot be in an index."""

_TASK_ERROR_PATTERN = re.compile(r"^(?:\S*\s)?bkstore\.errors\.(\w+): (.*)$", re.MULTILINE)
_QUERY_ERROR_PATTERN = re.compile(re.escape(INVALID_ROW_PREFIX) + r".*")
_PYTHON_ERROR_PATTERN = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception)(?:: .*)?)$", re.MULTILINE)
_JAVA_CAUSE_PATTERN = re.compile(r"^(?:Caused by)?: (?:[\w.$]+: )?(.*)$", re.MULTILINE)


@contextmanager
def convert_spark_errors(operation: str) -> Iterator[None]:
    """Convert errors of Spark to `BkstoreError`, or to the bkstore error that a task raised."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _convert_error(str(error), operation) from error


def _convert_error(text: str, operation: str) -> BkstoreError:
    """Return the error for the text of an error of Spark's. It is the one that a task raised, or
    that a query raised for an invalid row; else one that has the line of the last cause."""
    task_error, query_error = _TASK_ERROR_PATTERN.search(text), _QUERY_ERROR_PATTERN.search(text)
    if task_error is not None:
        class_name, message = task_error.groups()
        return _recreate_error(class_name, message)
    if query_error is not None:
        # Spark appends the error's SQLSTATE, a code, to the message.
        return CorruptionError(None, None, query_error[0].split(" SQLSTATE")[0])
    is_python_error = "Traceback (most recent" in text
    causes = (_PYTHON_ERROR_PATTERN if is_python_error else _JAVA_CAUSE_PATTERN).findall(text)
    line = causes[-1] if causes else next(iter(text.splitlines()), "no reason given")
    return BkstoreError(f"{operation} failed: {line.strip()}")


def _recreate_error(class_name: str, message: str) -> BkstoreError:
    """Return an error of the named class, or `BkstoreError` if it cannot be made from a text."""
    error_class = getattr(errors, class_name, BkstoreError)
    if issubclass(error_class, CorruptionError):
        return CorruptionError(None, None, message)
    if issubclass(error_class, WriteFailed):  # made of a file and the system's error
        return BkstoreError(message)
    error: BkstoreError = error_class(message)
    return error
