"""A progress bar on stderr, shown only on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bkstore.tables.safe_text import escape_unprintable

_STYLES = dict.fromkeys(("progress.percentage", "progress.elapsed", "progress.remaining"), "none")
"""rich's default colors of these, such as yellow, are unreadable on a light background."""


@contextmanager
def work_progress(what: str) -> Iterator[Callable[[str, int, int, int], None] | None]:
    """Yield a function (label, done, total, count of `what`) that updates a progress bar on stderr,
    or None if that is not a terminal that can show one."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":  # which cannot move back
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.theme import Theme

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[count]:,} " + what),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True, theme=Theme(_STYLES))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, count=0)

        def show(label: str, done: int, total: int, count: int) -> None:
            text = escape_unprintable(label)
            bar.update(task, description=text, completed=done, total=total, count=count)

        yield show
