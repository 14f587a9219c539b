"""A progress bar on stderr, shown only on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bkstore.counts import format_count
from bkstore.tables.safe_text import escape_unprintable

_STYLES = dict.fromkeys(("progress.percentage", "progress.elapsed", "progress.remaining"), "none")
"""rich's default colors of these, such as yellow, are unreadable on a light background."""


@contextmanager
def work_progress(
    noun: str, plural: str | None = None
) -> Iterator[Callable[[str, int, int, int], None] | None]:
    """Yield a function (label, done, total, count) that updates a progress bar on stderr, or None
    if that is not a terminal that can show one. The count is of `noun`, such as row; its plural is
    `plural`, or has an s."""
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
        TextColumn("{task.fields[counted]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True, theme=Theme(_STYLES))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, counted="")

        def show(label: str, done: int, total: int, count: int) -> None:
            text = escape_unprintable(label)
            counted = format_count(count, noun, plural, grouped=True)
            bar.update(task, description=text, completed=done, total=total, counted=counted)

        yield show
