"""Two documents of one experiment side by side: counts that differ, figures that moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tools.lab.document import Document
from tools.lab.experiment import Experiment, kinds
from tools.lab.table import shown

__all__ = ["differences"]

MOVED = 1.25
"""From this ratio on a measured figure is told, upwards or downwards."""

_SETTING = ("seed", "scale", "rounds", "python", "packages", "absent")


def differences(experiment: Experiment, new: Document, old: Document) -> list[str]:
    """Return lines: what was set otherwise, rows that only one has, and values that moved."""
    lines = [
        f"{name}: {old[name]} then, {new[name]} now" for name in _SETTING if old[name] != new[name]
    ]
    before, after = ({experiment.key(row): row for row in each["rows"]} for each in (old, new))
    lines += [f"{_named(key)}: only then" for key in before if key not in after]
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
        elif max(now / then, then / now) >= MOVED:
            yield f"{both}: {now / then:.2f}x"


def _number(value: Any) -> bool:
    """Return whether a ratio can be made of it."""
    return isinstance(value, int | float) and value > 0
