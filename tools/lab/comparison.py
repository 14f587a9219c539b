"""Two documents of one experiment side by side: counts that differ, figures that moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tools.lab.document import Document
from tools.lab.experiment import Experiment, kinds
from tools.lab.table import shown

_MOVED = 1.25
"""From this ratio on a measured figure is told, upwards or downwards."""

_SETTING = ("seed", "scale", "rounds", "data", "dump", "trace", "python", "absent")
_MACHINE = ("system", "architecture", "processor", "cores", "memory_bytes")


def differences(experiment: Experiment, new: Document, old: Document) -> list[str]:
    """Return lines: what was set otherwise, rows that only one has, and values that moved."""
    before, after = _setting(old), _setting(new)
    lines = [
        f"{name}: {_told(before.get(name))} then, {_told(after.get(name))} now"
        for name in before | after
        if before.get(name) != after.get(name)
    ]
    return lines + _rows_that_differ(experiment, new, old)


def _setting(document: Document) -> dict[str, Any]:
    """Return what was set: by the command, by the data, by the machine and what is installed."""
    return {
        **{name: document.get(name) for name in _SETTING},
        **{name: document["machine"].get(name) for name in _MACHINE},
        **document["packages"],
    }


def _told(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return "none" if value is None else str(value)


def _rows_that_differ(experiment: Experiment, new: Document, old: Document) -> list[str]:
    before, after = ({experiment.key(row): row for row in each["rows"]} for each in (old, new))
    lines = [f"{_named(key)}: only then" for key in before if key not in after]
    lines += [f"{_named(key)}: only now" for key in after if key not in before]
    for key in after:
        if key in before:
            moved = _moved(experiment, before[key], after[key])
            lines += [f"{_named(key)}: {line}" for line in moved]
    return lines


def _named(key: tuple[Any, ...]) -> str:
    return ", ".join(map(shown, key))


def _moved(experiment: Experiment, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for column in kinds(experiment.columns, "count", "measured"):
        then, now = old.get(column.name), new[column.name]
        if then == now:
            continue
        both = f"{column.title} {shown(then) or 'absent'} then, {shown(now) or 'absent'} now"
        if column.kind == "count" or not _number(then) or not _number(now):
            yield both
        elif max(now / then, then / now) >= _MOVED:
            yield f"{both}: {now / then:.2f}x"


def _number(value: Any) -> bool:
    """Return whether a ratio can be made of it."""
    return isinstance(value, int | float) and value > 0
